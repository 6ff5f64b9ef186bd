"""`Timetable`: which assembly has something to let go when."""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Final

from palio.routing.patterns.standing import PatternSubscription

__all__ = ["AT_ONCE", "Timetable"]

AT_ONCE: Final = datetime(1, 1, 1, tzinfo=UTC)
"""A time that any window has passed."""


class Timetable:
    """Patterns by number, and times of publication: what was published then is let go a window
    later. Of each pattern the earliest time counts.

    >>> table, noon = Timetable(), datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> table.note(7, noon)
    >>> table.first == noon, table.is_due(until=noon), table.take(), table.first
    (True, True, 7, None)
    """

    def __init__(self) -> None:
        self._order: list[tuple[datetime, int]] = []
        self._times: dict[int, datetime] = {}

    @property
    def first(self) -> datetime | None:
        """The first of the times; None if there is none."""
        while self._order:
            time, number = self._order[0]
            if self._times.get(number) == time:
                return time
            heappop(self._order)  # an earlier one was noted since
        return None

    def note(self, number: int, time: datetime) -> None:
        """Something was published at that time, for the pattern of this number."""
        known = self._times.get(number)
        if known is None or time < known:
            self._times[number] = time
            heappush(self._order, (time, number))

    def plan(self, standing: PatternSubscription) -> None:
        """Note when an assembly next has something to let go."""
        assembly = standing.assembly
        if assembly is None or assembly.is_waiting or assembly.earliest is None:
            return
        self.note(standing.number, AT_ONCE if assembly.is_full else assembly.earliest)

    def __len__(self) -> int:
        return len(self._times)

    def is_due(self, until: datetime) -> bool:
        """Whether there is a pattern of a time up to this one."""
        first = self.first
        return first is not None and first <= until

    def take(self) -> int:
        """Take out the pattern of the first time."""
        assert self.first is not None
        _, number = heappop(self._order)
        del self._times[number]
        return number
