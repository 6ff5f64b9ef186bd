from __future__ import annotations

import statistics

from palio.cli.demo.audit import Quote
from palio.cli.demo.market import FIRST_PRICE, SYMBOLS, Market


def ticks(seed: int, count: int) -> list[list[Quote]]:
    market = Market(seed)
    return [market.tick() for _ in range(count)]


def test_a_seed_decides_everything() -> None:
    assert ticks(1, 50) == ticks(1, 50)
    assert ticks(1, 50) != ticks(2, 50)


def test_a_tick_quotes_every_symbol_at_its_price() -> None:
    market = Market(1)
    for _ in range(100):
        quotes = market.tick()
        assert {quote["symbol"]: quote["price"] for quote in quotes} == market.prices
        assert tuple(market.prices) == SYMBOLS
        assert all(1 <= quote["volume"] <= 1_000 for quote in quotes)


def test_prices_wander_but_do_not_run_away() -> None:
    prices = [quote["price"] for quotes in ticks(1, 2_000) for quote in quotes]
    assert statistics.stdev(prices) > 1
    assert FIRST_PRICE / 2 < min(prices) < max(prices) < FIRST_PRICE * 2
