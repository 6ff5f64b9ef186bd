"""Parquet files by path."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput
from palio.spark.files import opened, parquet_files


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
    with pytest.raises(InvalidInput, match=r"cannot read '.*x\.parquet'"):
        opened(tmp_path / "x.parquet")


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
