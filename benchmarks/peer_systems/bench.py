"""What the rows of `benchmarks.peers` measure with: rounds, CPU, memory, events on their way."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from benchmarks.peer_systems.system import Client, Running, System

Figures = dict[str, float]

PATIENCE_S: Final = 120.0
"""More than any row takes: one that waits for what never comes says so."""

_CPU_OF_PROCESS: Final = 2
"""What Linux adds to the complement of a process's number for the clock of its CPU time."""


class Job(msgspec.Struct):
    """What the process of the clients is to do."""

    system: str
    address: str
    process: int
    directory: str
    rows: list[str]
    seconds: float
    warm_s: float
    rounds: int
    filters: int
    clients: int


def cpu_s(process: int) -> float:
    """The CPU time that a process has taken, all its threads; 0 if it is gone."""
    try:
        return time.clock_gettime((~process << 3) | _CPU_OF_PROCESS)
    except OSError:
        return 0.0


def resident_mb(process: int) -> float:
    """What a process has in memory now."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    found = [each for each in status.splitlines() if each.startswith("VmRSS:")]
    return int(found[0].split()[1]) / 1024 if found else 0.0


class Window:
    """Events on their way; one more may have to wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._below = 0
        self._waiter: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        """One more, once there is room."""
        if self._count >= self._limit:
            await self._until(self._limit)
        self._count += 1

    def leave(self) -> None:
        """One less."""
        self._count -= 1
        if self._waiter is not None and self._count < self._below and not self._waiter.done():
            self._waiter.set_result(None)

    async def empty(self) -> None:
        """Return when none is on its way."""
        await self._until(1)

    async def _until(self, below: int) -> None:
        while self._count >= below:
            self._below = below
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class Bench:
    """A job at work."""

    def __init__(self, job: Job, system: System) -> None:
        self.job = job
        self._system = system
        self._broker = Running(job.address, job.process)
        self._names = 0

    async def client(self, name: str = "") -> Client:
        """One more client of the broker."""
        self._names += 1
        directory = Path(self.job.directory)
        name = name or f"c{self._names}"
        return await self._system.connect(self.job.address, name, directory)

    async def repeated(self, measure: Callable[[float], Awaitable[Figures]]) -> Figures:
        """Medians of several rounds, after one that does not count."""
        async with asyncio.timeout(PATIENCE_S):
            await measure(self.job.warm_s)
            rounds = [await measure(self.job.seconds) for _ in range(self.job.rounds)]
        return {name: median(each[name] for each in rounds) for name in rounds[0]}

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU that the broker and this process have taken."""
        return sum(map(cpu_s, self._broker.processes)), time.process_time()

    def spent(self, before: tuple[float, float], events: int) -> Figures:
        """Microseconds of CPU that each event took since then."""
        broker, clients = (
            (now - then) / events * 1e6 for now, then in zip(self.cpu(), before, strict=True)
        )
        return {"broker_us": broker, "clients_us": clients}

    def memory_mb(self) -> float:
        """What the broker and this process have resident."""
        return sum(map(resident_mb, [*self._broker.processes, os.getpid()]))
