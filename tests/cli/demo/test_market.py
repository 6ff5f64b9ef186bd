from __future__ import annotations

import statistics

from palio.cli.demo.market import EXCHANGES, FIRST_PRICE, SYMBOLS, Market


def ticks(seed: int, count: int) -> list[tuple[str, list[dict[str, object]]]]:
    market = Market(seed)
    return [published for _ in range(count) for published in market.tick()]


def test_a_seed_decides_everything() -> None:
    assert ticks(1, 50) == ticks(1, 50)
    assert ticks(1, 50) != ticks(2, 50)


def test_every_exchange_quotes_its_symbols_at_every_tick() -> None:
    for publisher, quotes in ticks(1, 3):
        assert tuple(quote["symbol"] for quote in quotes) == EXCHANGES[publisher]


def test_quotes_agree_with_the_prices() -> None:
    market = Market(1)
    for _ in range(100):
        before = dict(market.prices)
        for _, quotes in market.tick():
            for quote in quotes:
                symbol = quote["symbol"]
                assert quote["price"] == market.prices[symbol]
                change = 100 * (market.prices[symbol] / before[symbol] - 1)
                assert abs(quote["change"] - change) <= 0.005001
                assert 1 <= quote["volume"] <= 1_000


def test_prices_wander_but_do_not_run_away() -> None:
    market = Market(1)
    seen: list[float] = []
    for _ in range(5_000):
        list(market.tick())
        seen += market.prices.values()
    assert set(market.prices) == set(SYMBOLS)
    assert statistics.stdev(seen) > 1
    assert FIRST_PRICE / 2 < min(seen) < max(seen) < FIRST_PRICE * 2
