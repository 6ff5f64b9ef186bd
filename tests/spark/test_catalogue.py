"""A broker's subscriptions as a set, which follows them while a stream is matched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palio.spark
from palio.errors import InvalidConfiguration, InvalidInput, Unreachable
from palio.protocol.messages import Subscribe, Update
from palio.spark import Catalogue
from palio.spark.reading import read
from tests.spark.brokers import Broker, serving, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_subscriptions_of_all_clients_but_the_asker(broker: Broker) -> None:
    broker.subscribe("d", "x > 1", name="bob")
    broker.subscribe("own", "TRUE", name="spark")
    connection = broker.connect("ann")
    connection.ask(Subscribe(0, 1, "x > :low AND s = 'ä'", {"low": 2}))
    found = {row["subscriber"]: row for row in Catalogue(broker.url).rows()}
    assert found.keys() == {"ann", "bob"}
    assert found["bob"] == {"id": "bob/d", "subscriber": "bob", "filter": "x > 1", "parameters": {}}
    assert found["ann"]["parameters"] == {"low": 2}
    assert {row["subscriber"] for row in Catalogue(broker.url, name="bob").rows()} == {
        "ann",
        "spark",
    }
    connection.close()


def test_a_set_of_them(broker: Broker, tmp_path: Path) -> None:
    broker.subscribe("d", "x > 1", name="bob")
    standing = palio.spark.subscriptions(broker.url, tmp_path)
    assert len(standing) == 1
    assert (standing.meta.id_type, standing.meta.subscriber_type) == ("string", "string")


def test_no_subscriptions_have_the_same_columns(tmp_path: Path) -> None:
    with serving(tmp_path / "broker") as broker:
        table = read(broker.url).table
    assert table.num_rows == 0
    assert table.schema.field("id").type == table.schema.field("subscriber").type == pa.utf8()


def test_a_broker_that_is_not_there_is_told() -> None:
    with pytest.raises(Unreachable, match=r"palio://127\.0\.0\.1:1"):
        read("palio://127.0.0.1:1")
    with pytest.raises(InvalidConfiguration, match="no address of a broker"):
        Catalogue("http://localhost")


def test_a_running_stream_takes_up_what_changes_at_the_broker(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    connection = broker.connect("ann")
    connection.ask(Subscribe(0, 1, "n > :low", {"low": 7}))
    only_ann = Catalogue(broker.url, name="bob")
    standing = palio.spark.subscriptions(only_ann, tmp_path / "set")
    stream = spark.readStream.schema("n long").parquet(str(inbox))
    query = (
        palio.spark.match(stream, standing, "route", columns=["n"])
        .writeStream.format("memory")
        .queryName("live_catalogue")
        .start()
    )

    def matched(number: int) -> list[int]:
        pq.write_table(
            pa.table({"n": range(10 * number, 10 * number + 10)}), inbox / f"{number}.parquet"
        )
        query.processAllAvailable()
        rows = spark.table("live_catalogue").where("subscriber = 'ann'").collect()
        return sorted(row.n for row in rows)

    try:
        with standing.follow(only_ann, 0.05) as refreshing:
            assert matched(0) == [8, 9]
            connection.ask(Update(0, 1, {"low": 12}))
            wait_for(lambda: refreshing.changes)
            assert matched(1) == [8, 9, *range(13, 20)]
    finally:
        query.stop()
        connection.close()
    assert refreshing.error is None


def test_a_set_that_others_may_use_follows_nothing(broker: Broker) -> None:
    standing = palio.spark.subscriptions(broker.url)
    with pytest.raises(InvalidInput, match="give it a path of its own"):
        standing.follow(broker.url)
