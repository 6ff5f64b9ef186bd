"""Counting and drawing."""

from __future__ import annotations

from palio.language.parsing import parse_filter
from palio_studies.tree.survey import Space
from palio_studies.tree.tree import Tree


def test_space_counts_what_the_paper_counts() -> None:
    texts = ["a = 1 AND b = 1", "b = 1", "a = 2"]
    engine = Tree({key: parse_filter(text) for key, text in enumerate(texts)}, "abc")
    space = engine.space()
    # a -1-> b -1-> [0]; a -2-> [2]; a -*-> b -1-> [1]; of [0] and of the b before it succeeds [1],
    # of [2] the last b.
    assert space == Space(trees=1, nodes=3, leaves=3, edges=5, successors=3)
    assert space.total == 8


def test_successor_sets_are_counted_only_where_they_are_used() -> None:
    filters = {1: parse_filter("a = 1"), 2: parse_filter("b = 1")}
    engine = Tree(filters, successors=False)
    assert engine.space().successors == 0


def test_a_leaf_names_its_keys() -> None:
    engine = Tree(dict.fromkeys((10, 2), parse_filter("a = 1")))
    assert str(engine).splitlines() == ["a", "  1: [2, 10]"]


def test_results_are_drawn_as_a_filter_writes_them() -> None:
    texts = ["a = TRUE AND b = X'00'", "e >= TIMESTAMP '2026-01-01T00:00:00Z'"]
    engine = Tree({key: parse_filter(text) for key, text in enumerate(texts, 1)}, "abe")
    assert str(engine).splitlines() == [
        "a",
        "  TRUE: b",
        "    X'00': [1]",
        "  *: e < TIMESTAMP '2026-01-01T00:00:00Z'",
        "    no: [2]",
    ]
