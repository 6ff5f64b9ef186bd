"""Types of columns as Spark reads them; test_paths.py asks Spark itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput
from palio.spark.files import opened
from palio.spark.stored import as_stored, schema_of

ROW = "org.apache.spark.sql.parquet.row.metadata"


def read(path: Path, table: pa.Table, **options: Any) -> pa.Schema:
    pq.write_table(table, path, **options)
    with opened(path) as file:
        return schema_of(file, path)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.duration("ns"), pa.int64()),
        (pa.date64(), pa.date32()),
        (pa.null(), pa.int32()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns", "America/New_York"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), pa.large_utf8()), pa.utf8()),
        (pa.binary(3), pa.binary()),
        (pa.uuid(), pa.binary()),
        (pa.decimal256(20, 2), pa.decimal128(20, 2)),
        (pa.decimal256(60, 2), pa.decimal256(60, 2)),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.map_(pa.utf8(), pa.uint8()), pa.map_(pa.utf8(), pa.int16())),
        (pa.struct([("a", pa.uint8())]), pa.struct([("a", pa.int16())])),
    ],
    ids=str,
)
def test_types_are_those_of_spark(tmp_path: Path, given: Any, found: pa.DataType) -> None:
    table = pa.table({"x": pa.nulls(1, given), "y": [1]})
    assert read(tmp_path / "a", table).types == [found, pa.int64()]


def test_int96_is_a_timestamp_wherever_it_is(tmp_path: Path) -> None:
    ns = pa.timestamp("ns")
    shape = pa.struct([("a", pa.int64()), ("at", ns)])
    table = pa.table({"l": pa.nulls(1, pa.list_(shape)), "n": pa.nulls(1, ns), "i": [1]})
    schema = read(tmp_path / "a", table, use_deprecated_int96_timestamps=True)
    us = pa.timestamp("us", "UTC")
    assert schema.types == [pa.list_(pa.struct([("a", pa.int64()), ("at", us)])), us, pa.int64()]


def said(**types: Any) -> dict[str, str]:
    fields = [{"name": name, "type": each} for name, each in types.items()]
    return {ROW: json.dumps({"type": "struct", "fields": fields})}


def test_intervals_are_what_spark_says_of_them(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [{"name": "d", "type": "interval day"}]}
    table = pa.table({"d": [1], "m": [1], "n": [1], "s": [{"d": 1}]})
    metadata = said(d="interval day to second", m="interval month", n="long", s=inner)
    schema = read(tmp_path / "a", table.replace_schema_metadata(metadata))
    span = pa.duration("us")
    assert [schema.field(name).type for name in "dns"] == [
        *(span, pa.int64(), pa.struct([("d", span)])),
    ]
    assert pa.types.is_interval(schema.field("m").type)


@pytest.mark.parametrize("text", ["{", "[]", '{"fields": [1]}', "null"])
def test_metadata_that_nobody_understands_says_nothing(tmp_path: Path, text: str) -> None:
    table = pa.table({"d": [1]}).replace_schema_metadata({ROW: text})
    assert read(tmp_path / "a", table).types == [pa.int64()]


@pytest.mark.parametrize(
    "metadata",
    [
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.version": "3.0.3"},
        {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyINT96": ""},
    ],
)
def test_times_of_another_calendar_are_refused(tmp_path: Path, metadata: dict[str, str]) -> None:
    at = pa.table({"at": pa.nulls(1, pa.date32())})
    with pytest.raises(InvalidInput, match=r"cannot read '.*a': its dates .*spark\.read\.parquet"):
        read(tmp_path / "a", at.replace_schema_metadata(metadata))
    nested = pa.table({"l": pa.nulls(1, pa.list_(pa.timestamp("us")))})
    with pytest.raises(InvalidInput, match="calendar"):
        read(tmp_path / "a", nested.replace_schema_metadata(metadata))
    numbers = pa.table({"x": [1]}).replace_schema_metadata(metadata)
    assert read(tmp_path / "a", numbers).names == ["x"]


def test_a_span_of_time_is_its_number() -> None:
    assert as_stored(pa.array([5], pa.duration("ns"))).to_pylist() == [5]
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"i" * 16], pa.binary(16)))
    assert as_stored(ids).to_pylist() == [b"i" * 16]
    plain = pa.array([5])
    assert as_stored(plain) is plain
