"""Source trees: shortest paths on any graph, and whatever fails, the rest is served."""

from __future__ import annotations

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.messages import Batch, Flood, LinkState, Settled, Subscribe
from palio.routing.protocol import IllegalMessage
from palio.routing.source_trees import SourceTrees
from palio.simulation import Network, Topology, ring
from tests.routing.helpers import ALICE, ONE, UA
from tests.routing.scenarios import Storm
from tests.routing.seeds import SEEDS
from tests.routing.test_general import GRAPHS, is_two_connected_without, survivors_are_served


def network_of(topology: Topology) -> Network:
    network = Network.of(topology, SourceTrees, seed=1)
    for broker in topology.brokers:
        network.client(f"at-{broker}", broker)
    network.run()
    return network


def test_events_take_the_shortest_path() -> None:
    network = Network.of(ring(6), SourceTrees, seed=1)
    bob = network.client("bob", "b6")
    network.client("alice", "b1").subscribe("a = 1")
    network.run()
    bob.publish({"a": 1}, {"a": 2})
    network.run()
    assert network.costs.notifications == 1


@pytest.mark.parametrize("topology", GRAPHS)
def test_any_link_may_fail_and_return(topology: Topology) -> None:
    for edge in topology.edges:
        if not is_two_connected_without(topology, edge):
            continue
        network = network_of(topology)
        network.cut(*edge)
        network.run()
        survivors_are_served(network)
        network.heal(*edge)
        network.run()
        survivors_are_served(network)


@pytest.mark.parametrize("topology", GRAPHS)
def test_any_broker_may_crash_and_restart(topology: Topology) -> None:
    for broker in topology.brokers:
        if not is_two_connected_without(topology, broker):
            continue
        network = network_of(topology)
        network.crash(broker)
        network.run()
        survivors_are_served(network)
        network.restart(broker)
        network.client("back", broker)
        network.run()
        survivors_are_served(network)


def test_a_wave_is_answered_when_all_know() -> None:
    network = network_of(ring(5))
    alice = network.client("alice", "b1")
    alice.subscribe("a = 1", wave=True)
    assert alice.settled == {}
    network.run()
    assert alice.settled == {0: ()}


def test_the_broker_of_a_publisher_knows_every_destination() -> None:
    network = Network.of(ring(4), SourceTrees, seed=1)
    network.client("x", "b2").subscribe("a > 1")
    network.client("y", "b3").subscribe("a > 5")
    network.run()
    router = network.routers["b1"]
    assert isinstance(router, SourceTrees)
    found = router.destinations(RowParcel("p", [{"a": 3}, {"a": 9}]))
    assert {name: mask.tolist() for name, mask in found.items()} == {
        "b2": [True, True],
        "b3": [False, True],
    }


def test_events_from_another_direction_than_their_source_go_nowhere() -> None:
    broker = SourceTrees("s0")
    for peer in (ALICE, ONE):
        broker.attach(peer)
    broker.receive(ALICE, Batch((Subscribe(0, UA),)))
    row = {"airline": "UA"}
    assert broker.route(ONE, RowParcel("p", [row], seqs=(0,), source="s9")) == {}
    assert broker.route(ONE, RowParcel("p", [row], seqs=(0,))) == {}
    broker.receive(ONE, LinkState("s1", 1, ("s0",)))
    assert list(broker.route(ONE, RowParcel("p", [row], seqs=(0,), source="s1"))) == [ALICE]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Flood("s9", (), version=3), "never introduced"),
        (Flood("s1", (), version=3), "follows 0"),
        (Settled(7), "not open"),
        (Batch(()), "no meaning"),
    ],
)
def test_an_illegal_message_changes_nothing(message: Flood | Settled | Batch, reason: str) -> None:
    broker = SourceTrees("s0")
    broker.attach(ONE)
    broker.receive(ONE, Flood("s1", (), fresh=True))
    with pytest.raises(IllegalMessage, match=reason):
        broker.receive(ONE, message)
    assert broker.destinations(RowParcel("p", [{"a": 1}])) == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_storm(seed: int) -> None:
    Storm(seed, SourceTrees, graph=True).run()
