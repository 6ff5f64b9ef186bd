from __future__ import annotations

import random

import numpy as np
import pytest

import palio
from palio.matching import Index, Reference
from palio.model import to_batch
from palio.spark.widening import MAX_COLUMNS, Wide


def test_rows_of_many_shapes_mean_what_they_meant(rng: random.Random) -> None:
    wide, oracle = Wide(), Reference()
    operators = ["<", ">=", "=", "!=", "STARTS WITH", "ENDS WITH"]
    for place in range(80):
        parts, values = [], {}
        for number in range(rng.randint(1, 4)):
            operator = rng.choice(operators)
            text = operator.endswith("WITH") or rng.random() < 0.3
            parts.append(f"{'st'[number % 2] if text else 'xy'[number % 2]} {operator} :p{number}")
            values[f"p{number}"] = rng.choice(["a", "ab"]) if text else rng.choice([1, 2, 2.5])
        filter = palio.parse_filter(" AND ".join(parts))
        names = sorted(filter.variables)
        row = tuple(values[name] for name in names)
        if wide.take(filter, names, tuple(map(type, row)), [place], [row]):
            oracle.add(place, filter, values)
    assert len(wide.places) > 50
    engine = Index()
    engine.add_many(np.array(wide.places), wide.skeleton, wide.columns())
    for _ in range(60):
        event = {name: rng.choice([0, 1, 2, 2.5, 3]) for name in "xy" if rng.random() < 0.8}
        event |= {name: rng.choice(["a", "ab", "ba"]) for name in "st" if rng.random() < 0.8}  # type: ignore[misc]  # values of two kinds
        batch = to_batch(event)
        assert engine.match(batch).keys.tolist() == oracle.match(batch).keys.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "x < :a OR y < :a",
        "x + 1 < :a",
        "x IN :a",
        "x NOT IN :a",
        "x < :a AND y IS NULL",
        "x < :a AND y < 5",
        "TRUE",
    ],
)
def test_what_is_no_conjunction_of_plain_comparisons(text: str) -> None:
    wide = Wide()
    names = sorted(palio.parse_filter(text).variables)
    assert not wide.take(
        palio.parse_filter(text), names, [int] * len(names), [0], [(1,) * len(names)]
    )
    assert wide.places == []


def test_an_attribute_may_be_compared_several_times() -> None:
    wide = Wide()
    assert wide.take(palio.parse_filter("x > :a AND x > :b"), ["a", "b"], (int, int), [0], [(3, 5)])
    assert wide.take(palio.parse_filter("x > :a"), ["a"], (int,), [1], [(4,)])
    engine = Index()
    engine.add_many([0, 1], wide.skeleton, wide.columns())
    assert engine.match(to_batch({"x": 5})).keys.tolist() == [1]
    assert engine.match(to_batch({"x": 6})).keys.tolist() == [0, 1]


def test_the_limit_of_columns() -> None:
    wide = Wide()
    taken = [
        wide.take(palio.parse_filter(f"x{number} < :a"), ["a"], (int,), [number], [(1,)])
        for number in range(MAX_COLUMNS + 1)
    ]
    assert taken == [True] * MAX_COLUMNS + [False]
    assert wide.take(palio.parse_filter("x0 < :a"), ["a"], (int,), [MAX_COLUMNS], [(2,)])
    assert len(wide.columns()) == MAX_COLUMNS
