"""Both searches reach the same leaves, each once; jumping visits fewer places."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from palio.matching.tree.events import TreeEvents
from palio.matching.tree.search import Work, reached, reached_by_jumps
from palio.matching.tree.tree import Tree
from palio.model import Filter, to_batches
from tests.matching.tree.test_tree import some_event, some_filter, some_values


@pytest.mark.parametrize("collapse", [False, True])
def test_jumping_reaches_the_same_leaves_with_fewer_visits(
    rng: random.Random, collapse: bool
) -> None:
    engine = Tree("abcdef", collapse=collapse)
    for key in range(150):
        filter: Filter = some_filter(rng)
        engine.add(key, filter, some_values(rng, filter))
    (tree,) = engine._forest.trees.values()
    walked, jumped = Work(), Work()
    for batch in to_batches(some_event(rng) for _ in range(150)):
        for row in TreeEvents(batch).rows(engine._slots):
            leaves, others = (
                reached(tree.root, row, walked),
                reached_by_jumps(tree.root, row, jumped),
            )
            assert len(set(leaves)) == len(leaves)
            assert len(others) == len(leaves)
            assert set(others) == set(leaves)
    assert jumped.visited < walked.visited
    assert jumped.tests < walked.tests


@pytest.mark.parametrize("search", [reached, reached_by_jumps])
def test_an_empty_tree_costs_nothing(search: Callable[..., list[object]]) -> None:
    work = Work()
    assert search(None, (), work) == []
    assert work == Work()
