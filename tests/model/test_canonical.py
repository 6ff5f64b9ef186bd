"""Canonical form: one filter for what the laws of logic make equal, in whatever order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from palio.model.canonical import absorbed
from palio.model.filters import Conjunction, Filter
from palio.model.limits import MAX_IN_VALUES
from tests import strategies as our


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("n = 2 OR n = 1", "n IN (1, 2)"),
        ("n = 1 OR n = 1", "n = 1"),
        ("n IN (3, 1) OR n = 2", "n IN (1, 2, 3)"),
        ("n != 2 AND n != 1", "n NOT IN (1, 2)"),
        ("n NOT IN (1, 2) AND n != 3", "n NOT IN (1, 2, 3)"),
        ("n = 1 OR n = 'a'", "n = 1 OR n = 'a'"),
        ("n = 1 OR n = TRUE", "n = TRUE OR n = 1"),
        ("s = 'a' IGNORE CASE OR s = 'B' IGNORE CASE", "s IN ('a', 'b') IGNORE CASE"),
        ("s = 'a' OR s = 'b' IGNORE CASE", "s = 'a' OR s = 'b' IGNORE CASE"),
        ("n = 1 OR n = :x", "n = 1 OR n = :x"),
        ("n = 1 OR n = 1 AND m = 2", "n = 1"),
        ("n = 1 AND (n = 1 OR m = 2)", "n = 1"),
        ("m = 2 AND n = 1 AND m = 2", "m = 2 AND n = 1"),
        ("n = 1 OR TRUE", "TRUE"),
        ("n = 1 AND FALSE", "FALSE"),
        ("n < m AND n = 1 OR n < m", "n < m"),
        ("n = 1 AND n = 2", "n = 1 AND n = 2"),
        ("n = 1 OR NOT n = 1", "n = 1 OR n != 1"),
        ("n != 1 OR n != 1 AND n != 2", "n != 1"),
        ("n != 1 OR n NOT IN (1, 2)", "n != 1"),
        ("n NOT IN (1, 2) OR n NOT IN (1, 2, 3) AND m = 1", "n NOT IN (1, 2)"),
    ],
)
def test_canonical_forms(text: str, canonical: str) -> None:
    assert str(our.fresh(text)) == canonical


@our.examples(200)
@given(our.filters(variables=True), our.SEEDS)
def test_the_order_of_the_parts_does_not_matter(filter: Filter, seed: int) -> None:
    rng = random.Random(seed)
    shuffled = []
    for conjunction in filter.conjunctions:
        parts = list(conjunction.parts) * rng.randint(1, 2)
        rng.shuffle(parts)
        shuffled.append(Conjunction.of(parts))
    rng.shuffle(shuffled)
    again = Filter.of(shuffled * rng.randint(1, 2))
    assert again == filter
    assert hash(again) == hash(filter)
    assert str(again) == str(filter)


def test_lists_grow_only_to_the_limit() -> None:
    some, more = (our.fresh(f"n IN ({', '.join(map(str, numbers))})") for numbers in (
        range(MAX_IN_VALUES), range(MAX_IN_VALUES, MAX_IN_VALUES + 5)
    ))  # fmt: skip
    either = some | more
    assert len(either.conjunctions) == 2
    assert either.matches({"n": 3})
    assert either.matches({"n": MAX_IN_VALUES + 4})


def test_absorption_keeps_the_smallest() -> None:
    leaves = [our.fresh(f"n = {number}").conjunctions[0].constraints[0] for number in range(4)]
    a, b, c, d = leaves
    clauses = [frozenset(each) for each in ((a, b), (a,), (b, c), (b, c, d), (c, d), (b, c))]
    assert set(absorbed(clauses)) == {frozenset((a,)), frozenset((b, c)), frozenset((c, d))}
    assert absorbed([*clauses, frozenset()]) == [frozenset()]
    assert absorbed([]) == []
