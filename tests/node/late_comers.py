"""A late comer among publishers that go on, and the oracle: what was published, and its filter."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime

from palio.client.connection import Client
from palio.client.events import Event, Gap
from palio.client.subscription import Subscription
from palio.node.settings import Settings
from palio.testing import Network

KEPT = Settings(history_s=3_600.0)
QUIET_S = 60.0
"""Virtual seconds after which nothing is under way any more."""

VALUES = 10

DAWN = datetime.fromisoformat("2026-01-01T00:01:00Z")
"""Before anything is published, and after the history has begun."""


class Publisher:
    """A client that goes on publishing numbered durable events at random moments."""

    def __init__(self, client: Client, rng: random.Random, number: int) -> None:
        self._client, self._rng, self._number = client, rng, number
        self.published: list[tuple[int, int]] = []
        """The identity and the value of each event."""
        self._going = asyncio.ensure_future(self._go())

    async def _go(self) -> None:
        rng = self._rng
        while True:
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.2, 1.0)))
            await self.publish(rng.randint(1, 4))

    async def publish(self, count: int) -> None:
        first = len(self.published)
        events = [
            {"id": self._number * 100_000 + first + index, "x": self._rng.randrange(VALUES)}
            for index in range(count)
        ]
        self.published += [(event["id"], event["x"]) for event in events]
        receipt = self._client.publish_nowait(events, durable=True)
        await asyncio.shield(receipt)

    async def stop(self) -> None:
        self._going.cancel()
        await asyncio.gather(self._going, return_exceptions=True)


class Heard:
    """All that one subscription receives."""

    def __init__(self, subscription: Subscription[Event]) -> None:
        self.events: list[Event] = []
        self._taking = asyncio.ensure_future(self._take(subscription))

    async def _take(self, subscription: Subscription[Event]) -> None:
        async for event in subscription:
            self.events.append(event)

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]

    def check(self) -> None:
        if self._taking.done():
            self._taking.result()

    def stop(self) -> None:
        self._taking.cancel()


async def play(seed: int) -> None:
    """One random life of a late comer; an AssertionError if it differs from the oracle."""
    rng = random.Random(seed)
    brokers = rng.randint(1, 3)
    names = [f"b{number + 1}" for number in range(brokers)]
    latency_s = rng.choice((0.001, 0.1, 0.5))
    async with Network(
        f"line:{brokers}",
        settings=KEPT,
        seed=seed,
        delay_s=latency_s,
        disk_s=rng.choice((0.001, 0.3)),
    ) as net:
        watcher = await net.connect("b1", name="watcher")
        all_of_them = Heard(await watcher.subscribe("x >= 0", durable_name="all"))
        await watcher.settled()
        await asyncio.sleep(QUIET_S)
        publishers = [
            Publisher(await net.connect(rng.choice(names), name=f"p{number}"), rng, number)
            for number in range(rng.randint(1, 3))
        ]
        await asyncio.sleep(rng.uniform(0.0, 20.0))
        await _live(net, rng, names, publishers, all_of_them)
        all_of_them.stop()


async def _live(
    net: Network,
    rng: random.Random,
    names: list[str],
    publishers: list[Publisher],
    all_of_them: Heard,
) -> None:
    times = [DAWN, *(event.time for event in all_of_them.events)]
    client = await net.connect(rng.choice(names), name="late")
    since = times[-1] if rng.random() < 0.2 else rng.choice(times)
    gaps: list[Gap] = []
    limit = rng.randrange(VALUES + 1)
    late = await client.subscribe(
        "x < :limit", {"limit": limit}, durable_name="late", since=since, on_gap=gaps.append
    )
    heard = Heard(late)
    limits = [limit]
    for _ in range(rng.randrange(4)):
        await asyncio.sleep(rng.choice((0.0, 0.05, 3.0)))
        match rng.randrange(4):
            case 0:
                await client.suspend()
                await asyncio.sleep(rng.choice((0.0, 5.0)))
                await client.resume()
            case 1:
                await client.move(rng.choice(names))
            case 2:
                limits.append(rng.randrange(VALUES + 1))
                await late.update(limit=limits[-1])
            case _ if len(names) > 1:
                net.drop("b1", "b2")
    await asyncio.sleep(rng.choice((0.0, 5.0)))
    for publisher in publishers:
        await publisher.stop()
    await asyncio.sleep(QUIET_S)
    final = [len(publisher.published) for publisher in publishers]
    for publisher in publishers:
        await publisher.publish(5)
    await asyncio.sleep(QUIET_S)
    heard.check()
    assert not [gap for gap in gaps if "history" in gap.reason]
    published = dict(pair for publisher in publishers for pair in publisher.published)
    time_of = {event["id"]: event.time for event in all_of_them.events}
    assert time_of.keys() == published.keys()
    last = {
        id
        for publisher, count in zip(publishers, final, strict=True)
        for id, _ in publisher.published[count:]
    }
    due = {
        id
        for id, x in published.items()
        if time_of[id] >= since and x < (limits[-1] if id in last else min(limits))
    }
    possible = {
        id
        for id, x in published.items()
        if x < (limits[-1] if id in last else max(limits)) and time_of[id] >= since
    }
    ids = heard.ids
    assert len(ids) == len(set(ids)), "an event came twice"
    missing, wrong = due - set(ids), set(ids) - possible
    assert not missing, f"{sorted(missing)} of {len(due)} are missing, {since=}"
    assert not wrong, f"{[(id, published[id], time_of[id]) for id in wrong]} {since=}"
    heard.stop()
