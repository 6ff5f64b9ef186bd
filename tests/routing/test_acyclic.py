"""Subscription forwarding on trees: siena's worked examples, minimality, and storms."""

from __future__ import annotations

import pytest

from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Cancel, Subscribe, Unsubscribe, Update
from palio.routing.protocol import IllegalMessage, Peer
from palio.simulation import Network, line, star
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
    parse,
    said,
)
from tests.routing.scenarios import Storm
from tests.routing.seeds import SEEDS


def broker_with(*peers: Peer) -> Acyclic:
    return attached(Acyclic("s0"), *peers)


def test_a_subscription_goes_to_every_neighbour_but_the_one_it_came_from() -> None:
    broker = broker_with(ALICE, ONE, TWO, THREE)
    assert said(ask(broker, ONE, Subscribe(0, UA))) == [("s2", "Subscribe"), ("s3", "Subscribe")]
    assert broker.forwards(UA) == [TWO, THREE]
    assert broker.subscribers(UA) == [ONE]


def test_example_of_siena_5_2() -> None:
    """A client's subscription, one it covers from a neighbour, then the same as the client's."""
    broker = broker_with(ALICE, BOB, ONE, TWO, THREE)
    ask(broker, ALICE, Subscribe(0, AIRLINE))
    assert broker.forwards(AIRLINE) == [ONE, TWO, THREE]
    assert ask(broker, ONE, Subscribe(0, UA_FROM_DEN)) == []
    assert broker.forwards(UA_FROM_DEN) == []
    assert ask(broker, BOB, Subscribe(0, AIRLINE)) == []
    assert broker.subscribers(AIRLINE) == [ALICE, BOB]


def test_two_subscribers_of_different_origin_send_it_everywhere() -> None:
    """siena 5.2: NST becomes empty, so the first subscriber is told as well."""
    broker = broker_with(ALICE, ONE, TWO)
    ask(broker, ONE, Subscribe(0, UA))
    ask(broker, ONE, Subscribe(1, UA_TO_DEN))
    assert said(ask(broker, ALICE, Subscribe(0, UA))) == [("s1", "Subscribe")]
    assert broker.forwards(UA) == [ONE, TWO]
    assert broker.forwards(UA_TO_DEN) == []


def test_unsubscription_reexposes_what_was_covered_in_the_same_message() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    ask(broker, ALICE, Subscribe(0, AIRLINE))
    ask(broker, ONE, Subscribe(0, UA_TO_DEN))
    sends = ask(broker, ALICE, Cancel(AIRLINE))
    assert said(sends) == [("s1", "Unsubscribe"), ("s2", "Subscribe"), ("s2", "Unsubscribe")]
    assert broker.forwards(UA_TO_DEN) == [TWO]


def test_cancel_ends_all_that_it_covers_and_carves_no_hole() -> None:
    broker = broker_with(ALICE, BOB, ONE)
    ask(broker, ALICE, Subscribe(0, UA_TO_DEN), Subscribe(1, UA_FROM_DEN))
    ask(broker, BOB, Subscribe(0, AIRLINE))
    ask(broker, ALICE, Cancel(UA))
    ask(broker, BOB, Cancel(UA))
    assert list(broker.poset()) == [AIRLINE]


def test_a_wider_subscription_of_one_client_replaces_narrower_ones_for_good() -> None:
    broker = broker_with(ALICE, ONE)
    ask(broker, ALICE, Subscribe(0, UA_TO_DEN))
    ask(broker, ALICE, Subscribe(1, AIRLINE))
    assert list(broker.poset()) == [AIRLINE]
    ask(broker, ALICE, Unsubscribe(1))
    assert list(broker.poset()) == []


def test_a_new_neighbour_is_sent_the_roots_in_one_message() -> None:
    broker = broker_with(ALICE, BOB)
    ask(broker, ALICE, Subscribe(0, AIRLINE))
    ask(broker, BOB, Subscribe(0, UA), Subscribe(1, parse("price > 3")))
    (send,) = broker.attach(ONE)
    assert isinstance(send.message, Batch)
    assert send.message.fresh
    assert [each.filter for each in send.message.requests if isinstance(each, Subscribe)] == [
        AIRLINE,
        parse("price > 3"),
    ]


def test_a_neighbour_that_leaves_takes_its_subscriptions_along() -> None:
    broker = broker_with(ALICE, ONE, TWO)
    ask(broker, ONE, Subscribe(0, UA))
    assert said(broker.detach(ONE)) == [("s2", "Unsubscribe")]
    assert list(broker.poset()) == []


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
    assert list(broker.poset()) == []


def test_the_first_batch_of_a_broker_is_fresh() -> None:
    broker = Acyclic("s0")
    broker.attach(ONE)
    with pytest.raises(IllegalMessage, match="must be fresh"):
        broker.receive(ONE, Batch((Subscribe(0, UA),)))


def test_a_covered_subscription_crosses_no_link() -> None:
    network = Network.of(line(4), Acyclic, seed=1)
    network.run()
    network.client("alice", "b1").subscribe(AIRLINE)
    network.run()
    before = network.costs.batches
    network.client("bob", "b1").subscribe(UA)
    network.run()
    assert network.costs.batches == before


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


@pytest.mark.parametrize("seed", SEEDS)
def test_storm(seed: int) -> None:
    Storm(seed, Acyclic).run()


def test_a_broker_without_parameters_sends_and_takes_no_update() -> None:
    broker = attached(Acyclic("s0", parametric=False), ALICE, ONE)
    ask(broker, ALICE, Subscribe(0, parse("a > :x"), {"x": 5}))
    sends = ask(broker, ALICE, Subscribe(1, parse("a > :x"), {"x": 7}), Unsubscribe(0))
    assert said(sends) == [("s1", "Subscribe"), ("s1", "Unsubscribe")]
    with pytest.raises(IllegalMessage, match="knows no Update"):
        ask(broker, ALICE, Update(1, {"x": 9}, 1))
