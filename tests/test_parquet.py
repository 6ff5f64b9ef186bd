"""A file is read in pieces of bounded size, whatever it unpacks to."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from palio import parquet
from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse_filter
from palio.model.events import rows, to_batches
from palio.parquet import PIECE_BYTES, matching_groups, opened, pieces


def repeated(text: str, count: int) -> pa.Array[Any]:
    """A text that is stored once."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text, "short"]))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": list(range(1_000)),
            "text": [f"t{each % 7}" if each % 5 else None for each in range(1_000)],
            "data": [b"x", None] * 500,
            "list": [["a", "bb"], None, [], ["c"]] * 250,
            "struct": [{"a": "q", "b": [{"c": "t"}]}, None] * 500,
            "time": pa.array(range(1_000), pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "f", row_group_size=300)
    for most_rows, most_bytes in ((1 << 16, 1 << 20), (7, 1 << 20), (1 << 16, 500)):
        found = list(pieces(tmp_path / "f", most_rows=most_rows, most_bytes=most_bytes))
        assert pa.Table.from_batches(found).equals(table)
        assert all(each.num_rows <= most_rows for each in found)
    some = pa.Table.from_batches(pieces(tmp_path / "f", columns=["text", "n"], groups=[1]))
    assert some.equals(table.select(["n", "text"]).slice(300, 300).select(some.schema.names))


@pytest.mark.parametrize("nested", [False, True])
def test_a_text_that_is_stored_once_is_unpacked_piece_by_piece(
    tmp_path: Path, nested: bool
) -> None:
    count = 20_000
    column: Any = repeated("x" * 20_000, count)
    if nested:
        column = pa.StructArray.from_arrays([column], ["inner"])
    pq.write_table(pa.table({"s": column}), tmp_path / "bomb", compression="zstd")
    assert (tmp_path / "bomb").stat().st_size < PIECE_BYTES
    before = pa.total_allocated_bytes()
    rows = 0
    for piece in pieces(tmp_path / "bomb"):
        assert piece.nbytes <= PIECE_BYTES
        assert pa.total_allocated_bytes() - before < 8 * PIECE_BYTES
        rows += piece.num_rows
    assert rows == count


def test_an_encoding_that_continues_texts_counts_for_all_it_may_come_to(tmp_path: Path) -> None:
    text = "x" * 50_000
    table = pa.table({"s": [text + str(each) for each in range(2_000)]})
    pq.write_table(
        table, tmp_path / "f", use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY"}
    )
    before = pa.total_allocated_bytes()
    rows = 0
    for piece in pieces(tmp_path / "f"):
        assert pa.total_allocated_bytes() - before < 16 * PIECE_BYTES
        rows += piece.num_rows
    assert rows == 2_000


@pytest.mark.parametrize(("more", "is_taken"), [(0, True), (1, False)])
def test_a_row_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, is_taken: bool
) -> None:
    monkeypatch.setattr(parquet, "MAX_ROW_BYTES", 1_005)
    pq.write_table(pa.table({"s": ["a", "x" * (1_000 + more)]}), tmp_path / "f")
    read = pieces(tmp_path / "f", most_bytes=100)
    if is_taken:
        assert sum(each.num_rows for each in read) == 2
    else:
        with pytest.raises(LimitExceeded, match="MAX_ROW_BYTES"):
            list(read)


def test_a_column_of_a_row_group_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"n": list(range(1_000)), "s": ["a"] * 1_000}), tmp_path / "f")
    size = pq.read_metadata(tmp_path / "f").row_group(0).column(0).total_uncompressed_size
    monkeypatch.setattr(parquet, "MAX_COLUMN_BYTES", size)
    assert sum(each.num_rows for each in pieces(tmp_path / "f")) == 1_000
    monkeypatch.setattr(parquet, "MAX_COLUMN_BYTES", size - 1)
    assert sum(each.num_rows for each in pieces(tmp_path / "f", columns=["s"])) == 1_000
    with pytest.raises(LimitExceeded, match=r"'n' of a row group.* MAX_COLUMN_BYTES"):
        list(pieces(tmp_path / "f"))


def test_what_is_no_parquet_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"no parquet at all")
    for name in ("f", "none"):
        with pytest.raises(InvalidInput, match=f"cannot read '.*{name}'"):
            list(pieces(tmp_path / name))


def test_int96_is_read_to_the_microsecond_in_any_year(tmp_path: Path) -> None:
    late = pa.array([253_402_214_400_000_000], pa.timestamp("us"))  # 9999-12-31
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": late}), path, use_deprecated_int96_timestamps=True)
    (piece,) = pieces(path)
    assert piece.column(0).equals(late)


def test_columns_that_a_file_lacks_are_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "s": [{"y": 3}, {"y": 4}]}), tmp_path / "f")
    (piece,) = pieces(tmp_path / "f", columns=["none", "s.y"])
    assert piece.schema.names == ["s"]
    (piece,) = pieces(tmp_path / "f", columns=["none"])
    assert (piece.schema.names, piece.num_rows) == (["x"], 2)


NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "attributes", "groups"),
    [
        ("TRUE", "x", [0, 1, 2]),
        ("x < 2", "x", [0, 2]),
        ("x < 2", "", []),
        ("x IS NULL", "", [0, 1, 2]),
        ("x IS NULL", "x", [2]),
        ("x = 4 OR LENGTH(s) = 1", "xs", [0, 1, 2]),
        ("x = 4 AND LENGTH(s) = 1", "xs", [1, 2]),
        ("s > 'b'", "s", [1, 2]),
        ("h > 2", "h", [0, 1, 2]),
        ("at >= TIMESTAMP '2026-01-01T13:00:00Z'", ["at"], [1, 2]),
    ],
)
def test_row_groups_in_which_nothing_can_match_are_passed_over(
    tmp_path: Path, text: str, attributes: Collection[str], groups: list[int]
) -> None:
    """A column with nulls in it says nothing: an absent attribute may be just what is asked for."""
    times = [NOON + timedelta(minutes=30 * number) for number in range(6)]
    table = pa.table(
        {
            "x": [1, 2, 3, 4, 5, None],
            "s": ["a", "b", "b", "c", "d", "e"],
            "h": pa.array(np.arange(6, dtype=np.float16)),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "f", row_group_size=2)
    with opened(tmp_path / "f") as file:
        assert matching_groups(file, parse_filter(text), attributes) == groups


VALUES: Final = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([-0.0, 0.0, 1.0, 2.5, float("nan"), float("inf"), 2.0**53]),
    st.sampled_from([2**53, 2**53 + 1, -(2**63)]),
    st.sampled_from(["", "a", "b", "é"]),
    st.booleans(),
)


@given(
    st.lists(st.dictionaries(st.sampled_from("xy"), VALUES), min_size=1, max_size=8),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    VALUES.filter(lambda value: str(value) != "nan"),
    st.sampled_from(["x {} :v", "NOT x {} :v", "x {} :v OR y = 1", "x {} :v AND y IS NULL"]),
)
def test_no_row_group_is_passed_over_that_has_a_match(
    events: list[dict[str, Any]], operator: str, value: Any, text: str
) -> None:
    try:
        filter = parse_filter(text.format(operator)).bind({"v": value})
    except InvalidInput:
        return
    for batch in to_batches(events):
        target = BytesIO()
        pq.write_table(pa.Table.from_batches([batch]), target, row_group_size=1)
        with pq.ParquetFile(target) as file:
            groups = matching_groups(file, filter, batch.schema.names)
        wanted = [number for number, row in enumerate(rows(batch)) if filter.matches(row)]
        assert set(wanted) <= set(groups)


TEXT = pa.utf8()


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.map_(TEXT, pa.int32()), [[("a", 1), ("b", None)], [], None]),
        (pa.map_(pa.int32(), TEXT), [[(1, "a")], [(2, None)], None]),
        (pa.map_(TEXT, pa.null()), [None, [], None]),
        (pa.map_(TEXT, pa.map_(TEXT, TEXT)), [[("a", [("b", "c")])], [("d", None)], []]),
        (pa.struct([("m", pa.map_(TEXT, TEXT))]), [{"m": [("a", "b")]}, {"m": None}, None]),
        (pa.list_(pa.map_(TEXT, TEXT)), [[[("a", "b")], None], [], None]),
        (pa.list_(TEXT, 2), [["a", "b"], None, ["c", None]]),
        (pa.large_list(pa.large_utf8()), [["a"], [], None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("most_bytes", [1, PIECE_BYTES])
def test_texts_within_are_read_as_they_are(
    tmp_path: Path, type_: Any, values: list[Any], most_bytes: int
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.array(values * 3, type_)}), path)
    found = [*pieces(path, most_bytes=most_bytes)]
    assert [row for each in found for row in each.column(0).to_pylist()] == values * 3
    assert len(found) == (9 if most_bytes == 1 else 1)
    plain = str(found[0].column(0).type)
    assert "dictionary" not in plain
