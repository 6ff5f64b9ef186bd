"""Events from another broker or a client, checked before anybody reads them.

What is checked is the same whichever way events come, by a link or by a datagram.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from palio.errors import IllegalMessage
from palio.model.events import SEQ, TIME, conform
from palio.model.parcels import Parcel, Shape
from palio.protocol.ipc import check_batch_message
from palio.protocol.limits import MAX_BATCH_CELLS, MAX_BATCH_ROWS, MAX_NUMBER, MAX_PUBLISHER_CHARS

__all__ = ["batch_parcel", "check_numbered", "legal_shape", "lone_parcel"]

SYSTEM_COLUMNS: Final = 2
"""Number and time, which a broker adds to what was published."""


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
    check_batch_message(message)
    payload = pa.py_buffer(message)
    batch = pa.ipc.read_record_batch(payload, shape.schema)
    _check_size(batch)
    batch.validate(full=True)  # offsets from outside, about to be read by kernels
    return Parcel(publisher, batch, payload, shape)


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
