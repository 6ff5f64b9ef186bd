"""Filters with the values of their parameters as an Arrow file: a text each, parsed when read.

It is how engines keep what has no flat form: `Tree` and `Reference` as a whole, `Index` the filters
that were added one by one. Whoever reads such a file needs nothing but Arrow and msgpack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.model.filters import Filter
from palio.model.values import Bindings

__all__ = ["Written", "read_arrow", "read_filters", "write_arrow", "write_filters"]

_SETTINGS: Final = b"palio.settings"

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
    def of(cls, key: int, filter_: Filter, values: Bindings, destination: int) -> Written:
        """The row of a filter."""
        plain = {name: _plain(value) for name, value in values.items()}
        return cls(key, str(filter_), msgspec.msgpack.encode(plain), destination)

    def read(self) -> tuple[Filter, Bindings]:
        """The filter, and the values of its parameters."""
        return parse_filter(self.text), msgspec.msgpack.decode(self.values)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, frozenset | set | tuple) else value


def write_filters(
    path: str | Path, filters: Iterable[Written], settings: Mapping[str, Any] | None = None
) -> None:
    """Write filters, by key, and what else their engine was made with."""
    columns = list(zip(*sorted(filters), strict=True)) or [()] * len(_COLUMNS)
    metadata = {_SETTINGS: msgspec.msgpack.encode(settings or {})}
    schema = pa.schema(_COLUMNS).with_metadata(metadata)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    write_arrow(Path(path), pa.record_batch(arrays, schema=schema))


def read_filters(path: str | Path) -> tuple[dict[str, Any], Iterator[Written]]:
    """The settings of the engine that wrote a file, and its filters."""
    batch = read_arrow(Path(path))
    metadata = batch.schema.metadata or {}
    if _SETTINGS not in metadata or batch.schema.names != list(_COLUMNS):
        raise InvalidInput(f"{path} is an Arrow file, but not of filters; save the engine again")
    settings: dict[str, Any] = msgspec.msgpack.decode(metadata[_SETTINGS])
    return settings, (Written(**row) for row in batch.to_pylist())


def write_arrow(path: Path, batch: pa.RecordBatch) -> None:
    """Write one batch."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_arrow(path: Path) -> pa.RecordBatch:
    """The one batch of a file, mapped into memory."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInput(f"{path} holds no saved filters: {error}") from error
