"""Gateways: a mesh of hierarchies, and hierarchies of trees."""

from __future__ import annotations

from functools import partial

import pytest

from palio.routing.acyclic import Acyclic
from palio.routing.gateway import Gateway
from palio.routing.general import General
from palio.routing.hierarchical import Hierarchical
from palio.routing.protocol import Peer, Role, Router
from palio.simulation import Network, Topology
from tests.routing.scenarios import Storm
from tests.routing.seeds import SEEDS

GATEWAYS = ("b1", "b2", "b3")


def is_gateway(peer: Peer) -> bool:
    return peer.name in GATEWAYS


def mesh_of_hierarchies(name: str, outside: type[Acyclic | General] = General) -> Router:
    if name not in GATEWAYS:
        return Hierarchical(name)
    return Gateway(name, Hierarchical, outside, is_gateway)


def hierarchy_of_trees(name: str) -> Router:
    """b1 is the root of a hierarchy of the gateways; below each gateway is a tree of peers."""
    if name not in GATEWAYS:
        return Acyclic(name)
    return Gateway(name, Acyclic, Hierarchical, is_gateway, top=Role.SIDE)


class HybridStorm(Storm):
    """Three gateways in a ring (or below the first), all other brokers somewhere below them."""

    def _topology(self, size: int, graph: bool) -> Topology:
        mesh = [("b1", "b2"), ("b1", "b3")] + ([("b2", "b3")] if graph else [])
        below = [
            (f"b{self.random.between(1, number - 1)}", f"b{number}")
            for number in range(4, size + 4)
        ]
        return Topology(tuple(f"b{each + 1}" for each in range(size + 3)), tuple(mesh + below))

    def fault(self) -> None:
        self.network.cut("b2", "b3")
        self.faults.append(lambda: self.network.heal("b2", "b3"))


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_storm_over_a_mesh_of_hierarchies(seed: int) -> None:
    HybridStorm(seed, mesh_of_hierarchies, graph=True).run()


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_storm_over_hierarchies_in_a_tree(seed: int) -> None:
    HybridStorm(seed, partial(mesh_of_hierarchies, outside=Acyclic)).run()


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_storm_over_a_hierarchy_of_trees(seed: int) -> None:
    HybridStorm(seed, hierarchy_of_trees).run()


def test_only_roots_of_a_hierarchy_are_told_outside() -> None:
    network = Network.of(
        Topology(("b1", "b2", "b4", "b5"), (("b1", "b2"), ("b2", "b4"), ("b2", "b5"))),
        partial(mesh_of_hierarchies, outside=Acyclic),
        seed=1,
    )
    network.client("wide", "b4").subscribe("a > 1")
    network.client("narrow", "b5").subscribe("a > 5")
    network.run()
    assert network.costs.subscribes == 3  # b4 to b2, b5 to b2, b2 to b1
    publisher = network.client("publisher", "b1")
    publisher.publish({"a": 0}, {"a": 3})
    network.run()
    assert network.costs.notifications == 2  # the second one, b1 to b2 and b2 to b4
