from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from palio.client.blocking import SyncClient
from palio.errors import InvalidConfiguration, PalioError, ParseError, Unreachable
from palio.protocol.failures import error_of
from palio.protocol.messages import Failure, Query, Subscribe
from palio.spark.connection import BrokerLogin, Connection
from tests.spark.brokers import PATIENCE_S, Broker, deliveries, events_of, serving


def test_a_broker_says_who_it_is_and_who_we_are(broker: Broker) -> None:
    connection = broker.connect("me", "query.0")
    assert (connection.broker, connection.publisher) == ("b1", "me/query.0")
    connection.close()


def test_what_is_published_is_delivered_until_it_is_acknowledged(broker: Broker) -> None:
    reader = broker.connect()
    reader.ask(Subscribe(0, 1, "x > :least", {"least": 1}, "d"))
    broker.publish({"x": 1}, {"x": 2}, {"x": 3}, first=10)
    (first,) = deliveries(reader)
    assert list(events_of(first)) == [{"x": 2}, {"x": 3}]
    reader.close()
    reader = broker.connect()
    reader.ask(Subscribe(0, 1, "x > :least", {"least": 1}, "d"))
    (again,) = deliveries(reader)
    assert again.entry == first.entry
    assert list(events_of(again)) == list(events_of(first))
    reader.acknowledge(1, again.entry)
    assert deliveries(reader) == []
    reader.close()
    assert broker.waiting("d", name="tests") == []


def test_events_for_those_who_are_there_are_no_entries(broker: Broker) -> None:
    connection = broker.connect()
    connection.ask(Subscribe(0, 1, "y > 0", {}, "live"))
    with SyncClient(broker.url) as client:
        client.publish({"y": 1})
    connection.ask(Query(0, "status"))
    assert connection.receive(0) is None
    connection.close()


def test_a_refusal_is_raised_as_what_it_is_and_the_connection_goes_on(broker: Broker) -> None:
    connection = broker.connect()
    with pytest.raises(ParseError, match="ends too soon"):
        connection.ask(Subscribe(0, 1, "x <", {}, "bad"))
    connection.ask(Subscribe(0, 1, "x < 1", {}, "good"))
    connection.close()


def test_nobody_at_an_address_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"no broker answers: palio://127.0.0.1:1"):
        Connection(BrokerLogin("palio://127.0.0.1:1"), timeout_s=0.01)


@pytest.mark.parametrize("url", ["http://localhost", "palio://", "palio://x:y", "localhost:7400"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="is no address of a broker"):
        Connection(BrokerLogin(url))


def test_a_broker_that_comes_back_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        connection = broker.connect()
        connection.ask(Subscribe(0, 1, "x > 0", {}, "d"))
        broker.publish({"x": 1})
        (before,) = deliveries(connection)
        broker.kill()
        broker.start()
        (again,) = deliveries(connection)
        assert again.entry == before.entry
        connection.close()


def test_a_broker_that_stays_away_answers_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        connection = Connection(BrokerLogin(broker.url), timeout_s=0.2)
        broker.kill()
        with pytest.raises(Unreachable, match=r"did not answer within 0.2 s"):
            connection.ask(Query(0, "status"))
        with pytest.raises(Unreachable, match=r"did not answer within 0.2 s"):
            connection.publish([pa.record_batch({"x": [1]})], 1)
        connection.close()
        connection.close()


def test_an_entry_that_another_takes_over_is_told(broker: Broker) -> None:
    first, second = broker.connect("both"), broker.connect("both")
    first.ask(Subscribe(0, 1, "x > 0", {}, "d"))
    second.ask(Subscribe(0, 1, "x > 0", {}, "d"))
    for _ in range(2):
        with pytest.raises(PalioError, match="was taken over by another session"):
            first.receive(PATIENCE_S)
    first.close()
    second.close()


def test_an_error_of_no_class_of_ours_is_a_palio_error() -> None:
    assert str(error_of(Failure("OSError", "what"))) == "what"
    error = error_of(Failure("LimitExceeded", "too long", {"limit": "MAX", "maximum": 3}))
    assert (type(error).__name__, vars(error)) == ("LimitExceeded", {"limit": "MAX", "maximum": 3})
