"""Columns of Parquet files in the types that Spark reads them in.

A file written by Arrow also says in which type of Arrow each column was, a file written by Spark in
which type of Spark. Spark heeds the second and not the first, and so does this. Beyond that, what
Spark refuses to read has the nearest type that holds it: half floats are floats, and timestamps of
nanoseconds timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from palio.errors import InvalidInput

__all__ = ["as_stored", "schema_of"]

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
    fields = [pa.field(each.name, _read(each.type, physical)) for each in file.schema_arrow]
    schema = pa.schema(_with_intervals(fields, _spark_fields(file)))
    _check_calendar(file, schema, path)
    return schema


def as_stored(column: Any) -> Any:
    """An array as the file has it, where Arrow takes it for something else: spans of time, which
    Parquet does not know, are integers.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


def _read(given: pa.DataType, physical: Iterator[str]) -> pa.DataType:
    """A type as Spark reads it; `physical` says of each leaf how it is stored."""
    types, kind = pa.types, _any(given)
    if isinstance(given, pa.BaseExtensionType):
        return _read(kind.storage_type, physical)
    if types.is_struct(given):
        return pa.struct([pa.field(each.name, _read(each.type, physical)) for each in kind])
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


# --- what Spark says in files of its own ---


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
    return [each for each in fields or [] if isinstance(each, dict)]


def _with_intervals(
    fields: list[pa.Field[Any]], spoken: list[dict[str, Any]]
) -> list[pa.Field[Any]]:
    """Fields with the intervals among them, which are stored as integers, as what they are."""
    said = {each.get("name"): each.get("type") for each in spoken}
    return [pa.field(each.name, _interval(each.type, said.get(each.name))) for each in fields]


def _interval(read: pa.DataType, said: Any) -> pa.DataType:
    if pa.types.is_struct(read):
        return pa.struct(_with_intervals(list(_any(read)), _fields_of(said)))
    if not isinstance(said, str) or not said.startswith("interval"):
        return read
    return YEAR_MONTH if said.endswith(("month", "year")) else DAY_TIME


def _check_calendar(file: pq.ParquetFile, schema: pa.Schema, path: Path | str) -> None:
    """Times of the old calendar are other days before 1582; Spark converts them when it reads."""
    metadata = file.metadata.metadata or {}
    version = metadata.get(WRITER, b"")
    is_old = version.startswith(BEFORE_3_1) or any(each in metadata for each in OLD_CALENDAR)
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
