"""Networks are connected, hierarchies are trees of shortest ways, messages take their time; and
what is counted of a broker is what is in its tables.
"""

from __future__ import annotations

import pytest

from palio.routing.general import General
from palio.routing.messages import Flood
from palio.routing.source_trees import SourceTrees
from palio.simulation import Randomness, line
from palio_studies.proxy_network import (
    KINDS,
    FloodedState,
    ProxyNetwork,
    TableState,
    proxy_network,
    state_of,
)
from palio_studies.simulator import Network

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


def test_a_filter_is_one_entry_and_a_line_for_each_who_asks() -> None:
    network = Network.of(line(2), General)
    network.run()
    for name in ("alice", "bob"):
        network.client(name, "b1").subscribe("x = 1")
    network.client("carol", "b1").subscribe("x = 2")
    network.run()
    assert state_of(network.routers["b1"]) == TableState(entries=2, lines=3, tree_links=1)
    assert state_of(network.routers["b2"]) == TableState(entries=2, lines=2, tree_links=1)


def test_offers_of_a_hierarchy_count_where_they_are_known() -> None:
    network = ProxyNetwork(("b1", "b2"), {("b1", "b2"): 10}, "b1", {"b2": "b1"}).hierarchy()
    network.client("s", "b2").advertise("type = 't'")
    network.client("r", "b1").subscribe("type = 't'")
    network.run()
    assert state_of(network.routers["b1"]) == TableState(entries=1, lines=2)
    assert state_of(network.routers["b2"]) == TableState(entries=1, lines=2)


def test_summaries_are_counted_as_they_cross_links() -> None:
    network, flooded = Network.of(line(3), SourceTrees), FloodedState()
    network.run()
    network.on_crossing = lambda _, target, message: flooded.note(target, message)
    network.client("alice", "b1").subscribe("x = 1")
    network.client("bob", "b2").subscribe("x = 1")
    flooded.add("b1", "b1", "x = 1")
    network.run()
    assert flooded.of("b3") == TableState(entries=1, lines=2)
    assert flooded.of("b1") == TableState(entries=1, lines=2)
    assert flooded.of("elsewhere") == TableState(0, 0)
    flooded.note("b3", Flood("b1", (), fresh=True, version=1))
    assert flooded.of("b3").lines == 2
