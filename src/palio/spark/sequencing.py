"""`sequences`: patterns `a THEN b WITHIN 30s` over the events of each key (siena 3.2).

Of history Spark sorts the events that match any step, and `Follow` goes through them once. Of a
stream they wait for the watermark (live.py). What runs in the workers is in following.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from palio.errors import InvalidInput
from palio.language.parsing import parse
from palio.model.patterns import Pattern
from palio.spark.attributes import arrow_schema, attributes_of
from palio.spark.events import WATERMARK, FrameEvents, Layout, check_columns
from palio.spark.following import FindSteps, Follow
from palio.spark.live import FollowLive, HitTypes, PackHits, Unpack, pattern_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


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
    is for patterns without a WITHIN of their own.

    A stream needs a watermark, `events.withWatermark(time, "10 seconds")`, and every pattern an
    end. It finds what history finds among the events that are not late; a sequence is emitted when
    the watermark reaches its last event, because until then an earlier one may come.

    One row for each sequence: the key, `pattern` (the id), `started` and `ended`, and `events`, the
    `time` and `columns` of each of its events.

    >>> palio.spark.sequences(
    ...     log, {1: "alarm = 'login failed' THEN file = '/etc/passwd'"}, by="host", time="at"
    ... )  # doctest: +SKIP
    """
    keys = [by] if isinstance(by, str) else list(by)
    source = FrameEvents(events)
    standing = _standing(patterns, within)
    _check_names(source, keys, time, [*columns, *order])
    if source.is_streaming:
        _check_stream(source, standing, time)
    plan = _Plan(source, standing, keys, time, list(order), list(columns))
    return plan.live() if source.is_streaming else plan.history()


class _Standing(NamedTuple):
    """Patterns by their numbers."""

    ids: list[int | str]
    patterns: list[Pattern]

    @property
    def attributes(self) -> frozenset[str]:
        return frozenset().union(
            *(step.attributes for pattern in self.patterns for step in pattern.steps)
        )


def _standing(patterns: Any, within: timedelta | None) -> _Standing:
    if isinstance(patterns, Mapping):
        patterns = [{"id": id, "pattern": text} for id, text in patterns.items()]
    ids: list[Any] = []
    parsed: list[Pattern] = []
    for row in patterns:
        if "id" not in row or "pattern" not in row:
            raise InvalidInput(f"a pattern has an id and a pattern; this one has {', '.join(row)}")
        try:
            pattern = parse(row["pattern"])
            if not isinstance(pattern, Pattern):
                raise InvalidInput("it is a filter; a pattern has a THEN")
            pattern = pattern.bind(row.get("parameters") or {})
            parsed.append(Pattern(pattern.steps, pattern.within or within))
        except InvalidInput as error:
            raise InvalidInput(f"pattern {row['id']!r}: {error}") from error
        ids.append(row["id"])
    kinds = {type(id) for id in ids}
    if kinds not in ({int}, {str}):
        raise InvalidInput(
            "patterns have ids that are all integers or all strings, and at least one"
        )
    return _Standing(ids, parsed)


def _check_names(source: FrameEvents, keys: list[str], time: str, others: list[str]) -> None:
    check_columns(source.columns, [*keys, time, *others])
    if not keys:
        raise InvalidInput("by names no column; sequences need a key")
    given = source.schema.field(time).type
    if not pa.types.is_timestamp(given):
        raise InvalidInput(f"the time of events, {time!r}, is {given} and no timestamp")


def _check_stream(source: FrameEvents, standing: _Standing, time: str) -> None:
    """Refuse a stream whose state for a key would never end."""
    if source.watermark_ms(time) is None:
        raise InvalidInput(
            f"a stream needs a watermark on {time!r}, to know when no earlier event will come: "
            f"events.withWatermark({time!r}, '10 seconds')"
        )
    for id, pattern in zip(standing.ids, standing.patterns, strict=True):
        if pattern.within is None:
            raise InvalidInput(
                f"pattern {id!r} has no WITHIN, and partial matches would be kept "
                "for ever; add it there, or for all patterns with within="
            )


class _Plan(NamedTuple):
    """A request for sequences, as Spark's operators."""

    source: FrameEvents
    standing: _Standing
    keys: list[str]
    time: str
    order: list[str]
    columns: list[str]

    def history(self) -> DataFrame:
        """Hits sorted by key and time, and gone through once."""
        from pyspark.sql import functions
        from pyspark.sql.types import IntegerType, LongType

        standing, keys = self.standing, len(self.keys)
        hits = self._kept().add("pattern", IntegerType()).add("steps", LongType())
        layout = self._layout()
        find = FindSteps(tuple(standing.patterns), layout.slots, arrow_schema(hits))
        sort = [f"k{number}" for number in range(len(hits) - 2)]
        ready = (
            self.source.run(find, layout, hits)
            .where(functions.col(f"k{keys}").isNotNull())
            .repartition(*sort[:keys])
            .sortWithinPartitions(*sort, "pattern")
        )
        result = self._result()
        follow = Follow(
            tuple(standing.patterns),
            tuple(standing.ids),
            keys,
            len(self.order),
            arrow_schema(result),
        )
        return ready.mapInArrow(follow, result)

    def live(self) -> DataFrame:
        """Hits kept in Spark's state for each key until the watermark reaches them."""
        from pyspark.sql.streaming.state import GroupStateTimeout
        from pyspark.sql.types import BinaryType, TimestampType

        standing, keys = self.standing, len(self.keys)
        patterns, ids = tuple(standing.patterns), tuple(standing.ids)
        names = tuple(map(pattern_name, ids, patterns))
        kept = self._kept()
        kinds = HitTypes(arrow_schema(kept), keys, len(self.order))
        # The column is the event time still: Spark knows it by what stands beside it.
        watermark = {WATERMARK: self.source.watermark_ms(self.time)}
        hits = type(kept)(kept.fields[:keys])
        hits.add("at", TimestampType(), metadata=watermark).add("hit", BinaryType())
        layout = self._layout()
        find = FindSteps(patterns, layout.slots, kinds.schema)
        hits_frame = self.source.run(PackHits(find, kinds, names, arrow_schema(hits)), layout, hits)
        followed = hits_frame.groupBy(*hits.names[:keys]).applyInPandasWithState(
            FollowLive(patterns, ids, names, kinds),
            type(kept)().add("found", BinaryType()),
            type(kept)().add("memory", BinaryType()),
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
        result = self._result()
        return followed.mapInArrow(Unpack(kinds, arrow_schema(result)), result)

    def _layout(self) -> Layout:
        attributes = attributes_of(self.source.schema)
        named = sorted(self.standing.attributes & attributes.keys())
        return self.source.layout(named, [*self.keys, self.time, *self.order, *self.columns])

    def _kept(self) -> StructType:
        """The columns of hits: they have positional names, like those that go into the workers."""
        from pyspark.sql.types import StructType

        kept = StructType()
        names = [*self.keys, self.time, *self.order, *self.columns]
        for number, field in enumerate(self.source.types(names).fields):
            kept.add(f"k{number}", field.dataType)
        return kept

    def _result(self) -> StructType:
        from pyspark.sql.types import (
            ArrayType,
            LongType,
            StringType,
            StructField,
            StructType,
            TimestampType,
        )

        step = StructType([StructField(self.time, TimestampType())])
        for field in self.source.types(self.columns).fields:
            step.add(field.name, field.dataType)
        result = StructType()
        for field in self.source.types(self.keys).fields:
            result.add(field.name, field.dataType)
        is_text = isinstance(self.standing.ids[0], str)
        result.add("pattern", StringType() if is_text else LongType())
        result.add("started", TimestampType()).add("ended", TimestampType())
        return result.add("events", ArrayType(step))
