"""Converts what applications publish to parcels: one event, several, or a batch.

Events given one by one as dictionaries are gathered without looking at each. Those of one *form*
(the same names with values of the same types) are checked once, and their values become columns as
they are. Where a value turns out not to fit (an integer beyond 64 bits), the events are looked at
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from palio.client.events import Event
from palio.client.typed import TypedEvent
from palio.engine import is_installed, pa, require
from palio.errors import InvalidEvent, InvalidInput
from palio.model.events import (
    DEDUP_ID,
    EXPIRES,
    PAYLOAD,
    conform_values,
    present,
    refuse_system_names,
    to_batch,
    to_batches,
    with_attribute,
)
from palio.model.limits import MAX_LONE_BYTES
from palio.model.parcels import Parcel
from palio.model.payloads import as_mapping, event_of
from palio.model.shapes import Shape
from palio.model.values import Value, checked
from palio.protocol.limits import MAX_BATCH_BYTES, check_seconds
from palio.tracing import TRACE_CONTEXT


@runtime_checkable
class ArrowTable(Protocol):
    """A table of Arrow, pandas, polars, DuckDB or others that give themselves as Arrow streams."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream, as Arrow's PyCapsule interface has it."""


Publishable: TypeAlias = (
    Mapping[str, Any] | TypedEvent | ArrowTable | Iterable[Mapping[str, Any] | TypedEvent]
)
"""What `publish` takes."""


Marks: TypeAlias = Mapping[str, Value]
"""Attributes that `publish` gives all events of a call: when they expire, their id, their trace
context."""

NO_MARKS: Final[Marks] = MappingProxyType({})


def parcels(events: Publishable, marks: Marks = NO_MARKS) -> list[Parcel]:
    """Whatever was published, conforming, refused as a whole if anything is wrong.

    >>> [len(parcel) for parcel in parcels([{"x": 1}, {"x": 2}])]
    [2]
    """
    if isinstance(events, ArrowTable):
        require("to publish a table")
        given = _table_batches(events)
        _check_one(sum(batch.num_rows for batch in given), marks)
        return [Parcel("", _marked(batch, marks)) for batch in given]
    rows = _rows(events)
    _check_one(len(rows), marks)
    if marks:
        rows = [{**row, **_marks_for(row, marks)} for row in rows]
    if len(rows) == 1 or not is_installed():
        return [single(row) for row in rows]
    return [Parcel("", batch) for batch in to_batches(rows)]


def _check_one(count: int, marks: Marks) -> None:
    if DEDUP_ID in marks and count != 1:
        raise InvalidInput(f"dedup_id= is the id of one event, not of {count}; publish one by one")


def _marked(batch: pa.RecordBatch, marks: Marks) -> pa.RecordBatch:
    for name, value in _marks_for(batch.schema.names, marks).items():
        batch = with_attribute(batch, name, value)
    return batch


def _marks_for(names: Iterable[str], marks: Marks) -> Marks:
    """The marks that events of these names get: a trace context of their own stays whole."""
    if TRACE_CONTEXT.isdisjoint(names):
        return marks
    return {name: value for name, value in marks.items() if name not in TRACE_CONTEXT}


def single(event: Mapping[str, Any]) -> Parcel:
    """One event: as its values, which without Arrow it is at any size."""
    row = present(event)
    shape, values = Shape(tuple(row), tuple(map(type, row.values()))), tuple(row.values())
    return lone(shape, values, MAX_LONE_BYTES if is_installed() else MAX_BATCH_BYTES) or Parcel(
        "", to_batch(row)
    )


def marks_of(ttl: float | None, dedup_id: str | None, now: datetime) -> Marks:
    """Return the marks of events that are published now.

    >>> marks_of(60, None, datetime(2026, 1, 1))["$expires"].isoformat()
    '2026-01-01T00:01:00'
    """
    if ttl is None and dedup_id is None:
        return NO_MARKS
    marks: dict[str, Value] = {}
    if ttl is not None:
        if not check_seconds(ttl, "ttl"):
            raise InvalidInput("ttl is the number of seconds after which events expire, above 0")
        marks[EXPIRES] = now + timedelta(seconds=ttl)
    if dedup_id is not None:
        if not isinstance(dedup_id, str) or not dedup_id:
            raise InvalidInput(f"dedup_id is a text that is not empty, not {dedup_id!r:.40}")
        marks[DEDUP_ID] = checked(dedup_id)
    return marks


def _rows(events: Publishable) -> list[Mapping[str, Any]]:
    one = as_event(events)
    if one is not None:
        return [one]
    if not isinstance(events, Iterable):
        raise InvalidEvent(
            f"publish takes an event, several, or a record batch, not {type(events).__name__}"
            f"{_advice(events)}"
        )
    listed = []
    for each in events:
        event = as_event(each)
        if event is None:
            raise _no_event(events if hasattr(events, "_asdict") else each)
        listed.append(event)
    return listed


def as_event(given: object) -> Mapping[str, Any] | None:
    """The attributes and the payload of an event or a typed object; None for anything else."""
    if type(given) is dict:  # before the slow checks of abstract classes
        event: Mapping[str, Any] = event_of(given)
    elif isinstance(given, Event) and given.packed is not None:
        event = {**given, PAYLOAD: given.packed}
    elif isinstance(given, Mapping):
        event = event_of(given)
    else:
        fields = as_mapping(given)
        if fields is None:
            return None
        event = event_of(fields, keeps_nulls=True)
    refuse_system_names(event)
    return event


def _table_batches(table: ArrowTable) -> list[pa.RecordBatch]:
    if isinstance(table, pa.RecordBatch):
        return [_conforming(table)]
    try:
        stream = list(pa.RecordBatchReader.from_stream(table))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidEvent(f"no table of events: {error}") from None
    return [_conforming(each) for each in stream if each.num_rows]


def _conforming(batch: pa.RecordBatch) -> pa.RecordBatch:
    conforming = conform_values(batch)
    refuse_system_names(conforming.schema.names)
    return conforming


def _no_event(given: object) -> InvalidEvent:
    """Build the error for an object that is no event.

    Iterating over a named tuple yields its fields, so callers pass the tuple itself.
    """
    kind = f"{type(given).__name__}{_advice(given)}"
    return InvalidEvent(f"an event is a mapping of attributes or a typed object, not {kind}")


def _advice(given: object) -> str:
    """Return advice for an object that contains events, but is neither one nor a list of them."""
    if isinstance(given, ArrowTable):
        return "; publish record batches one by one"
    if isinstance(given, str | bytes):
        return "; publish json.loads of it"
    return "; publish it._asdict()" if hasattr(given, "_asdict") else ""


MAX_FORMS: Final = 1_024
"""Forms remembered; beyond, it starts over with none."""

PLAIN: Final = frozenset({bool, int, float, str, bytes})
"""Types whose values Arrow takes exactly as the model does, or refuses."""

Row: TypeAlias = tuple[Any, ...]
"""An event's values, in the order of its shape's names."""


class Forms:
    """The forms seen so far: the shape that events of each share.

    >>> forms = Forms()
    >>> shape, row = forms.of({"symbol": "IBM", "price": 9.5})
    >>> gathered(shape, [row, ("HAL", 2.5)]).to_pylist()[1]
    {'symbol': 'HAL', 'price': 2.5}
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[Any, ...], Shape | None] = {}

    def of(self, event: Mapping[str, Any]) -> tuple[Shape, Row] | None:
        """Return an event's shape and values; None if the values need a check of their own."""
        values = tuple(event.values())
        key = (*event, *map(type, values))
        try:
            shape = self._shapes[key]
        except KeyError:
            shape = self._learn(key, event, values)
        return None if shape is None else (shape, values)

    def _learn(self, key: tuple[Any, ...], event: Mapping[str, Any], values: Row) -> Shape | None:
        if len(self._shapes) >= MAX_FORMS:
            self._shapes.clear()
        is_plain = bool(values) and all(type(value) in PLAIN for value in values)
        if is_plain:
            refuse_system_names(event)
        row = present(event) if is_plain else {}
        shape = Shape(tuple(row), tuple(map(type, row.values()))) if row else None
        self._shapes[key] = shape
        return shape


def gathered(shape: Shape, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as columns; one of Arrow's errors, or OverflowError or UnicodeError, if one does not
    fit.
    """
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, kind) for column, kind in zip(columns, shape.schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.schema)


def lone(shape: Shape, row: Row, most_bytes: int = MAX_LONE_BYTES) -> Parcel | None:
    """Return one event as its values; None if it is too large or a value does not fit."""
    if not shape.fits(row):
        return None
    for value in row:
        if type(value) is str and not value.isascii() and not _is_text(value):
            return None
    parcel = Parcel.lone("", shape, row)  # the broker fills in the publisher
    return parcel if parcel.nbytes <= most_bytes else None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
