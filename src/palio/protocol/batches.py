"""Limits on the size of a batch, and division of larger ones.

A publisher sends a large batch in several messages (`parts`). A broker processes a message of many
events in slices of rows (`part_of`); for the stream it is still one message (`Stream.begun`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias, TypeGuard, TypeVar

from msgspec.structs import replace

from palio.engine import pa
from palio.errors import LimitExceeded
from palio.model.events import STAMP_BYTES
from palio.model.limits import MAX_EVENT_TEXT_BYTES, MAX_LONE_BYTES
from palio.model.parcels import Parcel
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_CHUNK_CELLS,
    MAX_CHUNK_ROWS,
    MAX_FRAME_BYTES,
)
from palio.protocol.messages import Forward, Message, Publish

PART_BYTES: Final = MAX_FRAME_BYTES // 4
"""A larger batch is sent in parts, so that one message does not fill a frame."""


def check_size(rows: int, columns: int, nbytes: int) -> None:
    """Refuse (`LimitExceeded`) more than one message may publish.

    >>> check_size(rows=1_000, columns=10, nbytes=80_000)
    """
    _check("a batch in rows", "MAX_BATCH_ROWS", MAX_BATCH_ROWS, rows)
    _check("a batch in rows times columns", "MAX_BATCH_CELLS", MAX_BATCH_CELLS, rows * columns)
    _check_bytes(rows, nbytes)


def check_chunk(rows: int, columns: int, nbytes: int) -> None:
    """Refuse (`LimitExceeded`) more than a front end accepts at once and publishes in parts.

    >>> check_chunk(rows=100_000, columns=10, nbytes=8_000_000)
    """
    _check("a batch in rows", "MAX_CHUNK_ROWS", MAX_CHUNK_ROWS, rows)
    _check("a batch in rows times columns", "MAX_CHUNK_CELLS", MAX_CHUNK_CELLS, rows * columns)
    _check_bytes(rows, nbytes)


def check_texts(parcel: Parcel) -> None:
    """Refuse (`LimitExceeded`) events if one has more text than `MAX_EVENT_TEXT_BYTES`.

    >>> check_texts(Parcel("p", pa.record_batch({"x": ["a"], "y": [b"b"]})))
    """
    values = parcel.values
    if parcel.nbytes <= (MAX_EVENT_TEXT_BYTES if values is None else MAX_LONE_BYTES):
        return
    if values is None:
        from palio.model.untrusted import text_bytes

        nbytes = int(text_bytes(parcel.batch).max(initial=0))
    else:
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        nbytes = sum(len(text) for text in texts if isinstance(text, bytes))
    _check(
        "an event's texts in bytes",
        "MAX_EVENT_TEXT_BYTES",
        MAX_EVENT_TEXT_BYTES,
        nbytes,
        "publish where they are, or leave some out",
    )


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts, each for one message; none if it has no rows.

    >>> [len(part) for part in parts(pa.record_batch({"x": range(MAX_BATCH_ROWS + 2)}))]
    [8193, 8193]
    """
    nbytes, rows = batch.nbytes, batch.num_rows
    is_small = nbytes <= PART_BYTES and rows <= MAX_BATCH_ROWS
    if (is_small and rows * batch.num_columns <= MAX_BATCH_CELLS) or rows <= 1:
        _check("an event's size in bytes", "MAX_BATCH_BYTES", MAX_BATCH_BYTES, nbytes + STAMP_BYTES)
        check_texts(Parcel("", batch))
        if rows:
            yield batch
        return
    middle = rows // 2
    yield from parts(batch.slice(0, middle))
    yield from parts(batch.slice(middle))


def _check_bytes(rows: int, nbytes: int) -> None:
    quantity = "a batch in bytes, with a number and a time for each event"
    _check(quantity, "MAX_BATCH_BYTES", MAX_BATCH_BYTES, nbytes + STAMP_BYTES * rows)


def _check(
    quantity: str,
    limit: str,
    maximum: int,
    actual: int,
    remedy: str = "make it smaller or split it",
) -> None:
    if actual > maximum:
        raise LimitExceeded(quantity, limit=limit, maximum=maximum, actual=actual, remedy=remedy)


Divisible: TypeAlias = Publish | Forward
"""Messages that may be processed in slices (`is_divisible`)."""

_Divisible = TypeVar("_Divisible", Publish, Forward)


def is_divisible(message: Message) -> TypeGuard[Divisible]:
    """Return whether the rows of a message may be processed in slices. Not those of an addressed or
    rerouted message, as other brokers identify it by its number.
    """
    if isinstance(message, Forward):
        return message.detour is None and message.addressed is None
    return isinstance(message, Publish)


def mark_of(message: Divisible) -> tuple[object, ...]:
    """Return the identity of a message, by which its retransmission is recognized."""
    parcel = message.parcel
    if isinstance(message, Publish):
        first = message.first_seq
    else:
        first = int(parcel.numbers[0]) if len(parcel) else 0
    return type(message), parcel.publisher, first, len(parcel), parcel.shape, parcel.nbytes


def part_of(message: _Divisible, first: int, end: int) -> _Divisible:
    """Return a range of rows of a message as a message.

    >>> import pyarrow as pa
    >>> from palio.protocol.messages import Parcel
    >>> part = part_of(Publish(Parcel("ann", pa.record_batch({"x": [5, 6, 7]})), 10), 1, 3)
    >>> part.first_seq, part.parcel.batch.to_pylist()
    (11, [{'x': 6}, {'x': 7}])
    """
    if first == 0 and end >= len(message.parcel):
        return message
    parcel = message.parcel.slice(first, end)
    if isinstance(message, Publish):
        return replace(message, parcel=parcel, first_seq=message.first_seq + first)
    rows = message.rows
    if rows is not None:
        from palio.model.masks import pack_mask, unpack_mask

        rows = pack_mask(unpack_mask(rows, len(message.parcel))[first:end])
    return replace(message, parcel=parcel, rows=rows)
