from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.spark import reading
from palio.spark.reading import SubscriptionTable, read

ROWS: Final[list[dict[str, Any]]] = [
    {"id": 1, "subscriber": "ann", "filter": "x < :a", "parameters": {"a": 5}, "valid_from": None},
    {"id": 2, "subscriber": None, "filter": "y = 1", "parameters": None,
     "valid_from": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
]  # fmt: skip


def contents(subscriptions: SubscriptionTable) -> list[dict[str, Any]]:
    rows = subscriptions.table.to_pylist()
    for row in rows:
        if row.get("parameters") is not None:
            row["parameters"] = msgspec.msgpack.decode(row["parameters"])
    return rows


def test_every_form_gives_the_same(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "subs.parquet")
    lines = b"\n\n".join(msgspec.json.encode(row) for row in ROWS)
    (tmp_path / "subs.jsonl").write_bytes(lines + b"\n")
    sources: list[Any] = [ROWS, table, tmp_path / "subs.parquet", str(tmp_path / "subs.jsonl")]
    assert [contents(read(source)) for source in sources] == [ROWS] * 4
    assert all(read(source).has_history for source in sources)


@pytest.mark.parametrize(
    ("parameters", "type_"),
    [
        (['{"a": 1}', None], pa.utf8()),
        ([[("a", 1)], None], pa.map_(pa.utf8(), pa.int64())),
        ([{"a": 1, "b": None}, None], pa.struct([("a", pa.int64()), ("b", pa.utf8())])),
    ],
    ids=["json", "map", "struct"],
)
def test_parameters_as_json_map_or_struct(parameters: list[Any], type_: pa.DataType) -> None:
    table = pa.table(
        {"id": [1, 2], "filter": ["a", "b"], "parameters": pa.array(parameters, type_)}
    )
    assert [row["parameters"] for row in contents(read(table))] == [{"a": 1}, None]


def test_instants_and_bytes_of_parameters_keep_their_type() -> None:
    values = {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "raw": b"\xff", "s": "2026-01-01"}
    subscriptions = read([{"id": 1, "filter": "x", "parameters": values}])
    assert contents(subscriptions)[0]["parameters"] == values


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": None, "filter": "x"}, "there is no id"),
        ({"id": 1, "filter": None}, "there is no filter"),
        ({"id": 1}, "there is no filter"),
        ({"id": 1, "filter": 5}, "no text but int"),
        ({"id": 1, "filter": "x", "parameters": [1]}, "no object but list"),
        ({"id": 1, "filter": "x", "parameters": "{"}, "no JSON object"),
        ({"id": 1, "filter": "x", "parameters": "[1]"}, "no JSON object"),
        ({"id": 1, "filter": "x", "valid_from": "soon"}, "valid_from is no time"),
        ({"id": 1, "filter": "x", "valid_to": 5}, "valid_to is no time"),
    ],
)
def test_a_row_that_is_none_spoils_nothing(row: dict[str, Any], reason: str) -> None:
    subscriptions = read([{"id": 7, "filter": "x = 1"}, row])
    assert subscriptions.table["id"].to_pylist() == [7]
    assert len(subscriptions.rejects) == 1
    assert reason in subscriptions.rejects[0][2]


@pytest.mark.parametrize("line", [b"{", b"5", b"\xff"])
def test_a_line_that_is_no_object_spoils_nothing(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "subs.ndjson"
    path.write_bytes(b'{"id": "a", "filter": "x"}\n' + line)
    subscriptions = read(path)
    assert subscriptions.table["id"].to_pylist() == ["a"]
    assert "line 2 is no JSON" in subscriptions.rejects[0][2]


def test_times_in_texts_and_dates_are_utc() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "filter": "x", "valid_from": "2026-01-01T01:00:00+01:00"},
        {"id": 2, "filter": "x", "valid_from": "2026-01-01"},
        {"id": 3, "filter": "x", "valid_from": dt.date(2026, 1, 1)},
    ]
    new_year = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert read(rows).table["valid_from"].to_pylist() == [new_year] * 3
    dates = pa.table({"id": [1], "filter": ["x"], "valid_from": [dt.date(2026, 1, 1)]})
    assert read(dates).table["valid_from"].to_pylist() == [new_year]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"id": 1, "text": "x"}], "no column 'filter'; they have id, text"),
        (pa.table({"filter": ["x"]}), "no column 'id'"),
        ([{"id": 1, "filter": "x"}, {"id": "a", "filter": "x"}], "integers or strings, not both"),
        ([{"id": 1.5, "filter": "x"}], "holds float"),
        ([{"id": True, "filter": "x"}], "holds bool"),
        ([{"id": 2**63, "filter": "x"}], "column 'id'"),
        (pa.table({"id": [1.5], "filter": ["x"]}), "holds float"),
        (pa.table({"id": pa.array([2**63], pa.uint64()), "filter": ["x"]}), "column 'id'"),
        (pa.table({"id": [1], "filter": [2]}), "it takes the text of filters"),
        ("nowhere.parquet", "there is no such file"),
    ],
    ids=range(10),
)
def test_what_is_no_source(source: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(source)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "subs.csv").write_text("id,filter\n")
    with pytest.raises(InvalidInput, match=r"cannot read .*subs.csv.*; JSON lines are known by"):
        read(tmp_path / "subs.csv")


def test_no_rows_are_no_subscriptions() -> None:
    assert len(read([])) == 0
    assert not read([]).has_history


def test_a_file_has_a_limit_whatever_it_unpacks_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"x = '{'a' * 10_000}'"] * 1_000
    path = tmp_path / "subscriptions.parquet"
    pq.write_table(pa.table({"id": list(range(1_000)), "filter": texts}), path)
    assert path.stat().st_size < 100_000
    assert len(read(path)) == 1_000
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 9 << 20)
    with pytest.raises(LimitExceeded, match=r"the subscriptions in .* MAX_FILE_BYTES"):
        read(path)


def test_timestamps_and_directories_are_as_spark_writes_them(tmp_path: Path) -> None:
    end = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
    until = pa.array([end.replace(tzinfo=None)], pa.timestamp("us"))
    table = pa.table({"id": [1], "filter": ["x = 1"], "valid_to": until})
    home = tmp_path / "subs"
    home.mkdir()
    pq.write_table(table, home / "part-00000", use_deprecated_int96_timestamps=True)
    (home / "_SUCCESS").touch()
    for path in (home, home / "part-00000"):
        assert read(path).table["valid_to"].to_pylist() == [end]
    (home / "_delta_log").mkdir()
    with pytest.raises(InvalidInput, match="is a Delta table"):
        read(home)


def test_directories_may_have_the_subscribers(tmp_path: Path) -> None:
    for subscriber in ("ann", "bob"):
        (tmp_path / f"subscriber={subscriber}").mkdir()
        table = pa.table({"id": [subscriber], "filter": ["x = 1"]})
        pq.write_table(table, tmp_path / f"subscriber={subscriber}" / "a.parquet")
    assert read(tmp_path).table["subscriber"].to_pylist() == ["ann", "bob"]


def test_files_of_a_directory_need_not_have_the_same_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "filter": ["x = 1"]}), tmp_path / "a")
    more = {"id": pa.array([2], pa.int32()), "filter": ["x = 2"], "subscriber": ["ann"]}
    pq.write_table(pa.table(more), tmp_path / "b")
    table = read(tmp_path).table
    assert table["id"].to_pylist() == [1, 2]
    assert table["subscriber"].to_pylist() == [None, "ann"]


def test_a_frame_of_pandas_is_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2], "filter": ["x = 1", None]})
    found = read(frame)
    assert found.table["id"].to_pylist() == [1]
    assert [reject[0] for reject in found.rejects] == [2]


def test_what_is_no_row_is_told() -> None:
    rows: Any = ["x = 1"]
    with pytest.raises(InvalidInput, match=r"rows with an id and a filter, .*this one is 'x = 1'"):
        read(rows)


@pytest.mark.parametrize("as_table", [False, True])
def test_what_ends_before_it_begins_is_told(as_table: bool) -> None:
    begins = [dt.datetime(2026, 1, 2, tzinfo=dt.UTC)] * 4
    ends = [begins[0] + dt.timedelta(microseconds=each) for each in (-1, 0, 1)]
    rows = [
        {"id": place, "filter": "x = 1", "valid_from": begin, "valid_to": end}
        for place, (begin, end) in enumerate(zip(begins, [*ends, None], strict=True))
    ]
    subscriptions = read(pa.Table.from_pylist(rows) if as_table else rows)
    assert subscriptions.rejects == [
        (0, "x = 1", "valid_from is after valid_to: it holds at no time")
    ]
    assert subscriptions.table["id"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("given", [None, 5, 2.5])
def test_what_has_no_rows_is_told(given: Any) -> None:
    with pytest.raises(InvalidInput, match="subscriptions are rows with an id and a filter"):
        read(given)
