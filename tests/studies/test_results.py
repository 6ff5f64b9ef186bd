"""Rows are found by their columns, and averaged over those that agree."""

from __future__ import annotations

import pytest

from palio.errors import InvalidInput
from palio_studies.results import Results, table_of

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
