"""The row of groups in `benchmarks.peers`: workers that share durable events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, Self

from benchmarks.peer_systems.bench import PATIENCE_S, Bench, Figures, Window
from benchmarks.peer_systems.fanout import event_of
from benchmarks.peer_systems.rows import DURABLE_AT_ONCE
from benchmarks.peer_systems.system import Client

WORKERS: Final = 4


class Group:
    """Events that a broker keeps; each is for one of several workers, which acknowledges it."""

    def __init__(self, bench: Bench, publisher: Client, workers: list[Client]) -> None:
        self._bench = bench
        self._publisher = publisher
        self._workers = workers
        self._done = Counter[int]()
        self._shares = [0] * len(workers)
        self._window = Window(1 << 30)
        self._number = 0

    @classmethod
    async def ready(cls, bench: Bench) -> Self:
        workers = [await bench.client("worker") for _ in range(WORKERS)]
        group = cls(bench, await bench.client(), workers)
        for number, worker in enumerate(workers):
            await worker.work(partial(group._take, number))
        return group

    def _take(self, worker: int, event: Mapping[str, Any]) -> None:
        self._done[event["n"]] += 1
        self._shares[worker] += 1
        self._window.leave()

    async def load(self, seconds: float) -> Figures:
        """Events a second, with so many publications on their way, until the workers have all."""
        first, before, started = self._number, self._bench.cpu(), perf_counter()

        async def one_after_another() -> None:
            while perf_counter() - started < seconds:
                self._number += 1
                await self._window.enter()
                await self._publisher.send_durable(event_of(self._number, 0, 0, 7))

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for _ in range(DURABLE_AT_ONCE):
                group.create_task(one_after_another())
        await self._window.empty()
        events = self._number - first
        spent = self._bench.spent(before, events)
        return {"rate": events / (perf_counter() - started), **spent}

    def compared(self) -> Figures:
        """Each event was done once, and each worker had some; an error if not."""
        if self._done.total() != self._number or len(self._done) != self._number:
            raise RuntimeError(f"{self._number} events were done {self._done.total()} times")
        if not all(self._shares):
            raise RuntimeError(f"of the workers some had nothing: {self._shares}")
        return {"events": float(self._number)}

    async def close(self) -> None:
        for each in (self._publisher, *self._workers):
            await each.close()
