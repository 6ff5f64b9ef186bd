"""Filters with the values of their parameters as an Arrow file: a text each, parsed when read.

It is how engines keep what has no flat form: `Tree` and `Reference` as a whole, `Index` the filters
that were added one by one. Whoever reads such a file needs nothing but Arrow and msgpack.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from palio import files
from palio.errors import FileDamaged, InvalidInput
from palio.language.parsing import parse_filter
from palio.model.filters import Filter
from palio.model.untrusted import read_stream
from palio.model.values import Bindings

__all__ = [
    "Written",
    "filters_batch",
    "filters_of",
    "one_batch",
    "read_arrow",
    "read_filters",
    "write_arrow",
    "write_filters",
]

_SETTINGS: Final = b"palio.settings"
_SUM: Final = b"palio.sum"

_STREAM_AT: Final = 8
"""Where the stream begins in a file: after `ARROW1` and two bytes of nothing."""

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "key": pa.int64(),
    "text": pa.utf8(),
    "values": pa.binary(),
    "destination": pa.int64(),
}


class Written(NamedTuple):
    """A filter as it stands in a file."""

    key: int
    text: str
    values: bytes
    destination: int

    @classmethod
    def of(cls, key: int, filter: Filter, values: Bindings, destination: int) -> Written:
        """The row of a filter."""
        plain = {name: _plain(value) for name, value in values.items()}
        return cls(key, str(filter), msgspec.msgpack.encode(plain), destination)

    def read(self) -> tuple[Filter, Bindings]:
        """The filter, and the values of its parameters."""
        try:
            values: Bindings = msgspec.msgpack.decode(self.values, type=dict[str, Any])
            return parse_filter(self.text), values
        except (msgspec.MsgspecError, ValueError) as error:
            raise FileDamaged(f"the saved filter {self.text!r:.200}: {error}") from None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, frozenset | set | tuple) else value


def filters_batch(
    filters: Iterable[Written], settings: Mapping[str, Any] | None = None
) -> pa.RecordBatch:
    """Filters, by key, and what else their engine was made with."""
    columns = list(zip(*sorted(filters), strict=True)) or [()] * len(_COLUMNS)
    arrays = [
        pa.array(column, type_) for column, type_ in zip(columns, _COLUMNS.values(), strict=True)
    ]
    packed = msgspec.msgpack.encode(settings or {})
    metadata = {_SETTINGS: packed, _SUM: str(_sum_of(arrays, packed))}
    return pa.record_batch(arrays, schema=pa.schema(_COLUMNS).with_metadata(metadata))


def filters_of(table: pa.Table, path: Path) -> pa.RecordBatch:
    """The batch of filters that was read from a path, checked."""
    batch = one_batch(table)
    metadata = batch.schema.metadata or {}
    if _SETTINGS not in metadata or not batch.schema.equals(pa.schema(_COLUMNS)):
        raise InvalidInput(f"{path} is an Arrow file, but not of filters; save the engine again")
    if any(column.null_count for column in batch.columns):
        raise FileDamaged(f"{path} is not what was written; save the engine again")
    return batch


def _sum_of(columns: Sequence[Any], settings: bytes) -> int:
    """A checksum over the values of columns of numbers, texts and bytes, none of them null."""
    found = zlib.crc32(settings)
    for column in columns:
        if pa.types.is_int64(column.type):
            found = zlib.crc32(column.to_numpy(), found)
            continue
        import pyarrow.compute as pc

        lengths: Any = pc.binary_length(column)
        found = zlib.crc32(lengths.to_numpy(), found)
        _, offsets, data = column.buffers()
        if offsets is not None and data is not None and len(column):
            ends = np.frombuffer(memoryview(offsets), np.int32)[column.offset :]
            found = zlib.crc32(data[int(ends[0]) : int(ends[len(column)])], found)
    return found


def write_filters(
    path: str | Path, filters: Iterable[Written], settings: Mapping[str, Any] | None = None
) -> None:
    """Write filters, by key, and what else their engine was made with, to a file."""
    write_arrow(Path(path), filters_batch(filters, settings))


def read_filters(path: str | Path) -> tuple[dict[str, Any], Iterator[Written]]:
    """The settings of the engine that wrote a file, and its filters."""
    batch = filters_of(read_arrow(Path(path)), Path(path))
    metadata = batch.schema.metadata
    packed = metadata[_SETTINGS]
    if metadata.get(_SUM) != str(_sum_of(batch.columns, packed)).encode():
        raise FileDamaged(f"{path} is not what was written; save the engine again")
    try:
        settings = msgspec.msgpack.decode(packed, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError) as error:
        raise FileDamaged(f"{path} is not what was written: {error}") from None
    return settings, (Written(**row) for row in batch.to_pylist())


def write_arrow(path: Path, table: pa.Table | pa.RecordBatch, mode: int = 0o600) -> None:
    """Write a table, as one batch."""
    with (
        files.replaced(path, mode, sync=False) as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write(table.combine_chunks() if isinstance(table, pa.Table) else table)


def read_arrow(path: Path) -> pa.Table:
    """The table of a file, mapped into memory, every value of it checked.

    A file in Arrow's form is a stream between two marks; what is behind it is not needed.
    """
    try:
        schema, batches = read_stream(pa.memory_map(str(path)).read_buffer()[_STREAM_AT:])
        return pa.Table.from_batches([*batches], schema)
    except (OSError, ValueError, MemoryError) as error:
        raise FileDamaged(f"{path} holds no table that Palio saved: {error}") from None


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch, without a copy if it is one."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
