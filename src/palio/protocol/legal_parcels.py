"""Events from another broker or a client, checked before anybody reads them.

The checks are the same whichever way events come: by a link, by a datagram, or as an Arrow stream.
Their order matters. Arrow follows lengths and offsets out of its memory until a batch has been
validated in full, so nothing but numbers of rows and columns is asked of it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from palio.errors import IllegalMessage, InvalidEvent, InvalidInput, LimitExceeded
from palio.model.events import SEQ, TIME, conform
from palio.model.parcels import Parcel, Shape
from palio.protocol.batches import check_chunk, check_views, decoded_bytes
from palio.protocol.ipc import SYSTEM_COLUMNS, check_message
from palio.protocol.limits import (
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_NUMBER,
    MAX_PUBLISHER_CHARS,
    MAX_STREAM_MESSAGES,
)

__all__ = ["batch_parcel", "check_numbered", "legal_shape", "lone_parcel", "stream_batches"]

_OPTIONS: Final = pa.ipc.IpcReadOptions(ensure_native_endian=False, use_threads=False)


def legal_shape(schema: pa.Schema) -> Shape:
    """The shape of a schema; `ValueError` if it has names or types that no event has.

    >>> legal_shape(pa.schema([("x", pa.int64())]))
    Shape(x)
    """
    types = schema.types
    empty = {kind: pa.array([], kind) for kind in set(types)}
    columns = [empty[kind] for kind in types]
    if conform(pa.RecordBatch.from_arrays(columns, schema=schema)).schema != schema:
        raise ValueError(f"a shape with types that are none of the model's: {schema}")
    return Shape(schema)


def lone_parcel(publisher: str, shape: Shape, values: Any) -> Parcel:
    """One event of its values, in the order of its shape; `ValueError` if they are of another.

    >>> lone_parcel("p", Shape(pa.schema([("x", pa.int64())])), [1]).event
    {'x': 1}
    """
    if not isinstance(values, list) or not shape.fits(values):
        raise ValueError("an event without its values, or with some of another type")
    return Parcel.lone(publisher, shape, tuple(values))


def batch_parcel(publisher: str, shape: Shape, message: bytes) -> Parcel:
    """The events of an Arrow batch message; `ValueError` or an error of Arrow if it is none.

    >>> batch = pa.record_batch({"x": [1, 2]})
    >>> len(batch_parcel("p", Shape(batch.schema), batch.serialize().to_pybytes()))
    2
    """
    check_message(message)
    payload = pa.py_buffer(message)
    batch = pa.ipc.read_record_batch(payload, shape.schema)
    _check_size(batch)
    batch.validate(full=True)  # offsets from outside, about to be read by kernels
    return Parcel(publisher, batch, payload, shape)


def stream_batches(stream: bytes) -> Iterator[pa.RecordBatch]:
    """Read the batches of a client's Arrow stream, one by one; `InvalidInput` if it is none.

    All together they are no more than a front takes at once (`check_chunk`), reckoned as events
    before any of them is decoded.

    >>> sink = pa.BufferOutputStream()
    >>> batch = pa.record_batch({"x": pa.array([1, 2], pa.int8())})
    >>> with pa.ipc.new_stream(sink, batch.schema) as writer:
    ...     writer.write_batch(batch)
    >>> [str(each.schema) for each in stream_batches(sink.getvalue().to_pybytes())]
    ['x: int64']
    """
    try:
        yield from _stream_batches(stream)
    except InvalidInput:
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        raise InvalidEvent(f"the body is no Arrow stream of events: {error}") from None


def _stream_batches(stream: bytes) -> Iterator[pa.RecordBatch]:
    _check_messages(stream)
    reader = pa.ipc.open_stream(pa.py_buffer(stream), options=_OPTIONS)
    # What a schema says beside names and types is nobody's, and would be kept with it.
    schema = pa.schema([(field.name, field.type) for field in reader.schema])
    kinds: list[Any] = schema.types  # the stubs want one type
    conform(pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in kinds], schema=schema))
    rows = nbytes = 0
    while (read := _next(reader)) is not None:
        rows += read.num_rows
        check_chunk(rows, read.num_columns, 0)
        read.validate()  # buffers are as long as their columns say
        check_views(read)
        read.validate(full=True)
        nbytes += decoded_bytes(read)
        check_chunk(rows, read.num_columns, nbytes)
        if read.num_columns:
            read = pa.RecordBatch.from_arrays(read.columns, schema=schema)
        if read.num_rows:
            yield conform(read)


def _check_messages(stream: bytes) -> None:
    """Refuse a stream of which one message would become more than it is, or with too many."""
    end = count = 0
    while end < len(stream) and (message := check_message(stream, end)) is not None:
        end = message.end
        count += 1
        if count > MAX_STREAM_MESSAGES:
            raise LimitExceeded(
                "an Arrow stream in messages",
                limit="MAX_STREAM_MESSAGES",
                maximum=MAX_STREAM_MESSAGES,
            )


def _next(reader: pa.ipc.RecordBatchStreamReader) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def check_numbered(sender: object, parcel: Parcel) -> None:
    """Refuse (`IllegalMessage`) events that no broker can have numbered."""
    if len(parcel.publisher) > MAX_PUBLISHER_CHARS:
        raise IllegalMessage(sender, "events of a publisher that nobody is called")
    seq_at, time_at = parcel.shape.system_columns
    if seq_at < 0 or time_at < 0:
        raise IllegalMessage(sender, f"events without {SEQ} or {TIME}")
    values = parcel.values
    if values is not None:
        number = values[seq_at]
        if number is None or not 0 <= number <= MAX_NUMBER or values[time_at] is None:
            raise IllegalMessage(sender, f"an event without {TIME}, or a {SEQ} from 0 on")
        return
    if parcel.batch.column(seq_at).null_count or parcel.batch.column(time_at).null_count:
        raise IllegalMessage(sender, f"events without {SEQ} or {TIME}")
    numbers = parcel.numbers
    is_in_range = len(numbers) and numbers[0] >= 0 and numbers[-1] <= MAX_NUMBER
    if not is_in_range or not (numbers[1:] > numbers[:-1]).all():
        raise IllegalMessage(sender, f"events whose {SEQ} does not grow from 0 on")


def _check_size(batch: pa.RecordBatch) -> None:
    """Refuse what no end makes; a client that publishes a little more is told so by the broker."""
    rows, columns = batch.num_rows, batch.num_columns
    if rows > MAX_BATCH_ROWS:
        raise ValueError(f"a batch of {rows} rows; {MAX_BATCH_ROWS} is the most (MAX_BATCH_ROWS)")
    most = MAX_BATCH_CELLS + SYSTEM_COLUMNS * rows
    if rows * columns > most:
        raise ValueError(
            f"a batch of {rows} rows times {columns} columns; "
            f"{most} is the most (MAX_BATCH_CELLS, and {SYSTEM_COLUMNS} columns of the system)"
        )
