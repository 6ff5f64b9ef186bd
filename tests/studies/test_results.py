"""Rows are found by their columns; their means and intervals are those worked out by hand."""

from __future__ import annotations

from math import inf, sqrt

import pytest

from palio.errors import InvalidInput
from palio_studies.results import Results, fitted_exponent, mean_of, table_of

RESULTS = Results(
    {
        "costs": [
            {"routing": routing, "n": n, "seed": seed, "cost": float(n * factor + seed)}
            for routing, factor in (("as", 1), ("hs", 2))
            for n in (10, 20)
            for seed in (1, 3)
        ]
    }
)


def test_rows_are_picked_by_any_of_their_columns() -> None:
    assert len(RESULTS.rows("costs")) == 8
    assert [row["cost"] for row in RESULTS.rows("costs", routing="hs", n=20)] == [41, 43]
    assert RESULTS.rows("costs", n=30) == RESULTS.rows("never run") == []


def test_means_are_over_what_by_leaves_open() -> None:
    found = RESULTS.mean("costs", "cost", by=["routing", "n"])
    assert {key: mean.value for key, mean in found.items()} == {
        ("as", 10): 12,
        ("as", 20): 22,
        ("hs", 10): 22,
        ("hs", 20): 42,
    }
    assert RESULTS.mean("costs", "cost", routing="as")[()].runs == 4
    assert RESULTS.values("costs", "n") == [10, 20]


def test_rows_of_one_experiment_have_the_same_columns() -> None:
    with pytest.raises(InvalidInput, match="differ in their columns"):
        table_of([{"a": 1}, {"b": 1}])


def test_the_interval_is_students() -> None:
    found = mean_of([1.0, 2.0, 3.0, 4.0])
    assert (found.value, found.runs) == (2.5, 4)
    assert found.half == pytest.approx(3.182 * sqrt(5 / 3) / 2)
    assert (found.low, found.high) == (found.value - found.half, found.value + found.half)


def test_one_run_says_nothing_of_its_spread() -> None:
    assert mean_of([7.0]) == (7.0, inf, 1)
    assert str(mean_of([7.0])) == "7"


def test_many_runs_take_the_normal_distribution() -> None:
    assert mean_of([0.0, 2.0] * 50).half == pytest.approx(1.96 * sqrt(100 / 99) / 10)


def test_no_values_are_an_error() -> None:
    with pytest.raises(InvalidInput, match="no values"):
        mean_of([])


def test_an_exponent_and_its_interval() -> None:
    exact = fitted_exponent([1, 2, 4, 8], [5, 10, 20, 40])
    assert (exact.value, exact.half) == pytest.approx((1, 0), abs=1e-9)
    rough = fitted_exponent([1, 2, 4, 8], [1, 1.3, 2.2, 2.7])
    assert rough.low < 0.5 < rough.high
    assert fitted_exponent([1, 2], [1, 2]).half == inf


@pytest.mark.parametrize(("xs", "ys"), [([1], [1]), ([1, 2], [0, 1])])
def test_what_has_no_exponent(xs: list[float], ys: list[float]) -> None:
    with pytest.raises(InvalidInput, match="exponent"):
        fitted_exponent(xs, ys)


def test_a_bar_needs_three_runs_and_an_error_two() -> None:
    assert mean_of([1.0, 2.0]).bar == 0.0
    assert mean_of([1.0, 2.0]).error == pytest.approx(0.5)
    assert mean_of([1.0, 2.0, 3.0]).bar == mean_of([1.0, 2.0, 3.0]).half > 0
