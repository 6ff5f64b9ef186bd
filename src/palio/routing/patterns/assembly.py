"""`Assembly`: one pattern's monitor and the events it holds back, and their handoff.

Events are held until the reorder window has passed them. Then they reach the model's `Monitor` in
the order of publication. A subscription has one assembly in the network, so its events are held
once between publisher and subscriber, and one window bounds the delay.

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
"""More events than there ever are."""

MAX_LATE_PUBLISHERS: Final = 100
"""Publishers whose late events are reported separately; those of others are counted together, so
that invented publishers fill no table."""


def is_occurrence(pattern: Pattern, parts: Parts) -> bool:
    """Return whether these events, in this order, are one occurrence of the pattern."""
    return Monitor(pattern).push(parts) == [parts]


def follows(pattern: Pattern, progress: AssemblyProgress) -> bool:
    """Return whether a monitor of the pattern may be in this state.

    A neighbour sends it, so it is checked: the partial match has to be one, and to lie before what
    is yet to come.
    """
    monitor = Monitor(pattern)
    if monitor.push(progress.taken) or monitor.progress != progress.taken:
        return False
    last = place_of(progress.taken[-1]) if progress.taken else None
    return last is None or (progress.after is not None and last <= progress.after)


class Assembly:
    """A monitor, and the events that it is passed once the window is over.

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
        "_late_events",
        "_monitor",
        "_order",
        "is_waiting",
        "late",
        "pattern",
    )

    def __init__(self, pattern: Pattern, *, is_waiting: bool = False) -> None:
        self.pattern = pattern
        self.is_waiting = is_waiting
        self.late = 0
        """Events that took no part: a later one had been released before they arrived."""
        # By publisher, the first and last number of late events to report, and their count.
        self._late_events: dict[str, tuple[int, int, int]] = {}
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
        """True if more is held back than may be, so that the earliest has to be released."""
        return len(self._order) > MAX_PATTERN_PENDING

    def push(self, occurrences: Iterable[Occurrence]) -> None:
        """Hold events back. A duplicate changes nothing."""
        for occurrence in occurrences:
            place = place_of(occurrence)
            if self._after is not None and place <= self._after:
                self._note_late_one(occurrence)
            elif place not in self._held:
                heappush(self._order, place)
                self._held[place] = occurrence
        while self.is_waiting and self.is_full:  # nothing may be released to the monitor yet
            self._note_late_one(self._next())

    def _note_late_one(self, late: Occurrence) -> None:
        self.note_late(late.publisher, late.seq, late.seq, 1)

    def note_late(self, publisher: str, first: int, last: int, missed: int) -> None:
        """Count events that took no part, to be reported."""
        self.late += missed
        # `*` stands for all further publishers, whose numbers cannot be joined to a range.
        if publisher not in self._late_events and len(self._late_events) >= MAX_LATE_PUBLISHERS:
            publisher, first, last = "*", 0, 0
        before, after, count = self._late_events.get(publisher, (first, last, 0))
        self._late_events[publisher] = min(before, first), max(after, last), count + missed

    @property
    def has_late(self) -> bool:
        """True if late events are yet to be reported."""
        return bool(self._late_events)

    def late_reports(self, key: int) -> list[TooLate]:
        """Take the reports of late events under a key."""
        late, self._late_events = self._late_events, {}
        return [TooLate(key, publisher, *numbers) for publisher, numbers in late.items()]

    def release(self, until: datetime, most: int = ALL) -> list[Parts]:
        """Release up to `most` events that were published by then; return the occurrences that
        they complete.
        """
        occurrences: list[Parts] = []
        while most > 0 and self.has_due(until):
            occurrences += self._monitor.push([self._next()])
            most -= 1
        return occurrences

    def has_due(self, until: datetime) -> bool:
        """Return whether there is an event to release that was published by then."""
        if self.is_waiting or not self._order:
            return False
        return self._order[0][0] <= until or self.is_full

    @property
    def held(self) -> int:
        """Number of events held back."""
        return len(self._order)

    def stop(self) -> AssemblyProgress:
        """Return the state to hand over. The assembly is not used after."""
        held = tuple(self._held[place] for place in sorted(self._order))
        return AssemblyProgress(self._monitor.progress, held, self._after)

    def resume(self, progress: AssemblyProgress) -> None:
        """Continue from another monitor's state, with the events collected since."""
        collected = [self._held[place] for place in sorted(self._order)]
        self._order, self._held = [], {}
        self._monitor = Monitor(self.pattern)
        self._monitor.push(progress.taken)
        self._after = progress.after
        self.is_waiting = False
        self.push(progress.held)
        # The other monitor has released the rest: they are no late events, and took their part.
        self.push(
            event
            for event in collected
            if progress.after is None or place_of(event) > progress.after
        )

    def _next(self) -> Occurrence:
        self._after = heappop(self._order)
        return self._held.pop(self._after)
