"""The same on real brokers: a line of processes in network namespaces, 10 ms on every link, clients
at 10 ms from their broker. What is measured are times of this machine.

These brokers are parametric, whoever asks: a re-subscription is two requests to the first, which
says to the next what has changed of its summary.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import permutations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Self

from palio.client.connection import Client, connect
from palio.client.subscription import Subscription
from palio.protocol.addresses import DEFAULT_PORT
from palio.simulation import Randomness
from palio.testing.fleet import Fleet
from palio_studies.namespaces import Namespace
from palio_studies.parametric_runs import (
    SWING_MS,
    US_PER_MS,
    US_PER_S,
    WAYS,
    Swinger,
    delay_row,
)
from palio_studies.relay import Relay
from palio_studies.simulator import Delivery
from palio_studies.study import Point, Row

LINK_S: Final = 0.01
AT_ONCE: Final = 2
"""Brokers that start at the same time: as many as there are processors, or all start slowly."""
TICKS: Final = os.sysconf("SC_CLK_TCK")

LISTENERS: Final = 6
"""All at the last broker; who publishes is at the first."""

EVENTS_PER_S: Final = 240
"""Of all types together; each listener has one."""

TICKS_PER_S: Final = 200
"""How often it is looked what is due."""

READY_S: Final = 60.0

TIMED: Final = frozenset(
    {"delay_ms", "swings", "unheard", "spurious_per_s", "doubled_per_s", "delivered_per_s"}
    | {"changes_per_s", "cpu_ms_per_s"}
)


class Spent(NamedTuple):
    """What all running brokers have taken so far."""

    cpu_s: float
    link_bytes: int
    memory_bytes: int
    """Their own, without what processes share."""


class FarFleet(Fleet):
    """Brokers b1, b2 and so on in namespaces, and links that take their time without netem.

    At the address of each broker a relay listens in every other namespace that leads there: so
    brokers reach each other by the addresses that they tell, whoever finds whom. `door_s` is how
    long it takes from a client; for the rest see `Fleet`.
    """

    def __init__(
        self, names: tuple[str, ...], folder: Path, *, door_s: float = 0.0, **options: Any
    ) -> None:
        super().__init__(names, folder, **options)
        self._spaces = {name: Namespace() for name in names}
        self._doors = {
            name: Relay(self.port(name), delay_s=door_s, far=space)
            for name, space in self._spaces.items()
        }
        self._lines = {
            (one, other): Relay(
                self.port(other),
                delay_s=LINK_S,
                near=self._spaces[one],
                far=self._spaces[other],
                at=self.port(other),
            )
            for one, other in permutations(names, 2)
        }
        self._open = AsyncExitStack()
        self._starting = asyncio.Semaphore(AT_ONCE)

    def port(self, name: str) -> int:
        """Of each its own, and none that the system gives to whoever asks for any."""
        return DEFAULT_PORT + int(name[1:])

    def url(self, name: str) -> str:
        """The way of clients."""
        return self._doors[name].url

    def way(self, name: str, other: str) -> str:
        """The line from one broker to another."""
        return self._lines[name, other].url

    def launcher(self, name: str) -> Sequence[str]:
        """What runs a broker in its namespace."""
        return self._spaces[name].launcher

    async def __aenter__(self) -> Self:
        for space in self._spaces.values():
            self._open.enter_context(space)
        for relay in (*self._doors.values(), *self._lines.values()):
            await self._open.enter_async_context(relay)
        try:
            async with asyncio.TaskGroup() as group:
                for name in self.names:
                    group.create_task(self._start_gently(name))
            await self.linked()
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """End the brokers, then what led to them."""
        await super().stop()
        await self._open.aclose()

    async def _start_gently(self, name: str) -> None:
        async with self._starting:
            await self.start(name)

    def spent(self) -> Spent:
        """What all have taken so far."""
        pids = [process.pid for process in self._running.values()]
        return Spent(
            sum(map(_cpu_s, pids)),
            sum(line.carried_bytes for line in self._lines.values()),
            sum(map(_memory_bytes, pids)),
        )


def _cpu_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def _memory_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


# --- clients that keep changing their bound ---


class RealClient:
    """A client as the simulation has it, on a connection: what it asks for is not waited for.

    It takes an event that its newest value lets through. `spurious` are those that it got and did
    not take, `doubled` those that came again for another of its subscriptions.
    """

    def __init__(self, client: Client) -> None:
        self.received: list[Delivery] = []
        self.doubled = 0
        self._client = client
        self._refused = 0
        self._bound = 0
        self._seen: set[int] = set()
        self._begun: list[asyncio.Task[Subscription]] = []
        self._jobs: set[asyncio.Task[Any]] = set()

    @property
    def spurious(self) -> int:
        """What it got and did not take: here, or within the client already."""
        return self._refused + self._client.stale

    def subscribe(self, guard: str, values: Mapping[str, int], /) -> int:
        """Begin a subscription; its key."""
        self._bound = values["x"]
        self._begun.append(self._spawn(self._subscribe(guard, values)))
        return len(self._begun) - 1

    def change(self, key: int, values: Mapping[str, int], /) -> None:
        """Change a subscription."""
        self._bound = values["x"]
        _ = self._spawn(self._then(key, lambda subscription: subscription.update(values)))

    def unsubscribe(self, key: int, /) -> None:
        """End a subscription."""
        _ = self._spawn(self._then(key, Subscription.unsubscribe))

    async def settled(self) -> None:
        """Wait until its first subscription is in force at all brokers."""
        await (await self._begun[0]).settled(READY_S)

    async def stop(self) -> None:
        """Hear nothing more."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def hear(self, number: int, value: int, now_us: int) -> None:
        """An event came."""
        if number in self._seen:
            self.doubled += 1
        elif value > self._bound:
            self._refused += 1
        else:
            self.received.append(Delivery(now_us, "", number, {"value": value}))
        self._seen.add(number)

    async def _subscribe(self, guard: str, values: Mapping[str, int]) -> Subscription:
        subscription = await self._client.subscribe(guard, values)
        _ = self._spawn(self._read(subscription))
        return subscription

    async def _read(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.hear(event["number"], event["value"], _now_us())

    async def _then(self, key: int, change: Callable[[Subscription], Awaitable[Any]]) -> None:
        await change(await self._begun[key])

    def _spawn(self, job: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task


# --- runs ---


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
            # In any order, so that no way is always the first.
            phases = [phases[0], *Randomness(point.seed).sample(phases, len(phases))]
            for number, (way, rate) in enumerate(phases):
                # No event of an earlier phase is taken for one of these.
                topics = range(number * LISTENERS, (number + 1) * LISTENERS)
                random = Randomness(point.seed)
                found = await _measured(fleet, topics, way, rate, float(of["window_s"]), random)
                rows.append({"way": way, "updates_per_s": rate, **found})
    return rows[1:]  # the first events take longer, whatever the way


async def _measured(
    fleet: FarFleet, topics: range, way: str, rate: int, window_s: float, random: Randomness
) -> Row:
    """What came of one way and rate, with clients and types of their own."""
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(fleet.url(fleet.names[0])))
        clients, swingers = [], []
        for topic in topics:
            connection = await stack.enter_async_context(connect(fleet.url(fleet.names[-1])))
            client = RealClient(connection)
            stack.push_async_callback(client.stop)
            clients.append(client)
            swingers.append(Swinger(client, topic, "<=", WAYS[way], random.below(1 << 30)))
        await asyncio.gather(*(client.settled() for client in clients))
        before, start_us = fleet.spent().cpu_s, _now_us()
        until_us = start_us + round(window_s * US_PER_S)
        changes = await _play(publisher, swingers, rate, until_us, random)
        took_s = (_now_us() - start_us) / US_PER_S
        return {
            **delay_row([swinger.heard({}, until_us) for swinger in swingers], window_s),
            "spurious_per_s": sum(client.spurious for client in clients) / took_s,
            "doubled_per_s": sum(client.doubled for client in clients) / took_s,
            "delivered_per_s": sum(len(client.received) for client in clients) / took_s,
            "changes_per_s": changes / took_s,
            "cpu_ms_per_s": 1000 * (fleet.spent().cpu_s - before) / took_s,
        }


async def _play(
    publisher: Client, swingers: Sequence[Swinger], rate: int, until_us: int, random: Randomness
) -> int:
    """Publish, tremble and swing until a moment; how often bounds were changed."""
    start_us = _now_us()
    due = [start_us + random.uniform() * US_PER_S / rate for _ in swingers]
    swings = [start_us + random.uniform() * SWING_MS * US_PER_MS for _ in swingers]
    published = changes = 0
    while (now_us := _now_us()) < until_us:
        while published < (now_us - start_us) / US_PER_S * EVENTS_PER_S:
            topic = swingers[published % len(swingers)].topic
            event = {"type": topic, "value": random.below(1000), "number": published}
            _ = publisher.publish_nowait(event)  # nobody waits for it
            published += 1
        for place, swinger in enumerate(swingers):
            if swings[place] <= now_us:
                swinger.swing(now_us)
                swings[place] += SWING_MS * US_PER_MS
                changes += 1
            while due[place] <= now_us:
                swinger.update()
                due[place] += US_PER_S / rate
                changes += 1
        await asyncio.sleep(1 / TICKS_PER_S)
    return changes


def _now_us() -> int:
    return round(asyncio.get_running_loop().time() * US_PER_S)
