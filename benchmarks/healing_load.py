"""Publishers and listeners of a network that is being broken, and what became of their events."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from types import TracebackType
from typing import Final, NamedTuple, Self

from palio.client.connection import Client, connect
from palio.client.events import Gap
from palio.client.subscription import Subscription

LATE_S: Final = 1.0
"""An event that takes longer was held up: ways of ten links take 0.1 s, and machines are busy."""

RATE: Final = 5.0
"""Events a second of each publisher."""

SETTLE_S: Final = 60.0


class Publisher:
    """One who publishes numbers, live or durable."""

    def __init__(self, name: str, broker: str, *, durable: bool, rate: float = RATE) -> None:
        self.name = name
        self.broker = broker
        self.durable = durable
        self._period_s = 1 / rate
        self.published: list[float] = []
        """When each number was."""
        self.acknowledged: set[int] = set()

    async def run(self, client: Client) -> None:
        """Publish for ever."""
        while True:
            number = len(self.published)
            self.published.append(time.monotonic())
            event = {"who": self.name, "n": number}
            receipt = client.publish_nowait(event, durable=self.durable)
            receipt.add_done_callback(partial(self._taken, number))
            await asyncio.sleep(self._period_s)

    def _taken(self, number: int, receipt: asyncio.Future[object]) -> None:
        if not receipt.cancelled() and receipt.exception() is None:
            self.acknowledged.add(number)


class Listener:
    """One who hears all live events, or all durable ones."""

    def __init__(self, name: str, broker: str, *, durable: bool) -> None:
        self.name = name
        self.broker = broker
        self.durable = durable
        self.heard: dict[str, list[tuple[int, float]]] = {}
        """By publisher: numbers, and when they came."""
        self.gaps: list[float] = []
        """When it was told that events were lost, or may have been."""

    def on_gap(self, _: Gap) -> None:
        """Note it."""
        self.gaps.append(time.monotonic())

    async def run(self, subscription: Subscription) -> None:
        """Listen for ever."""
        async for event in subscription:
            self.heard.setdefault(event["who"], []).append((event["n"], time.monotonic()))

    def came(self, publisher: str) -> dict[int, float]:
        """When each number came first."""
        found: dict[int, float] = {}
        for number, at in self.heard.get(publisher, ()):
            found.setdefault(number, at)
        return found


class Pair(NamedTuple):
    """Somebody who hears somebody."""

    publisher: Publisher
    listener: Listener


class Outage(NamedTuple):
    """What a fault did to some pairs, from one moment to another."""

    of: int
    """Pairs that were looked at."""
    interrupted: int
    """Pairs of which events were lost or late."""
    resumed_s: float
    """When the last of them heard events in time again, after the moment of the fault."""
    lost: int
    """Events that never came: live ones."""
    untold: int
    """Of these, those whose listener was not told that there may be a gap."""


class Load:
    """All of them."""

    def __init__(self, publishers: Sequence[Publisher], listeners: Sequence[Listener]) -> None:
        self.publishers = publishers
        self.listeners = listeners
        self._open = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[asyncio.Task[None]] = []

    @property
    def pairs(self) -> Iterable[Pair]:
        """Who hears whom."""
        return (
            Pair(one, other)
            for one in self.publishers
            for other in self.listeners
            if one.durable == other.durable
        )

    async def begin(self, url: Callable[[str], str], *, advertising: bool) -> None:
        """Connect all, wait until subscriptions are in force everywhere, and let them publish."""
        await asyncio.gather(*(self._listen(each, url(each.broker)) for each in self.listeners))
        await asyncio.gather(
            *(self._publish(each, url(each.broker), advertising) for each in self.publishers)
        )

    async def _listen(self, listener: Listener, url: str) -> None:
        client = await self._client(listener.name, url)
        kind = "durable" if listener.durable else "live"
        subscription = await client.subscribe(
            f"n >= 0 AND who LIKE '{kind}%'",
            on_gap=listener.on_gap,
            durable_name="all" if listener.durable else "",
        )
        await client.settled(SETTLE_S)
        self._tasks.append(asyncio.create_task(listener.run(subscription)))

    async def _publish(self, publisher: Publisher, url: str, advertising: bool) -> None:
        client = await self._client(publisher.name, url)
        if advertising:
            await client.advertise("EXISTS who AND EXISTS n")
            await client.settled(SETTLE_S)
        self._publishing.append(asyncio.create_task(publisher.run(client)))

    async def _client(self, name: str, url: str) -> Client:
        return await self._open.enter_async_context(connect(url, name=name, timeout=SETTLE_S))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cease()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._publishing, return_exceptions=True)
        await self._open.aclose()

    def cease(self) -> None:
        """Publish no more: what is on its way may arrive."""
        for task in self._publishing:
            task.cancel()

    # --- what became of it ---

    def outage(self, pairs: Iterable[Pair], since: float, until: float) -> Outage:
        """What was published in a time, by and for whom."""
        found = [self._of_pair(pair, since, until) for pair in pairs]
        return Outage(
            len(found),
            sum(one.interrupted for one in found),
            max((one.resumed_s for one in found), default=0.0),
            sum(one.lost for one in found),
            sum(one.untold for one in found),
        )

    def _of_pair(self, pair: Pair, since: float, until: float) -> Outage:
        came = pair.listener.came(pair.publisher.name)
        published = pair.publisher.published
        numbers = [n for n, at in enumerate(published) if since - LATE_S <= at < until]
        bad = [n for n in numbers if came.get(n, inf) - published[n] > LATE_S]
        if not bad:
            return Outage(1, 0, 0.0, 0, 0)
        resumed = next((came[n] for n in numbers if n > bad[-1]), inf)
        lost = 0 if pair.publisher.durable else sum(n not in came for n in bad)
        is_told = any(at >= since for at in pair.listener.gaps)
        return Outage(1, 1, resumed - since, lost, 0 if is_told else lost)

    def repeated(self) -> Mapping[str, int]:
        """Events that came twice, and those that came after later ones, live and durable."""
        found = dict.fromkeys(("twice", "disordered", "durable_twice", "durable_disordered"), 0)
        for listener in self.listeners:
            prefix = "durable_" if listener.durable else ""
            for heard in listener.heard.values():
                numbers = [number for number, _ in heard]
                found[f"{prefix}twice"] += len(numbers) - len(set(numbers))
                found[f"{prefix}disordered"] += sum(
                    later < one for one, later in itertools.pairwise(numbers)
                )
        return found

    def lacking(self) -> int:
        """Durable events that were acknowledged and have not come."""
        return sum(
            len(pair.publisher.acknowledged - pair.listener.came(pair.publisher.name).keys())
            for pair in self.pairs
            if pair.publisher.durable
        )
