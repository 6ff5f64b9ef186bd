"""Checks are put together from numbers, verdicts and words."""

from __future__ import annotations

import pytest

from palio_studies.checks import (
    all_hold,
    at_most,
    check,
    is_below,
    needed,
    ratios,
    rises,
    within,
)
from palio_studies.results import Mean, Results
from palio_studies.study import Claim, Evidence, Row

ROWS: list[Row] = [
    {"routing": routing, "n": n, "seed": seed, "cost": float(n * factor)}
    for routing, factor, sizes in (("as", 1, (10, 1000)), ("hs", 2, (10, 1000, 5000)))
    for n in sizes
    for seed in (1, 2)
]
DOUBLED = ratios("costs", "cost", "n", of={"routing": "hs"}, over={"routing": "as"})


def judged(rows: list[Row], *, least: int = 1, limit: float = 2.0) -> Evidence:
    is_within = check(
        DOUBLED,
        lambda factors: max(factors) <= limit,
        "hs over as {} parties",
        least=least,
        lacking="too few",
    )
    return Claim("doubled", "", "", is_within).judge(Results({"costs": rows}))


def test_a_claim_on_ratios() -> None:
    numbers = "hs over as 2 at 10, 2 at 1,000 parties"
    assert judged(ROWS) == Evidence(True, numbers)
    assert judged(ROWS, limit=1.9) == Evidence(False, numbers)


def test_too_little_leaves_a_claim_undecided() -> None:
    assert judged(ROWS, least=3) == judged([]) == Evidence(None, "too few")
    with pytest.raises(Exception, match="no rate was run"):
        needed([], "no rate was run")


def test_orders() -> None:
    assert rises([1, 1, 2])
    assert not rises([2, 1])


def test_an_interval_that_holds_the_limit_leaves_it_open() -> None:
    mean = Mean(1.0, 0.5, 3)
    assert [at_most(mean, limit) for limit in (1.5, 1.49, 0.5, 0.49)] == [True, None, None, False]


@pytest.mark.parametrize(
    ("value", "half", "holds"),
    [
        (0.0, 0.05, True),
        (0.0, 0.06, None),  # the noisier the less is known
        (-0.115, 0.24, None),
        (0.2, 0.14, False),
        (-0.2, 0.14, False),
    ],
)
def test_a_number_is_within_limits_with_its_interval(
    value: float, half: float, holds: bool | None
) -> None:
    assert within(Mean(value, half, 3), -0.05, 0.05) is holds


def test_one_verdict_that_fails_decides() -> None:
    assert all_hold([True, True]) is True
    assert all_hold([True, None]) is None
    assert all_hold([None, False]) is False


def test_a_mean_is_below_another_unless_their_intervals_meet() -> None:
    low, wide, high = Mean(1.0, 0.5, 3), Mean(1.5, 1.0, 3), Mean(3.0, 0.4, 3)
    assert is_below(low, high) is True
    assert is_below(low, wide) is None
    assert is_below(high, low) is False
    assert is_below(wide, low) is False
