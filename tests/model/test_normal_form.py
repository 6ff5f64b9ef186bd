"""The filter that a condition reduces to says what the condition says, unknown included."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, note

from palio.errors import InvalidFilter, InvalidInput, LimitExceeded
from palio.model.constraints import Constraint
from palio.model.expressions import Attribute, Boolean, Not, Test, literal, test
from palio.model.filters import FALSE, TRUE, Conjunction, Filter, reduce
from palio.model.limits import MAX_CONJUNCTIONS, MAX_CONSTRAINTS, MAX_DEPTH, MAX_RESIDUAL_COST
from palio.model.operators import Op
from palio.model.sizes import check_size
from tests import strategies as our
from tests.model.meaning import truth


@our.examples(200)
@given(our.expression_texts(variables=True), our.bindings(), our.SEEDS)
def test_reducing_keeps_the_truth(text: str, values: dict[str, Any], seed: int) -> None:
    (condition,) = our.trees(text)
    note(text)
    try:
        filter = reduce(condition)
        bound = filter.bind(values)
    except InvalidInput:
        return
    opposites = reduce(Not(condition)), ~filter
    for event in our.nearby(bound, seed=seed, count=15):
        expected = truth(condition, event, values)
        assert filter.truth(event, values) is expected, event
        assert filter.matches(event, values) is (expected is True)
        negated = None if expected is None else not expected
        assert all(each.truth(event, values) is negated for each in opposites), event


@our.examples(150)
@given(our.filters(leaves=3), our.filters(leaves=3), our.SEEDS)
def test_filters_combine_as_their_truths_do(one: Filter, other: Filter, seed: int) -> None:
    both, either = one & other, one | other
    for event in our.nearby(one, other, seed=seed, count=15):
        a, b = one.truth(event), other.truth(event)
        assert both.truth(event) is (False if False in (a, b) else None if None in (a, b) else True)
        assert either.truth(event) is (
            True if True in (a, b) else None if None in (a, b) else False
        )


@our.examples(100)
@given(our.filters(variables=True))
def test_reducing_what_is_reduced_changes_nothing(filter: Filter) -> None:
    assert filter & TRUE == filter
    assert filter | FALSE == filter
    assert filter & FALSE == FALSE
    assert filter | TRUE == TRUE
    assert filter & filter == filter
    assert filter | filter == filter


@pytest.mark.parametrize(
    ("text", "reduced"),
    [
        ("NOT n < 5", "n >= 5"),
        ("NOT (n < 5 AND s = 'a')", "n >= 5 OR s != 'a'"),
        ("NOT (n < 5 OR s = 'a')", "n >= 5 AND s != 'a'"),
        ("NOT n BETWEEN 1 AND 5", "n < 1 OR n > 5"),
        ("n < 5 XOR s = 'a'", "n < 5 AND s != 'a' OR n >= 5 AND s = 'a'"),
        ("NOT (n < 5 XOR s = 'a')", "n < 5 AND s = 'a' OR n >= 5 AND s != 'a'"),
        ("(n < 1 OR m < 1) AND s = 'a'", "m < 1 AND s = 'a' OR n < 1 AND s = 'a'"),
        ("NOT EXISTS n", "n IS NULL"),
        ("2 + 3 > n", "n < 5"),
        ("n > -(2 * 3)", "n > -6"),
        ("5 < n", "n > 5"),
        ("5 <= n", "n >= 5"),
        ("5 > n", "n < 5"),
        ("5 = n", "n = 5"),
        ("5 <> n", "n != 5"),
        (":x >= n", "n <= :x"),
        ("n < 2 * m", "n < 2 * m"),
        ("2 * m > n", "2 * m > n"),
        ("UPPER('a') = s", "s = 'A'"),
        ("NOT ok", "ok != TRUE"),
        ("1 = 1", "TRUE"),
        ("'a' IS NULL", "FALSE"),
        ("NOT TRUE", "FALSE"),
        ("n IN (1 + 1, 3)", "n IN (2, 3)"),
        ("NOT (NOT (NOT (n = 1)))", "n != 1"),
    ],
)
def test_reductions(text: str, reduced: str) -> None:
    assert str(our.fresh(text)) == reduced


def test_constants_that_mean_nothing_are_refused() -> None:
    for text in ("1 = 'a'", "n < 1 / 0", "SQRT(-1) < n", "9223372036854775807 + 1 = n"):
        with pytest.raises(InvalidInput, match=r"cannot be compared|has no value"):
            our.fresh(text)
    with pytest.raises(InvalidFilter, match="cannot be compared"):
        reduce(Test(literal(1), Op.LT, literal("a")))


# --- limits ---


def alternatives(count: int) -> str:
    return " OR ".join(f"n = {number} AND m < {number}" for number in range(count))


def work(cost: int) -> str:
    """Residuals of a total cost: `a + 1 = b` costs 5, `a = b` 3."""
    threes = {0: 0, 3: 1, 1: 2, 4: 3, 2: 4}[cost % 5]
    fives = (cost - 3 * threes) // 5
    texts = [f"a{n} + 1 = b" for n in range(fives)] + [f"c{n} = d" for n in range(threes)]
    return " AND ".join(texts)


def test_the_number_of_alternatives_is_bounded() -> None:
    for count in (MAX_CONJUNCTIONS - 1, MAX_CONJUNCTIONS):
        assert len(our.fresh(alternatives(count)).conjunctions) == count
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS") as caught:
        our.fresh(alternatives(MAX_CONJUNCTIONS + 1))
    assert caught.value.limit == "MAX_CONJUNCTIONS"


def test_the_number_of_constraints_is_bounded() -> None:
    def conjunctions(count: int) -> list[Conjunction]:
        leaves = [Constraint.of(f"a{place}", "<", 1) for place in range(count)]
        return [Conjunction.of(leaves[start::128]) for start in range(128)]

    check_size(conjunctions(MAX_CONSTRAINTS - 1))
    check_size(conjunctions(MAX_CONSTRAINTS))
    with pytest.raises(LimitExceeded, match="MAX_CONSTRAINTS") as caught:
        check_size(conjunctions(MAX_CONSTRAINTS + 1))
    assert caught.value.actual == MAX_CONSTRAINTS + 1
    small, large = (
        Filter((Conjunction.of(Constraint.of(f"{name}{place}", "<", 1) for place in range(count)),))
        for name, count in (("a", MAX_CONSTRAINTS // 2), ("b", MAX_CONSTRAINTS // 2 + 1))
    )
    with pytest.raises(LimitExceeded, match="MAX_CONSTRAINTS"):
        _ = small & large


def test_the_cost_of_residuals_is_bounded() -> None:
    for cost in (MAX_RESIDUAL_COST - 1, MAX_RESIDUAL_COST):
        (conjunction,) = our.fresh(work(cost)).conjunctions
        assert sum(each.cost for each in conjunction.residuals) == cost
    with pytest.raises(LimitExceeded, match="MAX_RESIDUAL_COST") as caught:
        our.fresh(work(MAX_RESIDUAL_COST + 1))
    assert caught.value.actual == MAX_RESIDUAL_COST + 1


def test_combining_filters_is_bounded_too() -> None:
    half = our.fresh(alternatives(MAX_CONJUNCTIONS))
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        _ = half | our.fresh("s = 'a'")
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        _ = half & our.fresh("s < 'a' OR s > 'b'")
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        _ = ~our.fresh(" OR ".join(f"a{n} = 1 AND b{n} = 1" for n in range(20)))


EXPLODING = {
    "a product of alternatives": " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(200)),
    "its negation": "NOT (" + " OR ".join(f"a{n} = 1 AND b{n} = 2" for n in range(200)) + ")",
    "a chain of XOR": " XOR ".join(f"a{n} = 1" for n in range(60)),
    "XOR within XOR": "".join(f"(a{n} = 1 XOR " for n in range(30)) + "b = 1" + ")" * 30,
    "a product that absorbs": " AND ".join(
        f"(a{n} = 1 OR b{n} = 2 OR a{n + 1} = 1)" for n in range(100)
    ),
    "wide factors": " AND ".join(
        "(" + " OR ".join(f"a{n}_{k} < 1" for k in range(30)) + ")" for n in range(30)
    ),
}


@pytest.mark.parametrize("text", EXPLODING.values(), ids=EXPLODING)
def test_what_would_expand_to_millions_is_refused_after_little_work(text: str) -> None:
    """Counted in calls of Python functions: a filter of full size takes more than refusing one."""
    (condition,) = our.trees(text)
    calls = counted(lambda: refused(condition))
    assert calls < 500_000, calls


def refused(condition: Boolean) -> None:
    with pytest.raises(LimitExceeded):
        reduce(condition)


def counted(work: Callable[[], object]) -> int:
    """Count the Python functions that some work calls."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_deep_conditions_are_refused_before_anything_recurses() -> None:
    condition: Any = test(Attribute("n"), Op.EQ, literal(1))
    for _ in range(MAX_DEPTH):
        condition = Not(condition)
    assert reduce(condition) == our.fresh("n = 1")
    for _ in range(50_000):
        condition = Not(condition)
    with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
        reduce(condition)
