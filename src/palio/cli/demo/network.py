"""`palio demo`, the second part: three brokers, their subscribers, and one that dies.

Three processes in a mesh. Quotes are published at one broker and heard at the others; a parameter
moves; a broker is killed while quotes come, and started again. Whatever is published is tested by
brute force with `Filter.matches`, and at the end what every subscriber should have heard is held
against what it heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from palio.cli.demo.kernels import CompilingKernels
from palio.cli.demo.market import Market
from palio.cli.demo.spark import Backtester, Row
from palio.client.connection import Client, connect
from palio.client.events import Gap
from palio.client.subscription import Subscription
from palio.errors import Closed
from palio.language.parsing import parse_filter
from palio.testing.fleet import Fleet

__all__ = ["Listener", "NetworkDemo", "Outcome", "network_demo", "table_of"]

BERLIN, LONDON, TOKYO = "berlin", "london", "tokyo"

BARGAINS: Final = "price < :limit"
BIG: Final = "volume > 500"
ALL_SAP: Final = "symbol = 'SAP'"

ARCHIVE: Final = "archive"

PATIENCE_S: Final = 30.0
"""Seconds that a promised answer may take on a busy machine."""

ROUNDS: Final = 40
"""Rounds of quotes in each act."""

Teller = Callable[[str], None]


class Outcome(msgspec.Struct, frozen=True):
    """The promise to one subscriber, and the events that it received."""

    subscriber: str
    broker: str
    filter: str
    promised: int
    heard: int
    missing: int
    unwanted: int
    doubled: int

    @property
    def is_kept(self) -> bool:
        """Whether the promise was kept."""
        return not (self.missing or self.unwanted or self.doubled)


class ParameterPeriod(msgspec.Struct):
    """Values of a subscription's parameters, and the time for which they counted."""

    values: dict[str, Any]
    since: datetime | None
    until: datetime | None = None


class Listener:
    """A subscription, what it should hear, and what it hears. A quote's `id` is its number."""

    def __init__(self, name: str, broker: str, text: str) -> None:
        self.name = name
        self.broker = broker
        self.text = text
        self.values: dict[str, Any] = {}
        self.history: list[ParameterPeriod] = []
        """What it heard by, and when: as long as a promise was made."""
        self.promised: list[int] = []
        self.heard: list[int] = []
        self.gaps: list[Gap] = []
        self._filter = parse_filter(text)
        self._news = asyncio.Event()
        self._subscription: Subscription | None = None

    async def subscribe(self, client: Client, *, durable: str = "", **values: Any) -> None:
        """Subscribe, and return when that is in force everywhere."""
        self.values = values
        self._subscription = await client.subscribe(
            self.text, durable=durable, on_gap=self.gaps.append, values=values
        )
        await self._subscription.settled(PATIENCE_S)
        self.history.append(ParameterPeriod(dict(values), datetime.now(UTC)))

    async def listen(self) -> None:
        """Hear until the connection ends."""
        assert self._subscription is not None
        try:
            while True:
                self.heard.append((await self._subscription.receive())["id"])
                self._news.set()
        except Closed:
            return

    async def update(self, **values: Any) -> None:
        """Move a parameter, everywhere."""
        assert self._subscription is not None
        await self._subscription.update(**values)
        await self._subscription.settled(PATIENCE_S)
        self.values.update(values)
        self.rest()
        self.history.append(ParameterPeriod(dict(self.values), self.history[-1].until))

    def rest(self) -> None:
        """From now on nothing is promised."""
        self.history[-1].until = datetime.now(UTC)

    def expect(self, quote: Mapping[str, Any]) -> None:
        """A quote is published: is it for this subscriber?"""
        if self._filter.matches(quote, self.values):
            self.promised.append(quote["id"])

    async def hear_all(self) -> None:
        """Wait until as much was heard as was promised, or patience ends."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(self.heard) < len(self.promised):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass  # the outcome tells what is missing

    @property
    def outcome(self) -> Outcome:
        """The promise held against what came."""
        return self.seen_again(self.broker, self.heard)

    def seen_again(self, where: str, ids: Sequence[int]) -> Outcome:
        """The promise held against the quotes that were found for it elsewhere."""
        promised, heard = set(self.promised), set(ids)
        return Outcome(
            self.name,
            where,
            self.text,
            len(self.promised),
            len(ids),
            len(promised - heard),
            len(heard - promised),
            len(ids) - len(heard),
        )


class NetworkDemo:
    """One run: acts in their order, each told in a line."""

    def __init__(self, seed: int, tell: Teller) -> None:
        self._market = Market(seed)
        self._tell = tell
        self._next_id = 1
        self.bargains = Listener("bargains", LONDON, BARGAINS)
        self.big = Listener("big deals", TOKYO, BIG)
        self.ledger = Listener("ledger (durable)", TOKYO, ALL_SAP)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Everybody who hears."""
        return (self.bargains, self.big, self.ledger)

    def rows(self) -> list[Row]:
        """The subscriptions with their parameters as they were, each for its time."""
        return [
            Row(each.name, each.text, standing.values, standing.since, standing.until)
            for each in self.listeners
            for standing in each.history
        ]

    async def run(self, folder: Path, curtain: asyncio.Event, *, archive: bool = False) -> None:
        """Start the brokers, and once the curtain is up do all acts; with an archive in
        `folder / ARCHIVE` of all that was published.
        """
        self._tell("three brokers start in the background")
        async with Fleet((BERLIN, LONDON, TOKYO), folder) as fleet:
            if archive:
                await fleet.archive(BERLIN, folder / ARCHIVE)
            await curtain.wait()
            self._tell(f"three brokers in a mesh: {', '.join(fleet.names)}")
            async with (
                connect(fleet.url(BERLIN), name="exchange") as exchange,
                connect(fleet.url(LONDON), name="hunter") as london,
                connect(fleet.url(TOKYO), name="bank") as tokyo,
                asyncio.TaskGroup() as group,
            ):
                await self.bargains.subscribe(london, limit=100.0)
                await self.big.subscribe(tokyo)
                await self.ledger.subscribe(tokyo, durable="ledger")
                tasks = [group.create_task(each.listen()) for each in self.listeners]
                await self._trade_and_move(exchange)
                await self._kill_and_restart(fleet, exchange)
                if archive:
                    await self._archived(exchange)
                for task in tasks:
                    task.cancel()

    async def _archived(self, exchange: Client) -> None:
        """Wait until the archive has all; it is written when the fleet stops."""
        async with asyncio.timeout(PATIENCE_S):
            while (await exchange.status())["custody_entries"]:  # noqa: ASYNC110  # elsewhere
                await asyncio.sleep(0.05)

    async def _trade_and_move(self, exchange: Client) -> None:
        await self._publish(exchange)
        await self._all_heard(self.listeners)
        self._tell(f"{ROUNDS} rounds of quotes at {BERLIN}, heard at {LONDON} and {TOKYO}")
        await self.bargains.update(limit=98.0)
        await self._publish(exchange)
        await self._all_heard(self.listeners)
        self._tell(f"the limit of {BARGAINS!r} moved to 98, in force at every broker")

    async def _kill_and_restart(self, fleet: Fleet, exchange: Client) -> None:
        """Live subscribers of a dead broker are promised nothing while it is away."""
        await fleet.kill(TOKYO)
        self.big.rest()
        before = len(self.ledger.promised)
        await self._publish(exchange, but=(self.big,))
        await self._all_heard((self.bargains,))
        waiting = len(self.ledger.promised) - before
        self._tell(f"{TOKYO} was killed; {LONDON} heard on, {waiting} quotes wait for the ledger")
        await fleet.start(TOKYO)
        await self._all_heard((self.ledger,))
        self._tell(f"{TOKYO} started again with its disk, and its ledger has all {waiting}")

    async def _publish(self, exchange: Client, *, but: tuple[Listener, ...] = ()) -> None:
        """Some rounds, each acknowledged before the next."""
        for _ in range(ROUNDS):
            for _, quotes in self._market.tick():
                for quote in quotes:
                    quote["id"] = self._next_id
                    self._next_id += 1
                await exchange.publish(quotes, durable=True)
                for listener in self.listeners:
                    if listener not in but:
                        for quote in quotes:
                            listener.expect(quote)

    async def _all_heard(self, listeners: tuple[Listener, ...]) -> None:
        for listener in listeners:
            await listener.hear_all()


async def network_demo(
    seed: int, tell: Teller, curtain: asyncio.Event, *, spark: bool = False
) -> tuple[Outcome, ...]:
    """Run it in a folder of its own, which is gone afterwards; the acts wait for the curtain.

    What takes long begins at once: the brokers, Spark, and compiling what was not compiled yet.
    With `spark` what the brokers carried is archived and matched again, by a job on Spark, with the
    parameters of the time: it must find what was promised.
    """
    demo = NetworkDemo(seed, tell)
    with TemporaryDirectory(prefix="palio-demo-") as folder:
        archive = Path(folder) / ARCHIVE
        async with AsyncExitStack() as beside:
            backtester = None
            if spark:
                backtester = await beside.enter_async_context(Backtester())
                tell("Spark starts in the background")
            await beside.enter_async_context(CompilingKernels(tell))
            await demo.run(Path(folder), curtain, archive=spark)
            outcomes = [listener.outcome for listener in demo.listeners]
            if backtester is None:
                return tuple(outcomes)
            if not backtester.is_ready:
                tell("Spark is still starting")
            tell("the archive of all quotes is matched again on Spark, limits as they were")
            found = await backtester.found(archive, demo.rows())
            outcomes += [each.seen_again("spark", found[each.name]) for each in demo.listeners]
            return tuple(outcomes)


def table_of(outcomes: tuple[Outcome, ...]) -> str:
    """A table of promises and events, and whether they agree."""
    lines = [
        f"\n{'':<18}{'at':<8}{'promised':>9}{'heard':>9}{'missing':>9}{'unwanted':>10}{'twice':>7}"
    ]
    lines += [
        f"{each.subscriber:<18}{each.broker:<8}{each.promised:>9,}{each.heard:>9,}"
        f"{each.missing:>9,}{each.unwanted:>10,}{each.doubled:>7,}"
        for each in outcomes
    ]
    agree = all(each.is_kept for each in outcomes)
    verdict = "agree" if agree else "DISAGREE"
    return "\n".join([*lines, f"\nWhat was promised and what was seen {verdict}."])
