"""Events: Arrow record batches of one shape, and rows of dictionaries at the edges.

Null is absence. `to_batches` lays rows out in columns, `rows` takes them back, `conform` brings any
Arrow batch to the model's own types, or refuses it by the column that does not fit. `flatten` turns
a JSON object into attributes with dotted names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import repeat
from typing import Any, Final, TypeAlias

from palio.engine import np, npt, pa
from palio.errors import InvalidEvent, LimitExceeded
from palio.model.limits import MAX_ATTRIBUTES, MAX_DEPTH, check_limit
from palio.model.values import FIRST_TIME, LAST_TIME, Value, check_name, checked

SYSTEM_PREFIX: Final = "$"
"""Names that begin so belong to the system: no publisher gives an attribute such a name."""

PUBLISHER: Final = "$publisher"
"""System column of files and streams: the publisher, which a message names beside its events."""

SEQ: Final = "$seq"
"""System column: the publisher's own count of its events."""

TIME: Final = "$time"
"""System column: when the event was published."""

PAYLOAD: Final = "$payload"
"""System attribute that publishers give: their data as a whole (`palio.model.payloads`)."""

EXPIRES: Final = "$expires"
"""System attribute that publishers give: the time from which on the event is not delivered."""

DEDUP_ID: Final = "$dedup"
"""System attribute that publishers give: their own id of the event. The broker drops a second event
with the same id."""

_OF_PUBLISHERS: Final = frozenset({PAYLOAD, EXPIRES, DEDUP_ID})

STAMP_BYTES: Final = 16
"""The bytes that number and time add to an event."""

RowMask: TypeAlias = "npt.NDArray[np.bool_]"
"""One flag for each row of a batch."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SPARSE_SHARE: Final = 4
"""`to_batches` starts a new batch if fewer than one cell in this number has a value."""

SPARSE_CELLS: Final = 16_384
"""This number of empty cells is allowed in any batch: they cost less than another batch would."""


@cache
def arrow_types() -> dict[type, pa.DataType]:
    """Arrow's type for each of the model's.

    >>> arrow_types()[datetime]
    TimestampType(timestamp[us, tz=UTC])
    """
    return {
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        str: pa.utf8(),
        bytes: pa.binary(),
        datetime: timestamp_type(),
    }


@cache
def timestamp_type() -> pa.TimestampType[Any, Any]:
    """Arrow's type for times."""
    return pa.timestamp("us", tz="UTC")


def is_system_name(name: str) -> bool:
    """Check whether only the system gives an attribute this name.

    >>> is_system_name("$seq"), is_system_name("price")
    (True, False)
    """
    return name.startswith(SYSTEM_PREFIX)


def refuse_system_names(names: Iterable[Any]) -> None:
    """Refuse (`InvalidEvent`) attributes of a publication that only the system may name so, but
    for what publishers give: payload, expiry and their own id.
    """
    for name in names:
        if isinstance(name, str) and name.startswith(SYSTEM_PREFIX):
            if name in _OF_PUBLISHERS:
                continue
            raise InvalidEvent(
                f"attribute {name!r}: names that begin with {SYSTEM_PREFIX} belong to the system"
            )


def flatten(json_object: Mapping[str, Any]) -> dict[str, Value]:
    """A (nested) JSON object as attributes with dotted names.

    Nulls are absent. Arrays and sets are no attributes: they stay in the payload, and are left out
    here.

    >>> flatten({"type": "order", "data": {"id": 7, "tags": ["a"], "note": None}})
    {'type': 'order', 'data.id': 7}
    """
    attributes: dict[str, Value] = {}
    _flatten(None, json_object, attributes, 0)
    return attributes


def _flatten(
    prefix: str | None, part: Mapping[str, Any], attributes: dict[str, Value], depth: int
) -> None:
    if depth >= MAX_DEPTH:
        raise LimitExceeded("an event's nesting", limit="MAX_DEPTH", maximum=MAX_DEPTH)
    for key, value in part.items():
        name = str(key) if prefix is None else f"{prefix}.{key}"
        if value is None or isinstance(value, list | tuple | set | frozenset):
            continue
        if isinstance(value, Mapping):
            _flatten(name, value, attributes, depth + 1)
            continue
        if name in attributes:
            raise InvalidEvent(f"attribute {name!r} occurs twice once the object is flattened")
        attributes[name] = attribute(name, value)
        if len(attributes) > MAX_ATTRIBUTES:
            raise LimitExceeded(
                "an event's number of attributes", limit="MAX_ATTRIBUTES", maximum=MAX_ATTRIBUTES
            )


def attribute(name: str, value: Any) -> Value:
    """A checked value of a checked name."""
    check_name(name, InvalidEvent)
    try:
        return checked(value)
    except InvalidEvent as error:
        raise InvalidEvent(f"attribute {name!r}: {error}") from None


def to_batches(events: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches, in order: a new batch begins where an attribute changes its type.

    It also begins where the attributes of all its rows together would be more than an event may
    have, and where most of its cells would be empty: events of many kinds cost what their values
    do, not the product of their number and of all their names.

    >>> sum(1 for batch in to_batches([{"x": 1}, {"y": "a"}, {"x": 0.5}]))
    2
    """
    columns: dict[str, list[Value | None]] = {}
    types: dict[str, type] = {}
    count = values = 0
    for event in events:
        row = present(event)
        if count and _begins_batch(row, types, count, values):
            yield _batch(columns, types, count)
            columns, types, count, values = {}, {}, 0, 0
        for name, value in row.items():
            if name not in types:
                types[name] = type(value)
                columns[name] = [None] * count
            columns[name].append(value)
        count += 1
        values += len(row)
        for column in columns.values():
            if len(column) < count:
                column.append(None)
    if count:
        yield _batch(columns, types, count)


def _check_absent(event: Mapping[str, Any]) -> None:
    """Check the names of attributes without a value, too: `attribute` checks only the others."""
    for name, value in event.items():
        if value is None:
            check_name(name, InvalidEvent)


def _begins_batch(
    row: Mapping[str, Value], types: Mapping[str, type], count: int, values: int
) -> bool:
    """Check whether a row begins a batch: it has another type, too many columns, or too many empty
    cells for the one before.
    """
    if any(types.get(name, type(value)) is not type(value) for name, value in row.items()):
        return True
    allowed_cells = SPARSE_CELLS + SPARSE_SHARE * (values + len(row))
    # Needs no union of names: the row is within both limits even if all of its names are new.
    if len(types) + len(row) <= min(MAX_ATTRIBUTES, allowed_cells // (count + 1)):
        return False
    names = types.keys() | row.keys()
    return _width(names) > MAX_ATTRIBUTES or len(names) * (count + 1) > allowed_cells


def to_batch(event: Mapping[str, Any]) -> pa.RecordBatch:
    """One event as a batch of one row."""
    return next(to_batches([event]))


def present(event: Mapping[str, Any]) -> dict[str, Value]:
    """The checked attributes of one event, without the absent ones.

    >>> present({"symbol": "IBM", "price": None})
    {'symbol': 'IBM'}
    """
    row = {name: attribute(name, value) for name, value in event.items() if value is not None}
    if len(row) < len(event):
        _check_absent(event)
    check_width(row)
    return row


def _schema(types: Mapping[str, type]) -> pa.Schema:
    return pa.schema([(name, arrow_types()[kind]) for name, kind in types.items()])


def _width(names: Collection[str]) -> int:
    """The number of attributes of an event, without the system columns that its broker adds."""
    return len(names) - (SEQ in names) - (TIME in names)


def check_width(event: Mapping[str, Any]) -> None:
    """Refuse an event of too many attributes; those that are None are absent."""
    if len(event) > MAX_ATTRIBUTES:
        present = _width([name for name, value in event.items() if value is not None])
        check_limit("an event's number of attributes", "MAX_ATTRIBUTES", MAX_ATTRIBUTES, present)


def _batch(
    columns: dict[str, list[Value | None]], types: dict[str, type], count: int
) -> pa.RecordBatch:
    arrays = [pa.array(columns[name], arrow_types()[types[name]]) for name in columns]
    if not columns:  # events without attributes are events all the same
        return _without_columns(count)
    return pa.record_batch(arrays, schema=_schema(types))


def _without_columns(count: int) -> pa.RecordBatch:
    structs: Any = pa.array([{}] * count, pa.struct([]))  # the stubs take it for any array
    return pa.RecordBatch.from_struct_array(structs)


def rows(batch: pa.RecordBatch, indices: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """The events of a batch as dictionaries, nulls left out.

    >>> list(rows(next(to_batches([{"x": 1}, {"y": "a"}]))))
    [{'x': 1}, {'y': 'a'}]
    """
    chosen = batch if indices is None else batch.take(pa.array(indices, pa.int64()))
    names = chosen.schema.names
    columns = [in_python(column) for column in chosen.columns]
    for values in zip(*columns, strict=True) if columns else repeat((), chosen.num_rows):
        yield without_nulls(names, values)


def without_nulls(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Values by name, but for the absent ones.

    >>> without_nulls(("x", "y"), (1, None))
    {'x': 1}
    """
    pairs = zip(names, values, strict=True)
    if None in values:
        return {name: value for name, value in pairs if value is not None}
    return dict(pairs)


def in_python(column: pa.Array[Any]) -> list[Any]:
    """A column of one of the model's types as Python's values, times with `datetime.UTC`.

    Arrow needs about a microsecond for each time, and returns a UTC zone other than `datetime.UTC`.
    Events of one publication have the same time, which is converted once.

    >>> in_python(pa.array([0], timestamp_type()))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)]
    """
    if column.type != timestamp_type():
        return column.to_pylist()
    ticks: list[Any] = column.view(pa.int64()).to_pylist()  # the stubs take it for something else
    times: list[datetime | None] = []
    tick, time = None, None
    for tick_us in ticks:
        if tick_us != tick:
            tick, time = (
                tick_us,
                None if tick_us is None else _EPOCH + timedelta(microseconds=tick_us),
            )
        times.append(time)
    return times


def stamped(batch: pa.RecordBatch, first_seq: int, time_us: int) -> pa.RecordBatch:
    """The batch with its system columns: numbers from `first_seq` on, and the publication time.

    >>> stamped(pa.record_batch({"x": [1, 2]}), 7, 0)[SEQ].to_pylist()
    [7, 8]
    """
    count = batch.num_rows
    numbers = np.arange(first_seq, first_seq + count, dtype=np.int64)
    times = np.full(count, time_us, np.int64)
    numbered = batch.append_column(SEQ, _plain(numbers, pa.int64()))
    return numbered.append_column(TIME, _plain(times, timestamp_type()))


def with_attribute(batch: pa.RecordBatch, name: str, value: Value) -> pa.RecordBatch:
    """The batch with an attribute of one value for all its events.

    >>> with_attribute(pa.record_batch({"x": [1]}), "y", "a").to_pylist()
    [{'x': 1, 'y': 'a'}]
    """
    kind = arrow_types()[type(value)]
    return batch.append_column(pa.field(name, kind), pa.array([value] * batch.num_rows, kind))


def has_expired(row: Mapping[str, Any], now: datetime) -> bool:
    """True for an event that is not to be delivered any more.

    >>> has_expired({"x": 1}, datetime(2026, 1, 1, tzinfo=UTC))
    False
    """
    at = row.get(EXPIRES)
    return isinstance(at, datetime) and at <= now


def _plain(numbers: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array[Any]:
    """64-bit numbers as an Arrow array of some type, as they are."""
    buffer: Any = numbers  # the stubs want more than the buffer protocol
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(buffer)])


def table_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches of whatever attributes as one table: what an event lacks is null.

    >>> table_of([*to_batches([{"x": 1}]), *to_batches([{"x": 0.5, "y": "a"}])]).to_pylist()
    [{'x': 1.0, 'y': None}, {'x': 0.5, 'y': 'a'}]
    """
    tables = [pa.Table.from_batches([each]) for each in batches] or [pa.table({})]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidEvent(
            f"the events do not fit into one table: {error}; take them as batches"
        ) from None


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with every column of one of the model's types, values unchanged.

    Narrower numbers widen, dictionaries decode, zoned timestamps move to microseconds in UTC.
    Anything that could lose or invent something is refused, naming the column.

    >>> conform(pa.record_batch({"x": pa.array([1], pa.int8())})).schema.field("x").type
    DataType(int64)
    """
    names = batch.schema.names
    check_names(names)
    if _of_the_model().issuperset(batch.schema.types):
        return batch
    arrays, fields = [], []
    for name, column in zip(names, batch.columns, strict=True):
        target = _target(name, column.type)
        if target is None:
            continue
        try:
            arrays.append(column if column.type == target else column.cast(target))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidEvent(
                f"column {name!r} of type {column.type} does not fit {target}: {error}"
            ) from None
        fields.append((name, target))
    if not fields:
        return _without_columns(batch.num_rows)
    return pa.record_batch(arrays, schema=pa.schema(fields))


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that no batch of events has: too many, of bad names, or of the same name."""
    check_limit("an event's number of attributes", "MAX_ATTRIBUTES", MAX_ATTRIBUTES, _width(names))
    for name in names:
        check_name(name, InvalidEvent)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidEvent(f"column {twice!r} occurs twice; an attribute has one value")


def conform_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`conform` for a batch from anywhere: its values are checked too.

    Arrow lets a column hold what no receiver can read: text that is not UTF-8, offsets that point
    beyond their buffer, times beyond the years 1 to 9999. They are refused, naming the column.

    >>> conform_values(pa.record_batch({"x": [1]})).num_rows
    1
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidEvent(f"column {name!r} holds what nobody can read: {error}") from None
    conformed = conform(batch)
    check_times(conformed)
    return conformed


def check_times(batch: pa.RecordBatch, places: Iterable[int] | None = None) -> None:
    """Refuse times that are in no year from 1 to 9999, of columns of the model's own type: those
    at some places, where these are known.
    """
    if places is None:
        places = [at for at, kind in enumerate(batch.schema.types) if kind == timestamp_type()]
    for place in places:
        column = batch.column(place)
        raw: Any = column.buffers()[1]
        if not len(column):
            continue
        times = np.frombuffer(raw, np.int64, len(column), 8 * column.offset)
        if column.null_count:  # the value under a null means nothing
            times = times[column.is_valid().to_numpy(zero_copy_only=False)]
        if len(times) and not (times.min() >= FIRST_TIME and times.max() <= LAST_TIME):
            name = batch.schema.names[place]
            raise InvalidEvent(f"column {name!r} holds a time that is not in the years 1 to 9999")


@cache
def _of_the_model() -> frozenset[pa.DataType]:
    return frozenset(arrow_types().values())


def _target(name: str, given: pa.DataType) -> pa.DataType | None:
    """The model's type for an Arrow type; None for a column of nothing but nulls."""
    types = pa.types
    if types.is_dictionary(given):
        return _target(name, given.value_type)
    if types.is_null(given):
        return None
    if types.is_boolean(given):
        return pa.bool_()
    if types.is_integer(given):
        return pa.int64()
    if types.is_floating(given):
        return pa.float64()
    if types.is_string(given) or types.is_large_string(given) or types.is_string_view(given):
        return pa.utf8()
    if types.is_binary(given) or types.is_large_binary(given):
        return pa.binary()
    if types.is_fixed_size_binary(given) or types.is_binary_view(given):
        return pa.binary()
    if types.is_timestamp(given) and given.tz is not None:
        return timestamp_type()
    hint = "cast it to a number, a string or a timestamp, or drop it"
    if types.is_timestamp(given):
        hint = "attach a zone with assume_timezone"
    raise InvalidEvent(f"column {name!r} is of type {given}, which is no attribute type; {hint}")
