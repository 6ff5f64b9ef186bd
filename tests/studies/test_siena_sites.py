"""Architectures lie on the sites: prices, the tree, ways to the middle."""

from __future__ import annotations

import pytest

from palio.simulation.randomness import Randomness
from palio_studies.siena_sites import Architecture, Sites, lay
from palio_studies.simulator.site_networks import SiteNetwork, draw_sites

TRIANGLE = SiteNetwork(4, 2, ((0, 1), (0, 2), (1, 2), (2, 3)), (5, 2, 2, 7))
"""b1 and b2 are transit sites; between them the way by b3 is shorter than the link."""


def test_the_tree_has_the_shortest_ways_from_a_transit_site() -> None:
    sites = Sites(TRIANGLE)
    assert sites.centre == "b1"
    assert sites.tree == [("b1", "b3"), ("b3", "b2"), ("b3", "b4")]
    assert sites.way("b4") == [("b4", "b3"), ("b3", "b1")]
    assert sites.way("b1") == []


@pytest.mark.parametrize("architecture", list(Architecture))
def test_each_architecture_delivers_to_who_asked_and_pays_for_links(
    architecture: Architecture,
) -> None:
    sites = Sites(draw_sites(Randomness(1), stubs=1, stub_size=3))
    network = lay(architecture, sites, seed=1)
    if architecture is Architecture.CENTRALIZED:
        assert list(network.routers) == [sites.centre]
        return
    alice, bob = network.client("alice", "b16"), network.client("bob", "b8")
    alice.subscribe("kind = 1")
    bob.advertise("kind >= 1")
    network.run()
    before = network.costs.priced
    bob.publish({"kind": 1}, {"kind": 2})
    network.run()
    assert [each.event["kind"] for each in alice.received] == [1]
    assert network.costs.priced > before


def test_the_general_architecture_has_all_links_and_the_hierarchy_those_of_the_tree() -> None:
    sites = Sites(TRIANGLE)
    assert len(lay(Architecture.HIERARCHICAL, sites, seed=1).routers) == 4
    priced = {}
    for architecture in (Architecture.SOURCES, Architecture.ACYCLIC):
        network = lay(architecture, sites, seed=1)
        alice, bob = network.client("alice", "b2"), network.client("bob", "b3")
        alice.subscribe("kind = 1")
        network.run()
        before = network.costs.priced
        bob.publish({"kind": 1})
        network.run()
        priced[architecture] = network.costs.priced - before
    assert priced == {Architecture.SOURCES: 2, Architecture.ACYCLIC: 2}
