"""Parquet files by path."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput
from palio.spark.files import opened, parquet_files


def test_a_directory_is_its_files_in_order_but_for_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.parquet", "a/c.parquet", "_x/d.parquet", ".e.parquet", "f.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [1]}), path)
    found = parquet_files(tmp_path, "events from")
    assert found == [tmp_path / "a" / "c.parquet", tmp_path / "b.parquet"]
    assert parquet_files(tmp_path / "f.txt", "events from") == [tmp_path / "f.txt"]
    with opened(found[0]) as file:
        assert file.metadata.num_rows == 1


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read the archive .*no Parquet files in it"):
        parquet_files(tmp_path, "the archive")
    with pytest.raises(InvalidInput, match=r"cannot read the archive .*no such file"):
        parquet_files(tmp_path / "none", "the archive")
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"cannot read '.*x\.parquet'"):
        opened(tmp_path / "x.parquet")
