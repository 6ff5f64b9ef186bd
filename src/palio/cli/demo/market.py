"""The demo's market: a few prices that walk at random, the same for the same seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["EXCHANGES", "FIRST_PRICE", "SYMBOLS", "Market"]

EXCHANGES: Final = {"New York": ("IBM", "MSFT", "NVDA"), "Frankfurt": ("SAP", "BMW", "SIE")}
"""Publishers, and what they quote."""

SYMBOLS: Final = tuple(symbol for listed in EXCHANGES.values() for symbol in listed)

FIRST_PRICE: Final = 100.0

_STEP: Final = 0.008
"""Standard deviation of one step of a price's logarithm."""

_PULL: Final = 0.02
"""The share of its distance from the first price that a price loses at every step."""


class Market:
    """Quotes, one a symbol at every tick.

    >>> dict(Market(1).tick())["Frankfurt"][0]["symbol"]
    'SAP'
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.prices: dict[str, float] = dict.fromkeys(SYMBOLS, FIRST_PRICE)

    def tick(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """One step of the market: the quotes that each exchange publishes together."""
        for exchange, symbols in EXCHANGES.items():
            yield exchange, [self._quote(symbol) for symbol in symbols]

    def _quote(self, symbol: str) -> dict[str, Any]:
        before = self.prices[symbol]
        drift = -_PULL * math.log(before / FIRST_PRICE)
        price = round(before * math.exp(drift + self._random.gauss(0, _STEP)), 2)
        self.prices[symbol] = price
        return {
            "symbol": symbol,
            "price": price,
            "change": round(100 * (price / before - 1), 2),
            "volume": self._random.randrange(1, 1_001),
        }
