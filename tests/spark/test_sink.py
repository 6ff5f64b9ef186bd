"""The writer as Spark calls it, without Spark: what is published, under which numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import ArrayType, LongType, StructType

from palio.errors import InvalidEvent, InvalidInput, Unreachable
from palio.protocol.limits import MAX_BATCH_CELLS
from palio.spark import sink as sinks
from palio.spark.sink import (
    PART_ROWS,
    BatchWriter,
    Publisher,
    PublishOptions,
    StreamWriter,
    TaskReport,
    numbered,
)
from tests.spark.brokers import PATIENCE_S, Broker, serving

SCHEMA = StructType().add("t", "string").add("x", "long")


@pytest.fixture
def name(broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a durable subscription to the events whose `t` it is."""
    name: str = request.node.name
    broker.subscribe(name, f"t = '{name}'")
    return name


def stream_sink(broker: Broker, *order: str, schema: StructType = SCHEMA) -> StreamWriter:
    return StreamWriter(publisher(broker.url, *order, schema=schema))


def publisher(
    url: str, *order: str, schema: StructType = SCHEMA, timeout: float = PATIENCE_S
) -> Publisher:
    options = PublishOptions(url=url, publisher="sink", order_by=",".join(order), timeout=timeout)
    return Publisher(options, schema)


def written(
    writer: StreamWriter | BatchWriter, name: str, *numbers: int, partition: int = 0
) -> WriterCommitMessage:
    """What a task makes of rows, in a query that is named for the test."""
    batch = pa.record_batch({"t": [name] * len(numbers), "x": pa.array(numbers, pa.int64())})
    found: Any = writer.write(iter([batch]))
    return TaskReport(found.query or name, partition, found.events)


def heard(broker: Broker, name: str) -> list[int]:
    return [event["x"] for _, event in broker.taken(name, f"t = '{name}'")]


def test_a_batch_that_is_published_again_comes_once(broker: Broker, name: str) -> None:
    writer = stream_sink(broker)
    messages: list[Any] = [written(writer, name, 1, 2), written(writer, name, 3, partition=1)]
    writer.commit(messages, 0)
    writer.commit(messages, 0)
    writer.commit([written(writer, name, 4)], 1)
    writer.commit([written(writer, name, 4)], 1)
    assert heard(broker, name) == [1, 2, 3, 4]


def test_a_batch_that_was_published_in_part_is_completed(broker: Broker, name: str) -> None:
    writer = stream_sink(broker)
    writer.commit([written(writer, name, 1, 2)], 7)
    writer.commit([written(writer, name, 1, 2, 3)], 7)
    assert heard(broker, name) == [1, 2, 3]


def test_partitions_come_in_their_order_whoever_is_first(broker: Broker, name: str) -> None:
    writer = stream_sink(broker)
    later = written(writer, name, 3, partition=1)
    writer.commit([later, written(writer, name, 1, 2), None], 0)
    assert heard(broker, name) == [1, 2, 3]


def test_rows_may_be_put_in_order(broker: Broker, name: str) -> None:
    writer = stream_sink(broker, "x")
    writer.commit([written(writer, name, 3, 1), written(writer, name, 2, partition=1)], 0)
    writer.commit([written(writer, name, 2, 3), written(writer, name, 1, partition=1)], 0)
    assert heard(broker, name) == [1, 2, 3]


def test_a_static_frame_is_published_as_often_as_it_is_written(broker: Broker, name: str) -> None:
    for _ in range(2):
        writer = BatchWriter(publisher(broker.url))
        messages: list[Any] = [written(writer, name, 1, 2)]
        writer.commit(messages)
        writer.commit(messages)
    assert heard(broker, name) == [1, 2, 1, 2]


def test_events_of_many_attributes_fit_into_messages(broker: Broker, name: str) -> None:
    wide = 1_000
    rows = MAX_BATCH_CELLS // wide
    writer = stream_sink(broker)
    columns: dict[str, Any] = {f"c{place}": [True] * (rows + 1) for place in range(wide - 2)}
    events = pa.record_batch({"t": [name] * (rows + 1), "x": range(rows + 1), **columns})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, events.schema) as out:
        out.write_batch(events)
    writer.commit([TaskReport(name, 0, stream.getvalue().to_pybytes())], 0)
    assert heard(broker, name) == list(range(rows + 1))


def test_nothing_is_published_for_nothing() -> None:
    """At an address where nobody answers, so that whatever is published fails."""
    writer = StreamWriter(publisher("palio://127.0.0.1:1", timeout=0.01))
    empty: Any = writer.write(iter([]))
    writer.commit([empty, None], 0)
    writer.abort([empty], 0)
    with pytest.raises(Unreachable):
        writer.commit([written(writer, "t", 1)], 1)


def test_a_large_batch_is_many_publications_and_parts(
    broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "PART_ROWS", 40)
    writer = stream_sink(broker)
    for _ in range(2):
        writer.commit([written(writer, name, *range(100))], 3)
    taken = broker.taken(name, f"t = '{name}'")
    assert [event["x"] for _, event in taken] == list(range(100))
    assert {publisher for publisher, _ in taken} == {f"sink/{name}.{part}" for part in range(3)}


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(0, []), (PART_ROWS - 1, [0]), (PART_ROWS, [0]), (PART_ROWS + 1, [0, 1])],
)
def test_batches_share_no_numbers(rows: int, parts: list[int]) -> None:
    table = pa.table({"x": pa.nulls(rows)})
    for batch in (0, 1):
        found = list(numbered(table, batch))
        assert [part for part, _, _ in found] == parts
        for _, first, chunk in found:
            assert first == (batch + 1) * PART_ROWS
            assert first + len(chunk) <= (batch + 2) * PART_ROWS


def test_a_broker_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        broker.subscribe("d")
        writer = stream_sink(broker)
        message = written(writer, "t", 1, 2)
        broker.kill()
        impatient = StreamWriter(publisher(broker.url, timeout=0.01))
        with pytest.raises(Unreachable, match="no broker answers"):
            impatient.commit([message], 0)
        broker.start()
        writer.commit([message], 0)
        assert len(broker.taken("d")) == 2


def test_refused_events_are_an_error(broker: Broker) -> None:
    writer = stream_sink(broker)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, pa.schema([("$x", pa.int64())])) as file:
        file.write_batch(pa.record_batch({"$x": [1]}))
    message = TaskReport("q", 0, stream.getvalue().to_pybytes())
    with pytest.raises(InvalidEvent, match=r"belong to the system"):
        writer.commit([message], 0)


def test_structs_are_flattened_and_system_columns_left_out() -> None:
    schema = StructType().add("data", StructType().add("y", "integer")).add("$seq", "long")
    writer = StreamWriter(publisher("palio://x", schema=schema.add("at", "date")))
    batch = pa.record_batch(
        {
            "data": [{"y": 1}, None],
            "$seq": [7, 8],
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC).date(), None]),
        }
    )
    report: Any = writer.write(iter([batch]))
    events = pa.ipc.open_stream(report.events).read_all()
    assert events.to_pydict() == {
        "data.y": [1, None],
        "at": [datetime(2026, 1, 1, tzinfo=UTC), None],
    }


def test_a_value_that_no_attribute_holds_is_an_error() -> None:
    writer = StreamWriter(publisher("palio://x", schema=StructType().add("n", "decimal(20,0)")))
    batch = pa.record_batch({"n": pa.array([10**19], pa.decimal128(20, 0))})
    with pytest.raises(InvalidEvent, match="no value for 'n': it is beyond int64"):
        writer.write(iter([batch]))


def test_a_column_that_is_no_attribute_is_refused() -> None:
    schema = StructType().add("tags", ArrayType(LongType()))
    with pytest.raises(InvalidInput, match=r"'tags' is list<.*, which is no attribute"):
        publisher("palio://x", schema=schema)


def test_an_order_by_no_column_is_refused() -> None:
    with pytest.raises(InvalidInput, match="orderBy names 'z', which is no column; there are t, x"):
        publisher("palio://x", "z")
