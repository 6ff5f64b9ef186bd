"""The reader as Spark calls it, without Spark: its offsets, batches and acknowledgements."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from palio.errors import InvalidEvent, InvalidInput, PalioError, Unreachable
from palio.protocol.messages import Deliver, Gap, Gaps, Message, Parcel, Query
from palio.spark import streaming
from palio.spark.streaming import OpenEntries, StreamOptions, StreamReader, events_schema
from tests.spark.brokers import PATIENCE_S, Broker, serving

SCHEMA = StructType().add("x", "long")
ALL = ReadAllAvailable()


def source_at(broker: Broker, durable: str, filter: str = "x > 0", **changes: Any) -> StreamOptions:
    return StreamOptions(
        url=broker.url, durable=durable, filter=filter, timeout=PATIENCE_S, **changes
    )


@pytest.fixture
def source(broker: Broker, request: pytest.FixtureRequest) -> StreamOptions:
    """A durable subscription of the test's own, for events whose `t` is the test's name."""
    name = request.node.name
    broker.subscribe(name, f"t = '{name}'")
    return source_at(broker, name, f"t = '{name}'")


def publish(broker: Broker, source: StreamOptions, *numbers: int) -> None:
    """Publish an entry."""
    events = [{"t": source.durable, "x": number} for number in numbers]
    broker.publish(*events, first=1 + 100 * min(numbers), name=f"for {source.durable}")


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    partitions = reader.partitions(start, end)
    return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def values(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [row["x"] for row in read(reader, start, end)]


def test_a_batch_is_read_again_as_it_was_until_it_is_done(
    broker: Broker, source: StreamOptions
) -> None:
    publish(broker, source, 1, 2)
    publish(broker, source, 3)
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == [1, 2, 3]
    publish(broker, source, 4)
    reader.stop()
    reader = StreamReader(source, SCHEMA)  # as after a restart, from what is in the checkpoint
    assert values(reader, start, end) == [1, 2, 3]
    later = reader.latestOffset(end, ALL)
    assert values(reader, end, later) == [4]
    reader.commit(later)
    reader.stop()
    assert broker.waiting(source.durable, source.filter) == []


def test_nothing_is_acknowledged_before_it_is_done(broker: Broker, source: StreamOptions) -> None:
    publish(broker, source, 1)
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    read(reader, start, reader.latestOffset(start, ALL))
    reader.stop()
    assert len(broker.waiting(source.durable, source.filter)) == 1


def test_where_a_query_is_is_done(broker: Broker, source: StreamOptions) -> None:
    publish(broker, source, 1)
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert reader.latestOffset(end, ALL) == end
    reader.stop()
    assert broker.waiting(source.durable, source.filter) == []


def test_a_limit_divides_no_entry_and_always_goes_on(broker: Broker, source: StreamOptions) -> None:
    publish(broker, source, 1, 2)
    publish(broker, source, 3)
    publish(broker, source, 4)
    reader = StreamReader(replace(source, max_events_per_batch=2), SCHEMA)
    at = reader.initialOffset()
    limit: ReadLimit = reader.getDefaultReadLimit()
    found = []
    for _ in range(3):
        end = reader.latestOffset(at, limit)
        found.append(values(reader, at, end))
        at = end
    assert found == [[1, 2], [3, 4], []]
    assert ReadMaxRows(2) == limit
    publish(broker, source, 5, 6, 7)
    assert values(reader, at, reader.latestOffset(at, ReadMaxRows(1))) == [5, 6, 7]
    reader.stop()


def test_a_batch_is_no_larger_than_half_the_window(
    broker: Broker, source: StreamOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        publish(broker, source, number)
    monkeypatch.setattr(streaming, "BATCH_BYTES", 0)
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    assert values(reader, start, reader.latestOffset(start, ALL)) == [1]
    reader.stop()


def test_an_entry_is_as_large_as_it_is_for_the_broker(
    broker: Broker, source: StreamOptions
) -> None:
    broker.subscribe(f"all of {source.durable}", f"t = '{source.durable}'")
    picky = replace(source, filter=f"{source.filter} AND x = 1")
    broker.subscribe(source.durable, picky.filter)
    publish(broker, source, *range(1, 1_000))
    entries = StreamReader(picky, SCHEMA).entries
    entries.receive()
    (entry,) = entries.held.values()
    assert entry.batch.num_rows == 1
    assert entry.size > 1_000 * 8
    entries.close()


def test_available_now_is_what_waits_when_it_begins(broker: Broker, source: StreamOptions) -> None:
    publish(broker, source, 1)
    publish(broker, source, 2)
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(broker, source, 3)
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == [1, 2]
    assert reader.latestOffset(end, ALL) == end
    reader.stop()


def test_available_now_is_nothing_where_nothing_waits(
    broker: Broker, source: StreamOptions
) -> None:
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(broker, source, 1)
    assert reader.latestOffset(start, ALL) == start
    reader.stop()


def test_available_now_is_all_of_a_long_backlog(tmp_path: Path) -> None:
    entries = 2_500
    with serving(tmp_path) as broker:
        broker.subscribe("d")
        connection = broker.connect("many", "1")
        batch = pa.record_batch({"x": range(30), "text": ["some text that takes room"] * 30})
        connection.publish([batch] * entries, 1)
        connection.close()
        reader = StreamReader(source_at(broker, "d", "TRUE"), SCHEMA)
        at = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        count = 0
        while (end := reader.latestOffset(at, ALL)) != at:
            count += len(read(reader, at, end))
            at = end
        assert count == 30 * entries
        reader.stop()
        assert broker.waiting("d") == []


def test_a_query_outlives_its_broker(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        broker.subscribe("d", "x > 0")
        broker.publish({"x": 1}, first=1)
        reader = StreamReader(source_at(broker, "d"), SCHEMA)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        broker.kill()
        broker.start()
        assert values(reader, start, end) == [1]
        broker.publish({"x": 2}, first=2)
        later = reader.latestOffset(end, ALL)
        assert values(reader, end, later) == [2]
        reader.stop()


def test_another_broker_has_other_numbers(source: StreamOptions) -> None:
    reader = StreamReader(source, SCHEMA)
    reader.initialOffset()
    elsewhere = {"broker": "b2", "entry": 7}
    with pytest.raises(InvalidInput, match=r"has read from the broker 'b2'.* is 'b1'"):
        reader.latestOffset(elsewhere, ALL)
    reader.stop()


def test_a_batch_that_is_gone_is_not_passed_over(broker: Broker, source: StreamOptions) -> None:
    publish(broker, source, 1)
    reader = StreamReader(source, SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.stop()
    broker.taken(source.durable, source.filter)
    reader = StreamReader(source, SCHEMA)
    with pytest.raises(InvalidInput, match=r"does not give entry .* again"):
        reader.partitions(start, end)
    reader.stop()


def test_what_was_lost_is_told_unless_that_is_all_the_same(
    broker: Broker, source: StreamOptions
) -> None:
    lost = Gaps((Gap("p", 1, 3, 3, 1),))
    entries = StreamReader(source, SCHEMA).entries
    connection = broker.connect()
    with pytest.raises(PalioError, match=r"lost 3 events at .*failOnDataLoss"):
        entries._receive_one(connection, lost)
    careless = StreamReader(replace(source, fail_on_data_loss=False), SCHEMA).entries
    careless._receive_one(connection, lost)
    entries._receive_one(
        connection, Gaps((Gap("*", 0, 0, 0),))
    )  # of live events, which are not read
    connection.close()


def test_events_are_dealt_out_in_order(broker: Broker, source: StreamOptions) -> None:
    for number in (1, 2, 3, 4):
        publish(broker, source, number)
    reader = StreamReader(replace(source, partitions=2), SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    shares = [
        [row["x"] for batch in reader.read(each) for row in batch.to_pylist()]
        for each in reader.partitions(start, end)
    ]
    assert shares == [[1, 2], [3, 4]]
    assert len(reader.partitions(end, end)) == 1
    reader.stop()


def test_columns_are_those_of_the_schema(broker: Broker, source: StreamOptions) -> None:
    publish(broker, source, 1)
    schema = StructType().add("$seq", "long").add("x", "integer").add("new", "string")
    schema.add("$publisher", "string")
    reader = StreamReader(source, schema)
    start = reader.initialOffset()
    (row,) = read(reader, start, reader.latestOffset(start, ALL))
    publisher = f"for {source.durable}/1"
    assert row == {"$seq": 101, "x": 1, "new": None, "$publisher": publisher}
    reader.stop()


def test_a_value_that_does_not_fit_stops_the_query_or_is_null(
    broker: Broker, source: StreamOptions
) -> None:
    publish(broker, source, 1)
    schema = StructType().add("t", "long").add("x", "long")
    reader = StreamReader(source, schema)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    with pytest.raises(InvalidEvent, match=r"'t' of events from publisher .* does not fit"):
        reader.partitions(start, end)
    reader.stop()
    reader = StreamReader(replace(source, mode="permissive"), schema)
    assert read(reader, start, end) == [{"t": None, "x": 1}]
    reader.stop()


def test_the_schema_is_that_of_what_waits(broker: Broker, source: StreamOptions) -> None:
    with pytest.raises(InvalidInput, match=r"no events wait .* give them with .schema"):
        events_schema(source)
    publish(broker, source, 1)
    found = events_schema(source)
    assert found.simpleString() == (
        "struct<t:string,x:bigint,$publisher:string,$seq:bigint,$time:timestamp>"
    )
    assert len(broker.waiting(source.durable, source.filter)) == 1
    broker.publish({"t": source.durable, "x": 0.5}, first=1, name=f"other {source.durable}")
    with pytest.raises(InvalidInput, match="'x' is int64 in some events and double in others"):
        events_schema(source)


def test_a_batch_is_in_the_very_schema_of_the_query() -> None:
    source = StreamOptions(url="palio://nowhere", durable="d")
    reader = StreamReader(source, StructType().add("at", "timestamp"))
    assert reader._target == pa.schema([("at", pa.timestamp("us", "UTC"))])


NO_GAP: Final = Gap("*", 0, 0, 0, 1)


class Late:
    """A connection on which the answer overtakes deliveries, as it does where windows are full."""

    broker = "b1"

    def __init__(self, *entries: int, lost: tuple[int, ...] = (), gap: Gap = NO_GAP) -> None:
        parcel = Parcel("p", pa.record_batch({"x": [1]}))
        self.lines: list[Message] = [Deliver(parcel, None, 1, entry) for entry in entries]
        nothing = parcel.select(np.array([False]))
        for entry in lost:
            self.lines += [Gaps((gap,)), Deliver(nothing, None, 1, entry)]
        self.last = max((*entries, *lost))

    def ask(self, request: Query) -> dict[str, int]:
        assert request == Query(0, "waiting", 1)
        return {"last": self.last}

    def receive(self, timeout_s: float) -> Message | None:
        assert timeout_s > 0
        return self.lines.pop(0)

    def close(self) -> None:
        """Nothing."""


def entries_over(connection: Any, **changes: Any) -> OpenEntries:
    entries = OpenEntries(StreamOptions(url="palio://b1", durable="d", **changes))
    entries._connection = connection
    return entries


def test_what_waits_is_taken_whenever_it_is_delivered() -> None:
    entries = entries_over(Late(4, 7, 9))
    entries.receive()
    assert list(entries.held) == [4, 7, 9]
    assert entries.last == 9


def test_what_comes_again_in_another_session_is_held_once() -> None:
    entries = entries_over(Late(4, 7, 4, 7, 9))
    entries.receive()
    assert list(entries.held) == [4, 7, 9]


@pytest.mark.parametrize("gap", [Gap("*", 0, 0, 0, 1), Gap("p", 5, 6, 2, 1)])
def test_an_entry_that_the_broker_cannot_read_comes_without_events(gap: Gap) -> None:
    """So that it is acknowledged like others, and waited for no longer."""
    entries = entries_over(Late(4, 7, lost=(8, 9), gap=gap), fail_on_data_loss=False)
    entries.receive()
    assert {number: len(each.batch) for number, each in entries.held.items()} == {
        4: 1,
        7: 1,
        8: 0,
        9: 0,
    }
    with pytest.raises(PalioError, match="failOnDataLoss"):
        entries_over(Late(4, 7, lost=(8, 9), gap=gap)).receive()


def test_no_more_is_taken_than_a_batch_unless_the_batch_goes_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "BATCH_BYTES", 1)
    entries = entries_over(Late(4, 7, 9))
    entries.receive()
    assert list(entries.held) == [4]
    entries = entries_over(Late(4, 7, 9))
    entries.receive(through=7)
    assert list(entries.held) == [4, 7]


def test_what_was_said_to_wait_and_does_not_come_is_an_error() -> None:
    class Silent(Late):
        def receive(self, timeout_s: float) -> Message | None:
            assert timeout_s <= 0
            return None

    with pytest.raises(Unreachable, match="reported entry 4, and did not deliver it within 0 s"):
        entries_over(Silent(4), timeout=0.0).receive()
