"""Parquet files by path, as Spark reads them: the files of a path, and the types of their columns.

A path is a file, or a directory, of which all files count but hidden ones, whatever their suffix.
A log in the directory may exclude files. The log of a Spark stream is followed; a directory with
another log is refused, as files that were removed from its table are still present. The content of
files is read by `palio.parquet`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from palio import parquet
from palio.errors import InvalidInput

BATCH_ROWS: Final = 131_072
"""Rows that a task reads at once."""

BATCH_BYTES: Final = 64 << 20
"""Bytes of a batch, if a file has longer texts than others have."""

TABLES: Final = {"_delta_log": ("Delta", "delta"), ".hoodie": ("Hudi", "hudi")}
"""Directories that make a directory of files a table of some format: its name, and Spark's."""

COPYING: Final = "._COPYING_"
"""The end of a file's name while Hadoop still writes it."""


def parquet_files(path: Path, subject: str, *, deep: bool = False) -> list[Path]:
    """Return the files of a path, in order; `subject` names their content in errors.

    Directories below are read if `deep`, and else refused: Spark ignores them silently.
    """
    if path.is_file():
        return [path]
    is_streamed = (path / LOG).is_dir()
    files = streamed_files(path) if is_streamed else sorted(_below(path, path, subject))
    if not files:
        there_is = "no Parquet files in it" if path.is_dir() else "no such file or directory"
        raise InvalidInput(f"cannot read {subject} {str(path)!r}: there is {there_is}")
    if not deep:
        _check_flat(path, files)
    return files


def _below(path: Path, root: Path, subject: str) -> Iterator[Path]:
    """The files in a directory and below."""
    if not path.is_dir():
        return
    with os.scandir(path) as listed:
        names = {entry.name: entry.is_dir() for entry in listed}
    for mark, (title, name) in TABLES.items():
        if mark in names:
            raise InvalidInput(
                f"cannot read {subject} {str(root)!r}: {str(path)!r} is a {title} table, and its "
                f"log lists the files that count; hand in spark.read.format({name!r}).load(...) "
                "instead of the path"
            )
    if LOG in names and path != root:
        raise InvalidInput(
            f"cannot read {subject} {str(root)!r}: in it is {str(path)!r}, the output of a stream, "
            "and its log lists the files that count; hand in that path alone"
        )
    for name, is_directory in names.items():
        if _is_hidden(name):
            continue
        if is_directory:
            yield from _below(path / name, root, subject)
        else:
            yield path / name


def _is_hidden(name: str) -> bool:
    """True if Spark passes over a name: `_k=1` is a partition's."""
    return name.startswith(".") or name.endswith(COPYING) or (name[:1] == "_" and "=" not in name)


def _check_flat(path: Path, files: list[Path]) -> None:
    for file in files:
        folders = file.relative_to(path).parts[:-1]
        if any("=" in part for part in folders):
            raise InvalidInput(
                f"{str(path)!r} is partitioned by columns that are in no file; "
                "hand in spark.read.parquet(...) instead of the path"
            )
        if folders:
            raise InvalidInput(
                f"{str(path)!r} has files in directories below it, such as {str(file)!r}, which "
                "Spark passes over; hand in spark.read.option('recursiveFileLookup', True)"
                ".parquet(...) instead of the path, or one directory's path"
            )


# --- the output of a stream ---
#
# A task that was killed leaves its files behind, and the micro-batch writes others when it runs
# again. Only the log lists the stream's files: each micro-batch has a file of its number with the
# files that it added. An occasional `N.compact` has all files of the batches up to `N`.

LOG: Final = "_spark_metadata"

VERSION: Final = "v1"
"""The first line of every file of the log."""

_NAME: Final = re.compile(r"(\d+)(\.compact)?")


def streamed_files(path: Path) -> list[Path]:
    """The files of a stream's output, in order."""
    files: dict[Path, None] = {}
    for entry in _batches(path):
        for row in _rows(entry, path):
            files[_local(row, entry, path)] = None
    for file in files:
        if not file.is_file():
            raise _refused(path, f"its log names {str(file)!r}, which is not there")
    return sorted(files)


def _batches(path: Path) -> list[Path]:
    """The files of the log that together name all there is."""
    batches: dict[int, Path] = {}
    start = 0
    for file in (path / LOG).iterdir():
        name = _NAME.fullmatch(file.name)
        if name is None:
            continue  # a file in the making, or a checksum
        number, is_compact = int(name[1]), name[2] is not None
        if is_compact or number not in batches:
            batches[number] = file
        if is_compact:
            start = max(start, number)
    numbers = sorted(number for number in batches if number >= start)
    missing = set(range(start, max(numbers, default=-1) + 1)).difference(numbers)
    if missing:
        raise _refused(path, f"batch {min(missing)} of its log is missing")
    return [batches[number] for number in numbers]


def _rows(entry: Path, path: Path) -> list[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    try:
        version, *lines = entry.read_text(encoding="utf-8").splitlines()
        if version != VERSION:
            raise _refused(path, f"{str(entry)!r} is of version {version!r:.40}, not {VERSION}")
        return [decode(line) for line in lines]
    except (OSError, ValueError) as error:  # of an empty file, of what is no JSON or no UTF-8
        raise _refused(path, f"cannot read {str(entry)!r}: {error}") from None


def _local(row: dict[str, Any], entry: Path, path: Path) -> Path:
    """The file that a row adds, which is on this machine and below the directory."""
    address = row.get("path")
    if row.get("action") != "add" or not isinstance(address, str):
        raise _refused(path, f"{str(entry)!r} has an unknown row: {row!r:.200}")
    split = urlsplit(address)
    file = Path(unquote(split.path))
    if split.scheme not in ("", "file") or not file.is_relative_to(path.resolve()):
        raise _refused(path, f"its log names {address!r:.200}, which is elsewhere")
    return path / file.relative_to(path.resolve())


def _refused(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{str(path)!r} is the output of a stream, and {reason}; hand in spark.read.parquet(...) "
        "instead of the path"
    )


# --- what is in a file ---
#
# A file written by Arrow also has the Arrow type of each column, a file written by Spark the Spark
# type. Spark uses the second and not the first, and so does this. Types that Spark refuses become
# the nearest wider one: half floats are floats, and timestamps of nanoseconds timestamps.


UTC: Final = "UTC"

DAY_TIME: Final = pa.duration("us")

YEAR_MONTH: Final = pa.month_day_nano_interval()
"""Arrow for Python cannot make intervals of months; this one crosses to Spark as little."""

ROW_METADATA: Final = b"org.apache.spark.sql.parquet.row.metadata"

WRITER: Final = b"org.apache.spark.version"

BEFORE_3_1: Final = (b"1.", b"2.", b"3.0.")

OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""The keys that Spark writes into a file with times of the calendar that it had before 3.0."""

_EXACT: Final[dict[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.int32(),
    pa.large_utf8(): pa.utf8(),
    pa.string_view(): pa.utf8(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


@contextmanager
def opened(path: Path | str) -> Iterator[pq.ParquetFile]:
    """A file, open."""
    is_parquet = False
    try:
        with parquet.opened(path) as file:
            is_parquet = True
            yield file
    except InvalidInput as error:
        if is_parquet:
            raise
        raise InvalidInput(
            f"{error}; hand in other files as a DataFrame, spark.read.json(...), and of a "
            "directory have those that are no events begin with '_'"
        ) from None


def read_groups(
    path: str, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Some columns of some row groups, as `palio.parquet.pieces` gives them."""
    return parquet.pieces(
        path, groups=groups, columns=columns, most_rows=BATCH_ROWS, most_bytes=BATCH_BYTES
    )


def as_stored(column: Any) -> Any:
    """An array as the file has it, where Arrow takes it for something else: spans of time, which
    Parquet does not know, are integers.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


def schema_of(file: pq.ParquetFile, path: Path | str) -> pa.Schema:
    """The columns of a file as Spark reads them; its path is for the error.

    >>> import io
    >>> target = io.BytesIO()
    >>> pq.write_table(pa.table({"x": pa.array([1], pa.uint8())}), target)
    >>> schema_of(pq.ParquetFile(target), "a.parquet").field("x").type
    DataType(int16)
    """
    leaves = range(len(file.schema))
    physical = iter([file.schema.column(place).physical_type for place in leaves])
    fields = [pa.field(field.name, _read(field.type, physical)) for field in file.schema_arrow]
    schema = pa.schema(_with_intervals(fields, _spark_fields(file)))
    _check_calendar(file, schema, path)
    return schema


def _read(given: pa.DataType, physical: Iterator[str]) -> pa.DataType:
    """Return a type as Spark reads it; `physical` has the storage type of each leaf."""
    types, kind = pa.types, _any(given)
    if isinstance(given, pa.BaseExtensionType):
        return _read(kind.storage_type, physical)
    if types.is_struct(given):
        return pa.struct([pa.field(field.name, _read(field.type, physical)) for field in kind])
    if types.is_map(given):
        return pa.map_(_read(kind.key_type, physical), _read(kind.item_type, physical))
    if any(test(given) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return pa.list_(_read(kind.value_type, physical))
    if next(physical) == "INT96":
        return pa.timestamp("us", UTC)
    return _leaf(given)


def _leaf(given: pa.DataType) -> pa.DataType:
    types, kind = pa.types, _any(given)
    if types.is_dictionary(given):
        return _leaf(kind.value_type)
    if types.is_timestamp(given):
        return pa.timestamp("us", None if kind.tz is None else UTC)
    if types.is_duration(given):
        return pa.int64()
    if types.is_fixed_size_binary(given) and not types.is_decimal(given):
        return pa.binary()
    if types.is_decimal(given) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return _EXACT.get(given, given)


def _any(given: pa.DataType) -> Any:
    """A type with what only some of them have."""
    return given


# --- metadata that Spark writes ---


def _spark_fields(file: pq.ParquetFile) -> list[dict[str, Any]]:
    """The fields of the row that Spark wrote, if it did; each with a name and a type."""
    metadata = file.metadata.metadata or {}
    try:
        row: dict[str, Any] = msgspec.json.decode(metadata.get(ROW_METADATA, b"{}"), type=dict)
    except msgspec.DecodeError:
        return []  # Spark goes by the types of Parquet then
    return _fields_of(row)


def _fields_of(row: Any) -> list[dict[str, Any]]:
    fields = row.get("fields") if isinstance(row, dict) else None
    return [item for item in fields or [] if isinstance(item, dict)]


def _with_intervals(
    fields: list[pa.Field[Any]], declarations: list[dict[str, Any]]
) -> list[pa.Field[Any]]:
    """Fields with the intervals among them, which are stored as integers, as what they are."""
    declared = {declaration.get("name"): declaration.get("type") for declaration in declarations}
    return [
        pa.field(field.name, _interval(field.type, declared.get(field.name))) for field in fields
    ]


def _interval(read: pa.DataType, declared: Any) -> pa.DataType:
    if pa.types.is_struct(read):
        return pa.struct(_with_intervals(list(_any(read)), _fields_of(declared)))
    if not isinstance(declared, str) or not declared.startswith("interval"):
        return read
    return YEAR_MONTH if declared.endswith(("month", "year")) else DAY_TIME


def _check_calendar(file: pq.ParquetFile, schema: pa.Schema, path: Path | str) -> None:
    """Times of the old calendar are other days before 1582; Spark converts them when it reads."""
    metadata = file.metadata.metadata or {}
    version = metadata.get(WRITER, b"")
    is_old = version.startswith(BEFORE_3_1) or any(key in metadata for key in OLD_CALENDAR)
    if is_old and any(_has_times(field.type) for field in schema):
        raise InvalidInput(
            f"cannot read {str(path)!r}: its dates and timestamps are those of the calendar that "
            "Spark had before 3.0, or may be; "
            "hand in spark.read.parquet(...) instead of the path"
        )


def _has_times(given: pa.DataType) -> bool:
    if pa.types.is_nested(given):
        kind = _any(given)
        return any(_has_times(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_date(given) or pa.types.is_timestamp(given)
