"""The examples that need no Spark run, and do what they say."""

from __future__ import annotations

import asyncio
import math

import palio
import palio.testing
from examples import nearby, trader


def test_who_walks_sees_the_cabs_that_are_near() -> None:
    seen = palio.testing.run(nearby.walk())
    for place, names in seen.items():
        near = [each for each, (x, y) in nearby.CABS.items() if math.hypot(x - place, y) < 3]
        assert names == near
    assert len({tuple(names) for names in seen.values()}) > 3


def test_who_trades_buys_cheap_and_sells_with_a_profit() -> None:
    """Each deal follows from the one before; no quote that would have made a deal is passed by."""
    done, rebounds, gaps = asyncio.run(trader.trade())
    deals: list[tuple[str, float]] = []
    buy_below, sell_above = 100.0, trader.NEVER
    for quote in trader.quotes(100):
        price = float(quote["price"])
        if price < buy_below:
            deals.append(("buy", price))
            buy_below, sell_above = 0.0, round(price * 1.01, 2)
        elif price > sell_above:
            deals.append(("sell", price))
            buy_below, sell_above = round(price * 0.99, 2), trader.NEVER
    assert done.deals == deals
    assert len(deals) == 5
    assert rebounds
    for event in rebounds:
        fall, rise = event.parts
        assert fall["change"] <= -1 < 1 <= rise["change"]
    assert gaps == [palio.Gap("bus", 1, 95, 95)]
