"""Whole pipelines on a real session: the one of examples/, and a stream that goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from palio.errors import InvalidInput
from palio.spark.pipeline import normalized
from palio.spark.plan import Normalize

pytest.importorskip("pyspark")

from palio.errors import PalioError
from palio.spark.pipeline import explain, run_pipeline
from palio.spark.plan import read_plan
from tests.spark.brokers import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example, with its data."""
    for name in ("pipeline.toml", "pipeline_data.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    subprocess.run([sys.executable, tmp_path / "pipeline_data.py"], check=True, capture_output=True)
    return tmp_path / "pipeline.toml"


def test_the_example_matches_what_it_should(spark: SparkSession, example: Path) -> None:
    told: list[str] = []
    report = run_pipeline(read_plan(example), spark, told.append)
    home = example.parent / "data"
    lines = (home / "orders.jsonl").read_text().splitlines()
    orders = [json.loads(json.loads(line)["data"]) for line in lines]
    limits = {country: 100 * n for n, country in enumerate(("AT", "DE", "FR", "IT", "PT"))}
    wanted = sum(order["total"] > limits[order["country"]] for order in orders)
    assert (report.events, report.matches) == (len(orders), wanted)
    assert (report.subscriptions, report.matched_subscriptions, report.dead) == (6, 5, (99,))
    matches = spark.read.parquet(str(home / "matches"))
    assert matches.count() == wanted
    assert set(matches.columns) == {"id", "time", "total", "subscription", "subscriber"}
    assert (home / "matches" / "subscriber=office-AT").is_dir()
    found = spark.read.json(str(home / "sequences"))
    assert 0 < found.count() == next(e.rows for e in report.stages if e.name == "sequences")
    assert any(line.startswith("matches: ") for line in told)


def test_a_rejected_filter_is_not_a_dead_one(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.json(str(tmp_path / "in"))
    wanted = [{"id": id, "filter": text} for id, text in (("a", "id > 0"), ("b", "id <"))]
    wanted.append({"id": "c", "filter": "id > 9"})
    (tmp_path / "wanted.jsonl").write_text("".join(json.dumps(each) + "\n" for each in wanted))
    (tmp_path / "p.toml").write_text(
        'name = "p"\n[source]\nformat = "json"\npath = "in"\nschema = "id BIGINT"\n'
        '[match]\nsubscriptions = "wanted.jsonl"\nhow = "count"\n'
        '[[sinks]]\nof = "matches"\npath = "out"\n[report]\npath = "report"\n'
    )
    report = run_pipeline(read_plan(tmp_path / "p.toml"), spark)
    assert (report.matches, report.rejected, report.dead, report.dead_count) == (2, 1, ("c",), 1)
    assert [(each.name, each.count) for each in report.busiest] == [("a", 2)]


def test_a_plan_is_explained_without_spark(example: Path) -> None:
    lines = explain(read_plan(example))
    assert lines[0].startswith("read all of json")
    assert "match 6 subscriptions (0 rejected), which name country, total" in lines
    assert lines[-1].startswith("report to")


STREAM = """name = "again"
checkpoint = "c"
trigger = "available now"

[source]
format = "palio"
stream = true
schema = "x BIGINT"
options = {{ url = "{url}", durable = "d", filter = "x > 0" }}

[match]
subscriptions = "wanted.jsonl"
columns = ["x"]
refresh = "50ms"

[[sinks]]
of = "matches"
path = "out"
"""


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    wanted = [{"id": 1, "filter": "x > 5"}, {"id": 2, "filter": "x >"}]
    (tmp_path / "wanted.jsonl").write_text("".join(json.dumps(each) + "\n" for each in wanted))
    with serving(tmp_path / "broker") as broker:
        (tmp_path / "p.toml").write_text(STREAM.format(url=broker.url))
        plan = read_plan(tmp_path / "p.toml")
        broker.subscribe("d", "x > 0")
        for batch in range(2):
            first = 1 + 10 * batch
            broker.publish(*({"x": x} for x in range(first, first + 10)), first=first)
            report = run_pipeline(plan, spark)
            assert (report.events, report.batches, report.rejected) == (10, 1, 1)
        found = sorted(row.x for row in spark.read.parquet(str(tmp_path / "out")).collect())
        assert found == list(range(6, 21))
        assert (tmp_path / "c" / "subscriptions" / "current").exists()
        stop = Event()
        stop.set()
        assert run_pipeline(plan, spark, stop=stop).events == 0


SEQUENCES = """name = "logins"
checkpoint = "c"
trigger = "available now"

[source]
format = "json"
stream = true
path = "in"
schema = "host STRING, at TIMESTAMP, what STRING"
options = { maxFilesPerTrigger = 1 }

[sequences]
by = ["host"]
time = "at"
within = "30s"
watermark = "5s"
patterns = [{ id = "break-in", pattern = "what = 'failed' THEN what = 'root'" }]

[[sinks]]
of = "sequences"
format = "json"
path = "out"

[report]
path = "report"
"""


def test_a_stream_finds_sequences_and_counts_what_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(SEQUENCES)
    plan = read_plan(tmp_path / "p.toml")
    assert explain(plan)[2] == "find 1 patterns by host, each event once 5s have passed since"
    parts = [
        [("a", 1, "failed"), ("b", 2, "root"), ("b", 20, "failed")],
        [("c", 20, "tick")],
        [("a", 15, "root"), ("a", 16, "root"), ("b", 30, "root"), ("c", 59, "tick")],
    ]
    for number, part in enumerate(parts):
        lines = [
            json.dumps({"host": host, "at": f"2026-01-01T00:00:{at:02}Z", "what": what})
            for host, at, what in part
        ]
        file = tmp_path / "in" / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))  # the order in which Spark reads them
    report = run_pipeline(plan, spark)
    assert (report.events, report.batches, report.late) == (8, 3, 1)
    assert "- events too late for sequences: 1" in report.markdown()
    rows = spark.read.json(str(tmp_path / "out")).orderBy("host").collect()
    found = [(row.host, row.pattern, row.ended) for row in rows]
    assert found == [
        ("a", "break-in", "2026-01-01T00:00:16.000Z"),
        ("b", "break-in", "2026-01-01T00:00:30.000Z"),
    ]


def test_rows_that_are_no_cloudevents_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "wanted.jsonl").write_text("")
    (tmp_path / "p.toml").write_text(
        f'name = "p"\n[source]\nformat = "json"\npath = "{tmp_path}/wanted.jsonl"\n'
        'schema = "id BIGINT"\n[normalize]\ncloudevents = true\n'
        '[[sinks]]\nof = "events"\npath = "out"\n'
    )
    with pytest.raises(PalioError, match="the source has no column 'source'; it has id"):
        run_pipeline(read_plan(tmp_path / "p.toml"), spark)


# --- rows as events ---


def test_rows_become_events(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT '1' AS id, '/s' AS source, 't' AS type, '2026-01-01T00:00:00Z' AS time, "
        """'{"id": 7, "x": 1, "y": {"z": "a"}, "tags": [1]}' AS data, """
        "named_struct('b.c', 2) AS `o'dd`, array(1) AS list, 3 AS `data.x`"
    )
    schema = "id BIGINT, x BIGINT, y STRUCT<z: STRING>, tags ARRAY<INT>"
    found = normalized(rows, Normalize(json={"data": schema}, cloudevents=True))
    assert dict(found.dtypes) == {
        "id": "string",
        "source": "string",
        "type": "string",
        "time": "timestamp",
        "o'dd.b.c": "int",
        "data.x": "int",
        "data.id": "bigint",
        "x": "bigint",
        "y.z": "string",
    }
    (row,) = found.collect()
    assert (row["id"], row["data.id"], row["data.x"], row["x"]) == ("1", 7, 3, 1)
    assert (row["y.z"], row["o'dd.b.c"]) == ("a", 2)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Normalize(json={"none": "x INT"}), "normalize.json: the source has no column 'none'"),
        (Normalize(json={"n": "x INT"}), "column 'n' is int, no text"),
        (Normalize(cloudevents=True), "normalize.cloudevents: .* no column 'id'; it has n, data"),
    ],
)
def test_what_is_not_there_is_told(spark: SparkSession, how: Normalize, message: str) -> None:
    rows = spark.sql("SELECT 1 AS n, '{}' AS data")
    with pytest.raises(InvalidInput, match=message):
        normalized(rows, how)


def test_data_as_text_needs_a_schema(spark: SparkSession) -> None:
    rows = spark.sql("SELECT '1' AS id, '/s' AS source, 't' AS type, '{}' AS data")
    with pytest.raises(InvalidInput, match=r"'data' is text; give its schema under normalize.json"):
        normalized(rows, Normalize(cloudevents=True))
