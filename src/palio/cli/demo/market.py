"""`palio demo`: one market, three broker processes in a mesh, four subscribers, one kill.

Quotes are published at one broker and received at the others. The limit of one subscription follows
the market; one subscriber is too slow and loses some, with gaps; the broker of the durable
subscription is killed while quotes come, and started again. At the end the audit compares what
every subscriber should have received with what it received.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from palio.cli.demo.audit import Promise, Quote, table_of
from palio.cli.reporting import show
from palio.client.connection import Client, connect
from palio.client.subscription import Subscription
from palio.testing.fleet import Fleet

BERLIN, LONDON, TOKYO = "berlin", "london", "tokyo"

SYMBOLS: Final = ("IBM", "MSFT", "NVDA", "SAP", "BMW", "SIE")

FIRST_PRICE: Final = 100.0

_STEP: Final = 0.008
"""Standard deviation of one step of a price's logarithm."""

_PULL: Final = 0.02
"""The share of its distance from the first price that a price loses at every step."""

PROMISES: Final[tuple[tuple[str, str, str, Mapping[str, Any]], ...]] = (
    ("bargains", LONDON, "price < :limit", {"limit": FIRST_PRICE}),
    ("blocks", LONDON, "symbol = 'SAP' AND volume > 500", {}),
    ("ticker", LONDON, "EXISTS price", {}),
    ("ledger", TOKYO, "EXISTS symbol", {}),
)
"""Subscribers: name, broker, filter, parameters."""

MOVE_S: Final = 0.5
"""Seconds between two moves of the limit."""

KILL_AT: Final = 0.4
RESTART_AT: Final = 0.6
"""Parts of the time that the market is open."""

LEAST_TICKS: Final = 10
"""Ticks before the kill, before the restart and after it, however slow the machine is."""

CAPACITY: Final = 10_000
TICKER_CAPACITY: Final = 20
TICKER_TICKS: Final = 2
"""Ticks that the ticker takes for one quote, while six come at each."""

PATIENCE_S: Final = 30.0
"""Seconds that a delivery may take on a busy machine."""


class Demo:
    """One run."""

    def __init__(
        self, seconds: float, rate: int, seed: int, print_line: Callable[[str], None]
    ) -> None:
        self.promises = {row[0]: Promise(*row) for row in PROMISES}
        self.quotes = 0
        self.moves = 0
        self._seconds = seconds
        self._interval = len(SYMBOLS) / rate
        self._market = Market(seed)
        self._print_line = print_line
        self._next_second = 1
        self._brokers = dict.fromkeys((BERLIN, LONDON, TOKYO), True)
        self._subscriptions: dict[str, Subscription] = {}
        self._is_open = True
        self._elapsed = 0.0
        self._tick = asyncio.Event()
        self._delivery = asyncio.Event()
        self._change = asyncio.Lock()
        """Held while a broker is killed or a limit moves: one at a time."""

    async def run(self, folder: Path) -> None:
        """Start the brokers, open the market, close it, and wait for what is owed."""
        print_line = self._print_line
        print_line(f"Three brokers start, each a process: {', '.join(self._brokers)}.")
        async with AsyncExitStack() as stack:
            fleet = await stack.enter_async_context(Fleet(tuple(self._brokers), folder))
            clients = {
                name: await stack.enter_async_context(connect(fleet.url(name), name=f"at-{name}"))
                for name in fleet.names
            }
            await self._subscribe(clients)
            print_line(f"They are linked. Quotes are published at {BERLIN}, and these subscribe:")
            for promise in self.promises.values():
                print_line(f"  {promise.name:<9}at {promise.broker:<7}{promise.text}")
            async with asyncio.TaskGroup() as group:
                receivers = [group.create_task(self._receive(name)) for name in self.promises]
                script = group.create_task(self._kill_and_restart(fleet))
                await self._trade(clients[BERLIN])
                await script
                await self._all_received(*self.promises.values())
                for task in receivers:
                    task.cancel()

    async def _subscribe(self, clients: Mapping[str, Client]) -> None:
        for name, promise in self.promises.items():
            subscription = await clients[promise.broker].subscribe(
                promise.text,
                promise.values,
                queue_size=TICKER_CAPACITY if name == "ticker" else CAPACITY,
                durable_name=name if name == "ledger" else "",
                on_gap=promise.lose,
            )
            await subscription.settled(PATIENCE_S)
            self._subscriptions[name] = subscription

    async def _receive(self, name: str) -> None:
        """Report every delivery to the audit; the ticker takes its time for each."""
        promise = self.promises[name]
        async for event in self._subscriptions[name]:
            promise.receive(event.seq, dict(event))
            self._delivery.set()
            if name == "ticker":
                await self._traded(ticks=TICKER_TICKS)

    async def _trade(self, exchange: Client) -> None:
        """Publish at the given rate, or as fast as it goes, while the market is open."""
        clock = asyncio.get_running_loop().time
        start = clock()
        next_move = 0.0
        while self._is_open:
            began = clock()
            self._elapsed = began - start
            if self._elapsed >= next_move:
                next_move = self._elapsed + MOVE_S
                await self._move_limit()
            quotes = self._market.tick()
            for quote in quotes:
                self.quotes += 1
                for promise in self.promises.values():
                    promise.expect(self.quotes, quote)
            await exchange.publish(quotes, durable=True)
            self._print_counts()
            self._tick.set()
            self._tick = asyncio.Event()
            await asyncio.sleep(max(0.0, began + self._interval - clock()))
        self._tick.set()

    async def _traded(self, ticks: int, share: float = 0.0) -> None:
        """Wait for some ticks, and until a share of the time is over, while the market is open."""
        while self._is_open and (ticks > 0 or self._elapsed < share * self._seconds):
            await self._tick.wait()
            ticks -= 1

    async def _move_limit(self) -> None:
        """A bargain is 2% cheaper than the average of this moment. The limit moves between two
        quotes, so that the audit knows by which of the values each is matched.
        """
        async with self._change:
            if not all(self._brokers.values()):
                return  # a broker that is down cannot be updated
            promise, subscription = self.promises["bargains"], self._subscriptions["bargains"]
            if not await self._all_received(promise):
                self._is_open = False
                return
            limit = round(0.98 * fmean(self._market.prices.values()), 2)
            await subscription.update(limit=limit)
            await subscription.settled(PATIENCE_S)
            promise.values["limit"] = limit
            self.moves += 1

    async def _kill_and_restart(self, fleet: Fleet) -> None:
        """Kill a broker while quotes come, start it again, and close the market."""
        ledger = self.promises["ledger"]
        await self._traded(LEAST_TICKS, KILL_AT)
        async with self._change:
            self._brokers[TOKYO] = False
            await fleet.kill(TOKYO)
        before = ledger.expected
        self._print_line(f"{TOKYO} is killed with SIGKILL; {LONDON} receives on.")
        await self._traded(LEAST_TICKS, RESTART_AT)
        await fleet.start(TOKYO)
        await fleet.linked()
        self._brokers[TOKYO] = True
        waited = ledger.expected - before
        self._print_line(f"{TOKYO} is back with its disk; {waited} quotes waited for its ledger.")
        await self._traded(LEAST_TICKS, 1.0)
        self._is_open = False

    async def _all_received(self, *promises: Promise) -> bool:
        """Wait until nothing is owed; False if that takes too long, which the audit shows."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not all(promise.is_settled for promise in promises):
                    self._delivery.clear()
                    await self._delivery.wait()
        except TimeoutError:
            return False
        return True

    def _print_counts(self) -> None:
        """Print what each subscriber has received, once a second."""
        if self._elapsed >= self._next_second:
            self._next_second = int(self._elapsed) + 1
            counts = "  ".join(map(_counts, self.promises.values()))
            self._print_line(f"{int(self._elapsed):>3} s  {counts}")


def _counts(promise: Promise) -> str:
    """The deliveries in a few words.

    >>> _counts(Promise("bargains", "london", "price < :limit", {"limit": 98.5}))
    'bargains [98.50] 0'
    """
    lost = f" ({promise.lost} lost)" if promise.lost else ""
    limit = "".join(f" [{value:.2f}]" for value in promise.values.values())
    return f"{promise.name}{limit} {promise.received}{lost}"


def play(seconds: float, rate: int, seed: int, *, as_json: bool) -> int:
    """Run the demo in a folder of its own; 0 if all promises were kept."""
    print_line = _print_nothing if as_json else _print_line
    one = Demo(seconds, rate, seed, print_line)
    with TemporaryDirectory(prefix="palio-demo-") as folder:
        try:
            asyncio.run(one.run(Path(folder)))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the others follow from it
    outcomes = [promise.outcome() for promise in one.promises.values()]
    agree = all(outcome.is_kept for outcome in outcomes)
    if as_json:
        subscribers = [msgspec.to_builtins(outcome) for outcome in outcomes]
        counts = {"quotes": one.quotes, "moves": one.moves}
        show({"seed": seed, **counts, "agreed": agree, "subscribers": subscribers})
    print_line(f"\n{table_of(outcomes)}\n")
    print_line(
        f"Quotes: {one.quotes:,}; moves of the limit: {one.moves}; brokers killed: 1.\n"
        f"What was promised and what was received {'agree' if agree else 'DISAGREE'}."
    )
    return 0 if agree else 1


def _print_line(line: str) -> None:
    show(line)
    sys.stdout.flush()


def _print_nothing(_line: str) -> None:
    """For programs, which read the one document at the end."""


# --- the market ---


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
