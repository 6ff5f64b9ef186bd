"""The structure of the tree: the paper's examples, and rules 1 and 2 for regions of cuts."""

from __future__ import annotations

import random
from itertools import product

import pytest

from palio.language.parsing import parse_filter
from palio.model import to_batch
from palio_studies.tree.nodes import places
from palio_studies.tree.tree import Tree


def tree_of(*texts: str, schema: str = "", collapse: bool = True) -> Tree:
    filters = {key: parse_filter(text) for key, text in enumerate(texts, 1)}
    return Tree(filters, schema, collapse=collapse)


def drawn(engine: Tree) -> list[str]:
    return str(engine).splitlines()


class TestThePapersExamples:
    """Gryphon 2 and 3: what the tree looks like for a few subscriptions."""

    def test_a_subscription_is_a_conjunction_of_results(self) -> None:
        engine = tree_of("city = 'New York' AND temperature < 40")
        assert drawn(engine) == [
            "city",
            "  'New York': temperature < 40",
            "    yes: [1]",
        ]

    def test_two_subscriptions_that_share_their_first_test(self) -> None:
        engine = tree_of("a = 1 AND b = 1", "a = 1 AND c = 1")
        assert drawn(engine) == [
            "a",
            "  1: b",
            "    1: [1]",
            "    *: c",
            "      1: [2]",
        ]

    def test_two_results_of_one_test(self) -> None:
        engine = tree_of("a = 1 AND b = 1", "a = 2 AND b = 2")
        assert drawn(engine) == [
            "a",
            "  1: b",
            "    1: [1]",
            "  2: b",
            "    2: [2]",
        ]

    def test_a_subscription_that_does_not_care_takes_the_star(self) -> None:
        engine = tree_of("a = 1 AND b = 1", "b = 1 AND c = 1")
        assert drawn(engine) == [
            "a",
            "  1: b",
            "    1: [1]",
            "  *: b",
            "    1: c",
            "      1: [2]",
        ]

    def test_a_result_that_implies_another_takes_its_edge(self) -> None:
        """`x < 3` is not tried where `x < 5` has failed, nor is `x >= 7` where it holds."""
        assert drawn(tree_of("x < 5", "x < 3", "x >= 7")) == [
            "x < 5",
            "  no: x < 7",
            "    no: [3]",
            "  yes: x < 3",
            "    yes: [2]",
            "    *: [1]",
        ]

    def test_an_equality_decides_an_inequality_of_the_same_attribute(self) -> None:
        assert drawn(tree_of("x = 5 AND x < 10 AND x != 7")) == ["x", "  5: [1]"]
        assert drawn(tree_of("x = 5 AND x > 10")) == []

    def test_the_equality_version_has_a_level_for_every_attribute(self) -> None:
        engine = tree_of("a = 1 AND c = 3", "b = 2", schema="abc", collapse=False)
        assert drawn(engine) == [
            "a",
            "  1: b",
            "    *: c",
            "      3: [1]",
            "  *: b",
            "    2: c",
            "      *: [2]",
        ]
        assert drawn(tree_of("a = 1 AND c = 3", "b = 2", schema="abc")) == [
            "a",
            "  1: c",
            "    3: [1]",
            "  *: b",
            "    2: [2]",
        ]

    def test_the_worst_event_visits_the_whole_tree(self) -> None:
        """Gryphon 3: all edges labelled 1 or `*`, and an event of ones."""
        texts = [
            " AND ".join(f"{name} = 1" for name, asked in zip("abcd", chosen, strict=True) if asked)
            for chosen in product([True, False], repeat=4)
        ]
        engine = tree_of(*(text or "TRUE" for text in texts), schema="abcd", collapse=False)
        engine._successors = False
        assert len(engine.match(to_batch(dict.fromkeys("abcd", 1))).keys) == 16
        space = engine.space()
        assert engine.work.visited == space.nodes + space.leaves == 31


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
def test_cuts_make_a_shallow_tree_whatever_their_order(rng: random.Random, order: str) -> None:
    limits = list(range(800))
    if order == "falling":
        limits.reverse()
    elif order == "random":
        rng.shuffle(limits)
    engine = Tree({limit: parse_filter(f"x < {limit}") for limit in limits})
    (root,) = engine._forest.trees.values()
    depths = []
    for place in places(root):
        depth, above = 0, place
        while above.parent is not None:
            depth, above = depth + 1, above.parent
        depths.append(depth)
    assert max(depths) < 40  # about 2 ln n = 13 on average; a chain would be 800
