"""Tables of subscriptions: nulls, order, what is refused, and finding keys among many tables."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from palio.errors import InvalidBinding, InvalidInput
from palio.matching.subscriptions import (
    FEW_TABLES,
    Subscription,
    Subscriptions,
    Table,
    is_number,
    may_scan,
    recipe_of,
)
from palio.matching.texts import scans
from palio.model.constraints import Constraint, domain_of
from palio.model.expressions import Variable
from palio.model.operators import Op
from tests.matching.test_index import parsed
from tests.strategies import PATTERNS, some_constraint

SKELETON = parsed("x > :low AND y = :y")


def test_a_null_drops_its_constraints() -> None:
    table = Table.of([5, 3, 4], SKELETON, {"low": [1, None, 2], "y": [None, "a", "b"]})
    assert table.keys.tolist() == [3, 4, 5]
    shown = [str(table.subscription(place).filter) for place in range(3)]
    assert shown == ["y = :y", str(SKELETON), "x > :low"]
    assert [dict(table.subscription(place).values) for place in range(3)] == [
        {"y": "a"},
        {"low": 2, "y": "b"},
        {"low": 1},
    ]


def test_what_is_refused() -> None:
    with pytest.raises(InvalidBinding, match="no column of values for :y"):
        Table.of([1], SKELETON, {"low": [1]})
    with pytest.raises(InvalidBinding, match="2 values for 1 keys"):
        Table.of([1], SKELETON, {"low": [1], "y": ["a", "b"]})
    with pytest.raises(InvalidInput, match="key occurs twice"):
        Table.of([1, 1], SKELETON, {"low": [1, 2], "y": ["a", "b"]})


def test_columns_in_chunks_are_columns() -> None:
    chunks = pa.chunked_array([pa.array([1, None], pa.int32()), pa.array([3], pa.int32())])
    table = Table.of([1, 2, 3], parsed("x > :low"), {"low": chunks})
    assert [dict(table.subscription(place).values) for place in range(3)] == [
        {"low": 1},
        {},
        {"low": 3},
    ]


@pytest.mark.parametrize("tables", [1, FEW_TABLES, FEW_TABLES + 1])
def test_keys_are_found_in_any_number_of_tables(tables: int) -> None:
    shelf = Subscriptions()
    for at in range(tables):
        shelf.tables.append(Table.of([at, at + 100], parsed("x = :x"), {"x": [at, -at]}))
    last = tables - 1
    assert shelf[last + 100].values == {"x": -last}
    assert len(shelf) == 2 * tables
    assert last in shelf
    shelf[last] = Subscription(parsed("TRUE"), {}, 9)
    assert shelf[last].destination == 9
    assert shelf.discard(last)
    assert not shelf.discard(last)
    assert len(shelf) == 2 * tables - 1
    with pytest.raises(KeyError):
        shelf[last]


def test_memory_counts_the_arrays() -> None:
    shelf = Subscriptions()
    shelf.tables.append(Table.of(np.arange(1000), parsed("x = :x"), {"x": np.arange(1000)}))
    assert 16_000 <= shelf.memory() <= 17_000


def test_a_recipe_knows_what_only_bounds_numbers() -> None:
    plain = recipe_of(parsed("x > :low AND x <= :high AND y = :high"))
    assert plain.plain
    assert plain.numeric == {"low": (("x", Op.GT),), "high": (("x", Op.LE), ("y", Op.EQ))}
    mixed = recipe_of(parsed("x > :a AND y IN (1, :b) AND z < :b AND u = 3"))
    assert not mixed.plain
    assert mixed.numeric == {"a": (("x", Op.GT),)}
    assert not recipe_of(parsed("x > :a OR y = :a")).plain
    assert not recipe_of(parsed("x > y + :a AND x < :b")).plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, True),
        (-0.5, True),
        (2**63 - 1, True),
        (2**63, False),
        (-(2**63), True),
        (-(2**63) - 1, False),
        (float("inf"), False),
        (float("nan"), False),
        (True, False),
        ("1", False),
    ],
)
def test_numbers_that_need_no_second_look(value: object, expected: bool) -> None:
    assert is_number(value) is expected


def test_other_values_for_some_parameters() -> None:
    table = Table.of([1], SKELETON, {"low": [1], "y": ["a"]})
    changed = table.subscription(0).rebound(1, {"low": 2.5})
    assert dict(changed.values) == {"low": 2.5, "y": "a"}
    assert dict(changed.rebound(1, {"y": "b"}).values) == {"low": 2.5, "y": "b"}
    with pytest.raises(InvalidBinding):
        changed.rebound(1, {"low": float("nan")})
    partial = Table.of([1], SKELETON, {"low": [1], "y": [None]}).subscription(0)
    with pytest.raises(InvalidBinding, match="filter 1 has no parameter :y"):
        partial.rebound(1, {"y": 5})


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("x > 1 AND x <= 2.5 AND y = 3", (2.5, 1, 3)),
        ("TRUE", ()),
        ("x != 1", None),
        ("x = 'a'", None),
        ("x = 1 AND y = TRUE", None),
        ("x IN (1, 2)", None),
        ("EXISTS x", None),
        ("x = 1 OR y = 2", None),
        ("x = 1 AND y > z", None),
        ("FALSE", None),
    ],
)
def test_constants_are_compared_as_the_recipe_says(
    text: str, numbers: tuple[float, ...] | None
) -> None:
    filter = parsed(text)
    recipe = recipe_of(filter)
    found = Subscription(filter, {}, 0).comparisons
    assert found == (recipe.fixed if recipe.plain else None)
    assert (None if found is None else found[1]) == numbers


def test_what_cannot_scan_has_no_test_that_does(rng: random.Random) -> None:
    """And a pattern may scan exactly if its test does."""
    some = [some_constraint(rng, ("s",), sorted(Op)) for _ in range(2_000)]
    patterns = [
        Constraint.of("s", op, pattern, ignore_case)
        for op in (Op.LIKE, Op.NOT_LIKE)
        for pattern in PATTERNS
        for ignore_case in (False, True)
    ]
    for constraint in (*some, *patterns):
        kinds = domain_of(constraint).kinds.values()
        reads = any(scans(test) for values in kinds for test in values.tests)
        assert may_scan(constraint) or not reads, constraint
        if constraint.op in (Op.LIKE, Op.NOT_LIKE) and not constraint.ignore_case:
            assert may_scan(constraint) == reads, constraint
    assert may_scan(Constraint.of("s", "LIKE", Variable("pattern")))
