"""What is counted is what is in the tables."""

from __future__ import annotations

from palio.routing.general import General
from palio.routing.messages import Flood
from palio.routing.source_trees import SourceTrees
from palio.simulation import Network, line
from palio.simulation.shortcuts import Price
from palio_studies.proxy_network import ProxyNetwork
from palio_studies.proxy_state import FloodedState, TableState, state_of


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


def test_what_a_shortcut_adds_counts_besides() -> None:
    links = {("b1", "b2"): 10, ("b1", "b3"): 10, ("b2", "b3"): 10}
    network = ProxyNetwork(("b1", "b2", "b3"), links, "b1", {"b2": "b1", "b3": "b1"}).shortened(
        Price(0.0, 0.0, 1.0)
    )
    network.client("s", "b2").advertise("type = 't'")
    network.client("r", "b3").subscribe("type = 't'")
    network.run()
    before = state_of(network.routers["b2"])
    network.look("b3")
    network.clients["s"].publish({"type": "t"})
    network.run(network.now_ms + 1_000)
    network.look("b3")
    network.run()
    after = state_of(network.routers["b2"])
    assert (after.entries, after.lines) == (before.entries + 1, before.lines + 1)


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
