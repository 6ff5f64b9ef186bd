"""Networks are connected, hierarchies are trees of shortest ways, and messages take their time."""

from __future__ import annotations

import pytest

from palio.routing.source_trees import SourceTrees
from palio.simulation import Randomness
from palio.simulation.shortcuts import Price
from palio.simulation.shortened import Shortened
from palio_studies.proxy_network import KINDS, ProxyNetwork, proxy_network

TRIANGLE = ProxyNetwork(
    ("b1", "b2", "b3"),
    {("b1", "b2"): 10, ("b2", "b3"): 10, ("b1", "b3"): 50},
    "b1",
    {"b2": "b1", "b3": "b2"},
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_site_has_a_way_to_the_root_as_short_as_can_be(kind: str) -> None:
    drawn = proxy_network(kind, 28, Randomness(1))
    distances = drawn.distances()
    assert len(drawn.sites) == {"grid": 25}.get(kind, 28)
    assert set(drawn.parents) == set(drawn.sites) - {drawn.root}
    for site in drawn.parents:
        length, at = 0, site
        while at != drawn.root:
            above = drawn.parents[at]
            length += drawn.graph[at][above]
            at = above
        assert length == distances[drawn.root][site]


def test_the_same_seed_draws_the_same_network() -> None:
    one, same, other = (proxy_network("random", 20, Randomness(seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_brokers_find_the_hierarchy_that_is_given_where_links_are_left_for_shortcuts() -> None:
    drawn = proxy_network("grid", 16, Randomness(1))
    network = drawn.shortened(Price())
    for router in network.routers.values():
        assert isinstance(router, Shortened)
        assert router.root == drawn.root
        assert router.parents() == drawn.parents


def test_a_way_has_the_links_of_the_shortest() -> None:
    assert [each.latency_ms for each in TRIANGLE.way("b1", "b3")] == [10, 10]
    assert TRIANGLE.way("b1", "b1") == []


@pytest.mark.parametrize("has_mesh", [True, False])
def test_an_event_takes_as_long_as_the_links_on_its_way(has_mesh: bool) -> None:
    network = TRIANGLE.mesh(SourceTrees) if has_mesh else TRIANGLE.hierarchy()
    receiver = network.client("r", "b3")
    receiver.subscribe("x = 1")
    network.run()
    began = network.now_ms
    network.client("s", "b1").publish({"x": 1})
    network.run()
    assert [each.time_us / 1000 - began for each in receiver.received] == [20]
