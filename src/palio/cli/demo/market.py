"""The demo's market: a few prices that walk at random, the same for the same seed."""

from __future__ import annotations

import math
import random
from typing import Any, Final, TypeAlias

__all__ = ["FIRST_PRICE", "SYMBOLS", "Market", "Quote"]

SYMBOLS: Final = ("IBM", "MSFT", "NVDA", "SAP", "BMW", "SIE")

FIRST_PRICE: Final = 100.0

_STEP: Final = 0.008
"""Standard deviation of one step of a price's logarithm."""

_PULL: Final = 0.02
"""The share of its distance from the first price that a price loses at every step."""

Quote: TypeAlias = dict[str, Any]


class Market:
    """Quotes, one a symbol at every tick.

    >>> Market(1).tick()[0]["symbol"]
    'IBM'
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.prices: dict[str, float] = dict.fromkeys(SYMBOLS, FIRST_PRICE)

    def tick(self) -> list[Quote]:
        """Move every price one step, and quote it."""
        return [self._quote(symbol) for symbol in SYMBOLS]

    def _quote(self, symbol: str) -> Quote:
        before = self.prices[symbol]
        drift = -_PULL * math.log(before / FIRST_PRICE)
        price = round(before * math.exp(drift + self._random.gauss(0, _STEP)), 2)
        self.prices[symbol] = price
        return {"symbol": symbol, "price": price, "volume": self._random.randrange(1, 1_001)}
