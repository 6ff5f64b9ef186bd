"""`sequences`: patterns `a THEN b WITHIN 30s` over the history of each key (SEMANTICS 1).

Two stages. The first finds, with one compiled index of all steps of all patterns, which events
match which steps; most events match none and go no further. The second has what is left sorted by
key and time, and runs a `palio.model.patterns.Monitor` for each key and pattern over it. The
monitors are the model's own: what they see of an event is which steps it matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palio.errors import InvalidInput
from palio.language.parsing import parse
from palio.matching.index import Index
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.patterns import Monitor, Occurrence, Pattern
from palio.spark.attributes import attributes_of
from palio.spark.events import FrameEvents
from palio.spark.workers import Slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["sequences"]

STEPS: Final = 32
"""Keys of the index are pattern * STEPS + step; a pattern has no more (MAX_PATTERN_STEPS)."""

MAX_BATCH_ROWS: Final = 10_000
"""Completed sequences that go back to Spark at once."""


def sequences(
    events: DataFrame,
    patterns: Iterable[Mapping[str, Any]] | Mapping[Any, str],
    by: str | Sequence[str],
    time: str,
    within: timedelta | None = None,
    *,
    columns: Sequence[str] = (),
    order: Sequence[str] = (),
) -> DataFrame:
    """The sequences of events that complete a pattern, for each key by itself.

    `patterns` are rows with `id`, `pattern` and if need be `parameters`, or texts by id. `by` names
    the columns that make a key: events of different keys never take part in one sequence. Events
    are put in the order of `time`, and those of one instant in the order of the columns `order`;
    where these are equal too, in that of `columns`. An event without a time takes no part. `within`
    is for patterns that do not say themselves how long they may take.

    One row for each sequence: the key, `pattern` (the id), `started` and `ended`, and `events`, the
    `time` and `columns` of each of its events.

    >>> palio.spark.sequences(
    ...     log, {1: "alarm = 'login failed' THEN file = '/etc/passwd'"}, by="host", time="at"
    ... )  # doctest: +SKIP
    """
    keys = [by] if isinstance(by, str) else list(by)
    source = FrameEvents(events)
    if source.is_streaming:
        raise InvalidInput("sequences are found in history; this DataFrame is a stream")
    standing = _standing(patterns, within)
    _check_names(source, keys, time, [*columns, *order])
    return _planned(source, standing, keys, time, list(columns), list(order))


class _Standing(NamedTuple):
    """Patterns by their numbers."""

    ids: list[int] | list[str]
    patterns: list[Pattern]

    @property
    def attributes(self) -> frozenset[str]:
        return frozenset().union(
            *(step.attributes for pattern in self.patterns for step in pattern.steps)
        )


def _standing(patterns: Any, within: timedelta | None) -> _Standing:
    if isinstance(patterns, Mapping):
        patterns = [{"id": each, "pattern": text} for each, text in patterns.items()]
    ids: list[Any] = []
    found: list[Pattern] = []
    for row in patterns:
        if "id" not in row or "pattern" not in row:
            raise InvalidInput(f"a pattern has an id and a pattern; this one has {', '.join(row)}")
        try:
            pattern = parse(row["pattern"])
            if not isinstance(pattern, Pattern):
                raise InvalidInput("it is a filter; a pattern has a THEN")
            pattern = pattern.bind(row.get("parameters") or {})
            found.append(Pattern(pattern.steps, pattern.within or within))
        except InvalidInput as error:
            raise InvalidInput(f"pattern {row['id']!r}: {error}") from error
        ids.append(row["id"])
    kinds = {type(each) for each in ids}
    if kinds not in ({int}, {str}):
        raise InvalidInput(
            "patterns have ids that are all integers or all strings, and at least one"
        )
    return _Standing(ids, found)


def _check_names(source: FrameEvents, keys: list[str], time: str, others: list[str]) -> None:
    for name in [*keys, time, *others]:
        if name not in source.columns:
            raise InvalidInput(
                f"the events have no column {name!r}; they have {', '.join(source.columns)}"
            )
    if not keys:
        raise InvalidInput("by names no column; sequences need a key")
    given = source.schema.field(time).type
    if not pa.types.is_timestamp(given):
        raise InvalidInput(f"the time of events, {time!r}, is {given} and no timestamp")


def _planned(
    source: FrameEvents,
    standing: _Standing,
    keys: list[str],
    time: str,
    columns: list[str],
    order: list[str],
) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    known = attributes_of(source.schema)
    layout = source.layout(
        sorted(standing.attributes & known.keys()), [*keys, time, *order, *columns]
    )
    # The columns of the first stage have positional names, like those that go into it.
    hits = StructType()
    for number, field in enumerate(source.types([*keys, time, *order, *columns]).fields):
        hits.add(f"k{number}", field.dataType)
    hits.add("pattern", IntegerType()).add("steps", LongType())
    find = _FindSteps(tuple(standing.patterns), layout.slots, to_arrow_schema(hits, timezone="UTC"))
    found = source.run(find, layout, hits)
    place = len(keys)
    sort = [f"k{number}" for number in range(len(hits) - 2)]
    ready = (
        found.where(functions.col(f"k{place}").isNotNull())
        .repartition(*sort[:place])
        .sortWithinPartitions(*sort, "pattern")
    )
    step = StructType([StructField(time, TimestampType()), *source.types(columns).fields])
    result = source.types(keys)
    is_text = isinstance(standing.ids[0], str)
    result.add("pattern", StringType() if is_text else LongType())
    result.add("started", TimestampType()).add("ended", TimestampType())
    result.add("events", ArrayType(step))
    follow = _Follow(
        tuple(standing.patterns),
        tuple(standing.ids),
        place,
        len(order),
        to_arrow_schema(result, timezone="UTC"),
    )
    return ready.mapInArrow(follow, result)


@dataclass(frozen=True)
class _FindSteps:
    """Events that match any step of a pattern: one row for each pattern, with a bit a step."""

    patterns: tuple[Pattern, ...]
    slots: Slots
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = Index()
        for number, pattern in enumerate(self.patterns):
            for step, filter_ in enumerate(pattern.steps):
                index.add(number * STEPS + step, filter_)
        for batch in batches:
            events, misfits = self.slots.fitted(batch)
            rows, keys = index.match(events)
            for misfit in misfits:
                fits = ~np.isin(rows, misfit.rows)
                rows, keys = rows[fits], keys[fits]
            pairs, places = np.unique(
                rows * len(self.patterns) + keys // STEPS, return_inverse=True
            )
            steps = np.zeros(len(pairs), np.int64)
            np.bitwise_or.at(steps, places, np.int64(1) << (keys % STEPS))
            at, numbers = np.divmod(pairs, len(self.patterns))
            kept = self.slots.given_back(batch, at, self.schema)
            yield pa.RecordBatch.from_arrays(
                [*kept, pa.array(numbers, pa.int32()), pa.array(steps)], schema=self.schema
            )


@dataclass(frozen=True)
class _Follow:
    """Runs monitors over hits that are sorted by key and time."""

    patterns: tuple[Pattern, ...]
    ids: tuple[Any, ...]
    keys: int
    """The first so many columns are the key, the next is the time..."""
    orders: int
    """...and after so many others come those that are given back."""
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key: Any = None
        monitors: dict[int, Monitor] = {}
        rows: list[tuple[Any, ...]] = []
        for seq, hit in enumerate(self._hits(batches)):
            if hit.key != key:
                key = hit.key
                monitors = {}
            if hit.pattern not in monitors:
                monitors[hit.pattern] = Monitor(self._followed[hit.pattern])
            occurrence = Occurrence(hit.time, "", seq, _Steps(hit.steps, hit.given))
            for match in monitors[hit.pattern].push([occurrence]):
                given = [(each.time, *each.event.given) for each in match]  # type: ignore[attr-defined]  # every event is a _Steps
                rows.append((*key, self.ids[hit.pattern], match[0].time, match[-1].time, given))
            if len(rows) >= MAX_BATCH_ROWS:
                yield self._batch(rows)
                rows = []
        if rows:
            yield self._batch(rows)

    @cached_property
    def _followed(self) -> list[Pattern]:
        """The patterns with "this step was matched" for the filter of each step."""
        return [
            Pattern(tuple(map(_was_matched, range(len(each.steps)))), each.within)
            for each in self.patterns
        ]

    def _hits(self, batches: Iterator[pa.RecordBatch]) -> Iterator[_Hit]:
        for batch in batches:
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            keys = zip(*columns[: self.keys], strict=True)
            given = list(zip(*columns[self.keys + 1 + self.orders : -2], strict=True))
            times = pc.cast(batch.column(self.keys), pa.timestamp("us", tz="UTC")).to_pylist()
            rows = zip(keys, times, columns[-2], columns[-1], strict=True)
            for row, (key, time, pattern, steps) in enumerate(rows):
                yield _Hit(key, time, pattern, steps, given[row] if given else ())

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        events = self.schema.field("events").type
        names = [field.name for field in events.value_type]
        columns = list(zip(*rows, strict=True))
        columns[-1] = tuple(
            [dict(zip(names, each, strict=True)) for each in steps] for steps in columns[-1]
        )
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Hit(NamedTuple):
    """An event that matches steps of a pattern."""

    key: tuple[Any, ...]
    time: Any
    pattern: int
    steps: int
    given: tuple[Any, ...]


class _Steps(Mapping[str, bool]):
    """An event as a monitor of steps sees it: attribute `s3` is there if it matched step 3."""

    def __init__(self, steps: int, given: tuple[Any, ...]) -> None:
        self._steps = steps
        self.given = given

    def __getitem__(self, name: str) -> bool:
        if self._steps >> int(name[1:]) & 1:
            return True
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (f"s{step}" for step in range(STEPS) if self._steps >> step & 1)

    def __len__(self) -> int:
        return self._steps.bit_count()


def _was_matched(step: int) -> Filter:
    return Filter.of([Conjunction.of([Constraint.of(f"s{step}", "IS NOT NULL")])])
