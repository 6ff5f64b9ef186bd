"""The two stages of `sequences`: which steps events match, and patterns followed over these hits.

The first finds, with one compiled index of all steps of all patterns, which events match which
steps; most events match none and go no further. The second runs a `palio.model.patterns.Monitor`
for each key and pattern over the hits in their order. The monitors are the model's own: what they
see of an event is which steps it matched. History (`Follow`) and streams (live.py) differ only in
who puts hits in order: there Spark sorts them, here they wait for the watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from palio.matching.index import Index
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.patterns import Monitor, Occurrence, Pattern
from palio.spark.workers import ColumnSlots

STEPS: Final = 32
"""Keys of the index are pattern * STEPS + step; a pattern has no more (MAX_PATTERN_STEPS)."""

MAX_BATCH_ROWS: Final = 10_000
"""Completed sequences that go back to Spark at once."""

INSTANT: Final = pa.timestamp("us", tz="UTC")

Longs: TypeAlias = npt.NDArray[np.int64]


class Hits(NamedTuple):
    """The hits of a batch, in the order of its rows: an event, a pattern, and a bit a step."""

    rows: Longs
    patterns: Longs
    steps: Longs


@dataclass(frozen=True)
class FindSteps:
    """The first stage: events that match any step of a pattern."""

    patterns: tuple[Pattern, ...]
    slots: ColumnSlots
    schema: pa.Schema
    """Columns of the event, and over history `pattern` and `steps`."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Over history: a row for each hit."""
        for batch, hits in self.found(batches):
            kept = self.slots.given_back(batch, hits.rows, self.schema)
            kept += [pa.array(hits.patterns, pa.int32()), pa.array(hits.steps)]
            yield pa.RecordBatch.from_arrays(kept, schema=self.schema)

    def found(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Hits]]:
        """Each batch with its hits."""
        index = Index()
        for number, pattern in enumerate(self.patterns):
            for step, filter in enumerate(pattern.steps):
                index.add(number * STEPS + step, filter)
        for batch in batches:
            fitted = self.slots.fitted(batch)
            rows, keys = index.match(fitted.events)
            if fitted.misfits:
                fits = fitted.fits[rows]
                rows, keys = rows[fits], keys[fits]
            pairs, places = np.unique(
                rows * len(self.patterns) + keys // STEPS, return_inverse=True
            )
            steps = np.zeros(len(pairs), np.int64)
            np.bitwise_or.at(steps, places, np.int64(1) << (keys % STEPS))
            at, numbers = np.divmod(pairs, len(self.patterns))
            yield batch, Hits(at, numbers, steps)


class StepEvent(NamedTuple):
    """An event that takes part in a sequence: its time, and its columns that go back."""

    time: datetime
    given: tuple[Any, ...]


class Completed(NamedTuple):
    """A sequence that completes a pattern: a row of the result."""

    key: tuple[Any, ...]
    pattern: int | str
    steps: tuple[StepEvent, ...]


def stepwise(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Patterns with "this step was matched" for the filter of each step."""
    return [
        Pattern(tuple(map(_was_matched, range(len(pattern.steps)))), pattern.within)
        for pattern in patterns
    ]


class Follower:
    """The monitors of one key, one for each pattern, over hits that come in their order.

    It is given patterns as `stepwise` makes them.

    >>> import palio
    >>> follower = Follower(stepwise([palio.parse("a = 1 THEN b = 2")]))
    >>> first, second = (StepEvent(datetime(2026, 1, day), (day,)) for day in (1, 2))
    >>> follower.advance(0, 0b01, first)
    []
    >>> follower.advance(0, 0b10, second) == [(first, second)]
    True
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        self._monitors: dict[int, Monitor] = {}
        self._seq = 0

    def advance(self, pattern: int, steps: int, step: StepEvent) -> list[tuple[StepEvent, ...]]:
        """An event matched these steps of a pattern; the sequences that it completes."""
        monitor = self._monitors.get(pattern)
        if monitor is None:
            monitor = self._monitors[pattern] = Monitor(self._patterns[pattern])
        self._seq += 1
        event = _Matched(steps, step)
        matches = monitor.push([Occurrence(step.time, "", self._seq, event)])
        return [tuple(map(_step, match)) for match in matches]

    def resume(self, pattern: int, progress: Iterable[StepEvent]) -> None:
        """Begin where another follower was."""
        for number, step in enumerate(progress):
            self.advance(pattern, 1 << number, step)

    def progress(self) -> dict[int, tuple[StepEvent, ...]]:
        """The events of each partial match, by pattern."""
        progress = {
            at: tuple(map(_step, monitor.progress)) for at, monitor in self._monitors.items()
        }
        return {at: steps for at, steps in progress.items() if steps}


@dataclass(frozen=True)
class Follow:
    """The second stage over history: hits that are sorted by key and time."""

    patterns: tuple[Pattern, ...]
    ids: tuple[Any, ...]
    keys: int
    """The number of columns of the key, which come first; the time comes next."""
    orders: int
    """The number of columns that order events of one time; after them come those of the result."""
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The sequences of all keys of a partition."""
        patterns = stepwise(self.patterns)
        key: Any = None
        follower = Follower(patterns)
        rows: list[Completed] = []
        for hit in self._hits(batches):
            if hit.key != key:
                key = hit.key
                follower = Follower(patterns)
            matches = follower.advance(hit.pattern, hit.steps, hit.step)
            rows += [Completed(key, self.ids[hit.pattern], match) for match in matches]
            if len(rows) >= MAX_BATCH_ROWS:
                yield result_batch(rows, self.schema)
                rows = []
        if rows:
            yield result_batch(rows, self.schema)

    def _hits(self, batches: Iterator[pa.RecordBatch]) -> Iterator[_Hit]:
        for batch in batches:
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            keys = zip(*columns[: self.keys], strict=True)
            given = list(zip(*columns[self.keys + 1 + self.orders : -2], strict=True))
            times: list[Any] = pc.cast(batch.column(self.keys), INSTANT).to_pylist()
            rows = zip(keys, times, columns[-2], columns[-1], strict=True)
            for row, (key, time, pattern, steps) in enumerate(rows):
                yield _Hit(key, pattern, steps, StepEvent(time, given[row] if given else ()))


def result_batch(rows: Sequence[Completed], schema: pa.Schema) -> pa.RecordBatch:
    """Completed sequences as rows of the result."""
    names = [field.name for field in schema.field("events").type.value_type]
    events = [
        [dict(zip(names, (step.time, *step.given), strict=True)) for step in row.steps]
        for row in rows
    ]
    columns = [
        *zip(*(row.key for row in rows), strict=True),
        [row.pattern for row in rows],
        [row.steps[0].time for row in rows],
        [row.steps[-1].time for row in rows],
        events,
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Hit(NamedTuple):
    """An event that matches steps of a pattern."""

    key: tuple[Any, ...]
    pattern: int
    steps: int
    step: StepEvent


class _Matched(Mapping[str, bool]):
    """An event as a monitor of steps sees it: attribute `s3` is there if it matched step 3."""

    def __init__(self, steps: int, step: StepEvent) -> None:
        self._steps = steps
        self.step = step

    def __getitem__(self, name: str) -> bool:
        if self._steps >> int(name[1:]) & 1:
            return True
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (f"s{step}" for step in range(STEPS) if self._steps >> step & 1)

    def __len__(self) -> int:
        return self._steps.bit_count()


def _step(occurrence: Occurrence) -> StepEvent:
    assert isinstance(occurrence.event, _Matched)
    return occurrence.event.step


def _was_matched(step: int) -> Filter:
    return Filter.of([Conjunction.of([Constraint.of(f"s{step}", "IS NOT NULL")])])
