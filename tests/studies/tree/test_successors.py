"""Successor sets: the paper's example, and what a path knows."""

from __future__ import annotations

from palio.language.parsing import parse_filter
from palio.model import to_batch
from palio_studies.tree.nodes import Leaf, TreeNode, TreePlace, places
from palio_studies.tree.successors import UNDECIDED, Knowledge, successors
from palio_studies.tree.tree import Tree


def tree_of(*texts: str, schema: str = "abcd") -> Tree:
    return Tree({key: parse_filter(text) for key, text in enumerate(texts, 1)}, schema)


def root_of(engine: Tree) -> TreeNode:
    (root,) = engine._forest.trees.values()
    assert isinstance(root, TreeNode)
    return root


def walk(engine: Tree, *results: object) -> TreePlace:
    """The place at the end of some edges from the root; "*" is the edge `*`."""
    place: TreePlace | None = root_of(engine)
    for result in results:
        assert isinstance(place, TreeNode)
        place = place.star if result == "*" else place.edges[result]
    assert place is not None
    return place


def keys(places: tuple[TreePlace, ...]) -> list[int]:
    return sorted(key for each in places if isinstance(each, Leaf) for key in each.keys)


PAPER = ("a=1 AND b=2 AND c=3 AND d=4", "a=1 AND b=2", "a=1 AND c=3", "b=2 AND c=3", "c=3")


def test_the_paths_with_one_star_for_a_value_succeed() -> None:
    """Gryphon 4: blocked at 1, 2, 3, a search goes on at 1 2 *, at 1 * 3 and at * 2 3."""
    engine = tree_of(*PAPER)
    blocked = walk(engine, 1, 2, 3)
    assert keys(successors(blocked)) == [2, 3, 4]
    assert len(successors(blocked)) == 3


def test_a_path_with_two_stars_succeeds_one_of_those_and_only_one() -> None:
    engine = tree_of(*PAPER)
    reached = {each: walk(engine, *each) for each in ((1, 2, "*"), (1, "*", 3), ("*", 2, 3))}
    assert {each: keys(successors(place)) for each, place in reached.items()} == {
        (1, 2, "*"): [],
        (1, "*", 3): [],
        ("*", 2, 3): [5],
    }


def test_a_search_visits_no_node_whose_test_is_decided() -> None:
    engine = tree_of(*PAPER)
    found = engine.match(to_batch({"a": 1, "b": 2, "c": 3, "d": 0}))
    assert found.keys.tolist() == [2, 3, 4, 5]
    assert engine.work.tests == 4  # a, b, c, d once each
    assert engine.work.visited == 4 + 4


def test_what_blocked_the_search_blocks_the_branch_too() -> None:
    """Gryphon 4, the aggressive analysis: blocked at d = 4, a search need not try it again."""
    engine = tree_of(*PAPER, "a=1 AND b=2 AND d=4")
    again = walk(engine, 1, 2, "*")
    ends = successors(walk(engine, 1, 2, 3))
    assert again not in ends
    assert keys(ends) == [2, 3, 4]  # 2 from below the star of that place
    engine = tree_of(*PAPER, "a=1 AND b=2 AND d=4", "a=1 AND b=2 AND d=5")
    again = walk(engine, 1, 2, "*")
    ends = successors(walk(engine, 1, 2, 3))
    assert again in ends
    assert keys(ends) == [3, 4]


def test_a_branch_that_fails_is_replaced_by_its_own_branches() -> None:
    engine = tree_of("a=1 AND b=2", "b=3 AND c=1", "c=7 AND d=1", "b=2 AND c=9")
    (after,) = (each for each in successors(walk(engine, 1, 2)))
    assert after is walk(engine, "*", 2)
    (next_,) = successors(after)
    assert next_ is walk(engine, "*", "*")


def test_an_equality_decides_all_tests_of_its_attribute() -> None:
    engine = tree_of("a=5", "a < 9 AND b=1", "a < 'x'", schema="ba")
    known = Knowledge.at(walk(engine, "*", 5))
    nodes = [place for place in _nodes(engine) if place.parent is not None]
    decided = {str(node.test): known.decide(node) for node in nodes}
    assert (decided["a"], decided["a < 9"], decided["a < 'x'"]) == (5, True, None)


def test_a_range_decides_cuts_and_excludes_other_kinds() -> None:
    engine = tree_of("a < 5", "a < 9", "a < 3", "a < 'x'", "a = 4", schema="a")
    leaf = next(each for each in _leaves(engine) if each.keys == {1})
    known = Knowledge.at(leaf)
    decided = {str(node.test): known.decide(node) for node in _nodes(engine)}
    assert decided["a < 9"] is True
    assert decided["a < 5"] is True
    assert decided["a < 3"] is UNDECIDED
    assert decided["a"] is UNDECIDED
    assert decided["a < 'x'"] is None


def _nodes(engine: Tree) -> list[TreeNode]:
    return [place for place in places(root_of(engine)) if isinstance(place, TreeNode)]


def _leaves(engine: Tree) -> list[Leaf]:
    return [place for place in places(root_of(engine)) if isinstance(place, Leaf)]
