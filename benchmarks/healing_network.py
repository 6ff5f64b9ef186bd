"""Hierarchies of brokers in namespaces, links of 10 ms, and faults: each line can fall silent by
itself (bytes wait, and nobody is told that the other end has gone), each broker can pause.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.far_fleet import FarFleet

FANOUT: Final = 4
MANY: Final = 30
BEHIND_LINES: Final = ("nice", "-n", "19")
"""So many brokers have their turn after this process, which is all links: a wire takes no longer
where many have much to do. A few do without: they would wait for all else that the machine does."""


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

    def several(self) -> tuple[str, ...]:
        """Every third broker that has others below and above, and not the root above."""
        deep = [name for name, parent in self.parents.items() if parent != "b1"]
        return tuple(name for name in deep if name in self.parents.values())[::3]

    def leaves(self, count: int) -> list[str]:
        """So many brokers that have none below, in all branches; all, if there are no more."""
        found = [name for name in self.names if name not in self.parents.values()]
        return found[:: max(1, len(found) // count)][:count]

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


class HierarchyFleet(FarFleet):
    """The brokers of a hierarchy. Clients reach them without delay."""

    def __init__(
        self, shape: Hierarchy, folder: Path, routing: str, limits: Mapping[str, float]
    ) -> None:
        super().__init__(shape.names, folder, links=shape.links, limits=limits, routing=routing)
        self.shape = shape

    def launcher(self, name: str) -> Sequence[str]:
        words = super().launcher(name)
        return words if len(self.names) < MANY else (*BEHIND_LINES, *words)

    def options(self, name: str) -> Sequence[str]:
        above = self.shape.parents.get(name)
        return ("--parent", above) if above and self._routing == "proxies" else ()

    async def stop(self) -> None:
        for name in self._running:
            self.go_on(name)
        self.speak()
        await super().stop()

    def pause(self, name: str) -> None:
        """Stop a broker as a machine does that sleeps: its connections stay."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """End a pause."""
        os.kill(self.pid(name), signal.SIGCONT)

    def hush(self, is_silent: Callable[[str, str], bool]) -> None:
        """Let lines fall silent, from one broker to another."""
        for (one, other), line in self._lines.items():
            if is_silent(one, other):
                line.hush()

    def speak(self) -> None:
        """Let all lines carry again."""
        for line in self._lines.values():
            line.speak()
