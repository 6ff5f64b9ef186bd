"""Links that the routing has no meaning for are refused, and both ends are told why."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from palio.node.settings import Outside, Settings
from palio.protocol.messages import Advertise
from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.algorithms import ALGORITHMS, find_algorithm
from palio.routing.gateway import Gateway
from palio.routing.protocol import Router
from palio.simulation.world import World
from tests.campaign.plays import SETTINGS


def _world(routings: dict[str, str]) -> World:
    """Brokers without links, each of an algorithm."""
    world = World(settings=SETTINGS)
    for name, routing in routings.items():
        world.settings = _settings(routing)
        world.add_broker(name, find_algorithm(routing).new)
    return world


def _settings(routing: str) -> Settings:
    return replace(SETTINGS, routing=routing)


def _reasons(world: World) -> list[str]:
    return [str(report.details.get("reason")) for _, report in world.reports]


@pytest.mark.parametrize("dialer", ["b1", "b2"])
def test_brokers_of_two_algorithms_do_not_link(dialer: str) -> None:
    world = _world({"b1": "acyclic", "b2": "general"})
    world.connect(dialer, "b2" if dialer == "b1" else "b1")
    world.run(1.0)
    assert not world.nodes["b1"].status()["peers"]
    assert not world.nodes["b2"].status()["peers"]
    assert any("put a gateway between them" in reason for reason in _reasons(world))


def test_a_centralized_broker_has_no_neighbours() -> None:
    world = _world({"b1": "centralized", "b2": "centralized"})
    world.connect("b1", "b2")
    world.run(1.0)
    assert not world.nodes["b1"].status()["peers"]
    assert any("has no neighbours; connect clients to it" in each for each in _reasons(world))


@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ({"b2": "b1"}, ""),
        ({"b2": "bb1"}, "of 'b1' and 'b2' neither is"),
        ({}, "of 'b1' and 'b2' neither is"),
        ({"b1": "b2", "b2": "b1"}, "of 'b1' and 'b2' each is"),
    ],
)
def test_of_two_brokers_of_a_hierarchy_one_is_above(parents: dict[str, str], problem: str) -> None:
    algorithm = find_algorithm("hierarchical")
    world = World(settings=_settings("hierarchical"))
    for name in ("b1", "b2"):
        new = partial(algorithm.new, has_parent=name in parents)
        world.add_broker(name, new, parents.get(name, ""))
    world.connect("b2", "b1")
    world.run(1.0)
    linked = ["b2"] if not problem else []
    assert list(world.nodes["b1"].status()["peers"]) == linked
    assert any(problem in reason for reason in _reasons(world)) or not problem


@pytest.mark.parametrize("routing", ["acyclic", "advertised", "flooded"])
def test_a_link_that_would_close_a_circle_is_refused(routing: str) -> None:
    world = _world(dict.fromkeys(("b1", "b2", "b3"), routing))
    world.connect("b1", "b2")
    world.connect("b2", "b3")
    world.run(2.0)
    world.connect("b3", "b1")
    world.run(2.0)
    assert set(world.nodes["b3"].status()["peers"]) == {"b2"}
    assert any("would close a circle" in reason for reason in _reasons(world))
    heard = world.client("heard", "b1")
    heard.subscribe("x > 0")
    world.run(1.0)
    said = world.client("said", "b3")
    if routing == "advertised":
        said.ask(lambda id: Advertise(id, 1, "x > 0"))
        world.run(1.0)
    said.publish({"x": 1})
    world.run(1.0)
    assert [event for _, _, event in heard.heard] == [{"x": 1}]


def test_links_made_at_once_that_close_a_circle_part_again() -> None:
    """When a broker dials two at a time, neither knows yet of the other link."""
    world = _world(dict.fromkeys(("b1", "b2", "b3"), "acyclic"))
    world.connect("b1", "b2")
    world.run(2.0)
    world.connect("b3", "b1")
    world.connect("b3", "b2")
    world.run(5.0)
    peers = {name: set(node.status()["peers"]) for name, node in world.nodes.items()}
    assert peers == {"b1": {"b2", "b3"}, "b2": {"b1"}, "b3": {"b1"}}
    assert any("would close a circle" in reason for reason in _reasons(world))


def test_a_link_of_a_tree_that_broke_is_made_again() -> None:
    """What others still say of it is no circle."""
    world = _world(dict.fromkeys(("b1", "b2", "b3"), "acyclic"))
    world.connect("b1", "b2")
    world.connect("b3", "b2")
    world.run(2.0)
    for _ in range(3):
        world.kill("b2")
        world.run(0.5)
        world.start("b2")
        world.run(3.0)
        assert set(world.nodes["b2"].status()["peers"]) == {"b1", "b3"}


def test_a_gateway_is_greeted_on_both_sides_by_their_algorithms() -> None:
    world = _world({"leaf": "hierarchical"})
    world.kill("leaf")
    world.settings = _settings("hierarchical")
    world.install("leaf", Hierarchical, world.disks["leaf"], "gate")
    world.start("leaf")
    world.add_broker("gate", _gateway, outside=Outside("acyclic", frozenset({"mesh"})))
    world.settings = _settings("acyclic")
    world.add_broker("mesh", Acyclic)
    world.connect("leaf", "gate")
    world.connect("gate", "mesh")
    world.run(2.0)
    assert set(world.nodes["gate"].status()["peers"]) == {"leaf", "mesh"}
    ends = {name: world.client(f"at-{name}", name) for name in ("leaf", "gate", "mesh")}
    for member in ends.values():
        member.subscribe("x > 0")
    world.run(1.0)
    for number, member in enumerate(ends.values(), 1):
        member.publish({"x": number})
        world.run(1.0)
    for member in ends.values():
        assert [event["x"] for _, _, event in member.heard] == [1, 2, 3]


def _gateway(name: str) -> Router:
    return Gateway(name, Hierarchical, Acyclic, lambda peer: peer.name == "mesh")


def test_every_algorithm_links_to_its_like() -> None:
    for name, algorithm in ALGORITHMS.items():
        if name == "centralized":
            continue
        world = World(settings=_settings(name))
        world.add_broker("b1", partial(algorithm.new))
        world.add_broker("b2", algorithm.new, "b1" if algorithm.has_parents else "")
        world.connect("b1", "b2")
        world.run(1.0)
        assert set(world.nodes["b1"].status()["peers"]) == {"b2"}, name
