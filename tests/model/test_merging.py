"""Merging accepts exactly the union; roots cover all and one another not."""

from __future__ import annotations

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import palio
from palio.errors import InvalidFilter
from palio.model.domains import of_spans
from palio.model.filters import FALSE, TRUE, Conjunction, Filter
from palio.model.merging import constraints_of, merge, merged
from palio.model.relations import covers, roots
from palio.model.values import TOP, Kind
from tests import strategies as our

ALIKE = st.sampled_from(our.NAMES).flatmap(
    lambda name: st.lists(
        st.lists(our.constraints((name,)), min_size=1, max_size=2).map(
            lambda parts: Filter.of([Conjunction.of(parts)])
        ),
        min_size=2,
        max_size=4,
    )
)
"""Filters on one attribute, where merges are common."""


@our.examples(150)
@given(ALIKE | st.lists(our.filters(leaves=3), max_size=4), our.SEEDS)
def test_a_merge_accepts_exactly_the_union(filters: list[Filter], seed: int) -> None:
    whole = merge(filters)
    note(str(whole))
    for event in our.nearby(*filters, seed=seed, count=40):
        assert whole.matches(event) == any(each.matches(event) for each in filters), event
    assert our.fresh(str(whole)) == whole
    assert len(merged(whole.conjunctions)) <= len(whole.conjunctions)


@our.examples(100)
@given(ALIKE | st.lists(our.filters(leaves=3), min_size=1, max_size=4))
def test_roots_cover_everything_and_nothing_of_each_other(filters: list[Filter]) -> None:
    kept = roots(filters)
    assert all(each in filters for each in kept)
    for each in filters:
        assert any(covers(root, each) for root in kept)
    for root in kept:
        assert not any(covers(other, root) for other in kept if other is not root)


@our.examples(100)
@given(our.constraints())
def test_a_constraint_comes_back_from_its_domain(constraint: object) -> None:
    one = Filter.of([Conjunction.of([constraint])])  # type: ignore[list-item]  # a constraint
    (conjunction,) = one.conjunctions
    ((name, domain),) = conjunction.domains.items()
    back = constraints_of(name, domain)
    if back is not None and not domain.is_empty:
        assert Conjunction.of(back).domains.get(name, domain) == domain


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["n < 5", "n >= 5"], "n >= -INFINITY"),
        (["n < 5", "n > 5"], "n != 5"),
        (["n < 5", "n = 5"], "n <= 5"),
        (["n = 1", "n = 2"], "n IN (1, 2)"),
        (["n BETWEEN 1 AND 5", "n BETWEEN 3 AND 9"], "n >= 1 AND n <= 9"),
        (["n IS NULL", "n IS NOT NULL"], "TRUE"),
        (["n < 5", "n IS NULL"], "n < 5 OR n IS NULL"),
        (["n < 5 AND s = 'a'", "n >= 5 AND s = 'a' AND n < 7"], "n < 7 AND s = 'a'"),
        (["n < 5 AND s = 'a'", "n < 5 AND s = 'b'"], "n < 5 AND s IN ('a', 'b')"),
        (["n < 5 AND s = 'a'", "n < 6 AND s = 'b'"], "n < 5 AND s = 'a' OR n < 6 AND s = 'b'"),
        (["s STARTS WITH 'ab'", "s STARTS WITH 'a'"], "s STARTS WITH 'a'"),
        (["s ENDS WITH 'ab'", "s ENDS WITH 'b'"], "s ENDS WITH 'b'"),
        (["s < 'b'", "s >= 'b'"], "s STARTS WITH ''"),
        (["n < 5", "n < 9", "n < 7"], "n < 9"),
        (["n = 1 AND n = 2", "m = 1"], "m = 1"),
        (["n < :x", "n < :x", "n < 5"], "n < 5 OR n < :x"),
        (["n + 1 < m", "n + 1 < m AND n = 2"], "n + 1 < m"),
        (["n + 1 < m AND n < 2", "n + 1 < m AND n >= 2 AND n < 3"], "n < 3 AND n + 1 < m"),
        ([], "FALSE"),
        (["FALSE", "TRUE"], "TRUE"),
    ],
)
def test_merges(texts: list[str], expected: str) -> None:
    assert merge(map(our.fresh, texts)) == our.fresh(expected)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a > 3", "a > 1", "b = 1"], ["a > 1", "b = 1"]),
        (["a > 1", "a > 1"], ["a > 1"]),
        (["a > 1", "TRUE", "b = 1"], ["TRUE"]),
        (["FALSE", "a > 1"], ["a > 1"]),
        ([], []),
    ],
)
def test_the_roots(texts: list[str], expected: list[str]) -> None:
    assert [str(each) for each in roots([our.fresh(text) for text in texts])] == expected


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        (((1, 5),), ["n >= 1", "n < 5"]),
        (((1, 1.0000000000000002),), ["n = 1"]),
        (((1.0000000000000002, TOP),), ["n > 1"]),
        (((2**53 + 1, TOP),), [f"n >= {2**53 + 1}"]),
        (((-5e-324, 5e-324),), ["n >= -5e-324", "n <= 0"]),
        (((1, 2), (3, 4)), None),
        (((1, 2), (2.0000000000000004, 3)), ["n >= 1", "n < 3", "n != 2"]),
    ],
)
def test_spans_as_constraints(spans: object, expected: list[str] | None) -> None:
    found = constraints_of("n", of_spans(Kind.NUMBER, spans))  # type: ignore[arg-type]  # spans
    assert (None if found is None else [str(each) for each in found]) == expected


def test_what_is_no_filter_is_not_merged() -> None:
    pattern = palio.parse("n = 1 THEN n = 2")
    for wrong in ([pattern], "n = 1"):
        with pytest.raises(InvalidFilter, match="a Filter is needed here, not a"):
            merge(wrong)  # type: ignore[arg-type]  # the mistake


def test_the_public_name_is_this_one() -> None:
    assert palio.merge is merge
    assert merge([FALSE]) == FALSE
    assert merge([TRUE, FALSE]) == TRUE
