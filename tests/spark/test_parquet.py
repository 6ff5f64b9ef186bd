"""Parquet files by path: which files, in which types; test_paths.py asks Spark itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput
from palio.spark.parquet import as_stored, opened, parquet_files, schema_of, streamed_files

ROW = "org.apache.spark.sql.parquet.row.metadata"


def write(path: Path, *values: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": list(values)}), path)
    return path


def test_a_directory_is_its_files_in_order_but_for_hidden_ones(tmp_path: Path) -> None:
    names = ["b.parquet", "_x/d.parquet", ".e.parquet", "f.txt", "part-0", "c.PARQUET", "k=1", "_s"]
    for name in (*names, "g.parquet._COPYING_", "_j=1.parquet"):
        write(tmp_path / name)
    found = parquet_files(tmp_path, "events from")
    assert [each.name for each in found] == [
        "_j=1.parquet", "b.parquet", "c.PARQUET", "f.txt", "k=1", "part-0",
    ]  # fmt: skip
    assert parquet_files(tmp_path / "f.txt", "events from") == [tmp_path / "f.txt"]


def test_directories_below_are_read_where_that_is_said_and_else_refused(tmp_path: Path) -> None:
    one, other = write(tmp_path / "b.parquet"), write(tmp_path / "a" / "c.parquet")
    assert parquet_files(tmp_path, "the archive", deep=True) == [other, one]
    with pytest.raises(InvalidInput, match=r"a/c\.parquet', which Spark passes over; hand in"):
        parquet_files(tmp_path, "events from")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read the archive .*no Parquet files in it"):
        parquet_files(tmp_path, "the archive")
    with pytest.raises(InvalidInput, match=r"cannot read the archive .*no such file"):
        parquet_files(tmp_path / "none", "the archive")
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    path = tmp_path / "x.parquet"
    with (
        pytest.raises(InvalidInput, match=r"cannot read '.*x\.parquet'.*as a DataFrame"),
        opened(path),
    ):
        pass


@pytest.mark.parametrize(("mark", "name"), [("_delta_log", "delta"), (".hoodie", "hudi")])
@pytest.mark.parametrize("below", [False, True])
def test_a_table_with_a_log_is_no_directory_of_files(
    tmp_path: Path, mark: str, name: str, below: bool
) -> None:
    write(tmp_path / "t" / "a.parquet")
    (tmp_path / "t" / mark).mkdir()
    with pytest.raises(InvalidInput, match=rf"hand in spark\.read\.format\('{name}'\)"):
        parquet_files(tmp_path if below else tmp_path / "t", "the archive", deep=True)


def test_a_stream_writes_into_no_directory_below(tmp_path: Path) -> None:
    write(tmp_path / "t" / "a.parquet")
    (tmp_path / "t" / "_spark_metadata").mkdir()
    with pytest.raises(InvalidInput, match=r"the output of a stream.*hand in that path alone"):
        parquet_files(tmp_path, "the archive", deep=True)


def test_int96_is_read_to_the_microsecond(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    column = pa.array([1_999], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": column}), path, use_deprecated_int96_timestamps=True)
    with opened(path) as file:
        assert file.read()["at"].cast(pa.int64()).to_pylist() == [1]


# --- the output of a stream ---


def added(home: Path, *names: str) -> str:
    """A file of the log."""
    rows = []
    for name in names:
        (home / name).touch()
        rows.append(json.dumps({"path": (home / name).as_uri(), "action": "add"}))
    return "\n".join(["v1", *rows])


def log(home: Path, **entries: str) -> None:
    (home / "_spark_metadata").mkdir(exist_ok=True)
    for name, text in entries.items():
        (home / "_spark_metadata" / name.strip("b").replace("_", ".")).write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "out put"
    found.mkdir()
    return found


def test_the_files_that_the_log_names_are_the_streams(home: Path) -> None:
    log(home, b1=added(home, "c"), b0=added(home, "b %20", "a"))
    (home / "orphan").touch()
    (home / "_spark_metadata" / ".2.0a-0b.tmp").write_text("v1")
    assert [each.name for each in streamed_files(home)] == ["a", "b %20", "c"]


def test_what_was_compacted_has_all_before_it(home: Path) -> None:
    log(home, b8=added(home, "lost"), b9_compact=added(home, "a", "b"), b10=added(home, "c"))
    assert [each.name for each in streamed_files(home)] == ["a", "b", "c"]
    log(home, b11=added(home), b9=added(home, "lost"))
    assert [each.name for each in streamed_files(home)] == ["a", "b", "c"]


def test_a_stream_that_has_written_nothing_has_no_files(home: Path) -> None:
    log(home)
    assert streamed_files(home) == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"b1": "v1"}, "batch 0 of its log is missing"),
        ({"b0": "v1", "b2": "v1"}, "batch 1 of its log is missing"),
        ({"b3_compact": "v1", "b5": "v1"}, "batch 4 of its log is missing"),
        ({"b0": "v2"}, "is of version 'v2', not v1"),
        ({"b0": ""}, "cannot read '.*0'"),
        ({"b0": "v1\n{"}, "cannot read '.*0'"),
        ({"b0": 'v1\n{"path": "x", "action": "delete"}'}, "has an unknown row"),
        ({"b0": 'v1\n{"action": "add"}'}, "has an unknown row"),
        ({"b0": 'v1\n{"path": "s3a://b/x", "action": "add"}'}, "which is elsewhere"),
        ({"b0": 'v1\n{"path": "file:///etc/passwd", "action": "add"}'}, "which is elsewhere"),
    ],
)
def test_a_log_that_cannot_be_followed_is_refused(
    home: Path, entries: dict[str, Any], message: str
) -> None:
    log(home, **entries)
    with pytest.raises(InvalidInput, match=rf"(?s){message}.*hand in spark\.read\.parquet"):
        streamed_files(home)


def test_a_file_that_is_gone_is_missed(home: Path) -> None:
    log(home, b0=added(home, "a"))
    (home / "a").unlink()
    with pytest.raises(InvalidInput, match=r"names '.*a', which is not there"):
        streamed_files(home)


# --- types ---


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
