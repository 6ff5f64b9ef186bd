"""Checks events from another broker, a client or a disk, before they are used.

The checks are the same for a link, a datagram, an Arrow stream, or a row of a journal.
`palio.model.untrusted` reads the Arrow data itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from palio.errors import IllegalMessage, InvalidEvent, InvalidInput
from palio.model.events import SEQ, TIME, check_times, conform
from palio.model.ipc import SYSTEM_COLUMNS
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.model.untrusted import read_batch, read_schema, read_stream
from palio.protocol.batches import check_chunk, check_texts
from palio.protocol.limits import (
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_NUMBER,
    MAX_PUBLISHER_CHARS,
)


def read_shape(message: bytes) -> Shape:
    """Return the shape of an Arrow schema message; `ValueError` as for `legal_shape`.

    >>> read_shape(pa.schema([("x", pa.int64())]).serialize().to_pybytes())
    Shape(x)
    """
    return legal_shape(read_schema(message))


def legal_shape(schema: pa.Schema) -> Shape:
    """Return the shape of a schema; `ValueError` if it has names or types that no event has.

    >>> legal_shape(pa.schema([("x", pa.int64())]))
    Shape(x)
    """
    types = schema.types
    empty = {kind: pa.array([], kind) for kind in set(types)}
    columns = [empty[kind] for kind in types]
    if conform(pa.RecordBatch.from_arrays(columns, schema=schema)).schema != schema:
        raise ValueError(f"a shape with types that events cannot have: {schema}")
    return Shape.of(schema)


def batch_parcel(publisher: str, shape: Shape, message: bytes) -> Parcel:
    """Return the events of an Arrow batch message; `ValueError` if it is invalid.

    >>> batch = pa.record_batch({"x": [1, 2]})
    >>> len(batch_parcel("p", Shape.of(batch.schema), batch.serialize().to_pybytes()))
    2
    """
    batch = read_batch(message, shape.schema, _check_size)
    return Parcel(publisher, batch, pa.py_buffer(message), shape)


def stream_batches(stream: bytes) -> Iterator[pa.RecordBatch]:
    """Read the batches of a client's Arrow stream, one by one; `InvalidInput` if it is invalid.

    Their total size is limited to the amount that a front end accepts at once (`check_chunk`).

    >>> sink = pa.BufferOutputStream()
    >>> batch = pa.record_batch({"x": pa.array([1, 2], pa.int8())})
    >>> with pa.ipc.new_stream(sink, batch.schema) as writer:
    ...     writer.write_batch(batch)
    >>> [str(batch.schema) for batch in stream_batches(sink.getvalue().to_pybytes())]
    ['x: int64']
    """
    try:
        schema, batches = read_stream(stream, check_chunk)
        kinds: list[Any] = schema.types  # the stubs want one type
        conform(pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in kinds], schema=schema))
        for batch in batches:
            if batch.num_rows:
                events = conform(batch).replace_schema_metadata()
                check_texts(Parcel("", events))
                yield events
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidEvent(f"the body is not an Arrow stream of events: {error}") from None


def check_numbered(sender: object, parcel: Parcel) -> None:
    """Refuse (`IllegalMessage`) events without the valid numbers and times that brokers stamp."""
    try:
        check_stamps(parcel)
    except ValueError as error:
        raise IllegalMessage(sender, str(error)) from None


def check_stamps(parcel: Parcel) -> None:
    """Refuse (`ValueError`) events without valid numbers and times, or beyond the limits."""
    check_texts(parcel)
    if len(parcel.publisher) > MAX_PUBLISHER_CHARS:
        raise ValueError("events of a publisher whose name is too long")
    seq_at, time_at = parcel.shape.system_columns
    if seq_at < 0 or time_at < 0:
        raise ValueError(f"events without {SEQ} or {TIME}")
    values = parcel.values
    if values is not None:
        number = values[seq_at]
        if number is None or not 0 <= number <= MAX_NUMBER or values[time_at] is None:
            raise ValueError(f"an event without {TIME}, or without a {SEQ} from 0 to {MAX_NUMBER}")
        return
    if parcel.batch.column(seq_at).null_count or parcel.batch.column(time_at).null_count:
        raise ValueError(f"events without {SEQ} or {TIME}")
    numbers = parcel.numbers
    is_in_range = len(numbers) and numbers[0] >= 0 and numbers[-1] <= MAX_NUMBER
    if not is_in_range or not (numbers[1:] > numbers[:-1]).all():
        raise ValueError(f"events whose {SEQ} does not grow, or is not from 0 to {MAX_NUMBER}")
    check_times(parcel.batch, parcel.shape.time_columns)


def _check_size(rows: int, columns: int, _nbytes: int) -> None:
    """Refuse batches larger than any Palio client or broker sends.

    The broker closes a connection with such a batch. A client's batch within this limit, but above
    the limit of a publication, is answered by an error instead.
    """
    if rows > MAX_BATCH_ROWS:
        raise ValueError(f"a batch of {rows} rows; {MAX_BATCH_ROWS} is the most (MAX_BATCH_ROWS)")
    most = MAX_BATCH_CELLS + SYSTEM_COLUMNS * rows
    if rows * columns > most:
        raise ValueError(
            f"a batch of {rows} rows times {columns} columns; "
            f"{most} is the most (MAX_BATCH_CELLS, and {SYSTEM_COLUMNS} columns of the system)"
        )
