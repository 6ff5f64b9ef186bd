from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualNullSafe, EqualTo, LessThan
from pyspark.sql.types import StructType

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.spark import archive as archives
from palio.spark.archive import ArchiveReader, RowGroups, archive_schema

DAY = datetime(2026, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001  # as INT96 has it, without a zone
SCHEMA = StructType().add("x", "long").add("s", "string")


def write(file: Path, **columns: Any) -> None:
    """A file in row groups of two events."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file, row_group_size=2)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three row groups: x from 1 to 2, from 3 to 4, and one with a null; and a file without s."""
    write(tmp_path / "day=2026-01-01" / "a.parquet", x=[1, 2, 3, 4, 5, None], s=list("abcdef"))
    write(tmp_path / "day=2026-01-02" / "b.parquet", x=[10, 20], z=[True, False])
    write(tmp_path / "_tmp" / "c.parquet", x=[100])
    return tmp_path


def reader(home: Path, filter: str = "TRUE", schema: StructType = SCHEMA) -> ArchiveReader:
    return ArchiveReader(str(home), schema, parse_filter(filter))


def rows(archive: ArchiveReader) -> list[dict[str, Any]]:
    return [
        row
        for each in archive.partitions()
        for batch in archive.read(each)
        for row in batch.to_pylist()
    ]


def test_all_events_of_all_files_are_read(home: Path) -> None:
    found = rows(reader(home))
    assert [row["x"] for row in found] == [1, 2, 3, 4, 5, None, 10, 20]
    assert [row["s"] for row in found[-3:]] == ["f", None, None]


@pytest.mark.parametrize(
    ("filter", "numbers"),
    [
        ("x > 3", [4, 5, 10, 20]),
        ("x IS NULL", [None]),
        ("s = 'b' OR x = 20", [2, 20]),
        ("z = true", [10]),
        ("s IS NULL", [10, 20]),
        ("NOT x < 5 AND LENGTH(s) = 1", [5]),
        ("nowhere = 1", []),
        ("nowhere IS NULL AND x < 2", [1]),
    ],
)
def test_what_matches_is_read(home: Path, filter: str, numbers: list[int | None]) -> None:
    assert [row["x"] for row in rows(reader(home, filter))] == numbers


def test_filters_of_spark_are_taken_over(home: Path) -> None:
    archive = reader(home, "x > 1")
    left: Any = EqualNullSafe(("x",), 1)
    assert archive.pushFilters([LessThan(("x",), 4), left, EqualTo(("s",), "c")]) == [left]
    assert [row["x"] for row in rows(archive)] == [3]


@pytest.mark.parametrize(
    ("filter", "groups"),
    [
        ("x > 4", (2,)),  # the last group has a null, and so no bounds
        ("x < 2", (0, 2)),
        ("x = 2.5", (2,)),
        ("s < 'c'", (0,)),
        ("s < 'c' AND x > 2", ()),
        ("s < 'c' OR s >= 'e'", (0, 2)),
        ("LENGTH(s) = 9", (0, 1, 2)),
        ("nowhere = 1", ()),
        ("nowhere IS NULL", (0, 1, 2)),
    ],
)
def test_row_groups_in_which_nothing_can_match_are_passed_over(
    home: Path, filter: str, groups: tuple[int, ...]
) -> None:
    archive = reader(home / "day=2026-01-01", filter)
    found = [each.groups for each in archive.partitions() if isinstance(each, RowGroups)]
    assert found == [groups]


def test_nothing_at_all_is_one_empty_partition(home: Path) -> None:
    archive = reader(home / "day=2026-01-02", "x > 99")
    assert [list(archive.read(each)) for each in archive.partitions()] == [[]]


def test_nan_is_in_no_bounds_and_matches_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", x=[1.0, float("nan"), 3.0])
    schema = StructType().add("x", "double")
    assert rows(reader(tmp_path, "x > 1", schema)) == [{"x": 3.0}]


def test_large_files_are_divided(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "STRETCH_BYTES", 1)
    assert len(reader(home).partitions()) == 4
    assert len(rows(reader(home))) == 8


def test_columns_that_are_not_asked_for_are_not_read(home: Path) -> None:
    found = rows(reader(home, "s = 'a'", StructType().add("z", "boolean")))
    assert found == [{"z": None}]


def test_the_schema_is_that_of_all_files(home: Path) -> None:
    assert archive_schema(str(home)).simpleString() == "struct<x:bigint,s:string,z:boolean>"


def test_columns_of_two_types_are_refused_with_their_files(home: Path) -> None:
    write(home / "z.parquet", x=["text"])
    with pytest.raises(InvalidInput, match=r"'x' is int64 in .*a.parquet' and string in .*z.parq"):
        archive_schema(str(home))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file or directory"):
        archive_schema(str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match="no Parquet files in it"):
        archive_schema(str(tmp_path))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(InvalidInput, match="cannot read"):
        archive_schema(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("column", "filter"),
    [
        (pa.array([np.float16(1.5), np.float16(2)], pa.float16()), "x > 1"),
        (pa.array([1, 2], pa.duration("us")), "x > 0"),
        (pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(10, 2)), "x > 1"),
        (pa.array([2**63, 1], pa.uint64()), "x = 1"),
        (pa.array([NOON, NOON], pa.timestamp("us")), f"x >= TIMESTAMP '{NOON}Z'"),
        (pa.array([1, 2], pa.time64("us")), "x IS NULL"),
        (pa.StructArray.from_arrays([pa.array([1, 2])], ["y"]), "x.y IS NULL"),
    ],
    ids=["half", "duration", "decimal", "unsigned", "int96", "time", "struct"],
)
def test_bounds_are_those_of_the_attribute(tmp_path: Path, column: Any, filter: str) -> None:
    table = pa.table({"x": column, "n": [1, 2]})
    pq.write_table(table, tmp_path / "part-0", use_deprecated_int96_timestamps=True)
    found = rows(reader(tmp_path, filter, StructType().add("n", "long")))
    assert len(found) == (1 if pa.types.is_uint64(column.type) else 2)


def test_an_event_with_a_value_that_fits_no_attribute_matches_nothing(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([2**63, 1, None], pa.uint64()), "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "part-0")
    found = rows(reader(tmp_path, "x IS NULL OR n = 1", StructType().add("n", "long")))
    assert found == [{"n": 3}]


def test_integers_here_and_floats_there_are_floats(tmp_path: Path) -> None:
    """As JSON has them: `{"price": 2}` and `{"price": 1.5}`."""
    write(tmp_path / "a.parquet", price=[2, 3], n=pa.array([1, 2], pa.int32()))
    write(tmp_path / "b.parquet", price=[1.5, 2.5], n=pa.array([3, 2**40], pa.int64()))
    schema = archive_schema(str(tmp_path))
    assert schema.simpleString() == "struct<price:double,n:bigint>"
    found = rows(reader(tmp_path, "price >= 2", schema))
    assert [(row["price"], row["n"]) for row in found] == [(2.0, 1), (3.0, 2), (2.5, 2**40)]


def test_an_integer_that_no_float_is_is_not_rounded(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", price=[2**53 + 1])
    write(tmp_path / "b.parquet", price=[1.5])
    with pytest.raises(InvalidInput, match="does not fit the column's type double"):
        rows(reader(tmp_path, "TRUE", archive_schema(str(tmp_path))))
