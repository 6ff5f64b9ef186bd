"""`Sequences`: a subscriber's pattern, the events that it holds back, and those that came too late.

An event can overtake one that was published before it. So every event waits `reorder_s` seconds, or
until an event arrives that was published `reorder_s` later. Then it is matched, in the order of
publication, together with all earlier ones. An event that arrives after a later one was matched is
late: it is left out and reported. A window that was not given adapts to the measured delays
(`Window`).

Time is an argument: the owner of the sequences calls `advance` at `wake`. It is counted
from when events came, by one clock, so the clock of this machine need not agree with the brokers'.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final

from palio.client.events import Event, LateGap
from palio.client.reordering import MAX_ADAPTIVE_S, MIN_ADAPTIVE_S, Window
from palio.model.events import PAYLOAD, SEQ, TIME, is_system_name
from palio.model.patterns import Monitor, Occurrence, Pattern, Place
from palio.model.values import Bindings

_PUBLISHED: Final = itemgetter(1)


class Sequences:
    """The occurrences of one pattern among the events that come.

    >>> import palio
    >>> from datetime import UTC
    >>> at = lambda second: datetime(2026, 1, 1, second=second, tzinfo=UTC)
    >>> sequences = Sequences(palio.parse("a = 1 THEN b = 2"), {}, reorder_s=0.5)
    >>> sequences.push([{"b": 2, "$seq": 1, "$time": at(2)}], "near", now=10.0)
    ([], None)
    >>> sequences.push([{"a": 1, "$seq": 7, "$time": at(1)}], "far", now=10.2)
    ([], None)
    >>> sequences.wake
    10.5
    >>> [[part.publisher for part in event.parts] for event in sequences.advance(10.5)]
    [['far', 'near']]
    """

    __slots__ = ("_arrivals", "_is_durable", "_monitor", "_window")

    def __init__(
        self,
        pattern: Pattern,
        values: Bindings,
        reorder_s: float | None,
        *,
        is_durable: bool = False,
    ) -> None:
        self._window = Window(reorder_s)
        self._is_durable = is_durable
        self._monitor = Monitor(pattern, values, self._span())
        self._arrivals: deque[tuple[float, datetime]] = deque()
        """Times of arrival and of publication of the newest events. Both ascend: an event that was
        overtaken has no entry, as it is released with the event that overtook it."""

    def _span(self) -> timedelta:
        """Return the difference in time of publication at which an event ends others' wait.

        Durable events of one broker may come in a burst before any of another, as when their home
        was away: none ends the wait of others then, but time does.
        """
        if self._is_durable and self.reorder_s:
            return timedelta.max
        return timedelta(seconds=self.reorder_s)

    def push(
        self, events: Iterable[dict[str, Any]], publisher: str, now: float
    ) -> tuple[list[Event], LateGap | None]:
        """Take in events of one publisher, system columns and all: the sequences that are due, and
        which events are late.
        """
        occurrences = [Occurrence(row[TIME], publisher, row[SEQ], row) for row in events]
        late = [occurrence.seq for occurrence in occurrences if self._monitor.is_late(occurrence)]
        if occurrences and not self._window.is_given:
            self._measure(occurrences, now, is_late=bool(late))
        due = self._composites(self._monitor.push(occurrences))
        if self.reorder_s and occurrences:
            newest = max(occurrence.time for occurrence in occurrences)
            if not self._arrivals or newest > self._arrivals[-1][1]:
                self._arrivals.append((now, newest))
            self._tidy()
        return due, LateGap(publisher, min(late), max(late), len(late)) if late else None

    def _measure(self, occurrences: Sequence[Occurrence], now: float, *, is_late: bool) -> None:
        """Tell the window how long the earliest of these events was overtaken.

        That is the time since the first later-published event arrived, or the distance in
        publication to the newest event, whichever is longer.
        """
        window, monitor = self._window, self._monitor
        earliest, newest = min(occurrence.time for occurrence in occurrences), monitor.newest
        delay_s = 0.0
        if newest is not None and newest > earliest:
            delay_s = (newest - earliest).total_seconds()
            if not is_late:  # then whatever was published later is held back
                first, _ = self._arrivals[bisect_right(self._arrivals, earliest, key=_PUBLISHED)]
                delay_s = max(delay_s, now - first)
        before = window.seconds
        if is_late:
            window.record_late(now, delay_s)
        else:
            window.record_in_time(now, len(occurrences), delay_s)
        if window.seconds != before:
            monitor.window = self._span()

    def advance(self, now: float) -> list[Event]:
        """Return the sequences that are complete at `now`, as their events waited long enough."""
        until = None
        while self._arrivals and self._arrivals[0][0] + self.reorder_s <= now:
            _, until = self._arrivals.popleft()
        if until is None:
            return []
        due = self._composites(self._monitor.flush(until))
        self._tidy()
        return due

    def restart_wait(self, now: float) -> None:
        """Wait a whole window again from `now`: earlier events may still be on their way."""
        if self._arrivals:
            _, newest = self._arrivals.pop()
            self._arrivals.clear()
            self._arrivals.append((now, newest))

    def flush(self) -> list[Event]:
        """Return the complete sequences without further waiting: no more events will come."""
        self._arrivals.clear()
        return self._composites(self._monitor.flush())

    def rebind(self, values: Bindings) -> None:
        """Bind the pattern's parameters to other values."""
        self._monitor.rebind(values)

    def resume(
        self, after: Place | None, taken: Iterable[Occurrence], reorder_s: float | None = None
    ) -> None:
        """Resume, before anything came, where others stopped, with their window if it is given
        and nobody has set another.
        """
        self._monitor.resume(after, taken)
        if reorder_s is not None and not self._window.is_given:
            self._window.seconds = min(max(reorder_s, MIN_ADAPTIVE_S), MAX_ADAPTIVE_S)
            self._monitor.window = self._span()

    def start_over(self) -> None:
        """Give up the partial match."""
        self._monitor.start_over()

    @property
    def pattern(self) -> Pattern:
        """The pattern that is looked for."""
        return self._monitor.pattern

    @property
    def after(self) -> Place | None:
        """The place of the last event that took its part."""
        return self._monitor.after

    @property
    def taken(self) -> tuple[Occurrence, ...]:
        """The events of the partial match."""
        return self._monitor.progress

    @property
    def reorder_s(self) -> float:
        """The window that is in force."""
        return self._window.seconds

    @property
    def wake(self) -> float | None:
        """The time at which `advance` is due, if no event arrives before; None for never."""
        return self._arrivals[0][0] + self.reorder_s if self._arrivals else None

    def _tidy(self) -> None:
        """Forget when events came that are held back no longer."""
        earliest = self._monitor.earliest
        while self._arrivals and (earliest is None or self._arrivals[0][1] < earliest):
            self._arrivals.popleft()

    @staticmethod
    def _composites(occurrences: Iterable[tuple[Occurrence, ...]]) -> list[Event]:
        return [composite(sequence) for sequence in occurrences]


def composite(sequence: Iterable[Occurrence]) -> Event:
    """The events of one sequence, as an application receives it."""
    parts = [_event(occurrence) for occurrence in sequence]
    last = parts[-1]
    return Event(dict(last), last.publisher, last.seq, last.time, tuple(parts), packed=last.packed)


def _event(occurrence: Occurrence) -> Event:
    attributes = {
        name: value for name, value in occurrence.event.items() if not is_system_name(name)
    }
    packed = occurrence.event.get(PAYLOAD)
    return Event(attributes, occurrence.publisher, occurrence.seq, occurrence.time, packed=packed)
