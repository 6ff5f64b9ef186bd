"""`sequences` of a stream: hits wait in Spark's state for the watermark.

1. A hit waits until the watermark has reached its time. Then it is processed in the order that
   `history` has, by the same `Follower`.
2. Spark drops and counts (`numRowsDroppedByWatermark` of the query's progress) events that arrive
   after the watermark has passed their time. So a completed sequence is never revised.
3. The state of a key has its waiting hits, and the partial match of each pattern. A partial match
   expires when the watermark has passed its `WITHIN`, and an empty state is removed. At most
   `MAX_HELD_EVENTS` hits of a key wait.
4. State identifies a pattern by its id and text: an unchanged pattern continues after a restart,
   and a changed one starts over.

The operator is `applyInPandasWithState`. Its successor `transformWithState` asks the JVM over a
socket for every value and timer of every key, where this one has state travel with the rows, a
batch of keys at once; and it needs protobuf, which PySpark does not bring. One state and one timer
a key is all that there is to keep. What pandas would round (integers beside nulls) or shift
(times) never gets there as itself: hits, state and sequences travel as msgpack.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palio.errors import InvalidInput, LimitExceeded
from palio.model.patterns import Pattern
from palio.spark.following import (
    INSTANT,
    MAX_BATCH_ROWS,
    Completed,
    FindSteps,
    Follower,
    StepEvent,
    result_batch,
    stepwise,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

MAX_HELD_EVENTS: Final = 100_000
"""Events of one key that wait for the watermark: its state is written again with every micro-batch
that has events of it, and this many are some ten megabytes."""

# Generic types whose arguments are known when a query is planned, and not to mypy.
_TUPLE: Final[Any] = tuple
_LIST: Final[Any] = list

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

K = TypeVar("K")
D = TypeVar("D")
G = TypeVar("G")


class Hit(msgspec.Struct, Generic[D, G], array_like=True):
    """An event that matches steps of patterns."""

    time: dt.datetime
    order: D
    """The columns that order events of one instant, before those of the result do."""
    given: G
    steps: dict[int, int]
    """The names of patterns, and a bit for each step of theirs."""

    def place(self) -> tuple[Any, ...]:
        """Its place in the order of its key's events."""
        return self.time, _rank(self.order), _rank(self.given)


class KeyState(msgspec.Struct, Generic[K, D, G], array_like=True):
    """The state of a key."""

    key: K
    held: list[Hit[D, G]]
    """In no order."""
    progress: dict[int, list[tuple[dt.datetime, G]]]
    """By the names of patterns."""


_HIT: Final[Any] = Hit
_MEMORY: Final[Any] = KeyState


@dataclass(frozen=True)
class HitTypes:
    """The columns of hits: keys, then the time, then those of `order` and those of the result.

    Gives their types in msgpack, so that every value comes back as it was.
    """

    schema: pa.Schema
    keys: int
    orders: int

    @cached_property
    def key(self) -> Any:
        """The type of keys."""
        return self._types(slice(self.keys))

    @cached_property
    def hit(self) -> Any:
        """The type of hits with their keys."""
        return _TUPLE[self.key, _HIT[self._order, self._given]]

    @cached_property
    def memory(self) -> Any:
        """The type of states."""
        return _MEMORY[self.key, self._order, self._given]

    @cached_property
    def completed(self) -> Any:
        """The type of completed sequences: key, pattern, and of each step time and columns."""
        return _TUPLE[self.key, int | str, _LIST[_TUPLE[dt.datetime, self._given]]]

    @property
    def _order(self) -> Any:
        return self._types(slice(self.keys + 1, self.keys + 1 + self.orders))

    @property
    def _given(self) -> Any:
        return self._types(slice(self.keys + 1 + self.orders, None))

    def _types(self, part: slice) -> Any:
        return _TUPLE[tuple(_python_type(field.type) for field in list(self.schema)[part])]


@dataclass(frozen=True)
class PackHits:
    """The first stage over a stream: key, time and hit of each event that matches any step."""

    find: FindSteps
    kinds: HitTypes
    names: tuple[int, ...]
    """Of the patterns."""
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row for each event that is a hit and has a time."""
        encode = msgspec.msgpack.Encoder().encode
        keys, orders = self.kinds.keys, self.kinds.orders
        for batch, hits in self.find.found(batches):
            rows, firsts = np.unique(hits.rows, return_index=True)
            kept = self.find.slots.given_back(batch, rows, self.kinds.schema)
            times = pc.cast(kept[keys], INSTANT)
            columns = [column.to_pylist() for column in kept]
            columns[keys] = times.to_pylist()
            lasts = np.append(firsts, len(hits.rows))[1:].tolist()
            packed: list[bytes | None] = []
            for row, first, last in zip(range(len(rows)), firsts.tolist(), lasts, strict=True):
                values = tuple(column[row] for column in columns)
                steps = {
                    self.names[number]: bits
                    for number, bits in zip(
                        hits.patterns[first:last].tolist(),
                        hits.steps[first:last].tolist(),
                        strict=True,
                    )
                }
                hit = Hit(
                    values[keys], values[keys + 1 :][:orders], values[keys + 1 :][orders:], steps
                )
                packed.append(None if hit.time is None else encode((values[:keys], hit)))
            arrays = [*kept[:keys], times, pa.array(packed, pa.binary())]
            whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            yield whole.filter(times.is_valid())


@dataclass(frozen=True)
class FollowLive:
    """The second stage over a stream, called for each key that has hits or whose time has come."""

    patterns: tuple[Pattern, ...]
    ids: tuple[Any, ...]
    names: tuple[int, ...]
    kinds: HitTypes

    def __call__(self, _key: Any, frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        """Called by Spark: the sequences that the watermark completes, as msgpack."""
        import pandas as pd  # type: ignore[import-untyped]  # it has its types in another package

        memory = self._remembered(state)
        if not state.hasTimedOut:
            for frame in frames:
                for packed in frame["hit"]:
                    memory = self._with(memory, packed)
        assert memory is not None
        watermark_ms = max(0, state.getCurrentWatermarkMs())
        completed = self.advance(memory, EPOCH + dt.timedelta(milliseconds=watermark_ms))
        wake_ms = self.wake_ms(memory)
        if wake_ms is None:
            state.remove()
        else:
            state.update((self._encode(memory),))
            state.setTimeoutTimestamp(max(1, wake_ms))
        if completed:
            yield pd.DataFrame({"found": list(map(self._encode, completed))})

    def advance(self, memory: KeyState[Any, Any, Any], until: dt.datetime) -> list[Completed]:
        """Let the hits up to the watermark take their part; the sequences that they complete."""
        due = sorted((hit for hit in memory.held if hit.time <= until), key=Hit.place)
        memory.held = [hit for hit in memory.held if hit.time > until]
        if len(memory.held) > MAX_HELD_EVENTS:
            raise LimitExceeded(
                f"the events of {memory.key!r} that wait for the watermark (make its delay shorter "
                "or the key finer; the query continues from its checkpoint)",
                limit="MAX_HELD_EVENTS",
                maximum=MAX_HELD_EVENTS,
                actual=len(memory.held),
            )
        follower = Follower(self._stepwise)
        for name, progress in memory.progress.items():
            if name in self._numbers:
                follower.resume(self._numbers[name], (StepEvent(*event) for event in progress))
        completed = []
        for hit in due:
            step = StepEvent(hit.time, hit.given)
            for name, bits in hit.steps.items():
                number = self._numbers.get(name)
                if number is not None:
                    matches = follower.advance(number, bits, step)
                    completed += [
                        Completed(memory.key, self.ids[number], match) for match in matches
                    ]
        memory.progress = {
            self.names[number]: [(step.time, step.given) for step in steps]
            for number, steps in follower.progress().items()
            if self._end_us(number, steps[0].time) > _us(until)
        }
        return completed

    def wake_ms(self, memory: KeyState[Any, Any, Any]) -> int | None:
        """The latest watermark at which there is nothing to do; None if there never will be.

        Spark calls a key once the watermark is past the time that it asked for.
        """
        ends = [
            self._end_us(self._numbers[name], progress[0][0])
            for name, progress in memory.progress.items()
        ]
        due = [*ends, *(_us(hit.time) for hit in memory.held)]
        return -(-min(due) // 1_000) - 1 if due else None

    def _end_us(self, number: int, start: dt.datetime) -> int:
        """Return the watermark at which a partial match expires."""
        within = self.patterns[number].within
        assert within is not None
        return _us(start) + within // dt.timedelta(microseconds=1)

    def _remembered(self, state: GroupState) -> KeyState[Any, Any, Any] | None:
        if not state.exists:
            return None
        memory: KeyState[Any, Any, Any] = self._decode_memory(state.get[0])
        return memory

    def _with(
        self, memory: KeyState[Any, Any, Any] | None, packed: bytes
    ) -> KeyState[Any, Any, Any]:
        key, hit = self._decode_hit(packed)
        memory = memory or KeyState(key, [], {})
        memory.held.append(hit)
        return memory

    @cached_property
    def _stepwise(self) -> list[Pattern]:
        return stepwise(self.patterns)

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _encode(self) -> Any:
        return msgspec.msgpack.Encoder().encode

    @cached_property
    def _decode_hit(self) -> Any:
        return msgspec.msgpack.Decoder(self.kinds.hit).decode

    @cached_property
    def _decode_memory(self) -> Any:
        return msgspec.msgpack.Decoder(self.kinds.memory).decode


@dataclass(frozen=True)
class Unpack:
    """The third stage over a stream: completed sequences as rows of the result."""

    kinds: HitTypes
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same sequences."""
        decode = msgspec.msgpack.Decoder(self.kinds.completed).decode
        for batch in batches:
            for first in range(0, batch.num_rows, MAX_BATCH_ROWS):
                part: list[Any] = batch.column(0)[first : first + MAX_BATCH_ROWS].to_pylist()
                rows = [
                    Completed(key, pattern, tuple(StepEvent(*step) for step in steps))
                    for key, pattern, steps in map(decode, part)
                ]
                yield result_batch(rows, self.schema)


def pattern_name(id: int | str, pattern: Pattern) -> int:
    """The name of a pattern in states."""
    digest = hashlib.blake2b(repr((id, str(pattern))).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _us(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(microseconds=1)


def _rank(value: Any) -> Any:
    """Something that compares as Spark orders values: nulls first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return (1, [_rank(item) for item in value])
    return (1, value)


_SIMPLE: Final[Sequence[tuple[Any, Any]]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, dt.datetime),
    (pa.types.is_date, dt.date),
    (pa.types.is_time, dt.time),
    (pa.types.is_duration, dt.timedelta),
    (pa.types.is_null, None),
)


def _python_type(given: pa.DataType) -> Any:
    """The type of what Arrow's values are in Python."""
    kind: Any = given
    types = pa.types
    for is_such, simple in _SIMPLE:
        if is_such(given):
            return simple | None if simple is not None else None
    if types.is_string(given) or types.is_large_string(given):
        return str | None
    if types.is_binary(given) or types.is_large_binary(given):
        return bytes | None
    if types.is_map(given):
        return _LIST[_TUPLE[_python_type(kind.key_type), _python_type(kind.item_type)]] | None
    if types.is_list(given) or types.is_large_list(given):
        return _LIST[_python_type(kind.value_type)] | None
    if types.is_struct(given):
        fields = {field.name: _python_type(field.type) for field in kind}
        struct: Any = TypedDict("Struct", fields)  # type: ignore[misc]  # its fields are values
        return struct | None
    raise InvalidInput(
        f"a column of type {given} cannot go along with the sequences of a stream; leave it out"
    )
