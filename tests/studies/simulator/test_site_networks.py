"""Networks have the degrees and distances of the model, which is computed here another way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import comb, sqrt
from statistics import mean, stdev

import pytest

from palio.simulation.randomness import Randomness
from palio_studies.simulator.site_networks import (
    STUB_LINKED,
    TRANSIT_LINKED,
    SiteNetwork,
    draw_sites,
    transit_chance,
    transit_stub,
)

RUNS = 200


def networks(count: int = RUNS) -> Iterator[SiteNetwork]:
    for seed in range(count):
        yield draw_sites(Randomness(seed))


@cache
def connected_graphs(size: int, links: int) -> int:
    """How many labelled graphs are connected: all, less those where the part that the first site is
    in is smaller.
    """
    pairs = comb(size, 2)
    if not size - 1 <= links <= pairs:
        return int(size == 1 and links == 0)
    smaller = sum(
        comb(size - 1, part - 1)
        * sum(
            connected_graphs(part, inner) * comb(comb(size - part, 2), links - inner)
            for inner in range(links + 1)
        )
        for part in range(1, size)
    )
    return comb(pairs, links) - smaller


def expected_links(size: int, chance: float) -> float:
    """The mean number of links of a random graph, given that it is connected."""
    pairs = comb(size, 2)
    weights = [
        connected_graphs(size, links) * chance**links * (1 - chance) ** (pairs - links)
        for links in range(pairs + 1)
    ]
    return sum(links * weight for links, weight in enumerate(weights)) / sum(weights)


def agree(values: list[float], expected: float) -> bool:
    """Whether a mean differs by no more than four of its standard errors."""
    return abs(mean(values) - expected) < 4 * stdev(values) / sqrt(len(values))


def test_the_oracle_counts_connected_graphs() -> None:
    assert [sum(connected_graphs(n, k) for k in range(comb(n, 2) + 1)) for n in range(1, 6)] == [
        *(1, 1, 4, 38, 728)
    ]


def test_the_mean_degree_is_that_of_the_model() -> None:
    expected = 12 + expected_links(4, TRANSIT_LINKED) + 12 * expected_links(8, STUB_LINKED)
    assert agree([float(len(each.links)) for each in networks()], expected)
    assert not agree([float(len(each.links)) for each in networks()], expected + 6)


def test_transit_sites_have_three_stubs_and_the_links_of_a_dense_little_graph() -> None:
    for network in networks(20):
        degrees = [sum(site in link for link in network.links) for site in range(4)]
        assert all(4 <= degree <= 6 for degree in degrees)
        assert sum(min(link) < 4 <= max(link) for link in network.links) == 12


def test_distances_are_those_of_graphs_drawn_by_networkx() -> None:
    networkx = pytest.importorskip("networkx")

    def connected(size: int, chance: float, seed: int) -> object:
        while True:
            graph = networkx.gnp_random_graph(size, chance, seed=seed)
            if networkx.is_connected(graph):
                return graph
            seed += 1_000_003

    def composed(seed: int) -> object:
        whole = connected(4, TRANSIT_LINKED, seed)
        for place in range(12):
            stub = connected(8, STUB_LINKED, seed * 100 + place + 7)
            whole = networkx.disjoint_union(whole, stub)
            first = 4 + 8 * place
            whole.add_edge(place // 3, first + (seed + place) % 8)
        return whole

    def shape(graph: object) -> tuple[float, float]:
        return networkx.average_shortest_path_length(graph), float(networkx.diameter(graph))

    ours = [shape(networkx.Graph(each.links)) for each in networks(60)]
    theirs = [shape(composed(seed)) for seed in range(60)]
    for what in (0, 1):
        one, other = [each[what] for each in ours], [each[what] for each in theirs]
        error = sqrt((stdev(one) ** 2 + stdev(other) ** 2) / 60)
        assert abs(mean(one) - mean(other)) < 4 * error


def test_larger_networks_have_several_domains_and_are_connected() -> None:
    networkx = pytest.importorskip("networkx")
    network = draw_sites(Randomness(3), domains=4, transits=10)
    assert network.size == 1000
    assert network.transits == 40
    assert networkx.is_connected(networkx.Graph(network.links))
    assert len(set(network.links)) == len(network.links) == len(network.lengths)


def test_links_of_the_backbone_are_longer_than_those_of_a_stub() -> None:
    backbone: list[int] = []
    stubs: list[int] = []
    for network in networks(50):
        for link, length in zip(network.links, network.lengths, strict=True):
            if max(link) < 4:
                backbone.append(length)
            elif min(link) >= 4:
                stubs.append(length)
    assert mean(backbone) > 1.5 * mean(stubs)


@pytest.mark.parametrize("sites", [1, 2, 300])
def test_a_domain_of_any_size_is_drawn(sites: int) -> None:
    assert draw_sites(Randomness(1), transits=sites, stubs=1, stub_size=2).size == 3 * sites
    assert 0 < transit_chance(sites) <= TRANSIT_LINKED


def test_stubs_hang_on_by_one_link() -> None:
    topology = transit_stub(3, 2, 5, Randomness(2))
    assert len(topology.brokers) == 33
    assert topology.is_connected
    transits = {"b1", "b2", "b3"}
    entering = [edge for edge in topology.edges if len(transits & set(edge)) == 1]
    assert len(entering) == 6
