"""`Reading`: holds events for the assemblies of a broker, and releases them a window later.

Both are done in slices of some 10 ms, for any input (see `Unread`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

from palio.matching.protocol import RowMask
from palio.model.events import TIME
from palio.model.parcels import Parcel
from palio.model.patterns import Occurrence
from palio.routing.patterns.messages import Parts
from palio.routing.patterns.standing import PatternSubscription
from palio.routing.patterns.unread import Unread

AT_ONCE: Final = datetime(1, 1, 1, tzinfo=UTC)
"""A time that any window has passed."""

FEW: Final = 64
"""Events, counted for each pattern, that are read when they come."""

MOST_AT_ONCE: Final = 2_000
"""Events that are read or let go in a slice, counted for each pattern: 5 to 10 ms."""


class Reading:
    """The events of one broker's assemblies; `standing` are its patterns by number.

    >>> Reading({}).first is None
    True
    """

    def __init__(self, standing: Mapping[int, PatternSubscription]) -> None:
        self._standing = standing
        self.times = Timetable()
        """The times at which assemblies have events to release."""
        self.unread = Unread()
        """Events that came for them and are yet to be read."""

    @property
    def first(self) -> datetime | None:
        """Time of publication of the first event held back; long ago if something is unread."""
        return AT_ONCE if self.unread else self.times.first

    def take_in(self, parcel: Parcel, needed: dict[int, RowMask]) -> None:
        """Events have come, some for each of these patterns."""
        if len(needed) * len(parcel) <= FEW and not self.unread:
            for number, mask in needed.items():
                self._hold_back(self._standing[number], parcel.select(mask))
            return
        subscribers = {number: self._standing[number].subscriber for number in needed}
        for number in self.unread.note(parcel, needed, subscribers):
            self._pass_over(self._standing[number], parcel.numbers[needed[number]], parcel)

    def read_up(self, standing: PatternSubscription) -> None:
        """Read the events of an assembly before it moves, as far as there is time for that."""
        left = MOST_AT_ONCE
        for parcel, mask in self.unread.take(standing.number):
            left -= int(mask.sum())
            if left >= 0:
                self._hold_back(standing, parcel.select(mask))
            else:
                self._pass_over(standing, parcel.numbers[mask], parcel)

    def let_go(self, until: datetime) -> Iterator[tuple[PatternSubscription, list[Parts]]]:
        """Work one slice: read events, and if none is left release those published by then.
        Gives the patterns that did, each with the occurrences that this completed.
        """
        left = MOST_AT_ONCE - len(self.unread)
        for number, some in self.unread.read(MOST_AT_ONCE):
            self._hold_back(self._standing[number], some)
        while left > 0 and not self.unread and self.times.is_due(until):
            standing = self._standing.get(self.times.take())
            if standing is None or standing.assembly is None:
                continue
            before = standing.assembly.held
            yield standing, standing.assembly.release(until, left)
            left -= before - standing.assembly.held + 1
            self.times.plan(standing)

    def _hold_back(self, standing: PatternSubscription, some: Parcel) -> None:
        assembly = standing.assembly
        assert assembly is not None
        before, had_missed = assembly.earliest, assembly.has_missed
        assembly.push(
            Occurrence(row[TIME], some.publisher, seq, row)
            for seq, row in zip(some.seqs, some.rows, strict=True)
        )
        if assembly.has_missed and not had_missed:  # reported with others, a window later
            self.times.note(standing.number, max(row[TIME] for row in some.rows))
        if assembly.earliest != before or assembly.is_full:
            self.times.plan(standing)

    def _pass_over(
        self, standing: PatternSubscription, numbers: npt.NDArray[np.int64], parcel: Parcel
    ) -> None:
        """There is no room, or no time, for events that came for it."""
        assert standing.assembly is not None
        first, last = int(numbers.min()), int(numbers.max())
        standing.assembly.miss(parcel.publisher, first, last, len(numbers))
        self.times.note(standing.number, AT_ONCE)


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
        """Return whether there is a pattern of a time up to this one."""
        first = self.first
        return first is not None and first <= until

    def take(self) -> int:
        """Take out the pattern of the first time."""
        assert self.first is not None
        _, number = heappop(self._order)
        del self._times[number]
        return number
