"""General graphs: a tree for any graph, repaired when links or brokers fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.general import General
from palio.routing.messages import (
    Batch,
    Join,
    LinkState,
    Subscribe,
    TreePlan,
)
from palio.routing.protocol import IllegalMessage, Peer, Router
from palio.routing.proxies import Proxies
from palio.routing.source_trees import SourceTrees
from palio.routing.trees import spanning_tree
from palio.simulation import Network, Randomness, Topology, connected_random, grid, line, ring
from tests.routing.helpers import ALICE, ONE, parse
from tests.routing.scenarios import check_ranks

GRAPHS = [ring(6), grid(3, 3), connected_random(12, 12, Randomness(3))]


def tree_of(network: Network) -> set[frozenset[tuple[str, str]]]:
    return {router.tree for router in network.routers.values() if isinstance(router, General)}


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


def inhabited(topology: Topology, make: Callable[[str], Router]) -> Network:
    """A network with a client at each broker."""
    network = Network.of(topology, make, seed=1)
    for broker in topology.brokers:
        network.client(f"at-{broker}", broker)
    network.run()
    return network


@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("make", [General, SourceTrees])
def test_any_link_may_fail_and_return(topology: Topology, make: Callable[[str], Router]) -> None:
    for edge in topology.edges:
        if not is_two_connected_without(topology, edge):
            continue
        network = inhabited(topology, make)
        network.cut(*edge)
        network.run()
        survivors_are_served(network)
        network.heal(*edge)
        network.run()
        assert len(tree_of(network)) == (make is General)
        survivors_are_served(network)


@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("make", [General, SourceTrees])
def test_any_broker_may_crash_and_restart(
    topology: Topology, make: Callable[[str], Router]
) -> None:
    for broker in topology.brokers:
        if not is_two_connected_without(topology, broker):
            continue
        network = inhabited(topology, make)
        network.crash(broker)
        network.run()
        survivors_are_served(network)
        network.restart(broker)
        network.client("back", broker)
        network.run()
        assert len(tree_of(network)) == (make is General)
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
    broker.receive(bob, Batch((Subscribe(0, parse("a = 1")),)))
    events = RowParcel("alice", [{"a": 1}])
    assert list(broker.route(ALICE, events)) == [bob]
    assert broker.route(ALICE, events) == {}


def between(plan: TreePlan) -> tuple[General, Peer, Peer]:
    """Of a line b, c, d the middle, which is linked to `b` in the tree; and the plan comes next."""
    broker, near, far = General("c"), Peer.broker("b"), Peer.broker("d")
    for peer in (near, far):
        broker.attach(peer)
        broker.receive(peer, LinkState(peer.name, 1, ("c",)))
    broker.receive(near, TreePlan("b", 1, (("b", "c"),)))
    broker.receive(near, Join())
    broker.receive(near, Batch((), fresh=True))
    broker.receive(near, plan)
    return broker, near, far


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


# --- a hierarchy over any graph ---


def proxy(name: str) -> General:
    return General(name, Proxies)


def below(name: str) -> General:
    """One that is not to be the root, unless it is b1."""
    broker = proxy(name)
    broker.has_parent = name != "b1"
    return broker


def inner(broker: General) -> Proxies:
    assert isinstance(broker.inner, Proxies)
    return broker.inner


@pytest.mark.parametrize(("make", "upward"), [(proxy, None), (General, True), (General, False)])
def test_who_joins_says_who_is_above_in_a_hierarchy_only(
    make: Callable[[str], General], upward: bool | None
) -> None:
    broker = make("b1")
    broker.attach(ONE)
    with pytest.raises(IllegalMessage, match="rank"):
        broker.receive(ONE, Join(upward=upward))


@pytest.mark.parametrize("topology", GRAPHS)
def test_without_its_root_a_hierarchy_has_another(topology: Topology) -> None:
    """It stays when the first one is back, unless that has no parent and all others have one."""
    for make, returns in ((proxy, False), (below, True)):
        network = Network.of(topology, make, seed=1)
        for each in topology.brokers:
            network.client(f"at-{each}", each)
        network.run()
        (root,) = (name for name, above in check_ranks(network).items() if not above)
        network.crash(root)
        network.run()
        survivors_are_served(network)
        (other,) = {r.root for r in network.routers.values() if isinstance(r, General)} - {root}
        network.restart(root)
        network.client("back", root)
        network.run()
        masters = check_ranks(network)
        assert [each for each in masters if not masters[each]] == [root if returns else other]
        survivors_are_served(network)


def test_two_halves_with_a_root_each_meet_and_nobody_misses_an_event() -> None:
    network = Network.of(line(8), proxy, seed=2)
    network.run()
    network.cut("b4", "b5")
    clients = [network.client(f"at-{each}", each) for each in network.routers]
    for client in clients:
        client.subscribe("a = 1")
    network.run()
    roots = {router.root for router in network.routers.values() if isinstance(router, General)}
    assert len(roots) == 2
    network.after(30.0, partial(network.heal, "b4", "b5"))
    for step in range(64):
        network.after(5.0 * step, partial(clients[step % 8].publish, {"a": 1}))
    network.run()
    assert len({above for above in check_ranks(network).values() if not above}) == 1
    for half in (clients[:4], clients[4:]):
        names = {each.name for each in half}
        for client in half:
            heard = [each for each in client.received if each.publisher in names - {client.name}]
            assert len(heard) == 3 * 8
    survivors_are_served(network)
