"""Subscription forwarding on trees: siena's worked examples, minimality, and storms."""

from __future__ import annotations

import pytest

from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Cancel, Subscribe, Unsubscribe, Update
from palio.routing.protocol import IllegalMessage, Peer
from palio.simulation import star
from palio_studies.simulator import Network
from tests.routing.helpers import (
    AIRLINE,
    ALICE,
    BOB,
    ONE,
    THREE,
    TWO,
    UA,
    UA_FROM_DEN,
    UA_TO_DEN,
    ask,
    attached,
    filters,
    parse,
    said,
)


def broker_with(*peers: Peer) -> Acyclic:
    return attached(Acyclic("s0"), *peers)


def test_a_subscription_goes_to_every_neighbour_but_the_one_it_came_from() -> None:
    broker = broker_with(ALICE, ONE, TWO, THREE)
    assert said(ask(broker, ONE, Subscribe(0, UA))) == [("s2", "Subscribe"), ("s3", "Subscribe")]
    assert broker.subscriptions.table.forwards(UA) == [TWO, THREE]
    assert list(broker.subscriptions.table.nodes[UA].subscribers) == [ONE]


def test_example_of_siena_5_2() -> None:
    """A client's subscription, one it covers from a neighbour, then the same as the client's."""
    broker = broker_with(ALICE, BOB, ONE, TWO, THREE)
    ask(broker, ALICE, Subscribe(0, AIRLINE))
    assert broker.subscriptions.table.forwards(AIRLINE) == [ONE, TWO, THREE]
    assert ask(broker, ONE, Subscribe(0, UA_FROM_DEN)) == []
    assert broker.subscriptions.table.forwards(UA_FROM_DEN) == []
    assert ask(broker, BOB, Subscribe(0, AIRLINE)) == []
    assert list(broker.subscriptions.table.nodes[AIRLINE].subscribers) == [ALICE, BOB]


def test_unsubscription_reexposes_what_was_covered_in_the_same_message() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    ask(broker, ALICE, Subscribe(0, AIRLINE))
    ask(broker, ONE, Subscribe(0, UA_TO_DEN))
    sends = ask(broker, ALICE, Cancel(AIRLINE))
    assert said(sends) == [("s1", "Unsubscribe"), ("s2", "Subscribe"), ("s2", "Unsubscribe")]
    assert broker.subscriptions.table.forwards(UA_TO_DEN) == [TWO]


def test_forty_thousand_subscriptions_are_one_message() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    requests = tuple(Subscribe(k, parse(f"symbol = 's{k}'")) for k in range(400))
    sends = broker.receive(ONE, Batch(requests))
    assert [(send.to, len(send.message.requests)) for send in sends] == [(TWO, 400)]  # type: ignore[union-attr]  # batches all


@pytest.mark.parametrize(
    ("sender", "batch", "reason"),
    [
        (ONE, Batch((Cancel(UA),)), "Cancel is for clients"),
        (ONE, Batch((Subscribe(0, UA), Subscribe(1, parse("a < :x")))), "Subscribe: "),
        (Peer.broker("s9"), Batch(()), "not attached"),
    ],
)
def test_an_illegal_message_changes_nothing(sender: Peer, batch: Batch, reason: str) -> None:
    broker = broker_with(ALICE, ONE, TWO)
    with pytest.raises(IllegalMessage, match=reason):
        broker.receive(sender, batch)
    assert filters(broker) == []


def test_an_event_crosses_a_link_once_and_only_towards_a_match() -> None:
    network = Network.of(star(5), Acyclic, seed=1)
    clients = [network.client(f"c{k}", f"b{k}") for k in (2, 3, 4)]
    for client in clients[:2]:
        client.subscribe("a > 1")
        client.subscribe("a > 2 AND b = 1")
    publisher = network.client("publisher", "b5")
    network.run()
    publisher.publish({"a": 5, "b": 1})
    publisher.publish({"a": 0})
    network.run()
    assert network.costs.notifications == 3  # b5 to b1, and b1 to b2 and b3
    assert [len(client.received) for client in clients] == [1, 1, 0]


def test_a_broker_without_parameters_sends_and_takes_no_update() -> None:
    broker = attached(Acyclic("s0", parametric=False), ALICE, ONE)
    ask(broker, ALICE, Subscribe(0, parse("a > :x"), {"x": 5}))
    sends = ask(broker, ALICE, Subscribe(1, parse("a > :x"), {"x": 7}), Unsubscribe(0))
    assert said(sends) == [("s1", "Subscribe"), ("s1", "Unsubscribe")]
    with pytest.raises(IllegalMessage, match="supports no Update"):
        ask(broker, ALICE, Update(1, {"x": 9}, 1))
