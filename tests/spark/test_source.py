"""The data source on a real Spark session, from a broker and back to it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from palio.errors import InvalidConfiguration
from palio.spark.source import PalioDataSource, register
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 120


@pytest.fixture(autouse=True)
def registered(request: pytest.FixtureRequest) -> None:
    if "spark" in request.fixturenames:
        register(request.getfixturevalue("spark"))


def stream(spark: SparkSession, broker: Broker, durable: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("palio").option("url", broker.url)
    return reader.option("durable", durable).options(**options).schema("x BIGINT").load()


def run(writer: Any) -> Any:
    """Run a query until all that waits is done; how it went at last."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return query


def test_an_archive_is_filtered_as_spark_filters(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "x": [1, 2, 3, None],
        "p": [1.0, math.nan, 3.0, None],
        "s": ["a", "ab", "b", None],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    ours = spark.read.format("palio").option("path", str(tmp_path)).load()
    # Not `spark.read.parquet`, which passes over NaN in row groups whose other values are small.
    theirs = spark.createDataFrame(list(zip(*columns.values(), strict=True)), ours.schema)
    for condition in ("x > 1 AND s LIKE 'a%'", "p > 2", "p < 2"):
        wanted = sorted(map(str, theirs.where(condition).collect()))
        assert sorted(map(str, ours.where(condition).collect())) == wanted, condition
    strict = spark.read.format("palio").option("filter", "p > :least").option("param.least", 2)
    assert [row.x for row in strict.load(str(tmp_path)).collect()] == [3]


def test_a_stream_goes_on_where_it_was(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.subscribe("on", "x > 1 AND t = 'on'")
    broker.publish(*({"x": x, "t": "on"} for x in range(4)), first=1, name="on")
    options = {"filter": "x > :least AND t = 'on'", "param.least": 1}

    def once() -> list[int]:
        writer = stream(spark, broker, "on", **options).writeStream.format("parquet")
        run(
            writer.option("checkpointLocation", str(tmp_path / "c")).option("path", f"{tmp_path}/r")
        )
        return sorted(row.x for row in spark.read.parquet(f"{tmp_path}/r").collect())

    assert once() == [2, 3]
    broker.publish({"x": 5, "t": "on"}, first=5, name="on")
    assert once() == [2, 3, 5]
    assert once() == [2, 3, 5]
    assert broker.waiting("on", "x > 1 AND t = 'on'") == []


def test_a_batch_that_is_run_again_is_published_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """As if the driver had been killed when all was published and before Spark had noted it."""
    broker.subscribe("out", "y >= 0")
    spark.range(0, 50, 1, 3).selectExpr("id AS y").write.parquet(str(tmp_path / "in"))
    events = spark.readStream.schema("y BIGINT").parquet(str(tmp_path / "in"))
    for _ in range(2):
        writer = events.writeStream.format("palio").option("url", broker.url)
        run(writer.option("checkpointLocation", str(tmp_path / "c")))
        for commit in (tmp_path / "c" / "commits").iterdir():
            commit.unlink()
    taken = [event["y"] for _, event in broker.taken("out", "y >= 0")]
    assert sorted(taken) == list(range(50))


def test_a_static_frame_is_published(spark: SparkSession, broker: Broker) -> None:
    broker.subscribe("static", "z >= 0")
    frame = spark.range(0, 10, 1, 3).selectExpr("id AS z")
    writer = frame.write.format("palio").option("url", broker.url).option("publisher", "me")
    writer.mode("append").save()
    taken = broker.taken("static", "z >= 0")
    assert [event["z"] for _, event in taken] == list(range(10))
    assert {publisher.partition("/")[0] for publisher, _ in taken} == {"me"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "palio://x"}, "'durable' is missing"),
        ({"durable": "d"}, "'url' is missing"),
        ({"url": "palio://x", "durable": "d", "mode": "lax"}, "it is one of failfast, permissive"),
        ({"url": "palio://x", "durable": "d", "durabel": "d"}, "'durabel' .* did you mean durable"),
    ],
)
def test_wrong_options_of_a_stream_are_refused(options: dict[str, str], message: str) -> None:
    from pyspark.sql.types import StructType

    with pytest.raises(InvalidConfiguration, match=message):
        PalioDataSource(options).streamReader(StructType())


def test_what_was_published_is_not_overwritten() -> None:
    from pyspark.sql.types import StructType

    source = PalioDataSource({"url": "palio://x"})
    for write in (source.writer, source.streamWriter):
        with pytest.raises(InvalidConfiguration, match="what was published stays so"):
            write(StructType(), True)


def test_an_order_is_a_list_of_columns() -> None:
    from pyspark.sql.types import StructType

    options = {"url": "palio://x", "orderby": "a, b"}
    schema = StructType().add("a", "long").add("b", "long")
    sender: Any = PalioDataSource(options).streamWriter(schema, False).sender
    assert sender.order == ("a", "b")
