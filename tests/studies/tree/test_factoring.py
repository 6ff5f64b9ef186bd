"""Factoring: which trees there are, and what is left to test in each."""

from __future__ import annotations

import pytest

from palio.errors import LimitExceeded
from palio.language.parsing import parse_filter
from palio.model import to_batch
from palio_studies.tree import factoring
from palio_studies.tree.tree import Tree


def tree_of(*texts: str, factored: str = "a") -> Tree:
    filters = {key: parse_filter(text) for key, text in enumerate(texts, 1)}
    return Tree(filters, "abc", factored=factored)


def test_a_tree_for_each_value_and_one_for_the_others() -> None:
    engine = tree_of("a = 1 AND b = 1", "a = 2", "b = 2")
    assert str(engine).splitlines() == [
        "a: 1",
        "  b",
        "    1: [1]",
        "    2: [3]",
        "a: 2",
        "  b",
        "    2: [3]",
        "    *: [2]",
        "a: others",
        "  b",
        "    2: [3]",
    ]


def test_other_tests_of_an_index_attribute_are_decided_where_its_value_is_known() -> None:
    engine = tree_of("a = 1 AND b = 1", "a < 5 AND b = 2", "a > 5 AND b = 3")
    drawn = str(engine).split("a: others")[0].splitlines()
    assert drawn == ["a: 1", "  b", "    1: [1]", "    2: [2]"]
    for value, keys in ((1, [1, 2]), (2, [2]), (7, [3])):
        events = [to_batch({"a": value, "b": b}) for b in (1, 2, 3)]
        assert [key for each in events for key in engine.match(each).keys.tolist()] == keys


def test_two_index_attributes_make_a_product() -> None:
    engine = tree_of("a = 1 AND b = 1", "a = 2 AND b = 2", "c = 1", factored="ab")
    assert engine.space().trees == 9
    assert engine.match(to_batch({"a": 1, "b": 2, "c": 1})).keys.tolist() == [3]
    assert engine.match(to_batch({"a": 1, "b": 1})).keys.tolist() == [1]


def test_an_absent_index_attribute_is_among_the_others() -> None:
    engine = tree_of("a = 1 AND b = 1", "a = 1", "b = 1")
    assert engine.match(to_batch({"b": 1})).keys.tolist() == [3]


@pytest.mark.parametrize(("values", "refused"), [(2, False), (3, False), (4, True)])
def test_the_number_of_trees_is_limited(
    monkeypatch: pytest.MonkeyPatch, values: int, refused: bool
) -> None:
    monkeypatch.setattr(factoring, "MAX_TREES", 4)  # three values and the others
    texts = [f"a = {value}" for value in range(values)]
    if refused:
        with pytest.raises(LimitExceeded, match="the number of trees for a exceeds MAX_TREES = 4"):
            tree_of(*texts)
    else:
        assert tree_of(*texts).space().trees == values + 1
