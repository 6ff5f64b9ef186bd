"""`FarFleet`: brokers as processes in network namespaces, 10 ms on every link between them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from benchmarks.namespaces import Namespace
from benchmarks.relay import Relay
from palio.protocol.addresses import DEFAULT_PORT
from palio.testing.fleet import Fleet

LINK_S: Final = 0.01
TICKS: Final = os.sysconf("SC_CLK_TCK")
AT_ONCE: Final = 2
"""Brokers that start at the same time: as many as there are processors, or all start slowly."""


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
