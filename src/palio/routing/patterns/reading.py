"""`AssemblyScheduler`: hands arriving events to the pattern assemblies of this broker, and releases
each event to its pattern once the reorder window is over.

It works in slices of about 10 ms, because one publication can concern a thousand patterns and would
block the broker.
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
from palio.routing.patterns.subscriptions import PatternSubscription
from palio.routing.patterns.unread import Unread

AT_ONCE: Final = datetime(1, 1, 1, tzinfo=UTC)
"""A time that any window has passed."""

READ_AT_ONCE: Final = 64
"""Up to this many events, counted for each pattern, are handed over on arrival: to queue them would
cost more."""

SLICE: Final = 2_000
"""Events that are handed over or released in a slice, counted for each pattern: 5 to 10 ms."""


class AssemblyScheduler:
    """The events of one broker's assemblies; `subscriptions` are its patterns by number.

    >>> AssemblyScheduler({}).earliest_release is None
    True
    """

    def __init__(self, subscriptions: Mapping[int, PatternSubscription]) -> None:
        self._subscriptions = subscriptions
        self.times = Timetable()
        """The times at which assemblies have events to release."""
        self.unread = Unread()
        """Events that arrived and are yet to be read."""

    @property
    def earliest_release(self) -> datetime | None:
        """Publication time of the earliest event held back; `AT_ONCE` while events are unread, so
        that the broker calls `release` without waiting.
        """
        return AT_ONCE if self.unread else self.times.first

    def accept(self, parcel: Parcel, needed: dict[int, RowMask]) -> None:
        """Accept events, some for each of these patterns.

        They are handed over at once only if none are unread: else they would overtake those.
        """
        if len(needed) * len(parcel) <= READ_AT_ONCE and not self.unread:
            for number, mask in needed.items():
                self._hold_back(self._subscriptions[number], parcel.select(mask))
            return
        subscribers = {number: self._subscriptions[number].subscriber for number in needed}
        for number in self.unread.note(parcel, needed, subscribers):
            self._drop(self._subscriptions[number], parcel.numbers[needed[number]], parcel)

    def read_all(self, subscription: PatternSubscription) -> None:
        """Hand over all unread events of a pattern before its assembly moves to another broker.

        Those beyond one slice are reported as late: there is no time for them.
        """
        left = SLICE
        for parcel, mask in self.unread.take(subscription.number):
            left -= int(mask.sum())
            if left >= 0:
                self._hold_back(subscription, parcel.select(mask))
            else:
                self._drop(subscription, parcel.numbers[mask], parcel)

    def release(self, until: datetime) -> Iterator[tuple[PatternSubscription, list[Parts]]]:
        """Do one slice of work: hand events over, then release those published by `until`.

        Yields the patterns that released any, each with the matches that these completed.
        Nothing is released while events are unread, as one of them may be earlier.
        """
        left = SLICE - len(self.unread)
        for number, events in self.unread.read(SLICE):
            self._hold_back(self._subscriptions[number], events)
        while left > 0 and not self.unread and self.times.is_due(until):
            subscription = self._subscriptions.get(self.times.take())
            if subscription is None or subscription.assembly is None:
                continue
            before = subscription.assembly.held
            yield subscription, subscription.assembly.release(until, left)
            # One more for the look itself: a thousand patterns that release nothing take time, too.
            left -= before - subscription.assembly.held + 1
            self.times.schedule(subscription)

    def _hold_back(self, subscription: PatternSubscription, events: Parcel) -> None:
        assembly = subscription.assembly
        assert assembly is not None
        before, had_missed = assembly.earliest, assembly.has_late
        assembly.push(
            Occurrence(row[TIME], events.publisher, seq, row)
            for seq, row in zip(events.seqs, events.rows, strict=True)
        )
        if assembly.has_late and not had_missed:  # reported with others, a window later
            self.times.note(subscription.number, max(row[TIME] for row in events.rows))
        if assembly.earliest != before or assembly.is_full:
            self.times.schedule(subscription)

    def _drop(
        self, subscription: PatternSubscription, numbers: npt.NDArray[np.int64], parcel: Parcel
    ) -> None:
        """Count events as late for which there is no memory, or no time."""
        assert subscription.assembly is not None
        first, last = int(numbers.min()), int(numbers.max())
        subscription.assembly.note_late(parcel.publisher, first, last, len(numbers))
        self.times.note(subscription.number, AT_ONCE)


class Timetable:
    """Times of publication by pattern: events of that time are released a window later. Of each
    pattern the earliest time counts.

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
        """Note an event of a pattern, published at that time."""
        earliest = self._times.get(number)
        if earliest is None or time < earliest:
            self._times[number] = time
            heappush(self._order, (time, number))

    def schedule(self, subscription: PatternSubscription) -> None:
        """Note when an assembly next has an event to release."""
        assembly = subscription.assembly
        if assembly is None or assembly.is_waiting or assembly.earliest is None:
            return
        self.note(subscription.number, AT_ONCE if assembly.is_full else assembly.earliest)

    def __len__(self) -> int:
        return len(self._times)

    def is_due(self, until: datetime) -> bool:
        """Return whether a pattern has a time up to this one."""
        first = self.first
        return first is not None and first <= until

    def take(self) -> int:
        """Remove and return the pattern with the first time."""
        assert self.first is not None
        _, number = heappop(self._order)
        del self._times[number]
        return number
