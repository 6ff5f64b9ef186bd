from __future__ import annotations

import pytest

from palio.errors import InvalidInput
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import (
    connected_random,
    line,
    parse_topology,
    random_tree,
)


@pytest.mark.parametrize(
    ("text", "brokers", "edges", "is_tree"),
    [
        ("line:5", 5, 4, True),
        ("line:1", 1, 0, True),
        ("star:5", 5, 4, True),
        ("tree:15x2", 15, 14, True),
        ("ring:12", 12, 12, False),
        ("grid:4x3", 12, 17, False),
        ("random-tree:20", 20, 19, True),
    ],
)
def test_shapes(text: str, brokers: int, edges: int, is_tree: bool) -> None:
    topology = parse_topology(text, Randomness(1))
    assert len(topology.brokers) == brokers
    assert len(topology.edges) == edges
    assert topology.is_tree == is_tree


@pytest.mark.parametrize("text", ["ring", "ring:x", "ring:0", "grid:4", "blob:3", "grid:1x2x3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no topology"):
        parse_topology(text, Randomness(1))


def test_random_graphs_are_connected_and_repeatable() -> None:
    for seed in range(20):
        one = connected_random(15, 10, Randomness(seed))
        assert one == connected_random(15, 10, Randomness(seed))
        spanning = one.edges[:0] + tuple(sorted(one.edges))
        reached = {"b1"}
        for _ in one.brokers:
            reached |= {end for edge in spanning if reached & set(edge) for end in edge}
        assert reached == set(one.brokers)
        assert random_tree(15, Randomness(seed)).is_tree


def test_more_shapes_can_be_given() -> None:
    topology = parse_topology("twins:4", Randomness(1), {"twins": lambda size, _: line(2 * size)})
    assert topology == line(8)
    with pytest.raises(InvalidInput, match="ring, star, tree, twins and its sizes"):
        parse_topology("blob:3", Randomness(1), {"twins": lambda size, _: line(2 * size)})
