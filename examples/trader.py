"""A trader on a bus: a class whose thresholds move, a pattern, and a slow reader's gaps.

    python examples/trader.py

All of it is in one process. The trader buys IBM when it is cheap and waits for 1% more; a pattern
finds a price that falls and recovers; the reader has room for five quotes and gets a gap.
"""

from __future__ import annotations

import asyncio
import random

import palio

NEVER = 1e9


class Trader(palio.Subscriber):
    """Each deal moves both thresholds, in one update: never both of them count, never neither."""

    buy_below = palio.Parameter(100.0)
    sell_above = palio.Parameter(NEVER)

    def __init__(self) -> None:
        self.deals: list[tuple[str, float]] = []

    @palio.on("symbol = 'IBM' AND price < :buy_below")
    async def buy(self, price: float) -> None:
        self.deals.append(("buy", price))
        with self.assigning():
            self.buy_below, self.sell_above = 0.0, round(price * 1.01, 2)

    @palio.on("symbol = 'IBM' AND price > :sell_above")
    async def sell(self, price: float) -> None:
        self.deals.append(("sell", price))
        with self.assigning():
            self.buy_below, self.sell_above = round(price * 0.99, 2), NEVER


REBOUND = "symbol = 'IBM' AND change <= -1 THEN symbol = 'IBM' AND change >= 1 WITHIN 10s"


def quotes(count: int, seed: int = 1) -> list[dict[str, str | float]]:
    """Prices that walk at random, around 100."""
    step = random.Random(seed)
    price, walk = 100.0, list[dict[str, str | float]]()
    for _ in range(count):
        before, price = price, round(0.9 * price + 10 + step.gauss(0, 1), 2)
        change = round(100 * (price / before - 1), 2)
        walk.append({"symbol": "IBM", "price": price, "change": change})
    return walk


async def trade(count: int = 100) -> tuple[Trader, list[palio.Event], list[palio.Gap]]:
    """The trader, the rebounds and the gaps after some quotes."""
    gaps: list[palio.Gap] = []
    async with palio.Bus() as bus:
        trader = await bus.attach(Trader())
        pattern = await bus.subscribe(REBOUND)
        reader = await bus.subscribe("EXISTS price", queue_size=5, on_gap=gaps.append)
        for quote in quotes(count):
            await bus.publish(quote)
            await asyncio.sleep(0.001)  # the trader's turn
    rebounds = [event async for event in pattern]
    latest = [event async for event in reader]  # it begins when all is over
    assert len(latest) == 5
    return trader, rebounds, gaps


def main() -> None:
    trader, rebounds, gaps = asyncio.run(trade())
    print("deals:", ", ".join(f"{deal} at {price:.2f}" for deal, price in trader.deals))
    for event in rebounds:
        fall, rise = event.parts
        print(f"rebound: {fall['change']:+.2f}%, then {rise['change']:+.2f}%")
    print("the slow reader:", *gaps)


if __name__ == "__main__":
    main()
