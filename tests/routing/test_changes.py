"""The tree gives up a link for another, and no event is under way then."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import pytest

from palio.matching.protocol import RowMask
from palio.model.row_parcels import RowParcel
from palio.routing.advertised import Advertised
from palio.routing.changes import NOTHING, Change
from palio.routing.general import General
from palio.routing.messages import (
    LAST_ROUND,
    Batch,
    Control,
    Join,
    LinkState,
    Reached,
    Subscribe,
    TreePlan,
)
from palio.routing.protocol import IllegalMessage, Peer, Send
from palio.simulation import Randomness, Topology, connected_random, ring
from palio_studies.simulator import Link, Network
from palio_studies.simulator.clients import Client
from tests.conftest import NIGHTLY, seeds
from tests.routing.helpers import ALICE, parse

NETWORKS: Final = seeds(1, nightly=10)
LEAVES: Final = 10 if NIGHTLY else 3
"""Of each network; nightly all hundred of them."""

A, B, C = (Peer.broker(name) for name in "abc")
PLAN: Final = TreePlan("a", 2, (("a", "m"), ("b", "m"), ("c", "m")), calm=True)


# --- the rounds ---


def test_which_plan_may_wait_until_a_change_is_over() -> None:
    change = Change(PLAN, has_offers=False)
    assert change.is_compatible_with(PLAN)
    assert change.is_compatible_with(TreePlan("a", 3, ()))  # who made it has done all rounds
    assert change.is_compatible_with(TreePlan("0", 3, (*PLAN.links, ("0", "m"))))
    assert not change.is_compatible_with(TreePlan("0", 3, PLAN.links[1:]))
    assert not change.is_compatible_with(
        TreePlan("0", 3, PLAN.links, root="m")
    )  # links turn once more
    assert [change.round_of(Reached("a", version, 1)) for version in (1, 2, 3)] == [
        NOTHING,
        1,
        NOTHING,
    ]


# --- one broker ---


class Broker:
    """`m`, between `a`, which decides, and `b`; `c` is a neighbour beside the tree."""

    def __init__(self) -> None:
        self.router = General("m")
        for peer in (A, B, C):
            self.router.attach(peer)
        self.router.attach(ALICE)
        for peer in (A, B, C):
            self.hear(peer, LinkState(peer.name, 1, ("m",)))
        self.hear(A, TreePlan("a", 1, (("a", "m"), ("b", "m"))))
        for peer in (A, B):
            self.hear(peer, Join())
            self.hear(peer, Batch((Subscribe(0, parse("x = 1")),), fresh=True))
        self.exchange = TreePlan("a", 2, (("a", "m"), ("b", "c"), ("c", "m")), calm=True)

    def hear(self, peer: Peer, message: Control) -> list[Send]:
        return self.router.receive(peer, message)

    def holds(self) -> bool:
        return self.router.is_changing and self.router.holds(ALICE)

    def ways(self, sender: Peer, number: int = 0) -> dict[Peer, RowMask]:
        return self.router.route(sender, RowParcel("p", [{"x": 1}], first_seq=number))


def test_reached_is_illegal_on_a_link_that_is_not_in_use() -> None:
    with pytest.raises(IllegalMessage, match="not in the tree"):
        Broker().hear(C, Reached("a", 2, 0))


@pytest.mark.parametrize("number", [-1, 0, LAST_ROUND, LAST_ROUND + 1])
def test_there_are_only_so_many_rounds(number: int) -> None:
    data = {"type": "Reached", "origin": "a", "version": 1, "round": number}
    if 0 <= number <= LAST_ROUND:
        assert msgspec.convert(data, Reached).round == number
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(data, Reached)


def test_a_neighbour_to_whom_there_is_another_way_is_kept_until_the_tree_is_another() -> None:
    """Here `b` can be reached over `c`."""
    broker = Broker()
    broker.hear(C, LinkState("c", 2, ("b", "m")))
    broker.hear(C, LinkState("b", 2, ("c", "m")))
    broker.router.detach(B)
    assert list(broker.router.rerouted) == [B]
    assert set(broker.ways(A, 1)) == {B}
    broker.hear(A, broker.exchange)
    broker.hear(A, Reached("a", 2, 0))
    assert not broker.router.rerouted
    assert set(broker.ways(A, 2)) == set()


@pytest.mark.parametrize("end", ["it comes back", "it takes too long"])
def test_nor_is_it_kept_longer_than_that(end: str) -> None:
    broker = Broker()
    broker.hear(C, LinkState("c", 2, ("b", "m")))
    broker.hear(C, LinkState("b", 2, ("c", "m")))
    broker.router.detach(B)
    assert broker.router.is_changing
    if end == "it comes back":
        broker.router.attach(B)
    else:
        broker.router.give_up()
    assert not broker.router.rerouted
    assert not broker.router.is_changing


def test_a_neighbour_that_cannot_be_reached_is_not_kept() -> None:
    broker = Broker()
    broker.router.detach(B)
    assert not broker.router.rerouted


# --- whole networks ---


def tree_of(network: Network, broker: str) -> frozenset[tuple[str, str]]:
    router = network.routers[broker]
    assert isinstance(router, General)
    return router.tree


def load(network: Network, clients: list[Client], count: int) -> None:
    """An event every 5 ms, by one after the other."""
    for step in range(count):
        publisher = clients[step * 7 % len(clients)]
        network.after(5.0 * step, partial(publisher.publish, {"a": 1}))


def in_use(topology: Topology, gone: set[str], without: str) -> Topology:
    brokers = tuple(each for each in topology.brokers if each not in gone and each != without)
    edges = tuple(edge for edge in topology.edges if all(end in brokers for end in edge))
    return Topology(brokers, edges)


def all_heard(clients: list[Client], before: dict[str, int], published: int, seed: int) -> None:
    """All that the others published, once, in the order of each."""
    for client in clients:
        new = client.received[before[client.name] :]
        last: dict[str, int] = {}
        for each in new:
            assert each.seq > last.get(each.publisher, -1), f"seed {seed}"
            last[each.publisher] = each.seq
    heard = sum(len(each.received) - before[each.name] for each in clients)
    assert heard == published * (len(clients) - 1), f"seed {seed}"


@pytest.mark.parametrize("seed", NETWORKS)
@pytest.mark.parametrize("routing", [General, partial(General, inner=Advertised)])
def test_an_inner_broker_that_leaves_costs_nobody_an_event(
    seed: int, routing: partial[General]
) -> None:
    random = Randomness(seed)
    topology = connected_random(30, 20, random)
    network = Network.of(topology, routing, seed=seed, link=Link(latency_ms=10))
    clients = {name: network.client(f"at-{name}", name) for name in topology.brokers}
    for client in clients.values():
        client.advertise("a = 1")
        client.subscribe("a = 1")
    network.run()
    gone: set[str] = set()
    for _ in range(LEAVES):
        tree = tree_of(network, min(clients))
        inner = [
            each
            for each in sorted(clients)
            if sum(each in edge for edge in tree) > 1 and in_use(topology, gone, each).is_connected
        ]
        if not inner:  # none is left that the others can do without
            break
        broker = random.choice(inner)
        network.leave(clients.pop(broker))
        stay = list(clients.values())
        before = {each.name: len(each.received) for each in stay}
        load(network, stay, 200)
        network.run(network.now_ms + 100)
        network.avoid(broker)
        router = network.routers[broker]
        assert isinstance(router, General)
        while not router.is_in_order:
            network.run(network.now_ms + 10)
        assert sum(broker in edge for edge in router.tree) == 1
        network.crash(broker)
        gone.add(broker)
        network.run()
        all_heard(stay, before, 200, seed)
        assert tree_of(network, min(clients)) != tree
    assert len(gone) >= min(LEAVES, 3)


def test_a_link_that_is_to_go_costs_nobody_an_event() -> None:
    network = Network.of(ring(6), General, seed=1, link=Link(latency_ms=10))
    clients = [network.client(f"at-{name}", name) for name in network.routers]
    for client in clients:
        client.subscribe("a = 1")
    network.run()
    edge = min(tree_of(network, "b1"))
    before = {each.name: len(each.received) for each in clients}
    load(network, clients, 200)
    network.run(network.now_ms + 100)
    network.avoid(*edge)
    network.run()
    assert edge not in tree_of(network, "b1")
    network.cut(*edge)
    network.run()
    all_heard(clients, before, 200, seed=1)


@pytest.mark.parametrize("seed", NETWORKS)
def test_a_link_that_fails_costs_only_what_was_on_its_way(seed: int) -> None:
    """And those who published elsewhere, or listen on this side of it, nothing."""
    random = Randomness(seed)
    topology = connected_random(30, 20, random)
    network = Network.of(topology, General, seed=seed, link=Link(latency_ms=10))
    clients = [network.client(f"at-{name}", name) for name in topology.brokers]
    for client in clients:
        client.subscribe("a = 1")
    network.run()
    for _ in range(LEAVES):
        tree = tree_of(network, "b1")
        edge = random.choice(
            [
                each
                for each in sorted(tree)
                if Topology(
                    topology.brokers,
                    tuple(other for other in topology.edges if set(other) != set(each)),
                ).is_connected
            ]
        )
        before = {each.name: len(each.received) for each in clients}
        load(network, clients, 200)
        network.run(network.now_ms + 100)
        network.cut(*edge)
        network.run()
        heard = sum(len(each.received) - before[each.name] for each in clients)
        lost = 200 * (len(clients) - 1) - heard
        assert lost < 0.05 * 200 * (len(clients) - 1), f"seed {seed}"
        assert not any(
            router.is_changing for router in network.routers.values() if isinstance(router, General)
        )
        network.heal(*edge)
        network.run()
