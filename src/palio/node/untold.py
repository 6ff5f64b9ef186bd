"""`Untold`: what a broker has to say of itself that is not on its disk, or not yet.

A broker tells what is on its disk and nothing else. What could not be written is said again under a
newer version, until there is room. Meanwhile nobody hears of it, and nobody waits for it but who
asked about just that.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from palio.protocol.messages import Fact

__all__ = ["Untold"]


class Untold:
    """The facts of one broker that others may not know yet.

    >>> untold = Untold(newest_told=3)
    >>> untold.add(Fact("b1", 4, "ann/d"))
    >>> untold.refuse(4, told_all_the_same=("links",))
    ([], ['ann/d'])
    >>> untold.newest(said=4), bool(untold)
    (3, True)
    """

    def __init__(self, newest_told: int) -> None:
        self._newest_told = newest_told
        self._pending: dict[int, Fact] = {}
        """By version, what is being written."""
        self.unwritten: dict[str, None] = {}
        """Subjects of which the newest fact could not be written."""

    def __bool__(self) -> bool:
        return bool(self._pending or self.unwritten)

    def add(self, fact: Fact) -> None:
        """Something is said, and being written."""
        self._pending[fact.version] = fact

    def holds(self, fact: Fact) -> bool:
        """Whether a fact of this broker may not be told."""
        return fact.version in self._pending or fact.subject in self.unwritten

    @property
    def versions(self) -> tuple[int, ...]:
        """What is being written, the oldest first."""
        return tuple(self._pending)

    @property
    def first(self) -> float:
        """The oldest version that is being written; infinite if all is."""
        return next(iter(self._pending), inf)

    def newest(self, said: int) -> int:
        """The newest version that others hear of, as far as is known; `said`: the newest of all."""
        if not self.unwritten:
            return said
        sure = (each for each, fact in self._pending.items() if fact.subject not in self.unwritten)
        return max(sure, default=self._newest_told)

    def write(self, version: int) -> list[Fact]:
        """All up to a version is on the disk: what may be told, in the order of versions."""
        done = self._take(version)
        for fact in done:
            self.unwritten.pop(fact.subject, None)
        return self._tell(done)

    def refuse(
        self, version: int, *, told_all_the_same: Collection[str]
    ) -> tuple[list[Fact], list[str]]:
        """It could not be written: what may be told, and the subjects that are to be said again."""
        done = self._take(version)
        told = [fact for fact in done if fact.subject in told_all_the_same]
        failed = [fact.subject for fact in done if fact.subject not in told_all_the_same]
        self.unwritten.update(dict.fromkeys(failed))
        return self._tell(told), failed

    def _take(self, version: int) -> list[Fact]:
        return [self._pending.pop(each) for each in sorted(self._pending) if each <= version]

    def _tell(self, facts: list[Fact]) -> list[Fact]:
        if facts:
            self._newest_told = max(self._newest_told, facts[-1].version)
        return facts
