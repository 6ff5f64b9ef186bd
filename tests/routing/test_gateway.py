"""Gateways: a mesh of hierarchies, and hierarchies of trees."""

from __future__ import annotations

from functools import partial

from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.gateway import Gateway
from palio.routing.general import General
from palio.routing.protocol import Peer, Router
from palio.simulation import Topology
from palio_studies.simulator import Network

GATEWAYS = ("b1", "b2", "b3")


def is_gateway(peer: Peer) -> bool:
    return peer.name in GATEWAYS


def mesh_of_hierarchies(name: str, outside: type[Acyclic | General] = General) -> Router:
    if name not in GATEWAYS:
        return Hierarchical(name)
    return Gateway(name, Hierarchical, outside, is_gateway)


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
