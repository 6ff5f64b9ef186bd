"""Brokers as processes, each in a network namespace of its own, and links that take their time.

Every broker listens at an address of its own on its own loopback, and at the same address in each
namespace that reaches it a relay listens that leads there. So brokers reach each other by the
addresses that they tell, whoever finds whom. The kernel need not be able to delay packets (netem).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Final, NamedTuple, Self

from palio.protocol.addresses import DEFAULT_PORT
from palio.testing.fleet import SOON, Fleet
from palio.testing.namespaces import Namespace
from palio.testing.relay import Relay

__all__ = ["LINK_S", "FarFleet", "Spent"]

LINK_S: Final = 0.01
AT_ONCE: Final = 2
"""Brokers that start at the same time: as many as there are processors, or all start slowly."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """What all running brokers have taken so far."""

    cpu_s: float
    link_bytes: int
    memory_bytes: int
    """Their own, without what processes share."""


class FarFleet(Fleet):
    """Brokers b1, b2 and so on, in namespaces; `door_s` is how long it takes from a client."""

    def __init__(
        self,
        names: tuple[str, ...],
        folder: Path,
        *,
        links: Iterable[tuple[str, str]],
        limits: Mapping[str, float] = SOON,
        routing: str = "general",
        door_s: float = 0.0,
    ) -> None:
        super().__init__(names, folder, links=links, limits=limits, routing=routing)
        self._spaces = {name: Namespace() for name in names}
        self._doors = {
            name: Relay(self.port(name), delay_s=door_s, far=space, host=self.host(name))
            for name, space in self._spaces.items()
        }
        self._lines = {
            (one, other): Relay(
                self.port(other),
                delay_s=LINK_S,
                near=self._spaces[one],
                far=self._spaces[other],
                host=self.host(other),
                at=(self.host(other), self.port(other)),
            )
            for one, other in permutations(names, 2)
        }
        self._open = AsyncExitStack()
        self._starting = asyncio.Semaphore(AT_ONCE)

    # --- where they are ---

    def host(self, name: str) -> str:
        """An address for each broker."""
        number = int(name[1:])
        return f"127.77.{number >> 8}.{number & 255}"

    def port(self, name: str) -> int:  # noqa: ARG002  # each has an address of its own
        """The same for all."""
        return DEFAULT_PORT

    def url(self, name: str) -> str:
        """The way of clients."""
        return self._doors[name].url

    def way(self, name: str, other: str) -> str:
        """The line from one broker to another."""
        return self._lines[name, other].url

    def launcher(self, name: str) -> Sequence[str]:
        """What runs a broker in its namespace."""
        return self._spaces[name].launcher

    # --- their lives ---

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

    # --- what they take ---

    def spent(self) -> Spent:
        """What all have taken so far."""
        return Spent(
            sum(map(_cpu_s, self._pids())),
            sum(line.carried_bytes for line in self._lines.values()),
            sum(map(_memory_bytes, self._pids())),
        )

    def _pids(self) -> Iterator[int]:
        return (process.pid for process in self._running.values())


def _cpu_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def _memory_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
