"""Subscription forwarding up a hierarchy: the worked examples of siena 5.1, and storms."""

from __future__ import annotations

from palio.routing.acyclic import Hierarchical
from palio.routing.messages import Batch, Cancel, Subscribe
from palio.routing.protocol import Peer
from palio.simulation import tree
from palio_studies.simulator import Network
from tests.routing.helpers import (
    AIRLINE,
    ALICE,
    BOB,
    MASTER,
    UA,
    UA_TO_DEN,
    ask,
    attached,
    filters,
    said,
)


def server(*peers: Peer) -> Hierarchical:
    return attached(Hierarchical("s1"), MASTER, *peers)


def test_example_of_siena_5_1_subscriptions() -> None:
    """A root goes up, what it covers does not; a wider one goes up and replaces its own."""
    broker = server(ALICE, BOB)
    assert said(ask(broker, ALICE, Subscribe(0, UA))) == [("s0", "Subscribe")]
    assert ask(broker, BOB, Subscribe(0, UA_TO_DEN)) == []
    assert said(ask(broker, ALICE, Subscribe(1, AIRLINE))) == [
        ("s0", "Subscribe"),
        ("s0", "Unsubscribe"),
    ]
    assert filters(broker) == ["airline = 'UA' AND dest = 'DEN'", "airline IS NOT NULL"]


def test_example_of_siena_5_1_unsubscription() -> None:
    """The root is cancelled: the master is told so, and told of the root below it."""
    broker = server(ALICE, BOB)
    ask(broker, ALICE, Subscribe(0, AIRLINE))
    ask(broker, BOB, Subscribe(0, UA_TO_DEN))
    (send,) = ask(broker, ALICE, Cancel(AIRLINE))
    assert said([send]) == [("s0", "Subscribe"), ("s0", "Unsubscribe")]
    assert isinstance(send.message, Batch)
    assert send.message.requests[0] == Subscribe(1, UA_TO_DEN)


def test_servers_below_are_told_nothing() -> None:
    broker = server(Peer.broker("s2"), Peer.broker("s3"))
    assert said(ask(broker, Peer.broker("s2"), Subscribe(0, UA))) == [("s0", "Subscribe")]


def test_every_event_goes_up_whoever_wants_it() -> None:
    network = Network.of(tree(7), Hierarchical, seed=1)
    publisher = network.client("publisher", "b7")
    neighbour = network.client("neighbour", "b6")
    network.run()
    publisher.publish({"a": 1})
    network.run()
    assert network.costs.notifications == 2  # b7 to b3 to b1
    neighbour.subscribe("a = 1")
    network.run()
    publisher.publish({"a": 1})
    network.run()
    assert network.costs.notifications == 5  # and b3 to b6
    assert len(neighbour.received) == 1
