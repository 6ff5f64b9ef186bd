from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput
from palio.spark.events import FILE, ROW, ParquetEvents, ReadTask, RowGroup, _shares


def write(path: Path, rows: int = 10, group: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"n": list(range(rows)), "data": [{"x": each, "y": "a"} for each in range(rows)]}
    )
    pq.write_table(table, path, row_group_size=group)
    return path


def opened(path: Path) -> ParquetEvents:
    session: Any = None  # only `run` needs one
    return ParquetEvents(path, session)


def test_a_file_is_its_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    source = opened(path)
    assert source.pieces == [
        RowGroup(str(path), 0, 0, 4),
        RowGroup(str(path), 1, 4, 4),
        RowGroup(str(path), 2, 8, 2),
    ]
    assert source.rows == 10


def test_a_directory_is_its_files_but_for_hidden_ones(tmp_path: Path) -> None:
    one, other = write(tmp_path / "b.parquet"), write(tmp_path / "a")
    write(tmp_path / "_temporary" / "c.parquet")
    write(tmp_path / ".d.parquet")
    assert {piece.path for piece in opened(tmp_path).pieces} == {str(one), str(other)}


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    source = opened(path)
    layout = source.layout(["data.x", "nothing"], ["n", ROW, FILE])
    assert layout.paths == (("data", "x"), ("n",), (ROW,), (FILE,))
    assert layout.slots.attributes == (("data.x", 0),)
    assert layout.slots.columns == (1, 2, 3)

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    task = ReadTask(keep, layout.paths, (tuple(source.pieces[:1]), tuple(source.pieces[1:])))
    found = [
        row for batch in task(iter([pa.record_batch({"id": [1]})])) for row in batch.to_pylist()
    ]
    assert [tuple(row.values()) for row in found] == [
        (each, each, each, str(path)) for each in range(4, 10)
    ]


def test_rows_are_counted_when_nothing_is_read(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "a.parquet"))

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [sum(batch.num_rows for batch in batches)]})

    task = ReadTask(count, (), (tuple(source.pieces),))
    assert next(task(iter([pa.record_batch({"id": [0]})]))).column(0).to_pylist() == [10]


def test_shares_have_about_as_many_rows() -> None:
    pieces = [RowGroup("f", group, 0, rows) for group, rows in enumerate([5, 1, 9, 3, 3, 1])]
    shares = _shares(pieces, 3)
    assert sorted(piece for share in shares for piece in share) == pieces
    assert sorted(sum(piece.rows for piece in share) for share in shares) == [6, 7, 9]


def _nowhere(home: Path) -> Path:
    return home / "nowhere"


def _empty(home: Path) -> Path:
    return home


def _partitioned(home: Path) -> Path:
    write(home / "day=1" / "a.parquet")
    return home


def _text(home: Path) -> Path:
    (home / "a.parquet").write_text("n")
    return home


def _different(home: Path) -> Path:
    write(home / "a.parquet")
    pq.write_table(pa.table({"m": [1]}), home / "b.parquet")
    return home


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_nowhere, "no such file or directory"),
        (_empty, "no Parquet files in it"),
        (_partitioned, "spark.read.parquet"),
        (_text, "cannot read"),
        (_different, "different columns"),
    ],
    ids=["nowhere", "empty", "partitioned", "no parquet", "different"],
)
def test_what_cannot_be_read(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        opened(make(tmp_path))
