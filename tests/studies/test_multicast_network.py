"""The network of the multicast study."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from palio.routing.trees import edge_of, shortest_paths
from palio.simulation.randomness import Randomness
from palio_studies.multicast_network import BACKBONE, FRINGE, Extent, Wan, neighbour_graph

SMALL = Extent(transits=3, stubs=1, stub_size=5, publishers=2)


@cache
def small_wan(seed: int = 1) -> Wan:
    """Three stubs of five brokers, and two publishers."""
    return Wan(SMALL, Randomness(seed))


def walked(wan: Wan, root: int, members: list[int]) -> set[int]:
    """The links on the shortest ways from a broker to some others, one step at a time."""
    parents = shortest_paths(wan.graph, wan.brokers[root]).parents
    links = set()
    for member in members:
        node = wan.brokers[member]
        while node != wan.brokers[root]:
            links.add(wan.links.index(edge_of(node, parents[node])))
            node = parents[node]
    return links


def test_a_broker_hangs_on_one_fringe_link_and_stubs_on_no_backbone_link() -> None:
    wan = small_wan()
    for link, kind in zip(wan.links, wan.classes.tolist(), strict=True):
        brokers = [end for end in link if end in wan.brokers]
        assert len(brokers) == (kind == FRINGE)
        if kind == BACKBONE:
            assert all(int(end[1:]) <= SMALL.transits for end in link)
    assert int((wan.classes == FRINGE).sum()) == len(wan.brokers) == 17


def test_brokers_of_a_region_reach_each_other_without_the_backbone() -> None:
    wan = small_wan()
    for place in range(len(wan.brokers)):
        same = np.flatnonzero(wan.regions == wan.regions[place]).tolist()
        crossed = walked(wan, place, same)
        assert not any(wan.classes[link] == BACKBONE for link in crossed)


@pytest.mark.parametrize("root", [0, 5, 15, 16])
def test_a_send_crosses_each_link_on_the_way_to_its_members_once(root: int) -> None:
    wan = small_wan()
    members = np.random.default_rng(root).random((30, len(wan.brokers))) < 0.3
    crossed = wan.crossed(root, members)
    for row, places in zip(crossed, members, strict=True):
        assert set(np.flatnonzero(row).tolist()) == walked(
            wan, root, np.flatnonzero(places).tolist()
        )


def test_the_same_seed_draws_the_same_network_and_another_one_another() -> None:
    assert Wan(SMALL, Randomness(3)).graph == Wan(SMALL, Randomness(3)).graph
    assert Wan(SMALL, Randomness(3)).graph != Wan(SMALL, Randomness(4)).graph


@pytest.mark.parametrize("most", [14, 80, 400])
def test_neighbours_are_joined_and_have_no_more_groups_than_may_be(most: int) -> None:
    wan = small_wan()
    graph = neighbour_graph(wan.brokers, wan.latency_us, most)
    assert set(shortest_paths(graph, "s1").parents) == set(wan.brokers)
    groups = sum(2 ** len(near) - 1 for near in graph.values())
    lightest = neighbour_graph(wan.brokers, wan.latency_us, 0)
    assert groups <= most or graph == lightest
    if most == 400:
        assert groups > sum(2 ** len(near) - 1 for near in lightest.values())
    for one, near in graph.items():
        for other, weight in near.items():
            assert graph[other][one] == weight
