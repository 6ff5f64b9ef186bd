"""The rows of `benchmarks.peers`: what the process of the clients does with one system."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final, Self

import numpy as np

from benchmarks.peer_systems.bench import PATIENCE_S, Bench, Figures, Window
from benchmarks.peer_systems.fanout import EVENTS, Fanout, event_of
from benchmarks.peer_systems.system import Client, Hear, Wanted

ON_THEIR_WAY: Final = 4_000
"""Events that were published and not yet heard, where as many as possible are to pass: few enough
that no system drops any.
"""

AT_ONCE: Final = 1_000
FANOUT_AT_ONCE: Final = 512
DURABLE_AT_ONCE: Final = 64

EVERYTHING: Final = Wanted(0, 0, 100)

ELSEWHERE: Final = 1_000
"""Where the moving filter is: no other filter has such an `a`."""

STRAY_S: Final = 0.3
"""How long events may still come that nobody should get."""


class OneSubscriber:
    """One publisher, one subscriber, one filter, which every event matches."""

    def __init__(self, bench: Bench, publisher: Client, subscriber: Client) -> None:
        self._bench = bench
        self._ends = (publisher, subscriber)
        self._send = publisher.send
        self._heard: asyncio.Future[None] | None = None
        self._window = Window(ON_THEIR_WAY)
        self._number = 0

    @classmethod
    async def ready(cls, bench: Bench) -> Self:
        subscriber = await bench.client()
        alone = bench.job.system == "echo"  # what is sent comes back where it came from
        publisher = subscriber if alone else await bench.client()
        one = cls(bench, publisher, subscriber)
        await subscriber.subscribe([EVERYTHING], one._hear)
        return one

    def _hear(self, event: Mapping[str, Any]) -> None:  # noqa: ARG002  # there is one filter
        if self._heard is None:
            self._window.leave()
        else:
            self._heard.set_result(None)

    def _event(self) -> dict[str, Any]:
        self._number += 1
        return event_of(self._number, 0, 0, 7)

    async def quiet(self, seconds: float) -> Figures:
        """One event at a time, from the call until the subscriber has it."""
        loop, before = asyncio.get_running_loop(), self._bench.cpu()
        delays: list[float] = []
        until = perf_counter() + seconds
        while not delays or perf_counter() < until:
            event, self._heard = self._event(), loop.create_future()
            started = perf_counter()
            await self._send(event)
            await self._heard
            delays.append(perf_counter() - started)
        self._heard = None
        spent = self._bench.spent(before, len(delays))
        return {"p50_us": float(np.median(delays)) * 1e6, **spent}

    async def turn(self, seconds: float) -> Figures:
        """One call of publish a turn of the loop."""
        return await self._rate(seconds, 1)

    async def burst(self, seconds: float) -> Figures:
        """A thousand calls a turn."""
        return await self._rate(seconds, AT_ONCE)

    async def _rate(self, seconds: float, at_once: int) -> Figures:
        """Events a second, from the first call until the last is heard."""
        events, started = 0, perf_counter()
        while not events or perf_counter() - started < seconds:
            for _ in range(at_once):
                await self._window.enter()
                await self._send(self._event())
            events += at_once
            await asyncio.sleep(0)
        await self._window.empty()
        return {"rate": events / (perf_counter() - started)}

    async def close(self) -> None:
        for each in dict.fromkeys(self._ends):
            await each.close()


async def moved(bench: Bench) -> Figures:
    """A filter moves; until the first event that only its new place matches has come."""
    publisher, subscriber = await bench.client(), await bench.client()
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[int] = loop.create_future()
    place = ELSEWHERE
    move = await subscriber.follow(
        Wanted(place, 0, 100), lambda event: heard.set_result(event["a"])
    )

    async def measure(seconds: float) -> Figures:
        nonlocal heard, place
        delays: list[float] = []
        until = perf_counter() + seconds
        while not delays or perf_counter() < until:
            place, heard = place + 1, loop.create_future()
            event, wanted = event_of(place, place, 0, 7), Wanted(place, 0, 100)
            started = perf_counter()
            await move(wanted)
            await publisher.send(event)
            at = await heard
            delays.append(perf_counter() - started)
            if at != place:
                raise RuntimeError(f"the filter is at {place}, and an event of {at} came")
        return {"p50_ms": float(np.median(delays)) * 1e3}

    found = await bench.repeated(measure)
    await publisher.close()
    await subscriber.close()
    return found


class Many:
    """Many filters of many clients; each event is for about a tenth of the clients."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._fanout = Fanout(bench.job.filters, bench.job.clients)
        self._clients: list[Client] = []
        self._publisher: Client | None = None
        self._delivered: list[tuple[int, int]] = []
        """Number of the event, and client."""
        self._left: dict[int, int] = {}
        """Clients that are still to hear an event, by its number."""
        self._window = Window(1)
        self._number = 0

    async def subscribe(self) -> Figures:
        """All filters, until they are in force: the median of several times, each with new
        clients. Memory is what the first of them took.
        """
        times, memory = [], 0.0
        for _ in range(self._bench.job.rounds):
            for each in self._clients:
                await each.close()
            self._clients = [await self._bench.client() for _ in self._fanout.wanted]
            before, started = self._bench.memory_mb(), perf_counter()
            calls = (
                client.subscribe(wanted, self._hearing(number))
                for number, (client, wanted) in enumerate(
                    zip(self._clients, self._fanout.wanted, strict=True)
                )
            )
            await asyncio.gather(*calls)
            times.append(perf_counter() - started)
            memory = memory or self._bench.memory_mb() - before
        self._publisher = await self._bench.client()
        return {"s": float(np.median(times)), "mb": memory}

    def _hearing(self, client: int) -> Hear:
        def hear(event: Mapping[str, Any]) -> None:
            number = event["n"]
            self._delivered.append((number, client))
            left = self._left.get(number, 0) - 1
            if left == 0:
                del self._left[number]
                self._window.leave()
            else:
                self._left[number] = left

        return hear

    async def load(self, seconds: float) -> Figures:
        """One call a turn, many events on their way."""
        self._window = Window(FANOUT_AT_ONCE)
        before, first, started = self._bench.cpu(), self._number, perf_counter()
        while self._number == first or perf_counter() - started < seconds:
            await self._publish()
            await asyncio.sleep(0)
        await self._window.empty()
        events = self._number - first
        rate = events / (perf_counter() - started)
        return {"rate": rate, **self._bench.spent(before, events)}

    async def quiet(self, seconds: float) -> Figures:
        """One event at a time, until all of its clients have it."""
        self._window = Window(1)
        delays: list[float] = []
        until = perf_counter() + seconds
        while not delays or perf_counter() < until:
            started = perf_counter()
            await self._publish()
            await self._window.empty()
            delays.append(perf_counter() - started)
        return {"p50_ms": float(np.median(delays)) * 1e3}

    async def _publish(self) -> None:
        await self._window.enter()
        number, at = self._number, self._number % EVENTS
        self._number += 1
        self._left[number] = len(self._fanout.hearers[at])
        assert self._publisher is not None
        await self._publisher.send({**self._fanout.events[at], "n": number})

    async def compared(self) -> Figures:
        """How many pairs of event and client were delivered; an error if they are not right."""
        await asyncio.sleep(STRAY_S)
        return {"pairs": float(self._fanout.check(self._delivered, self._number))}

    async def close(self) -> None:
        assert self._publisher is not None
        for each in (*self._clients, self._publisher):
            await each.close()


class Durable:
    """Events that the broker keeps, for one subscriber that acknowledges them."""

    def __init__(self, bench: Bench, publisher: Client, subscriber: Client) -> None:
        self._bench = bench
        self._publisher = publisher
        self._subscriber = subscriber
        self._heard: set[int] = set()
        self._all: asyncio.Future[None] | None = None
        self._number = 0

    @classmethod
    async def ready(cls, bench: Bench) -> Self:
        subscriber = await bench.client()
        alone = bench.job.system == "echo"
        durable = cls(bench, subscriber if alone else await bench.client(), subscriber)
        await subscriber.keep(durable._hear)
        return durable

    def _hear(self, event: Mapping[str, Any]) -> None:
        self._heard.add(event["n"])
        if self._all is not None and len(self._heard) == self._number:
            self._all.set_result(None)

    async def _publish(self) -> None:
        self._number += 1
        await self._publisher.send_durable(event_of(self._number, 0, 0, 7))

    async def one(self, seconds: float) -> Figures:
        """One at a time, until it is acknowledged."""
        delays: list[float] = []
        until = perf_counter() + seconds
        while not delays or perf_counter() < until:
            started = perf_counter()
            await self._publish()
            delays.append(perf_counter() - started)
        return {"p50_us": float(np.median(delays)) * 1e6}

    async def many(self, seconds: float) -> Figures:
        """Acknowledged events a second, with so many on their way."""
        first, started = self._number, perf_counter()

        async def one_after_another() -> None:
            while perf_counter() - started < seconds:
                await self._publish()

        async with asyncio.TaskGroup() as group:
            for _ in range(DURABLE_AT_ONCE):
                group.create_task(one_after_another())
        return {"rate": (self._number - first) / (perf_counter() - started)}

    async def compared(self) -> Figures:
        """All that was acknowledged has come."""
        if len(self._heard) < self._number:
            self._all = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(PATIENCE_S):
                await self._all
        return {"events": float(self._number)}

    async def close(self) -> None:
        for each in dict.fromkeys((self._publisher, self._subscriber)):
            await each.close()
