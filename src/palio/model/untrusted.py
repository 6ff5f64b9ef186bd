"""Read untrusted Arrow bytes: only here do bytes from outside become a record batch.

Frames, datagrams, requests, rows of a journal, segments of an archive and saved tables come through
it, from any writer and with any checksum. The order of the checks is the point. Arrow
follows lengths and offsets out of its memory until a batch has been validated in full, so nothing
but numbers of rows and columns is asked of it before:

1. The head (`ipc.py`): nothing compressed or nested, and no more buffers than bytes.
2. The number of rows and of cells: a column of nulls has no bytes at all.
3. Buffers, views and dictionaries: each leads to what is there.
4. What the batch takes as events: a dictionary may name one long text a million times.

Every fault is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import LimitExceeded
from palio.model.ipc import check_message
from palio.model.limits import MAX_STREAM_MESSAGES

Check: TypeAlias = Callable[[int, int, int], None]
"""Refuses (`ValueError`) too many rows, columns, or bytes once they are events."""

_OPTIONS: Final = pa.ipc.IpcReadOptions(ensure_native_endian=False, use_threads=False)

_BROKEN: Final = (pa.ArrowException, OSError, EOFError, OverflowError)
"""What Arrow raises for bytes that are none of its own, beside `ValueError`."""

_WORD_BYTES: Final = 8
"""A number, a time, a boolean; and of a text where it is, in the largest of Arrow's forms."""

_VIEW_WORDS: Final = 4
"""Words of 32 bits in a view of a text, the first of which is its length."""


def read_schema(message: Any) -> pa.Schema:
    """A schema of a message, with its own metadata, and none of its columns': these have no meaning
    here, and would be kept with a schema that is remembered.

    >>> read_schema(pa.schema([pa.field("x", pa.int64(), metadata={"a": "b"})]).serialize())
    x: int64
    """
    try:
        check_message(message)
        return _plain(pa.ipc.read_schema(pa.py_buffer(message)))
    except _BROKEN as error:
        raise ValueError(f"no schema of Arrow: {error}") from None


def read_batch(message: Any, schema: pa.Schema, check: Check) -> pa.RecordBatch:
    """A batch of a schema that is known, and has types of the model's alone.

    >>> batch = pa.record_batch({"x": [1, 2]})
    >>> read_batch(batch.serialize(), batch.schema, lambda *size: print(size)).equals(batch)
    (2, 1, 0)
    True
    """
    try:
        check_message(message)
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        check(batch.num_rows, batch.num_columns, 0)
        batch.validate(full=True)
    except _BROKEN as error:
        raise ValueError(f"no batch of Arrow: {error}") from None
    return batch


def read_stream(
    stream: Any, check: Check | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a stream and its batches, one by one. All together are what is checked, but for
    a file (None), which is as large as its owner made it.

    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, pa.schema({"x": pa.int8()})) as writer:
    ...     writer.write_batch(pa.record_batch({"x": pa.array([1, 2], pa.int8())}))
    >>> schema, batches = read_stream(sink.getvalue())
    >>> schema, [batch.num_rows for batch in batches]
    (x: int8, [2])
    """
    try:
        _check_messages(stream)
        reader = pa.ipc.open_stream(pa.py_buffer(stream), options=_OPTIONS)
        schema = _plain(reader.schema)
    except _BROKEN as error:
        raise ValueError(f"no stream of Arrow: {error}") from None
    return schema, _batches(reader, schema, check)


def _batches(
    reader: pa.ipc.RecordBatchStreamReader, schema: pa.Schema, check: Check | None
) -> Iterator[pa.RecordBatch]:
    rows = nbytes = 0
    try:
        while (batch := _next(reader)) is not None:
            rows += batch.num_rows
            if check is not None:
                check(rows, batch.num_columns, 0)
            batch.validate()  # buffers have the lengths of their columns
            _check_views(batch, check)
            batch.validate(full=True)
            if check is not None:
                nbytes += decoded_bytes(batch)
                check(rows, batch.num_columns, nbytes)
            has_columns = batch.num_columns > 0
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema) if has_columns else batch
    except _BROKEN as error:
        raise ValueError(f"no batch of Arrow: {error}") from None


def _check_messages(stream: Any) -> None:
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


def _plain(schema: pa.Schema) -> pa.Schema:
    plain = pa.schema([(field.name, field.type) for field in schema])
    return plain.with_metadata(schema.metadata) if schema.metadata else plain


def decoded_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a batch at most once its columns are of the model's types, nulls as others.

    The batch has been validated in full.

    >>> long = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int8()), ["a" * 100])
    >>> decoded_bytes(pa.record_batch({"x": long}))
    324
    """
    texts = int(text_bytes(batch).sum())
    return batch.num_rows * batch.num_columns * _WORD_BYTES + texts


def text_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The length in bytes of the texts of each event together. The batch has been validated.

    >>> text_bytes(pa.record_batch({"s": ["a", None], "t": [b"bc", b""], "x": [1, 2]}))
    array([3, 0])
    """
    texts = [_lengths(column) for column in batch.columns if _has_texts(column.type)]
    return sum(texts, np.zeros(batch.num_rows, np.int64))


def _check_views(batch: pa.RecordBatch, check: Check | None) -> None:
    """Refuse views that together name more text than a batch may have, and those of which one
    leads nowhere.

    To validate a text takes time by its length, and views may all name the same text. Arrow does
    not validate a view under a null, but follows it when it casts the column. The batch has been
    validated, but not in full.
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
        if check is not None:
            check(0, 0, named)
        views.validate(full=True)


def _has_texts(kind: pa.DataType) -> bool:
    kind = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    types = pa.types
    return not (types.is_primitive(kind) or types.is_null(kind) or types.is_decimal(kind))


def _is_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)


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
    """The place of each value of a dictionary column in its dictionary; -1 for a null."""
    return column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
