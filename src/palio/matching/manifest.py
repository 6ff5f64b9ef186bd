"""Save files, and read them as they were written, or not at all.

A saved index (and a version of a subscription set) is a directory. One of its files, the manifest,
lists the others with their sizes and checksums. What was damaged on the disk, cut short, mixed up
or altered is refused with a `FileDamaged` that names it, before anything is read from it.

A checksum is no signature: a user who may write to the directory may write another manifest. What
is loaded is therefore also checked for what would crash its reader (`checking.py`). Files are
mapped: a user who may write to them while they are in use may change what a process sees. Palio
never does; it replaces files, so that a map stays what it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio import files
from palio.errors import FileDamaged, InvalidInput
from palio.language.parsing import parse_filter
from palio.model.filters import Filter
from palio.model.untrusted import read_stream
from palio.model.values import Bindings

_MAGIC: Final = "palio"

_STREAM_AT: Final = 8
"""Where the stream begins in an Arrow file: after `ARROW1` and two bytes of nothing."""

Meta = TypeVar("Meta", bound=msgspec.Struct)


class _Sum(msgspec.Struct, frozen=True, array_like=True):
    """Size and checksum of a file when it was written."""

    size: int
    crc: int


class _Manifest(msgspec.Struct, frozen=True, array_like=True):
    magic: str
    format: int
    crc: int
    """Of what follows."""
    body: bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    files: dict[str, _Sum]
    meta: msgspec.Raw


class Saving:
    """Writes the files of a directory, and at last its manifest.

    A file that is there is replaced: readers that have mapped it keep what they have.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._mode = files.file_mode_in(home)
        self._sums: dict[str, _Sum] = {}

    def array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an array as `.npy`."""
        with files.replaced(self.home / name, self._mode, sync=False) as file:
            np.save(file, array)
        self._note(name)

    def arrow(self, name: str, table: pa.Table | pa.RecordBatch) -> None:
        """Write a table of one batch at most as an Arrow file."""
        write_arrow(self.home / name, table, self._mode)
        self._note(name)

    def _note(self, name: str) -> None:
        self._sums[name] = _sum_of(self.home / name)

    def finish(self, name: str, version: int, meta: msgspec.Struct) -> None:
        """Write the manifest, with further facts about the directory (`meta`)."""
        raw = msgspec.Raw(msgspec.msgpack.encode(meta))
        body = msgspec.msgpack.encode(_Body(self._sums, raw))
        manifest = _Manifest(_MAGIC, version, zlib.crc32(body), body)
        with files.replaced(self.home / name, self._mode, sync=False) as file:
            file.write(msgspec.msgpack.encode(manifest))


class Loading(Generic[Meta]):
    """Reads the files of a directory that `Saving` wrote, each after its checksum."""

    def __init__(self, home: Path, name: str, kind: str, version: int, meta: type[Meta]) -> None:
        self.home = home
        self._what = kind
        self._path = home / name
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{home} holds no {kind}: {error}") from None
        try:
            manifest = msgspec.msgpack.decode(data, type=_Manifest)
        except (msgspec.MsgspecError, ValueError):
            raise self.damaged(name, "it is no manifest") from None
        if manifest.magic != _MAGIC or zlib.crc32(manifest.body) != manifest.crc:
            raise self.damaged(name, "its checksum differs")
        if manifest.format != version:
            raise InvalidInput(
                f"{home} has format {manifest.format}, not {version}; save the {kind} again"
            )
        try:
            body = msgspec.msgpack.decode(manifest.body, type=_Body)
            self.meta: Meta = msgspec.msgpack.decode(body.meta, type=meta)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self.damaged(name, str(error)) from None
        self._sums = body.files

    def damaged(self, name: str, problem: str) -> FileDamaged:
        """The error for a file."""
        return FileDamaged(
            f"{self.home / name} is not what was written: {problem}; "
            f"make the {self._what} again from its source"
        )

    def must(self, name: str, problem: str | None) -> None:
        """Refuse a file if there is a problem with it."""
        if problem is not None:
            raise self.damaged(name, problem)

    def has(self, name: str) -> bool:
        """Check whether a file was written."""
        return name in self._sums

    def _checked(self, name: str) -> Path:
        """The path of a file whose checksum is right."""
        path = self.home / name
        expected = self._sums.get(name)
        if expected is None or Path(name).name != name:
            raise self.damaged(self._path.name, f"it does not list {name!r:.100}")
        try:
            digest = _sum_of(path)
        except OSError as error:
            raise self.damaged(name, error.strerror or str(error)) from None
        if digest.size != expected.size:
            raise self.damaged(name, f"it has {digest.size} bytes instead of {expected.size}")
        if digest.crc != expected.crc:
            raise self.damaged(name, "its checksum differs")
        return path

    def array(
        self, name: str, dtype: npt.DTypeLike, *, columns: int | None = None, mapped: bool = True
    ) -> npt.NDArray[Any]:
        """Return an array of a type and one dimension, or of two with so many `columns`.

        It is mapped copy-on-write, as kernels expect writable arrays. Without `mapped` it is read
        into memory, after the map has shown that the file has the length in its header.
        """
        path = self._checked(name)
        try:
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except Exception as error:  # noqa: BLE001  # whatever numpy makes of hostile bytes
            raise self.damaged(name, f"it holds no array: {error}") from None
        expected = np.dtype(dtype)
        shape = array.shape[:1] if columns is None else (*array.shape[:1], columns)
        is_expected = array.dtype == expected and array.ndim and array.shape == shape
        if not is_expected or not array.flags.c_contiguous:
            raise self.damaged(
                name, f"it holds {array.dtype}{list(array.shape)}, not {expected}{list(shape)}"
            )
        return np.asarray(array) if mapped else np.array(array)

    def arrow(self, name: str) -> pa.Table:
        """A table, mapped."""
        path = self._checked(name)
        try:
            return read_arrow(path)
        except FileDamaged as error:
            raise self.damaged(name, str(error)) from None


def _sum_of(path: Path) -> _Sum:
    with path.open("rb") as file:
        size = path.stat().st_size
        if not size:
            return _Sum(0, 0)
        with mmap(file.fileno(), size, access=ACCESS_READ) as data:
            return _Sum(size, zlib.crc32(data))


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


# --- filters as texts, which are parsed when somebody asks for one ---


_COLUMNS: Final[dict[str, pa.DataType]] = {
    "key": pa.int64(),
    "text": pa.utf8(),
    "values": pa.binary(),
    "destination": pa.int64(),
}


class Written(NamedTuple):
    """A filter as a row of a file."""

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
