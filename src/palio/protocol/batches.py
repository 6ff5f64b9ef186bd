"""How large a batch is as events, reckoned before anything is made of it, and larger ones in parts.

What Arrow says that a batch takes is no measure of what it becomes. A column of nulls has no bytes
at all, and a dictionary may name one long text a million times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from palio.errors import LimitExceeded
from palio.model.events import STAMP_BYTES
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_CHUNK_CELLS,
    MAX_CHUNK_ROWS,
    MAX_FRAME_BYTES,
)

__all__ = ["PART_BYTES", "check_chunk", "check_size", "check_views", "decoded_bytes", "parts"]

PART_BYTES: Final = MAX_FRAME_BYTES // 4
"""A batch of more leaves in parts, so that one message does not fill a frame."""

_WORD_BYTES: Final = 8
"""A number, a time, a boolean; and of a text where it is, in the largest of Arrow's forms."""

_VIEW_WORDS: Final = 4
"""Words of 32 bits in a view of a text, the first of which is its length."""


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


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of which each is one message; none for a batch without rows.

    >>> [len(each) for each in parts(pa.record_batch({"x": range(MAX_BATCH_ROWS + 2)}))]
    [8193, 8193]
    """
    nbytes, rows = batch.nbytes, batch.num_rows
    is_small = nbytes <= PART_BYTES and rows <= MAX_BATCH_ROWS
    if (is_small and rows * batch.num_columns <= MAX_BATCH_CELLS) or rows <= 1:
        _check("an event's size in bytes", "MAX_BATCH_BYTES", MAX_BATCH_BYTES, nbytes + STAMP_BYTES)
        if rows:
            yield batch
        return
    middle = rows // 2
    yield from parts(batch.slice(0, middle))
    yield from parts(batch.slice(middle))


def _check_bytes(rows: int, nbytes: int) -> None:
    what = "a batch in bytes, with a number and a time for each event"
    _check(what, "MAX_BATCH_BYTES", MAX_BATCH_BYTES, nbytes + STAMP_BYTES * rows)


def _check(what: str, limit: str, maximum: int, actual: int) -> None:
    if actual > maximum:
        raise LimitExceeded(what, limit=limit, maximum=maximum, actual=actual)


def decoded_bytes(batch: pa.RecordBatch) -> int:
    """What a batch takes at most once its columns are of the model's types, nulls as others.

    The batch has been validated in full, and has no more rows and cells than `check_chunk` allows.

    >>> long = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int8()), ["a" * 100])
    >>> decoded_bytes(pa.record_batch({"x": long}))
    324
    """
    texts = sum(int(_lengths(column).sum()) for column in batch.columns if _has_texts(column.type))
    return batch.num_rows * batch.num_columns * _WORD_BYTES + texts


def check_views(batch: pa.RecordBatch) -> None:
    """Refuse views (`LimitExceeded`) that together name more text than a batch may have, and those
    (an error of Arrow) of which one leads nowhere.

    To validate a text takes time by its length, and views may all name the same text. Arrow does
    not validate a view under a null, but follows it when it casts the column. The batch has been
    validated, but not in full.

    >>> check_views(pa.record_batch({"x": pa.array(["a" * 100], pa.string_view())}))
    """
    named = 0
    columns: list[Any] = batch.columns  # the stubs take none of them for a dictionary
    for column in columns:
        values = column.dictionary if pa.types.is_dictionary(column.type) else column
        if not _is_view(values.type):
            continue
        parts = [None, *values.buffers()[1:]]
        views: Any = pa.Array.from_buffers(values.type, len(values), parts, offset=values.offset)
        named += int(np.abs(_lengths(views)).sum())
        _check_bytes(0, named)
        views.validate(full=True)


def _has_texts(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_texts(kind.value_type)
    return _is_view(kind) or any(each(kind) for each in _TEXTS)


def _is_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)


_TEXTS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def _lengths(column: Any) -> Any:
    """The length in bytes of each value, as int64; 0 for a null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return np.append(_lengths(column.dictionary), 0)[_places(column)]
    if not len(column):
        return np.zeros(0, np.int64)
    if _is_view(kind):
        words = np.frombuffer(column.buffers()[1], np.int32)
        first = column.offset * _VIEW_WORDS
        lengths = words[first : first + len(column) * _VIEW_WORDS : _VIEW_WORDS].astype(np.int64)
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    import pyarrow.compute as pc  # takes 60 ms, which who has no batch saves

    return pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0).to_numpy()


def _places(column: Any) -> Any:
    """Where each value of a dictionary column is in its dictionary; -1 for a null."""
    return column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
