"""The same on real brokers: a line of processes in network namespaces, 10 ms on every link, clients
at 10 ms from their broker. What is measured are times of this machine.

These brokers are parametric, whoever asks: a re-subscription is two requests to the first, which
says to the next what has changed of its summary.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from palio.client.connection import Client, connect
from palio.client.subscription import Subscription
from palio.testing.far_fleet import LINK_S, FarFleet
from palio_studies.parametric_workloads import RESUBSCRIPTIONS, UPD, WAYS
from palio_studies.study import Point, Row

__all__ = ["EVENTS_PER_S", "LISTENERS", "TIMED", "AdaptingListener", "run_brokers"]

LISTENERS: Final = 6
"""All at the last broker; who publishes is at the first."""

EVENTS_PER_S: Final = 240
"""Of all types together; each listener has one."""

SWING_S: Final = 0.4
NARROW: Final = 200
WIDE: Final = 800
TREMBLE: Final = 20
TICKS_PER_S: Final = 200
"""How often it is looked what is due."""

READY_S: Final = 60.0

TIMED: Final = frozenset(
    {"delay_ms", "swings", "unheard", "spurious_per_s", "doubled_per_s", "delivered_per_s"}
    | {"changes_per_s", "cpu_ms_per_s"}
)


class Phase(NamedTuple):
    """One way and rate on a network that has had others before."""

    number: int
    way: str
    rate: int
    window_s: float
    seed: int

    @property
    def topics(self) -> range:
        """The types of its events, so that none of an earlier phase is taken for one of these."""
        return range(self.number * LISTENERS, (self.number + 1) * LISTENERS)


class AdaptingListener:
    """A client with one subscription that it keeps changing, and what it heard.

    It takes an event that its newest value lets through. `spurious` are those that it got and did
    not take, `doubled` those that came again for another of its subscriptions.
    """

    def __init__(self, client: Client, topic: int, way: str, draws: random.Random) -> None:
        self._client = client
        self._way = way
        self._random = draws
        self._guard = f"type = {topic} AND value <= :x"
        self._is_wide = False
        self._value = NARROW
        self._jobs: set[asyncio.Task[Any]] = set()
        self._current: asyncio.Task[Subscription]
        self._swings: list[float] = []
        self._news: list[float] = []
        self._seen: set[int] = set()
        self.delivered = 0
        self.doubled = 0
        self.changes = 0
        self._refused = 0

    @property
    def spurious(self) -> int:
        """What it got and did not take: here, or within the client already."""
        return self._refused + self._client.spurious

    async def begin(self) -> None:
        """Subscribe; return when that is in force at all brokers."""
        self._current = self._begin(self._value)
        await (await self._current).settled(READY_S)

    def change(self, *, swing: bool) -> None:
        """Tremble, or go over to the other region; told without waiting for an answer."""
        if swing:
            self._is_wide = not self._is_wide
            if self._is_wide:
                self._swings.append(_now())
        self.changes += 1
        self._value = (WIDE if self._is_wide else NARROW) - self._random.randrange(TREMBLE)
        old = self._current
        if self._way == UPD:
            self._spawn(self._update(old, self._value))
        elif self._way == RESUBSCRIPTIONS[0]:
            self._current = self._begin(self._value)
            self._spawn(self._end(old))
        else:
            self._spawn(self._end(old))
            self._current = self._begin(self._value)

    def delays_ms(self, until: float) -> tuple[list[float], int]:
        """From each swing to the first event that only the wide region matches, or until the end;
        how many were not answered.
        """
        delays, unheard = [], 0
        for start in self._swings:
            if start > until - SWING_S / 2:
                continue  # too near the end to tell
            then = next((time for time in self._news if time > start), None)
            unheard += then is None
            delays.append(1000 * ((until if then is None else then) - start))
        return delays, unheard

    async def stop(self) -> None:
        """Hear nothing more."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _subscribe(self, value: int) -> Subscription:
        subscription = await self._client.subscribe(self._guard, x=value)
        self._spawn(self._read(subscription))
        return subscription

    async def _update(self, subscription: asyncio.Task[Subscription], value: int) -> None:
        await (await subscription).update(x=value)

    async def _end(self, subscription: asyncio.Task[Subscription]) -> None:
        await (await subscription).unsubscribe()

    async def _read(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.hear(event["number"], event["value"], _now())

    def hear(self, number: int, value: int, now: float) -> None:
        """An event came."""
        if number in self._seen:
            self.doubled += 1
            return
        self._seen.add(number)
        if value > self._value:
            self._refused += 1
            return
        self.delivered += 1
        if NARROW < value <= WIDE - TREMBLE:
            self._news.append(now)

    def _begin(self, value: int) -> asyncio.Task[Subscription]:
        task = asyncio.create_task(self._subscribe(value))
        self._jobs.add(task)
        return task

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def run_brokers(point: Point) -> list[Row]:
    """A row for each way and rate, on one network after the other."""
    return asyncio.run(_measure(point))


async def _measure(point: Point) -> list[Row]:
    of = point.parameters
    names = tuple(f"b{number}" for number in range(1, int(of["brokers"]) + 1))
    rates = [int(rate) for rate in str(of["rates"]).split()]
    links = list(zip(names[1:], names, strict=False))
    rows = []
    with TemporaryDirectory() as folder:
        async with FarFleet(names, Path(folder), links=links, door_s=LINK_S) as fleet:
            phases = list(product(WAYS, rates))
            random.Random(point.seed).shuffle(phases)  # so that no way is always the first
            phases.insert(0, (UPD, rates[0]))
            for number, (way, rate) in enumerate(phases):
                phase = Phase(number, way, rate, float(of["window_s"]), point.seed)
                found = await _measured(fleet, phase)
                rows.append({"way": way, "updates_per_s": rate, **found})
    return rows[1:]  # the first events take longer, whatever the way


async def _measured(fleet: FarFleet, phase: Phase) -> Row:
    """What came of one way and rate, with clients of their own."""
    draws = random.Random(phase.seed)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(fleet.url(fleet.names[0])))
        listeners = []
        for topic in phase.topics:
            client = await stack.enter_async_context(connect(fleet.url(fleet.names[-1])))
            listener = AdaptingListener(
                client, topic, phase.way, random.Random(draws.randrange(1 << 30))
            )
            stack.push_async_callback(listener.stop)
            listeners.append(listener)
        await asyncio.gather(*(listener.begin() for listener in listeners))
        before, start = fleet.spent().cpu_s, _now()
        until = start + phase.window_s
        await _play(publisher, listeners, phase, until, draws)
        took = _now() - start
        heard = [listener.delays_ms(until) for listener in listeners]
        delays = [each for found, _ in heard for each in found]
        return {
            "delay_ms": mean(delays or [1000 * phase.window_s]),
            "swings": len(delays),
            "unheard": sum(unheard for _, unheard in heard) / max(1, len(delays)),
            "spurious_per_s": sum(each.spurious for each in listeners) / took,
            "doubled_per_s": sum(each.doubled for each in listeners) / took,
            "delivered_per_s": sum(each.delivered for each in listeners) / took,
            "changes_per_s": sum(each.changes for each in listeners) / took,
            "cpu_ms_per_s": 1000 * (fleet.spent().cpu_s - before) / took,
        }


async def _play(
    publisher: Client,
    listeners: list[AdaptingListener],
    phase: Phase,
    until: float,
    draws: random.Random,
) -> None:
    """Publish, tremble and swing until a moment."""
    start = _now()
    due = [start + draws.random() / phase.rate for _ in listeners]
    swings = [start + draws.random() * SWING_S for _ in listeners]
    published = 0
    while (now := _now()) < until:
        while published < (now - start) * EVENTS_PER_S:
            topic = phase.topics[published % LISTENERS]
            event = {"type": topic, "value": draws.randrange(1000)}
            _ = publisher.publish_nowait({**event, "number": published})  # nobody waits for it
            published += 1
        for place, listener in enumerate(listeners):
            if swings[place] <= now:
                listener.change(swing=True)
                swings[place] += SWING_S
            while due[place] <= now:
                listener.change(swing=False)
                due[place] += 1 / phase.rate
        await asyncio.sleep(1 / TICKS_PER_S)


def _now() -> float:
    return asyncio.get_running_loop().time()
