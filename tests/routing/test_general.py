"""General graphs: a tree for any graph, repaired when links or brokers fail."""

from __future__ import annotations

from functools import partial

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.advertised import Advertised
from palio.routing.general import General
from palio.routing.messages import Batch, Join, LinkState, Subscribe
from palio.routing.protocol import IllegalMessage, Peer
from palio.routing.trees import spanning_tree
from palio.simulation import Network, Randomness, Topology, connected_random, grid, ring
from tests.routing.helpers import ALICE, ONE, parse
from tests.routing.scenarios import Storm
from tests.routing.seeds import SEEDS

GRAPHS = [ring(6), grid(3, 3), connected_random(12, 12, Randomness(3))]


def tree_of(network: Network) -> set[frozenset[tuple[str, str]]]:
    found = set()
    for router in network.routers.values():
        assert isinstance(router, General)
        found.add(router.tree)
    return found


@pytest.mark.parametrize("topology", GRAPHS)
def test_all_agree_on_one_tree(topology: Topology) -> None:
    network = Network.of(topology, General, seed=1)
    network.run()
    (tree,) = tree_of(network)
    assert Topology(topology.brokers, tuple(sorted(tree))).is_tree


def survivors_are_served(network: Network) -> None:
    """Every client hears every other one, once."""
    for client in network.clients.values():
        client.subscribe("a = 1")
    network.run()
    for client in network.clients.values():
        before = {each.name: len(each.received) for each in network.clients.values()}
        client.publish({"a": 1})
        network.run()
        for each in network.clients.values():
            assert len(each.received) - before[each.name] == (each is not client)


def is_two_connected_without(topology: Topology, gone: tuple[str, str] | str) -> bool:
    kept = [edge for edge in topology.edges if edge != gone and gone not in edge]
    brokers = [each for each in topology.brokers if each != gone]
    graph: dict[str, dict[str, int]] = {each: {} for each in brokers}
    for one, other in kept:
        graph[one][other] = graph[other][one] = 1
    return len(spanning_tree(graph, (), brokers[0])) == len(brokers) - 1


@pytest.mark.parametrize("topology", GRAPHS)
def test_any_link_may_fail_and_return(topology: Topology) -> None:
    for edge in topology.edges:
        if not is_two_connected_without(topology, edge):
            continue
        network = Network.of(topology, General, seed=1)
        for broker in topology.brokers:
            network.client(f"at-{broker}", broker)
        network.run()
        network.cut(*edge)
        network.run()
        survivors_are_served(network)
        network.heal(*edge)
        network.run()
        assert len(tree_of(network)) == 1
        survivors_are_served(network)


@pytest.mark.parametrize("topology", GRAPHS)
def test_any_broker_may_crash_and_restart(topology: Topology) -> None:
    for broker in topology.brokers:
        if not is_two_connected_without(topology, broker):
            continue
        network = Network.of(topology, General, seed=1)
        for each in topology.brokers:
            network.client(f"at-{each}", each)
        network.run()
        network.crash(broker)
        network.run()
        survivors_are_served(network)
        network.restart(broker)
        network.client("back", broker)
        network.run()
        assert len(tree_of(network)) == 1
        survivors_are_served(network)


def test_a_partition_leaves_two_working_halves() -> None:
    network = Network.of(ring(6), General, seed=1)
    near, far = network.client("near", "b1"), network.client("far", "b4")
    other = network.client("other", "b3")
    for client in (near, far, other):
        client.subscribe("a = 1")
    network.run()
    crossing = network.partition({"b3", "b4", "b5"})
    network.run()
    far.publish({"a": 1})
    network.run()
    assert (len(near.received), len(other.received)) == (0, 1)
    for ends in crossing:
        network.heal(*ends)
    network.run()
    far.publish({"a": 1})
    network.run()
    assert (len(near.received), len(other.received)) == (1, 2)


def test_an_event_that_was_seen_goes_nowhere() -> None:
    broker = General("b1")
    broker.attach(ALICE)
    bob = Peer.client("bob")
    broker.attach(bob)
    broker.receive(bob, Batch(()))
    events = RowParcel("alice", [{"a": 1}])
    broker.route(ALICE, events)
    assert broker.route(ALICE, events) == {}


def test_illegal_messages() -> None:
    broker = General("b1")
    broker.attach(ONE)
    with pytest.raises(IllegalMessage, match="not in the tree"):
        broker.receive(ONE, Batch((), fresh=True))
    with pytest.raises(IllegalMessage, match="not attached"):
        broker.receive(Peer.broker("s9"), LinkState("s9", 1, ()))
    broker.receive(ONE, Join())
    with pytest.raises(IllegalMessage, match="joined the link twice"):
        broker.receive(ONE, Join())


@pytest.mark.parametrize("seed", SEEDS)
def test_storm(seed: int) -> None:
    Storm(seed, General, graph=True).run()


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_storm_with_advertisements(seed: int) -> None:
    Storm(seed, partial(General, inner=Advertised), graph=True).run()


@pytest.mark.parametrize(("publishers", "is_remembered"), [(2, True), (3, True), (4, False)])
def test_publishers_are_remembered_up_to_a_limit(
    publishers: int, is_remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.routing.graphs.MAX_PUBLISHERS", 3)
    broker = General("b1")
    broker.attach(ALICE)
    bob = Peer.client("bob")
    broker.attach(bob)
    broker.receive(bob, Batch((Subscribe(0, parse("a = 1")),)))
    for number in range(publishers):
        broker.route(ALICE, RowParcel(f"p{number}", [{"a": 1}]))
    again = broker.route(ALICE, RowParcel("p0", [{"a": 1}]))
    assert (again == {}) == is_remembered


def test_a_publisher_that_starts_anew_is_heard() -> None:
    network = Network.of(ring(4), General, seed=1)
    alice, bob = network.client("alice", "b1"), network.client("bob", "b3")
    alice.subscribe("a = 1")
    network.run()
    bob.publish({"a": 1}, {"a": 1})
    network.run()
    network.leave(bob)
    network.client("bob", "b2").publish({"a": 1})
    network.run()
    assert [each.seq for each in alice.received] == [0, 1, 0]
