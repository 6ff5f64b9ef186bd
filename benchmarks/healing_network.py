"""Brokers as processes, each in a network namespace of its own, and links that take 10 ms each way.

Every broker listens at an address of its own on its own loopback, and at the same address in each
other namespace a relay listens that leads there. So brokers reach each other by the addresses that
they tell, whoever finds whom, and each line can fall silent by itself: bytes wait, and nobody is
told that the other end has gone. The kernel need not be able to delay packets (netem).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Final, NamedTuple, Self

from palio.protocol.addresses import DEFAULT_PORT
from palio.studies.fleet import Fleet
from palio.studies.namespaces import Namespace
from palio.studies.relay import Relay

__all__ = ["LINK_S", "Hierarchy", "HierarchyFleet", "Spent", "hierarchy", "within_reach"]

LINK_S: Final = 0.01
FANOUT: Final = 4
AT_ONCE: Final = 2
"""Brokers that start at the same time: as many as there are processors, or all start slowly."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Hierarchy(NamedTuple):
    """Brokers b1, b2 and so on; b1 is the root."""

    names: tuple[str, ...]
    parents: Mapping[str, str]
    others: tuple[tuple[str, str], ...]
    """Further links, of which the first dials the second."""

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """All links, the one that dials first."""
        return (*self.parents.items(), *self.others)

    def below(self, name: str) -> tuple[str, ...]:
        """A broker and its whole branch."""
        found = [name]
        for each in found:
            found += [child for child, parent in self.parents.items() if parent == each]
        return tuple(found)


def hierarchy(count: int, fanout: int = FANOUT) -> Hierarchy:
    """A tree in which each broker has so many below it, and a few links more: every other broker
    dials its parent's next sister as well, and those next to the root each other.

    >>> found = hierarchy(7, 2)
    >>> found.parents["b6"], found.below("b3"), found.others
    ('b3', ('b3', 'b6', 'b7'), (('b3', 'b2'), ('b4', 'b3'), ('b6', 'b2')))
    """
    names = tuple(f"b{number}" for number in range(1, count + 1))
    above = {number: (number - 2) // fanout + 1 for number in range(2, count + 1)}
    parents = {f"b{number}": f"b{parent}" for number, parent in above.items()}
    children = list(names[1 : fanout + 1])
    others = list(zip(children[1:], children, strict=False))
    for number in range(fanout + 2, count + 1):
        sisters = [each for each in above if above[each] == above[above[number]]]
        aunt = f"b{sisters[(sisters.index(above[number]) + 1) % len(sisters)]}"
        if number % 2 == 0 and aunt != parents[f"b{number}"]:
            others.append((f"b{number}", aunt))
    return Hierarchy(names, parents, tuple(others))


def within_reach(links: Iterable[tuple[str, str]], start: str) -> frozenset[str]:
    """Where links lead from a broker, with itself."""
    known = list(links)
    found = {start: None}
    todo = [start]
    while todo:
        name = todo.pop()
        for one, other in known:
            for near, far in ((one, other), (other, one)):
                if near == name and far not in found:
                    found[far] = None
                    todo.append(far)
    return frozenset(found)


class Spent(NamedTuple):
    """What all running brokers have taken so far."""

    cpu_s: float
    link_bytes: int
    memory_bytes: int
    """Their own, without what processes share."""


class HierarchyFleet(Fleet):
    """The brokers of a hierarchy. Clients reach them without delay."""

    def __init__(
        self, shape: Hierarchy, folder: Path, routing: str, limits: Mapping[str, float]
    ) -> None:
        super().__init__(shape.names, folder, links=shape.links, limits=limits, routing=routing)
        self.shape = shape
        self._spaces = {name: Namespace() for name in shape.names}
        self._doors = {
            name: Relay(self.port(name), far=space, host=self.host(name))
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
            for one, other in permutations(shape.names, 2)
        }
        self._open = AsyncExitStack()
        self._starting = asyncio.Semaphore(AT_ONCE)

    # --- where they are ---

    def host(self, name: str) -> str:
        number = int(name[1:])
        return f"127.77.{number >> 8}.{number & 255}"

    def port(self, name: str) -> int:  # noqa: ARG002  # each has an address of its own
        return DEFAULT_PORT

    def url(self, name: str) -> str:
        return self._doors[name].url

    def way(self, name: str, other: str) -> str:
        return self._lines[name, other].url

    def launcher(self, name: str) -> Sequence[str]:
        return self._spaces[name].launcher

    def options(self, name: str) -> Sequence[str]:
        above = self.shape.parents.get(name)
        return ("--parent", above) if above and self._routing == "proxies" else ()

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
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        for name in self._running:
            self.go_on(name)
        self.speak()
        await super().stop()
        await self._open.aclose()

    async def _start_gently(self, name: str) -> None:
        async with self._starting:
            await self.start(name)

    def pause(self, name: str) -> None:
        """Stop a broker as a machine does that sleeps: its connections stay."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """End a pause."""
        os.kill(self.pid(name), signal.SIGCONT)

    # --- their links ---

    def hush(self, is_silent: Callable[[str, str], bool]) -> None:
        """Let lines fall silent, from one broker to another."""
        for (one, other), line in self._lines.items():
            if is_silent(one, other):
                line.hush()

    def speak(self) -> None:
        """Let all lines carry again."""
        for line in self._lines.values():
            line.speak()

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
