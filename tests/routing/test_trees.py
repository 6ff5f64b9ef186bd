"""Trees over graphs with costs."""

from __future__ import annotations

from itertools import pairwise, starmap

import pytest

from palio.routing.graphs import LinkStates
from palio.routing.messages import LinkState
from palio.routing.trees import (
    LEAVING_LINK_COST,
    MAX_LINK_COST,
    MAX_USABLE_COST,
    STOPPING_LINK_COST,
    UNMEASURED,
    Edge,
    is_notable_change,
    shortest_paths,
    spanning_tree,
)
from palio.simulation import Randomness, connected_random
from tests.conftest import seeds

Links = dict[str, dict[str, int]]


def graph_of(random: Randomness, size: int, extra: int) -> Links:
    topology = connected_random(size, extra, random)
    graph: Links = {broker: {} for broker in topology.brokers}
    for one, other in topology.edges:
        graph[one][other] = graph[other][one] = random.between(1, 9)
    return graph


def shuffled(graph: Links, random: Randomness) -> Links:
    names = list(graph)
    random.shuffle(names)
    return {name: dict(reversed(list(graph[name].items()))) for name in names}


def all_distances(graph: Links, root: str) -> dict[str, int]:
    """By relaxing every link as often as there are brokers."""
    found = {root: 0}
    for _ in graph:
        for one, near in graph.items():
            for other, cost in near.items():
                if one in found:
                    found[other] = min(found.get(other, MAX_LINK_COST), found[one] + cost)
    return found


def is_a_tree_of(edges: frozenset[Edge], graph: Links) -> bool:
    within: Links = {broker: {} for broker in graph}
    for one, other in edges:
        within[one][other] = within[other][one] = 1
    reached = shortest_paths(within, next(iter(graph))).parents
    return len(reached) == len(graph) and len(edges) == len(graph) - 1


@pytest.mark.parametrize("seed", seeds(10, nightly=1_000))
def test_ways_are_the_shortest_and_all_see_the_same(seed: int) -> None:
    random = Randomness(seed)
    graph = graph_of(random, random.between(2, 12), random.below(12))
    again = shuffled(graph, random)
    for root in graph:
        ways = shortest_paths(graph, root)
        assert ways == shortest_paths(again, root)
        assert ways.distances == all_distances(graph, root), f"seed {seed}"
        for broker, parent in ways.parents.items():
            assert broker == root or (
                ways.distances[parent] + graph[parent][broker] == ways.distances[broker]
            )
    trees = {spanning_tree(graph, (), each) for each in graph}
    assert len(trees | {spanning_tree(again, (), next(iter(again)))}) == 1
    (tree,) = trees
    assert is_a_tree_of(tree, graph)


@pytest.mark.parametrize("seed", seeds(10, nightly=1_000))
def test_a_broker_that_joins_changes_no_link_in_use(seed: int) -> None:
    """Whatever it is called, wherever it comes, however many links it has."""
    random = Randomness(seed)
    graph = graph_of(random, random.between(3, 12), random.below(12))
    graph = {one: dict.fromkeys(near, 1) for one, near in graph.items()}
    tree = spanning_tree(graph, (), "b1")
    for name in ("a0", "zz"):
        new = dict.fromkeys(random.sample(sorted(graph), random.between(1, 2)), 1)
        wider = {one: dict(near) for one, near in graph.items()} | {name: new}
        for each in new:
            wider[each][name] = 1
        assert tree < spanning_tree(wider, tree, name), f"seed {seed}"


@pytest.mark.parametrize(
    ("cost", "taken"), [(LEAVING_LINK_COST, ("b", "d")), (MAX_LINK_COST, ("c", "d"))]
)
def test_a_broker_that_leaves_is_gone_through_before_a_link_that_is_to_go(
    cost: int, taken: tuple[str, str]
) -> None:
    """Only where both are to go does that in use stay."""
    graph = {
        "a": {"b": cost, "c": 1},
        "b": {"a": cost, "d": cost},
        "c": {"a": 1, "d": MAX_LINK_COST},
        "d": {"b": cost, "c": MAX_LINK_COST},
    }
    used = [("a", "b"), ("a", "c"), ("c", "d")]
    assert spanning_tree(graph, used, "a") == {("a", "b"), ("a", "c"), taken}


@pytest.mark.parametrize("in_use", ["b", "c"])
def test_a_broker_that_leaves_is_gone_through_before_one_that_stops(in_use: str) -> None:
    """Whichever of them is gone through now."""
    graph = {
        "a": {"b": LEAVING_LINK_COST, "c": STOPPING_LINK_COST},
        "b": {"a": LEAVING_LINK_COST, "d": LEAVING_LINK_COST},
        "c": {"a": STOPPING_LINK_COST, "d": STOPPING_LINK_COST},
        "d": {"b": LEAVING_LINK_COST, "c": STOPPING_LINK_COST},
    }
    used = [("a", in_use), (in_use, "d")]
    assert spanning_tree(graph, used, "a") > {("a", "b"), ("b", "d")}


def test_neighbours_are_told_when_a_broker_that_leaves_stops() -> None:
    costs = [MAX_USABLE_COST, LEAVING_LINK_COST, STOPPING_LINK_COST, MAX_LINK_COST]
    assert all(starmap(is_notable_change, pairwise(costs)))


@pytest.mark.parametrize("seed", seeds(5, nightly=1_000))
def test_a_link_that_goes_changes_no_other_but_the_one_that_takes_its_place(seed: int) -> None:
    random = Randomness(seed)
    graph = graph_of(random, random.between(4, 12), random.between(3, 12))
    graph = {one: dict.fromkeys(near, 1) for one, near in graph.items()}
    tree = spanning_tree(graph, (), "b1")
    for one, other in sorted(tree):
        fewer = {broker: dict(near) for broker, near in graph.items()}
        del fewer[one][other], fewer[other][one]
        if len(shortest_paths(fewer, "b1").parents) < len(fewer):
            continue  # there is no other way
        later = spanning_tree(fewer, tree, "b1")
        assert len(tree - later - {(one, other)}) == 0
        assert len(later - tree) <= 1


def test_a_tree_begins_with_the_ways_from_the_middle() -> None:
    line = {str(each): {str(each - 1): 1, str(each + 1): 1} for each in range(1, 6)}
    line |= {"0": {"1": 1, "7": 1}, "6": {"5": 1, "7": 1}, "7": {"0": 1, "6": 1}}
    tree = spanning_tree(line, (), "3")  # a ring of eight
    assert len(tree) == 7
    within: Links = {broker: {} for broker in line}
    for one, other in tree:
        within[one][other] = within[other][one] = 1
    longest = max(max(shortest_paths(within, each).distances.values()) for each in within)
    assert longest == 7  # no ring has a shorter tree
    grid: Links = {f"{x}{y}": {} for x in range(5) for y in range(5)}
    for x in range(5):
        for y in range(5):
            for far in (f"{x + 1}{y}", f"{x}{y + 1}"):
                if far in grid:
                    grid[f"{x}{y}"][far] = grid[far][f"{x}{y}"] = 1
    within = {broker: {} for broker in grid}
    for one, other in spanning_tree(grid, (), "00"):
        within[one][other] = within[other][one] = 1
    assert max(max(shortest_paths(within, each).distances.values()) for each in within) <= 10


@pytest.mark.parametrize(
    ("cost", "is_kept"),
    [(4, True), (5, False), (999, False), (MAX_USABLE_COST, False), (UNMEASURED, True)],
)
def test_a_link_in_use_goes_when_a_way_round_it_is_less_than_half(cost: int, is_kept: bool) -> None:
    graph = {
        "a": {"b": cost, "c": 1},
        "b": {"a": cost, "c": 1},
        "c": {"a": 1, "b": 1},
    }
    used = [("a", "b"), ("a", "c")]
    assert (("a", "b") in spanning_tree(graph, used, "a")) is is_kept
    assert spanning_tree(graph, (), "a") == {("a", "c"), ("b", "c")}


def test_a_link_in_use_of_which_nothing_is_known_is_left_alone() -> None:
    graph = {
        "a": {"b": UNMEASURED, "c": 1},
        "b": {"a": UNMEASURED, "c": 1},
        "c": {"a": 1, "b": 1},
    }
    assert ("a", "b") in spanning_tree(graph, [("a", "b")], "a")
    assert ("a", "b") not in spanning_tree(graph, [], "a")


def test_a_circle_of_links_in_use_is_opened_at_one_place() -> None:
    """Three parts that find each other at once may use a link too many for a moment."""
    ring = {"a": {"b": 1, "c": 1}, "b": {"a": 1, "c": 1}, "c": {"a": 1, "b": 1}}
    used = [("a", "b"), ("b", "c"), ("a", "c")]
    trees = {spanning_tree(ring, used, each) for each in ring}
    assert len(trees) == 1
    assert len(trees.pop()) == 2


def test_a_link_counts_when_both_ends_list_it_and_weighs_what_the_heavier_says() -> None:
    states = LinkStates("a")
    states.renew({"b": 3, "c": 1})
    states.learn(LinkState("b", 1, ("a",), (8,)))
    states.learn(LinkState("c", 1, ()))
    assert states.graph == {"a": {"b": 8}, "b": {"a": 8}, "c": {}}
    states.learn(LinkState("b", 2, ("a",), (8, 9)))  # it does not say which
    assert states.graph["b"] == {"a": 3}
    states.learn(LinkState("b", 3, ("a",), (-5,)))
    assert states.graph["b"] == {"a": 3}
    states.learn(LinkState("b", 4, ("a",), (1 << 62,)))
    assert states.graph["b"] == {"a": MAX_LINK_COST}
