"""A header that contradicts itself is refused; it never ends the process that reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio import parquet
from palio.bounded import Bounded
from palio.errors import InvalidInput
from palio.parquet import check_header, pieces
from tests.conftest import NIGHTLY, share
from tests.damaged_parquet import TABLE, WRITTEN, header_bytes

ROOT = Path(__file__).parents[1]
STEP = 1 if NIGHTLY else 7

LEVELS = b"\x29\x06\x19\x26\x02\x04"
"""Of `SizeStatistics`: field 2, an empty list; field 3, a list of two numbers, 1 null, 2 values."""

TYPE = b"\x15\x04\x19\x35"
"""Of `ColumnMetaData`: field 1, INT64; field 2, a list of three encodings."""


@pytest.mark.parametrize("mode", WRITTEN)
def test_what_was_written_is_in_order(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "f"
    pq.write_table(TABLE, path, row_group_size=20, **WRITTEN[mode])
    check_header(path, pq.read_metadata(path))
    assert sum(each.num_rows for each in pieces(path)) == TABLE.num_rows


@pytest.mark.parametrize("mode", share(WRITTEN, 2))
def test_no_altered_header_ends_the_process(tmp_path: Path, mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.damaged_parquet", str(tmp_path), mode, "3", str(STEP)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-2_000:])
    said = set(done.stdout.splitlines()[-1].split())
    assert "InvalidInput" in said
    assert said <= {"read", "InvalidInput", "LimitExceeded"}


def test_a_header_is_walked_through_once_however_many_row_groups_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[int] = []
    check = parquet._Header.check

    def counted(header: parquet._Header) -> None:
        walked.append(1)
        check(header)

    monkeypatch.setattr(parquet, "_in_order", Bounded[bytes, None](2))
    monkeypatch.setattr(parquet._Header, "check", counted)
    path = tmp_path / "f"
    pq.write_table(TABLE, path, row_group_size=20)
    for group in range(pq.read_metadata(path).num_row_groups):
        assert sum(each.num_rows for each in pieces(path, groups=[group])) <= 20
    assert len(walked) == 1
    for number in range(4):
        pq.write_table(pa.table({"n": range(number)}), path)
        list(pieces(path))
        assert len(parquet._in_order) <= 2
    assert len(walked) == 5


def altered(path: Path, old: bytes, new: bytes) -> None:
    """Exchange something in a file's header, once."""
    data = path.read_bytes()
    start = len(data) - 8 - header_bytes(data)
    assert data.count(old, start) >= 1
    path.write_bytes(data[:start] + data[start:].replace(old, new, 1))


def test_a_column_with_other_levels_than_its_schema_is_refused(tmp_path: Path) -> None:
    """Arrow ends the process where this is asked for."""
    path = tmp_path / "f"
    pq.write_table(pa.table({"n": [1, None, 3]}), path)
    altered(path, LEVELS, b"\x29\x06\x19\x16\x82\x04")  # one number of two bytes
    with pytest.raises(InvalidInput, match="of its header, column 'n' has 1 levels, not 2"):
        check_header(path, pq.read_metadata(path))
    with pytest.raises(InvalidInput, match="of its header"):
        list(pieces(path))


def test_bytes_of_texts_where_there_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    pq.write_table(pa.table({"n": [1, None, 3]}), path)
    altered(path, LEVELS, b"\x16\x02\x29\x26\x02\x04")
    with pytest.raises(InvalidInput, match="column 'n' counts bytes of texts, and has none"):
        check_header(path, pq.read_metadata(path))


def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f"
    pq.write_table(pa.table({"name": [1]}), path, store_schema=False)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"name", b"n\xffme"))
    with pytest.raises(InvalidInput, match="cannot read"):
        list(pieces(path))


def test_a_column_of_another_type_than_its_schema_is_refused(tmp_path: Path) -> None:
    """Arrow ends the process where its statistics are asked for."""
    path = tmp_path / "f"
    pq.write_table(pa.table({"n": [1, None, 3]}), path)
    altered(path, TYPE, b"\x15\x00" + TYPE[2:])
    with pytest.raises(
        InvalidInput, match="column 'n' has type 0 in the header, INT64 in the schema"
    ):
        check_header(path, pq.read_metadata(path))
