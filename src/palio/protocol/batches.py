"""How large a batch may be, and larger ones in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from palio.errors import LimitExceeded
from palio.model.events import STAMP_BYTES
from palio.model.limits import MAX_EVENT_TEXT_BYTES, MAX_LONE_BYTES
from palio.model.parcels import Parcel
from palio.model.untrusted import text_bytes
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_CHUNK_CELLS,
    MAX_CHUNK_ROWS,
    MAX_FRAME_BYTES,
)

__all__ = ["PART_BYTES", "check_chunk", "check_size", "check_texts", "parts"]

PART_BYTES: Final = MAX_FRAME_BYTES // 4
"""A batch of more leaves in parts, so that one message does not fill a frame."""


def check_size(rows: int, columns: int, nbytes: int) -> None:
    """Refuse (`LimitExceeded`) what is more than one message may publish.

    >>> check_size(rows=1_000, columns=10, nbytes=80_000)
    """
    _check("a batch in rows", "MAX_BATCH_ROWS", MAX_BATCH_ROWS, rows)
    _check("a batch in rows times columns", "MAX_BATCH_CELLS", MAX_BATCH_CELLS, rows * columns)
    _check_bytes(rows, nbytes)


def check_chunk(rows: int, columns: int, nbytes: int) -> None:
    """Refuse (`LimitExceeded`) what is more than a front takes at once, to be published in parts.

    >>> check_chunk(rows=100_000, columns=10, nbytes=8_000_000)
    """
    _check("a batch in rows", "MAX_CHUNK_ROWS", MAX_CHUNK_ROWS, rows)
    _check("a batch in rows times columns", "MAX_CHUNK_CELLS", MAX_CHUNK_CELLS, rows * columns)
    _check_bytes(rows, nbytes)


def check_texts(parcel: Parcel) -> None:
    """Refuse (`LimitExceeded`) events of which one has more text than any may have.

    >>> check_texts(Parcel("p", pa.record_batch({"x": ["a"], "y": [b"b"]})))
    """
    small = MAX_EVENT_TEXT_BYTES if parcel.values is None else MAX_LONE_BYTES
    if parcel.nbytes > small:
        _check(
            "an event's texts in bytes",
            "MAX_EVENT_TEXT_BYTES",
            MAX_EVENT_TEXT_BYTES,
            int(text_bytes(parcel.batch).max(initial=0)),
            "publish where they are, or leave some out",
        )


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of which each is one message; none for a batch without rows.

    >>> [len(each) for each in parts(pa.record_batch({"x": range(MAX_BATCH_ROWS + 2)}))]
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
    what = "a batch in bytes, with a number and a time for each event"
    _check(what, "MAX_BATCH_BYTES", MAX_BATCH_BYTES, nbytes + STAMP_BYTES * rows)


def _check(
    what: str, limit: str, maximum: int, actual: int, remedy: str = "make it smaller or split it"
) -> None:
    if actual > maximum:
        raise LimitExceeded(what, limit=limit, maximum=maximum, actual=actual, remedy=remedy)
