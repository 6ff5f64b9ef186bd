"""`Timetable`: which assembly has something to let go when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Final

from palio.routing.patterns.standing import PatternSubscription

__all__ = ["Timetable"]

AT_ONCE: Final = datetime(1, 1, 1, tzinfo=UTC)
"""A time that any window has passed."""


class Timetable:
    """Patterns by number, and times of publication: what was published then is let go a window
    later.

    >>> table, noon = Timetable(), datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> table.note(7, noon)
    >>> table.first == noon, list(table.due(until=noon)), table.first
    (True, [7], None)
    """

    def __init__(self) -> None:
        self._due: list[tuple[datetime, int]] = []

    @property
    def first(self) -> datetime | None:
        """The first of the times; None if there is none."""
        return self._due[0][0] if self._due else None

    def note(self, number: int, time: datetime) -> None:
        """Something was published at that time, for the pattern of this number."""
        heappush(self._due, (time, number))

    def plan(self, standing: PatternSubscription) -> None:
        """Note when an assembly next has something to let go."""
        assembly = standing.assembly
        if assembly is None or assembly.is_waiting or assembly.earliest is None:
            return
        self.note(standing.number, AT_ONCE if assembly.is_full else assembly.earliest)

    def __len__(self) -> int:
        return len(self._due)

    def due(self, until: datetime) -> Iterator[int]:
        """Take out the patterns of the times up to one; one may come more than once."""
        while self._due and self._due[0][0] <= until:
            yield heappop(self._due)[1]
