"""Patterns: sequences of filters, and the monitor that assembles them (siena 3.2).

Matching takes the first event that matches `f1`, then the first later one that matches `f2`, and so
on; on completion it starts over. While it waits for a step, further matches of earlier steps are
ignored.

"Later" is by publication: events are put in the order `(time, publisher, seq)`, which is total and
the same for any order of arrival. They are held back for the *reorder window*; an event that
arrives when the window has already passed it is *late*: it takes no part and is counted.

`WITHIN d` bounds the span from the first event to the last. When it has run out the partial match
is dropped, and the event at hand may start a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from heapq import heappop, heappush
from itertools import takewhile
from operator import or_
from typing import Any, Final, TypeAlias

import msgspec

from palio.errors import InvalidFilter
from palio.model import html
from palio.model.filters import Filter
from palio.model.limits import (
    MAX_CONSTANTS,
    MAX_PATTERN_PENDING,
    MAX_PATTERN_STEPS,
    MAX_TEXT_CHARS,
    MAX_TOKENS,
    check_limit,
)
from palio.model.printing import show_duration
from palio.model.values import NO_VALUES, Bindings

_NO_WINDOW: Final = timedelta(0)


class Pattern(msgspec.Struct, frozen=True, cache_hash=True):
    """`f1 THEN f2 ... WITHIN d`.

    >>> import palio
    >>> pattern = palio.parse("alarm = 'failed login' THEN file = '/etc/passwd' WITHIN 30s")
    >>> len(pattern.steps), str(pattern.within)
    (2, '0:00:30')
    """

    steps: tuple[Filter, ...]
    within: timedelta | None = None

    def __post_init__(self) -> None:
        if len(self.steps) < 2:
            raise InvalidFilter("a pattern has two filters or more; one alone is a filter")
        check_limit(
            "a pattern's number of filters", "MAX_PATTERN_STEPS", MAX_PATTERN_STEPS, len(self.steps)
        )
        _check_size(self.steps)
        if self.within is not None and self.within <= timedelta(0):
            raise InvalidFilter("WITHIN takes a positive duration, such as 30s")

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables of all steps."""
        return frozenset[str]().union(*(step.variables for step in self.steps))

    @property
    def any_step(self) -> Filter:
        """The filter that matches what any of its steps does.

        >>> import palio
        >>> print(palio.parse_pattern("a = 1 THEN b = 2").any_step)
        a = 1 OR b = 2
        """
        return reduce(or_, self.steps)

    def bind(self, values: Bindings) -> Pattern:
        """With its variables replaced by constants."""
        return Pattern(tuple(step.bind(values) for step in self.steps), self.within)

    def __str__(self) -> str:
        text = " THEN ".join(map(str, self.steps))
        return text if self.within is None else f"{text} WITHIN {show_duration(self.within)}"

    def __repr__(self) -> str:
        return f"palio.parse({str(self)!r})"

    def _repr_html_(self) -> str:
        return html.code(self)


class Occurrence(msgspec.Struct, frozen=True):
    """An event as a monitor sees it: its attributes and its place in the order of publication."""

    time: datetime
    publisher: str
    seq: int
    event: Mapping[str, Any]


Place: TypeAlias = tuple[datetime, str, int]
"""A place in the order of publication: time, publisher, number."""


def place_of(occurrence: Occurrence) -> Place:
    """The place of an event in the order of publication."""
    return occurrence.time, occurrence.publisher, occurrence.seq


class Monitor:
    """Assembles one pattern from events in any order of arrival.

    >>> import palio
    >>> from datetime import UTC, datetime
    >>> monitor = Monitor(palio.parse("a = 1 THEN b = 2"))
    >>> at = lambda second: datetime(2026, 1, 1, second=second, tzinfo=UTC)
    >>> monitor.push([Occurrence(at(0), "p", 1, {"a": 1})])
    []
    >>> [
    ...     tuple(each.seq for each in match)
    ...     for match in monitor.push([Occurrence(at(1), "p", 2, {"b": 2})])
    ... ]
    [(1, 2)]
    """

    __slots__ = (
        "_held",
        "_pending",
        "_progress",
        "_released",
        "late",
        "newest",
        "pattern",
        "values",
        "window",
    )

    def __init__(
        self, pattern: Pattern, values: Bindings = NO_VALUES, window: timedelta = _NO_WINDOW
    ) -> None:
        self.pattern = pattern
        self.values = values
        self.window = window
        self.late = 0
        """Events that came after the reorder window had passed them and took no part."""
        self._progress: list[Occurrence] = []
        self._pending: list[Place] = []
        self._held: dict[Place, Occurrence] = {}
        self._released: Place | None = None
        self.newest: datetime | None = None
        """When the newest of all that came was published."""

    def push(self, occurrences: Iterable[Occurrence]) -> list[tuple[Occurrence, ...]]:
        """Take in events; return the sequences that they completed, in order.

        A batch is taken in whole before anything of it is released, so order within it is free.
        """
        for occurrence in occurrences:
            place = place_of(occurrence)
            if self._released is not None and place <= self._released:
                self.late += 1
                continue
            if place in self._held:
                continue  # the same event once more
            heappush(self._pending, place)
            self._held[place] = occurrence
            if self.newest is None or occurrence.time > self.newest:
                self.newest = occurrence.time
        complete: list[tuple[Occurrence, ...]] = []
        while self._pending and self._is_due():
            self._release(complete)
        return complete

    def flush(self, until: datetime | None = None) -> list[tuple[Occurrence, ...]]:
        """Release what is held back, or as much of it as was published by `until`: nothing earlier
        will come any more.
        """
        complete: list[tuple[Occurrence, ...]] = []
        while self._pending and (until is None or self._pending[0][0] <= until):
            self._release(complete)
        return complete

    def resume(self, after: Place | None, progress: Iterable[Occurrence]) -> None:
        """Continue from another monitor: from the last event that it released, with its partial
        match as far as the steps still match.
        """
        self._released = after
        self._progress = [*progress][: len(self.pattern.steps) - 1]
        self.rebind(self.values)

    def start_over(self) -> None:
        """Drop the partial match."""
        self._progress.clear()

    def rebind(self, values: Bindings) -> None:
        """Change the values: the partial match is kept as far as its events still match."""
        self.values = values
        wanted = takewhile(
            lambda pair: pair[0].matches(pair[1].event, values),
            zip(self.pattern.steps, self._progress, strict=False),
        )
        self._progress = [occurrence for _, occurrence in wanted]

    def is_late(self, occurrence: Occurrence) -> bool:
        """Check whether its place in the order has been passed, so that it would take no part."""
        return self._released is not None and place_of(occurrence) <= self._released

    @property
    def after(self) -> Place | None:
        """The place of the last event that was let go."""
        return self._released

    @property
    def earliest(self) -> datetime | None:
        """The publication time of the first event that is held back."""
        return self._pending[0][0] if self._pending else None

    @property
    def progress(self) -> tuple[Occurrence, ...]:
        """The events of the partial match."""
        return tuple(self._progress)

    def _is_due(self) -> bool:
        """Check whether the earliest event held back has waited out the window, or too many are."""
        assert self.newest is not None
        earliest = self._pending[0][0]
        return self.newest - earliest >= self.window or len(self._pending) > MAX_PATTERN_PENDING

    def _has_run_out(self, now: datetime) -> bool:
        """Check whether no event of this time can complete the partial match any more."""
        within = self.pattern.within
        return bool(self._progress) and within is not None and now - self._progress[0].time > within

    def _release(self, complete: list[tuple[Occurrence, ...]]) -> None:
        """Let the earliest event take its part in the match."""
        place = heappop(self._pending)
        occurrence = self._held.pop(place)
        self._released = place
        if self._has_run_out(occurrence.time):
            self._progress.clear()
        awaited = self.pattern.steps[len(self._progress)]
        if not awaited.matches(occurrence.event, self.values):
            return
        self._progress.append(occurrence)
        if len(self._progress) == len(self.pattern.steps):
            complete.append(tuple(self._progress))
            self._progress.clear()


def _check_size(steps: Sequence[Filter]) -> None:
    """Refuse filters that are too much for the text of one pattern, though not each by itself."""
    meters = [step.size for step in steps]
    tokens = sum(meter.tokens for meter in meters) + _WITHIN_TOKENS
    chars = sum(meter.chars for meter in meters)
    constants = sum(meter.constants for meter in meters)
    if chars > MAX_TEXT_CHARS:
        chars = sum(len(str(step)) + len(" THEN ") for step in steps) + _WITHIN_CHARS
    for quantity, limit, maximum, actual in (
        ("number of words and signs", "MAX_TOKENS", MAX_TOKENS, tokens),
        ("number of listed constants", "MAX_CONSTANTS", MAX_CONSTANTS, constants),
        ("text", "MAX_TEXT_CHARS", MAX_TEXT_CHARS, chars),
    ):
        check_limit(f"a pattern's {quantity}", limit, maximum, actual)


_WITHIN_TOKENS: Final = 2
_WITHIN_CHARS: Final = 40
"""` WITHIN 999999999d` has 19."""
