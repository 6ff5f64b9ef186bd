"""Conjunctions: canonical, true where all parts are, and sound in what they cover."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given

import palio
from palio.model.conjunctions import Conjunction
from palio.model.constraints import Constraint
from palio.model.filters import Filter
from tests import strategies as our


def conjunction(text: str) -> Conjunction:
    (only,) = palio.parse_filter(text).conjunctions
    return only


@given(our.filters(), our.SEEDS)
def test_a_conjunction_is_true_where_all_its_parts_are(filter: Filter, seed: int) -> None:
    for each in filter.conjunctions:
        for event in our.nearby(filter, seed=seed, count=5):
            truths = {part.truth(event) for part in each.parts}
            expected = False if False in truths else None if None in truths else True
            assert each.truth(event) is expected


@given(our.filters(), our.filters(), our.SEEDS)
def test_what_is_covered_matches_nothing_else(one: Filter, other: Filter, seed: int) -> None:
    for wide in one.conjunctions:
        for narrow in other.conjunctions:
            if wide.covers(narrow):
                for event in our.nearby(Filter((narrow,)), seed=seed, count=3):
                    assert not narrow.truth(event) or wide.truth(event)


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ("a > 1", "a > 2", True),
        ("a > 2", "a > 1", False),
        ("a > 1", "a > 2 AND b = 1", True),
        ("a > 1 AND b = 1", "a > 2", False),
        ("a < b", "a < b AND c = 1", True),
        ("a < b", "a < c", False),
        ("b = 1", "a > 2 AND a < 1", True),  # nothing satisfies it
    ],
)
def test_a_conjunction_covers_another(wide: str, narrow: str, covers: bool) -> None:
    assert conjunction(wide).covers(conjunction(narrow)) is covers


@pytest.mark.parametrize(
    ("text", "values", "left"),
    [
        ("a > :x AND b = 1", {"x": 2}, "a > 2 AND b = 1"),
        ("a > :x AND b = :y", {"x": 2}, "a > 2 AND b = :y"),
        ("a > 1 AND :x < :y", {"x": 1, "y": 2}, "a > 1"),
        ("a > 1 AND :x < :y", {"x": 2, "y": 1}, None),
    ],
)
def test_values_are_put_in(text: str, values: dict[str, Any], left: str | None) -> None:
    found = conjunction(text).substitute(values)
    assert found == (None if left is None else conjunction(left))


def test_order_and_repetition_of_parts_make_no_difference() -> None:
    a, b = Constraint.of("a", "=", 1), Constraint.of("b", "=", 2)
    assert Conjunction.of([b, a, b]) == Conjunction.of([a, b])
    assert hash(Conjunction.of([b, a])) == hash(Conjunction.of([a, b]))
    assert str(Conjunction.of([])) == "TRUE"


def test_a_conjunction_survives_pickling() -> None:
    made = conjunction("a > 1 AND a < b")
    assert pickle.loads(pickle.dumps(made)) == made
