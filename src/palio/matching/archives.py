"""Filters with the values of their parameters as an Arrow file: a text each, parsed when read.

It is how engines keep what has no flat form: `Tree` and `Reference` as a whole, `Index` the filters
that were added one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from palio import files
from palio.errors import FileDamaged, InvalidInput
from palio.language.parsing import parse_filter
from palio.matching.manifest import Loading, Saving, one_batch
from palio.model.filters import Filter
from palio.model.values import Bindings

__all__ = ["Written", "filters_batch", "filters_of", "read_filters", "write_filters"]

FORMAT: Final = 1
MANIFEST: Final = "engine.msgpack"
FILTERS: Final = "filters.arrow"

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


class _Settings(msgspec.Struct, frozen=True):
    """What an engine was made with."""

    settings: dict[str, Any]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, frozenset | set | tuple) else value


def filters_batch(filters: Iterable[Written]) -> pa.RecordBatch:
    """Filters, by key."""
    columns = list(zip(*sorted(filters), strict=True)) or [()] * len(_COLUMNS)
    arrays = [
        pa.array(column, type_) for column, type_ in zip(columns, _COLUMNS.values(), strict=True)
    ]
    return pa.record_batch(arrays, schema=pa.schema(_COLUMNS))


def filters_of(table: pa.Table, path: Path) -> pa.RecordBatch:
    """The batch of filters that was read from a path, checked."""
    batch = one_batch(table)
    if not batch.schema.equals(pa.schema(_COLUMNS)):
        raise InvalidInput(f"{path} is an Arrow file, but not of filters; save the engine again")
    if any(column.null_count for column in batch.columns):
        raise FileDamaged(f"{path} is not what was written; save the engine again")
    return batch


def write_filters(
    path: str | Path, filters: Iterable[Written], settings: Mapping[str, Any] | None = None
) -> None:
    """Write filters, by key, and what else their engine was made with, to a directory."""
    saving = Saving(files.make_directory(Path(path)))
    saving.arrow(FILTERS, filters_batch(filters))
    saving.finish(MANIFEST, FORMAT, _Settings(dict(settings or {})))


def read_filters(path: str | Path) -> tuple[dict[str, Any], Iterator[Written]]:
    """The settings of the engine that wrote a directory, and its filters."""
    loading = Loading(Path(path), MANIFEST, "saved engine", FORMAT, _Settings)
    batch = filters_of(loading.arrow(FILTERS), loading.home / FILTERS)
    return loading.meta.settings, (Written(**row) for row in batch.to_pylist())
