"""`match` on Spark: every kind of answer from every kind of events, against the oracle.

What the workers compute is tested without Spark in test_workers.py; here is what only Spark can
show: types that cross, columns that come back, plans, streams.
"""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palio
from palio.errors import InvalidInput
from palio.spark import match, rejects, subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC: Final = dt.UTC
NAN: Final = float("nan")

SCHEMA: Final = (
    "id long, small byte, real float, d decimal(10,2), s string, day date, at timestamp, "
    "local timestamp_ntz, ok boolean, raw binary, data struct<x: int, Tags: array<string>>, A int"
)


def local(year: int, month: int, day: int, *clock: int) -> dt.datetime:
    """A time without a zone."""
    seconds = sum(part * unit for part, unit in zip(clock, (3600, 60, 1), strict=False))
    return dt.datetime.combine(dt.date(year, month, day), dt.time()) + dt.timedelta(seconds=seconds)


ROWS: Final[list[tuple[Any, ...]]] = [
    (1, 1, 0.5, Decimal("0.10"), "a", dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 12, tzinfo=UTC),
     local(2026, 1, 1, 12), True, b"\0a", (7, ["x"]), 1),
    (2, -1, NAN, Decimal("99999999.99"), "", dt.date(1969, 12, 31), None,
     local(1969, 12, 31, 23, 59, 59), False, b"", (None, None), None),
    (3, None, float("inf"), None, None, None, None, None, None, None, None, 3),
    (4, 127, -0.0, Decimal("-0.01"), "A", dt.date(2026, 1, 2),
     dt.datetime(2026, 1, 2, tzinfo=UTC), local(2026, 1, 2), True, b"\xff", (8, []), 2),
]  # fmt: skip
FILTERS: Final = {
    "ints widen": "small >= -1",
    "floats": "real < 1",
    "NaN satisfies nothing": "real > 0 OR real <= 0",
    "NaN equals nothing": "NOT real = 5",
    "decimals": "d = 0.1",
    "decimals in order": "d < 0.1",
    "strings by code point": "s < 'a'",
    "the empty string": "s = ''",
    "absence": "s IS NULL",
    "dates": "day >= TIMESTAMP '2026-01-01T00:00:00Z'",
    "instants": "at > TIMESTAMP '2026-01-01T11:59:59Z'",
    "local times are UTC": "local = TIMESTAMP '2026-01-01T12:00:00Z'",
    "booleans": "NOT ok = false",
    "bytes": "raw = x'ff'",
    "fields of structs": "data.x > 6",
    "exact names": "a IS NULL AND A = 1",
    "another name": "DATA.x > 0 OR data.X > 0",
    "no such column": "nothing IS NULL AND id = 3",
    "everything": "TRUE",
}


def attributes(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row of the table as the model has it, by hand."""
    id_, small, real, d, s, day, at, local, ok, raw, data, big_a = row
    event = {
        "id": id_, "small": small, "real": real, "s": s, "at": at, "ok": ok, "raw": raw,
        "d": None if d is None else float(d),
        "day": day and dt.datetime(day.year, day.month, day.day, tzinfo=UTC),
        "local": local and local.replace(tzinfo=UTC),
        "data.x": data and data[0],
        "A": big_a,
    }  # fmt: skip
    return {name: value for name, value in event.items() if value is not None}


def expected(filters: dict[Any, str]) -> set[tuple[int, Any]]:
    return {
        (row[0], name)
        for row in ROWS
        for name, text in filters.items()
        if palio.parse_filter(text).matches(attributes(row))
    }


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def archive(events: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "events"
    events.repartition(2).write.parquet(str(path))
    return path


def rows_of(filters: dict[Any, str], **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "filter": text, **more} for name, text in filters.items()]


def test_pairs_of_every_type_are_those_of_the_model(events: DataFrame) -> None:
    found = match(events, rows_of(FILTERS), columns=["id"]).collect()
    assert len(found) == len(set(found))
    assert {tuple(row) for row in found} == expected(FILTERS)


def test_parquet_read_in_the_workers_gives_the_same(archive: Path) -> None:
    found = match(str(archive), rows_of(FILTERS), columns=["id"])
    assert {tuple(row) for row in found.collect()} == expected(FILTERS)


@pytest.mark.parametrize("from_file", [False, True])
def test_any_count_and_route(events: DataFrame, archive: Path, from_file: bool) -> None:
    filters = {1: "small > 0", 2: "s = 'a'", 3: "s = 'A'", 4: "FALSE AND id = 1"}
    subs = [
        {"id": each, "filter": text, "subscriber": "ann" if each < 3 else "bob"}
        for each, text in filters.items()
    ]
    source = archive if from_file else events
    pairs = expected(filters)
    found = match(source, subs, "any", ["id"]).collect()
    assert sorted(row.id for row in found) == sorted({event for event, _ in pairs})
    counts = {row.subscription: row["count"] for row in match(source, subs, "count").collect()}
    assert counts == {each: sum(who == each for _, who in pairs) for each in (1, 2, 3)}
    routed = match(source, subs, "route", ["id"]).collect()
    assert sorted(map(tuple, routed)) == [(1, "ann"), (4, "ann"), (4, "bob")]
    sets = match(source, subs, "sets").collect()
    assert sorted((row.subscribers, row["count"]) for row in sets) == [
        (["ann"], 1),
        (["ann", "bob"], 1),
    ]


def test_all_columns_come_back_unchanged_unless_some_are_named(events: DataFrame) -> None:
    found = match(events, [{"id": 9, "filter": "id = 1"}])
    assert found.schema.fields[:-1] == events.schema.fields
    assert tuple(found.collect()[0]) == (*tuple(events.where("id = 1").collect()[0]), 9)


def test_only_columns_that_filters_name_cross(events: DataFrame) -> None:
    found = match(events, [{"id": 1, "filter": "data.x > 1 AND none = 2"}], columns=["s"])
    assert crossing(found) == ["c0", "c1"]


def crossing(frame: DataFrame) -> list[str]:
    """The columns that go into the Python operator of a plan."""
    plan = frame._jdf.queryExecution().analyzed()
    while "MapInArrow" not in plan.nodeName():
        plan = plan.children().apply(0)
    output = plan.children().apply(0).output()
    return [output.apply(at).name() for at in range(output.size())]


@pytest.mark.usefixtures("spark")
def test_file_and_row_of_events_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"n": list(range(10))}), path, row_group_size=3)
    found = match(path, [{"id": 1, "filter": "n >= 5"}], columns=["$row", "$file", "n"])
    assert sorted(tuple(row) for row in found.collect()) == [
        (n, str(path), n, 1) for n in range(5, 10)
    ]


@pytest.mark.usefixtures("spark")
def test_values_that_no_attribute_can_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "odd.parquet"
    long = Decimal("12345678901234567.5")
    table = pa.table(
        {
            "n": [0, 1, 2],
            "u": pa.array([1, 2**64 - 1, None], pa.uint64()),
            "d": pa.array([Decimal("0.5"), Decimal(1), long], pa.decimal128(38, 4)),
        }
    )
    pq.write_table(table, path)
    found = match(path, [{"id": 1, "filter": "d > 0 OR u > 0"}], columns=["n"])
    assert [tuple(row) for row in found.collect()] == [(0, 1)]
    assert caplog.messages == [
        (
            "2 events so far match nothing, because a value of theirs fits no attribute: "
            "u: it is beyond int64 (1 values); d: it has more than 15 digits; cast the column to "
            "double or string (1 values). palio.spark.rejects(events) lists them"
        )
    ]
    bad = sorted(tuple(row)[:3] for row in rejects(path, ["n"]).collect())
    assert bad == [(1, "u", str(2**64 - 1)), (2, "d", "12345678901234567.5000")]


def test_what_is_no_attribute_is_absent_and_told(events: DataFrame) -> None:
    with pytest.warns(UserWarning, match="filters name lists"):
        found = match(
            events.selectExpr("id", "array(id) AS lists"),
            [{"id": 1, "filter": "lists IS NULL"}],
            columns=["id"],
        )
    assert found.count() == len(ROWS)


def test_bad_subscriptions_are_told_and_spoil_nothing(events: DataFrame) -> None:
    subs = [{"id": 1, "filter": "id = 1"}, {"id": 2, "filter": "id ="}]
    with pytest.warns(UserWarning, match="1 subscriptions were rejected"):
        found = match(events, subs, columns=["id"])
    assert [tuple(row) for row in found.collect()] == [(1, 1)]
    assert subscriptions(subs).rejects["id"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"how": "all"}, "none of pairs, any, count, route, sets"),
        ({"columns": ["nope"]}, "no column 'nope'"),
        ({"columns": "id"}, r"columns takes a list of names: columns=\['id'\]"),
        ({"columns": ["id", "s", "id"]}, "columns names 'id' twice"),
        ({"attributes": "id"}, "attributes takes a list of names"),
        ({"how": "count", "columns": ["id"]}, "counts have no columns"),
        ({"attributes": ["s"]}, "leaves out id"),
        ({"time": "nope"}, "no such column"),
    ],
)
def test_wrong_arguments(events: DataFrame, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        match(events, [{"id": 1, "filter": "id = 1"}], **keywords)


def test_a_name_that_the_result_needs(events: DataFrame) -> None:
    with pytest.raises(InvalidInput, match="'subscription', and so has the result"):
        match(events.selectExpr("id AS subscription"), [{"id": 1, "filter": "x = 1"}])
    with pytest.raises(InvalidInput, match="two columns 'id'"):
        match(events.selectExpr("id", "s AS id"), [{"id": 1, "filter": "x = 1"}])


def test_subscriptions_from_a_dataframe(spark: SparkSession, events: DataFrame) -> None:
    subs = spark.createDataFrame(
        [("p", "small < :most", {"most": 5.0}, "ann"), ("q", "s = 'a'", None, "bob")],
        "id string, filter string, parameters map<string, double>, subscriber string",
    )
    found = match(events, subs, columns=["id"]).collect()
    assert sorted(map(tuple, found)) == [(1, "p", "ann"), (1, "q", "bob"), (2, "p", "ann")]


def test_large_sets_are_compiled_side_by_side(events: DataFrame) -> None:
    subs = [{"id": each, "filter": f"id < {each}"} for each in range(7)]
    found = subscriptions([*subs, {"id": 9, "filter": "?"}], shards=3)
    assert found.meta.shards == 3
    assert found.rejects["id"].to_pylist() == [9]
    pairs = match(events, found, columns=["id"]).collect()
    assert sorted(map(tuple, pairs)) == [(e, s) for e in range(1, 5) for s in range(e + 1, 7)]


def test_fields_that_differ_in_case_are_different(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, (1, 20)), (2, (30, 4))], "id long, s struct<x:int,X:int>")
    subs = [{"id": "x", "filter": "s.x > 9"}, {"id": "X", "filter": "s.X > 9"}]
    found = match(frame, subs, columns=["id"]).collect()
    assert sorted(map(tuple, found)) == [(1, "X"), (2, "x")]


# --- as of ---


def test_parameters_count_at_the_time_of_the_event(spark: SparkSession, events: DataFrame) -> None:
    day = [dt.datetime(2026, 1, each, tzinfo=UTC) for each in range(1, 31)]
    history: list[dict[str, Any]] = [
        {"id": "x", "filter": "price < :max", "parameters": {"max": 5}, "valid_to": day[9]},
        {"id": "x", "filter": "price < :max", "parameters": {"max": 9},
         "valid_from": day[9], "valid_to": day[19]},
        {"id": "y", "filter": "price > 7", "valid_from": day[14]},
        {"id": "z", "filter": "price > 7"},
    ]  # fmt: skip
    prices: list[tuple[int, dt.datetime | None, float]] = [
        (number, day[number], float(number % 10)) for number in range(30)
    ]
    prices.append((30, None, 8.0))
    frame = spark.createDataFrame(prices, "id long, at timestamp, price double")
    found = match(frame, history, columns=["id"], time="at").collect()
    oracle = []
    for number, at, price in prices:
        for row in history:
            since, until = row.get("valid_from"), row.get("valid_to")
            if (since is None or (at is not None and since <= at)) and (
                until is None or (at is not None and at < until)
            ):
                filter = palio.parse_filter(row["filter"])
                if filter.matches({"price": price}, row.get("parameters")):
                    oracle.append((number, row["id"]))
    assert sorted(map(tuple, found)) == sorted(oracle)
    with pytest.raises(InvalidInput, match="name the column of the events' time"):
        match(frame, history)
    with pytest.raises(InvalidInput, match="no such column"):
        match(events.select("id"), history, time="at")


@pytest.mark.parametrize("time", ["s", "real", "small", "ok", "data.x"])
def test_only_timestamps_and_dates_are_times(events: DataFrame, time: str) -> None:
    row = {"id": 1, "filter": "id = 1", "valid_from": dt.datetime(2020, 1, 1, tzinfo=UTC)}
    with pytest.raises(InvalidInput, match=rf"'{time}', is .* and no timestamp; cast it"):
        match(events, [row], time=time)
    for instant in ("at", "local", "day"):
        assert match(events, [row], columns=["id"], time=instant).count() == 1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a.parquet"], r"not builtins\.list; spark\.read\.parquet\(\*paths\)"),
        (pa.table({"x": [1]}), r"not pyarrow\.lib\.Table; .*createDataFrame"),
        ("s3a://bucket/x", r"'s3a://bucket/x' themselves.*hand in spark\.read\.parquet"),
        ("data/*.parquet", r"'data/\*\.parquet' themselves.*hand in spark\.read\.parquet"),
        ("file:///nowhere/x", r"'/nowhere/x': there is no such file"),
    ],
    ids=["list", "table", "address", "pattern", "nowhere"],
)
def test_what_is_neither_a_frame_nor_a_path_here(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        match(given, [{"id": 1, "filter": "x = 1"}])


@pytest.mark.usefixtures("spark")
def test_a_file_may_be_given_as_an_address_or_have_a_name_like_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a [1].parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    for given in (path, str(path), path.as_uri()):
        assert match(given, [{"id": 1, "filter": "x = 1"}], "any").count() == 1


# --- streams ---


def test_a_stream_takes_up_new_subscriptions_with_its_next_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    standing = subscriptions([{"id": 1, "filter": "n < 5"}], tmp_path / "set")
    source, seen = tmp_path / "source", tmp_path / "seen"
    source.mkdir()

    def put(name: str, numbers: range) -> None:
        pq.write_table(pa.table({"n": list(numbers), "m": list(numbers)}), source / name)
        query.processAllAvailable()

    stream = spark.readStream.schema("n long, m long").parquet(str(source))
    query = (
        match(stream, standing, columns=["n"])
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(seen))
    )
    try:
        put("0.parquet", range(10))
        assert standing.refresh([{"id": 2, "filter": "m >= 18"}])
        put("1.parquet", range(10, 20))
    finally:
        query.stop()
    found = sorted(tuple(row) for row in spark.read.parquet(str(seen)).collect())
    assert found == [(n, 1) for n in range(5)] + [(18, 2), (19, 2)]
    pins = sorted(each.name.rpartition("-")[2] for each in (tmp_path / "set" / "pins").iterdir())
    assert pins == ["0", "1"]


def test_no_warning_without_a_reason(events: DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        match(events, [{"id": 1, "filter": "nothing = 1"}])


@pytest.mark.parametrize("subscriber", ["ann", None])
def test_without_a_subscriber_nothing_is_sent_to_nobody(
    events: DataFrame, subscriber: str | None
) -> None:
    rows = [
        {"id": 1, "filter": "id = 1", "subscriber": subscriber},
        {"id": 2, "filter": "id < 3", "subscriber": None},
    ]
    with pytest.warns(UserWarning, match=r"subscriptions have no subscriber: how=\"route\""):
        routed = match(events, rows, "route", ["id"])
    assert [tuple(row) for row in routed.collect()] == [(1, "ann")] * (subscriber is not None)
    pairs = match(events, rows, "pairs", ["id"]).collect()
    assert sorted((row.id, row.subscription) for row in pairs) == [(1, 1), (1, 2), (2, 2)]
