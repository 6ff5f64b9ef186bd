"""`Assembly`: one pattern's monitor and the events it holds back, and their handoff.

Events wait here until the reorder window has passed them, then they reach the model's `Monitor` in
the order of publication. A broker has the only assembly of a subscription or none, so holding back
happens once between publisher and subscriber, and one window bounds it.

A *waiting* assembly only collects: the state that it continues from is still in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

from palio.model.limits import MAX_PATTERN_PENDING
from palio.model.patterns import Monitor, Occurrence, Pattern, Place, place_of
from palio.routing.patterns.messages import AssemblyProgress, Parts, TooLate

ALL: Final = 1 << 62
"""More than there ever are."""

MAX_UNTOLD: Final = 100
"""Publishers whose late events are reported one by one; those of others together."""


def is_occurrence(pattern: Pattern, parts: Parts) -> bool:
    """Return whether these events, in this order, are one occurrence of the pattern."""
    return Monitor(pattern).push(parts) == [parts]


def follows(pattern: Pattern, progress: AssemblyProgress) -> bool:
    """Return whether a monitor of the pattern may be in this state."""
    monitor = Monitor(pattern)
    if monitor.push(progress.taken) or monitor.progress != progress.taken:
        return False
    last = place_of(progress.taken[-1]) if progress.taken else None
    return last is None or (progress.after is not None and last <= progress.after)


class Assembly:
    """A monitor that is informed when the window has passed.

    >>> import palio
    >>> from datetime import UTC, timedelta
    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> late = Occurrence(start + timedelta(seconds=2), "p", 2, {"b": 2})
    >>> early = Occurrence(start, "q", 7, {"a": 1})
    >>> assembly = Assembly(palio.parse("a = 1 THEN b = 2"))
    >>> assembly.push([late])
    >>> assembly.push([early])
    >>> [part.publisher for part in assembly.release(until=late.time)[0]]
    ['q', 'p']
    """

    __slots__ = (
        "_after",
        "_held",
        "_monitor",
        "_order",
        "_unpublished",
        "is_waiting",
        "late",
        "pattern",
    )

    def __init__(self, pattern: Pattern, *, is_waiting: bool = False) -> None:
        self.pattern = pattern
        self.is_waiting = is_waiting
        self.late = 0
        """Events that took no part: one published later had been released before they came."""
        self._unpublished: dict[str, tuple[int, int, int]] = {}
        self._monitor = Monitor(pattern)
        self._after: Place | None = None
        self._order: list[Place] = []
        self._held: dict[Place, Occurrence] = {}

    @property
    def earliest(self) -> datetime | None:
        """The time of the earliest event held back."""
        return self._order[0][0] if self._order else None

    @property
    def is_full(self) -> bool:
        """True if more is held back than may be, so that the earliest cannot wait any longer."""
        return len(self._order) > MAX_PATTERN_PENDING

    def push(self, occurrences: Iterable[Occurrence]) -> None:
        """Hold events back. One that is there already changes nothing."""
        for occurrence in occurrences:
            place = place_of(occurrence)
            if self._after is not None and place <= self._after:
                self._miss(occurrence)
            elif place not in self._held:
                heappush(self._order, place)
                self._held[place] = occurrence
        while self.is_waiting and self.is_full:
            self._miss(self._next())

    def _miss(self, late: Occurrence) -> None:
        self.miss(late.publisher, late.seq, late.seq, 1)

    def miss(self, publisher: str, first: int, last: int, missed: int) -> None:
        """So many events took no part."""
        self.late += missed
        if publisher not in self._unpublished and len(self._unpublished) >= MAX_UNTOLD:
            publisher, first, last = "*", 0, 0
        before, after, count = self._unpublished.get(publisher, (first, last, 0))
        self._unpublished[publisher] = min(before, first), max(after, last), count + missed

    @property
    def has_missed(self) -> bool:
        """True if it lateness of events is yet to be reported."""
        return bool(self._unpublished)

    def missed(self, key: int) -> list[TooLate]:
        """Return the reports of late events under a key; once."""
        unpublished, self._unpublished = self._unpublished, {}
        return [TooLate(key, publisher, *numbers) for publisher, numbers in unpublished.items()]

    def release(self, until: datetime, most: int = ALL) -> list[Parts]:
        """Let go what was published by then, at most so many events; the occurrences that this
        completes.
        """
        found: list[Parts] = []
        while most > 0 and self.has_due(until):
            found += self._monitor.push([self._next()])
            most -= 1
        return found

    def has_due(self, until: datetime) -> bool:
        """Return whether there is something to let go that was published by then."""
        if self.is_waiting or not self._order:
            return False
        return self._order[0][0] <= until or self.is_full

    @property
    def held(self) -> int:
        """Number of events held back."""
        return len(self._order)

    def stop(self) -> AssemblyProgress:
        """Return the progress. The assembly is not used after."""
        return AssemblyProgress(
            self._monitor.progress,
            tuple(self._held[each] for each in sorted(self._order)),
            self._after,
        )

    def resume(self, progress: AssemblyProgress) -> None:
        """Continue from another monitor's state, with the events collected since."""
        collected = [self._held[each] for each in sorted(self._order)]
        self._order, self._held = [], {}
        self._monitor = Monitor(self.pattern)
        self._monitor.push(progress.taken)
        self._after = progress.after
        self.is_waiting = False
        self.push(progress.held)
        self.push(
            each for each in collected if progress.after is None or place_of(each) > progress.after
        )

    def _next(self) -> Occurrence:
        self._after = heappop(self._order)
        return self._held.pop(self._after)
