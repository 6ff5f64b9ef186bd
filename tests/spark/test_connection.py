from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from palio.errors import InvalidConfiguration, ParseError, Unreachable
from palio.protocol.failures import error_of
from palio.protocol.messages import Accepted, Acknowledge, Failure, Parcel, Publish, Subscribe
from palio.spark.connection import Connection, Door
from tests.spark.brokers import PATIENCE_S, Broker, deliveries, events_of, serving


def test_a_broker_says_who_it_is_and_who_we_are(broker: Broker) -> None:
    connection = broker.connect("me", "query.0")
    assert (connection.broker, connection.publisher) == ("b1", "me/query.0")
    connection.close()


def test_what_is_published_is_delivered_until_it_is_acknowledged(broker: Broker) -> None:
    reader = broker.connect()
    reader.subscribe(Subscribe(1, 1, "x > :least", {"least": 1}, "d"))
    broker.publish({"x": 1}, {"x": 2}, {"x": 3}, first=10)
    (first,) = deliveries(reader)
    assert list(events_of(first)) == [{"x": 2}, {"x": 3}]
    reader.close()
    reader = broker.connect()
    reader.subscribe(Subscribe(1, 1, "x > :least", {"least": 1}, "d"))
    (again,) = deliveries(reader)
    assert again.entry == first.entry
    assert list(events_of(again)) == list(events_of(first))
    reader.say(Acknowledge(1, again.entry))
    assert deliveries(reader) == []
    reader.close()
    assert broker.waiting("d", name="tests") == []


def test_events_for_those_who_are_there_are_no_deliveries(broker: Broker) -> None:
    connection = broker.connect()
    connection.subscribe(Subscribe(1, 1, "y > 0", {}, "live"))
    connection.say(Publish(Parcel("", pa.record_batch({"y": [1]})), 1))
    assert connection.receive(PATIENCE_S) == Accepted(1, "memory")
    connection.ask("status")
    assert connection.early() == []
    connection.close()


def test_a_refusal_is_raised_as_what_it_is_and_the_connection_goes_on(broker: Broker) -> None:
    connection = broker.connect()
    with pytest.raises(ParseError, match="ends too soon"):
        connection.subscribe(Subscribe(1, 1, "x <", {}, "bad"))
    connection.subscribe(Subscribe(2, 1, "x < 1", {}, "good"))
    connection.close()


def test_nobody_at_an_address_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"no broker answers at palio://127.0.0.1:1"):
        Connection(Door("palio://127.0.0.1:1"))


@pytest.mark.parametrize("url", ["http://localhost", "palio://", "palio://x:y", "localhost:7400"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="is no address of a broker"):
        Connection(Door(url))


def test_a_broker_that_dies_is_told_to_whoever_asks(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        connection = broker.connect()
        broker.kill()
        for _ in range(2):
            with pytest.raises(Unreachable):
                connection.receive(PATIENCE_S)
        connection.close()
        connection.close()


def test_an_error_of_no_class_of_ours_is_a_palio_error() -> None:
    assert str(error_of(Failure("OSError", "what"))) == "what"
    error = error_of(Failure("LimitExceeded", "too long", {"limit": "MAX", "maximum": 3}))
    assert (type(error).__name__, vars(error)) == ("LimitExceeded", {"limit": "MAX", "maximum": 3})
