from __future__ import annotations

import datetime as dt
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

import palio
from palio.errors import InvalidInput
from palio.model import Pattern
from palio.model.patterns import Monitor, Occurrence
from palio.spark import sequences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MINUTE: Final = dt.timedelta(minutes=1)
SCHEMA: Final = "host string, at timestamp, n long, what string"


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


def second(number: float) -> dt.datetime:
    return START + dt.timedelta(seconds=number)


PATTERNS: Final = {
    1: "what = 'a' THEN what = 'b'",
    2: "what = 'a' THEN n > 50 THEN what = 'a' WITHIN 20s",
    3: "n > 90 THEN n < 10",
    4: "what IN ('a', 'b') AND n < 50 THEN what = 'nothing'",
}


def test_sequences_are_those_of_the_model(spark: SparkSession, rng: random.Random) -> None:
    rows: list[tuple[Any, ...]] = [
        (rng.choice(["h1", "h2", "h3", None]), second(rng.randrange(300)), rng.randrange(100),
         rng.choice(["a", "b", "c", None]))
        for _ in range(600)
    ]  # fmt: skip
    rows.append(("h1", None, 95, "a"))
    found = sequences(
        frame(spark, rows).repartition(3), PATTERNS, "host", "at", columns=["n", "what"]
    ).collect()
    assert sorted(map(simple, found), key=repr) == sorted(oracle(rows), key=repr)
    assert {row.pattern for row in found} == {1, 2, 3}


def simple(row: Any) -> tuple[Any, ...]:
    steps = [(each["at"].astimezone(dt.UTC), each["n"], each["what"]) for each in row.events]
    assert row.started.astimezone(dt.UTC) == steps[0][0]
    assert row.ended.astimezone(dt.UTC) == steps[-1][0]
    return row.host, row.pattern, steps


def oracle(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found = []
    for host in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == host and row[1] is not None]
        # Nulls come first in Spark's order.
        mine.sort(key=lambda row: (row[1], row[2], row[3] is not None, row[3]))
        for number, text in PATTERNS.items():
            pattern = palio.parse(text)
            assert isinstance(pattern, Pattern)
            monitor = Monitor(pattern)
            for seq, (_, at, n, what) in enumerate(mine):
                event = {"n": n, "what": what} if what else {"n": n}
                for match in monitor.push([Occurrence(at, "", seq, event)]):
                    steps = [(each.time, each.event["n"], each.event.get("what")) for each in match]
                    found.append((host, number, steps))
    return found


def test_ties_are_broken_by_order(spark: SparkSession) -> None:
    rows = [("h", START, n, what) for n, what in ((2, "a"), (1, "b"), (3, "b"))]
    found = sequences(
        frame(spark, rows), {"p": "what = 'a' THEN what = 'b'"}, ["host"], "at", order=["n"]
    ).collect()
    assert [(row.pattern, len(row.events)) for row in found] == [("p", 2)]


def test_parameters_and_a_default_for_within(spark: SparkSession) -> None:
    rows = [("h", second(at), at, "a") for at in (0, 5, 60)]
    pattern = {"id": 1, "pattern": "n >= :low THEN n >= 5", "parameters": {"low": 0}}
    for within, count in ((None, 1), (dt.timedelta(seconds=4), 0)):
        found = sequences(frame(spark, rows), [pattern], "host", "at", within)
        assert found.count() == count


@pytest.mark.parametrize(
    ("patterns", "by", "time", "message"),
    [
        ({1: "a = 1"}, "host", "at", "it is a filter"),
        ({1: "a = "}, "host", "at", "pattern 1: line 1"),
        ({1: "a = :x THEN b = 2"}, "host", "at", "pattern 1: parameter :x has no value"),
        ({1: "a = 1 THEN b = 2", "b": "a = 1 THEN b = 2"}, "host", "at", "all integers or all"),
        ({}, "host", "at", "at least one"),
        ([{"id": 1}], "host", "at", "this one has id"),
        ({1: "a = 1 THEN b = 2"}, "nope", "at", "no column 'nope'"),
        ({1: "a = 1 THEN b = 2"}, [], "at", "by names no column"),
        ({1: "a = 1 THEN b = 2"}, "host", "n", "no timestamp"),
    ],
)
def test_wrong_arguments(
    spark: SparkSession, patterns: Any, by: Any, time: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        sequences(frame(spark, [("h", START, 1, "a")]), patterns, by, time)


def test_a_stream_finds_what_history_finds_and_goes_on(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    hosts = ["h1", "h2", None]
    rows: list[tuple[Any, ...]] = [
        (rng.choice(hosts), second(rng.randrange(300)), rng.randrange(100),
         rng.choice(["a", "b", "c", None]))
        for _ in range(300)
    ]  # fmt: skip
    wanted = sequences(frame(spark, rows), PATTERNS, "host", "at", MINUTE, columns=["n", "what"])
    # Each event comes before one that is thirty seconds newer.
    rows.sort(key=lambda row: row[1] + 30 * rng.random() * dt.timedelta(seconds=1))
    parts = [rows[:120], [*rows[120:], ("h1", None, 95, "a")]]
    parts.append([("h1", second(10), 95, "late"), ("end", second(9_999), 50, "c")])
    inbox = tmp_path / "in"
    inbox.mkdir()
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    stream = reader.parquet(str(inbox)).withWatermark("at", "30 seconds")
    found = sequences(stream, PATTERNS, "host", "at", MINUTE, columns=["n", "what"])
    late = 0
    for files in ([0], [1, 2]):  # two queries: the second goes on where the first was
        for number in files:
            table = spark.createDataFrame(parts[number], SCHEMA).toArrow()
            pq.write_table(table, inbox / f"{number}.parquet")
            os.utime(inbox / f"{number}.parquet", (number, number))  # Spark's order
        query = (
            found.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        late += sum(
            state["numRowsDroppedByWatermark"]
            for progress in query.recentProgress
            for state in progress["stateOperators"]
        )
    out = spark.read.schema(found.schema).parquet(str(tmp_path / "out")).collect()
    assert sorted(map(simple, out), key=repr) == sorted(map(simple, wanted.collect()), key=repr)
    assert {row.pattern for row in out} == {1, 2, 3}
    assert late == 1


def test_a_stream_says_when_what_has_begun_is_over(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidInput, match=r"events.withWatermark\('timestamp', '10 seconds'\)"):
        sequences(stream, {1: "a = 1 THEN b = 2"}, "value", "timestamp")
    stream = stream.withWatermark("timestamp", "10 seconds")
    with pytest.raises(InvalidInput, match="pattern 'p' has no WITHIN"):
        sequences(stream, {"p": "a = 1 THEN b = 2"}, "value", "timestamp")
