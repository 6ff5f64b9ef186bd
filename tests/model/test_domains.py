"""Domains agree with the operators they stand for, and with each other as sets."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from palio.model.constraints import Constraint, domain_of
from palio.model.domains import (
    ABSENT,
    ANYTHING,
    EMPTY,
    PRESENT,
    Domain,
    common_prefix,
    complement,
    finite_members,
    full,
    intersect_spans,
    of_spans,
    point,
    points,
    prefix_spans,
    spans_include,
    union_spans,
)
from palio.model.filters import Conjunction, Filter
from palio.model.values import TOP, Kind, canonical, coordinate, is_nan, kind_of
from tests import strategies as our


def holds(domain: Domain, state: Any) -> bool:
    """Check whether a domain admits a value, or absence (None): its definition."""
    if state is None:
        return domain.absent
    values = domain.kinds.get(kind_of(state))
    if values is None:
        return False
    if is_nan(state):
        return values.nan
    place: Any = coordinate(canonical(state))
    return any(low <= place < high for low, high in values.spans) and all(
        test.holds(state) for test in values.tests
    )


def some_domains(rng: random.Random, count: int) -> tuple[list[Domain], list[Any]]:
    """Domains of constraints on one attribute, and the states that can tell them apart."""
    name = rng.choice(our.NAMES)
    constraints = [our.some_constraint(rng, (name,)) for _ in range(count)]
    whole = Filter.of([Conjunction.of(constraints)])
    return [domain_of(each) for each in constraints], our.candidates(whole)[name]


@our.examples(300)
@given(our.constraints())
def test_the_domain_of_an_operator_is_where_it_holds(constraint: Constraint) -> None:
    domain = domain_of(constraint)
    for state in our.candidates(Filter.of([Conjunction.of([constraint])]))[constraint.name]:
        assert holds(domain, state) == (constraint.truth({constraint.name: state}) is True), state


@our.examples(300)
@given(our.SEEDS)
def test_domains_are_sets(seed: int) -> None:
    (one, other, third), states = some_domains(random.Random(seed), 3)
    both = one.intersect(other)
    note(f"{one} {other}")
    union = one.union(other)
    for domain in (both, union, one.intersect(third).union(other)):
        if domain is not None:
            _check_spans(domain)
    for state in states:
        assert holds(both, state) == (holds(one, state) and holds(other, state)), state
        if union is not None:
            assert holds(union, state) == (holds(one, state) or holds(other, state)), state
    inside = all(holds(one, state) for state in states if holds(other, state))
    assert inside or not one.includes(other)
    assert one.includes(one)
    if one.disjoint(other):
        assert not any(holds(one, state) and holds(other, state) for state in states)
    if both.is_empty:
        assert not any(holds(both, state) for state in states)
    assert both.has_present or not any(holds(both, state) for state in states if state is not None)


def _check_spans(domain: Domain) -> None:
    """Ascending, never empty, never touching: what everything else relies on."""
    for values in domain.kinds.values():
        ends = [end for span in values.spans for end in span]
        assert all(low < high for low, high in pairwise(ends))


@our.examples(200)
@given(st.sampled_from((Kind.NUMBER, Kind.STRING, Kind.TIME, Kind.BYTES, Kind.BOOL)), our.SEEDS)
def test_spans_are_sets_of_coordinates(kind: Kind, seed: int) -> None:
    rng = random.Random(seed)
    places = [coordinate(canonical(each)) for each in rng.choices(our.POOLS[kind], k=6)]
    one, other = points(kind, places[:3]), points(kind, places[2:5])
    outside = complement(kind, one)
    for place in places:
        inside = _inside(place, one)
        assert inside is not _inside(place, outside)
        assert _inside(place, union_spans(one + other)) == (inside or _inside(place, other))
        assert _inside(place, intersect_spans(one, other)) == (inside and _inside(place, other))
    assert complement(kind, outside) == one
    assert union_spans(one + outside) == full(kind)
    assert intersect_spans(one, outside) == ()
    assert spans_include(full(kind), one)
    assert spans_include(one, other) == (intersect_spans(one, other) == other)


def _inside(place: Any, spans: Any) -> bool:
    return any(low <= place < high for low, high in spans)


def test_neighbours_join() -> None:
    assert points(Kind.NUMBER, (2**53, 2**53 + 1)) == ((2**53, 2**53 + 2),)
    assert points(Kind.BOOL, (True, False)) == full(Kind.BOOL)
    assert points(Kind.STRING, ("a", "a\0")) == (("a", "a\0\0"),)


def test_finite_members_are_the_single_values() -> None:
    assert finite_members(Kind.NUMBER, points(Kind.NUMBER, (1, 5))) == [1, 5]
    assert finite_members(Kind.NUMBER, ((1, 5),)) is None
    assert finite_members(Kind.STRING, ()) == []


@pytest.mark.parametrize(
    ("low", "high", "prefix"),
    [
        ("ab", "ac", "ab"),
        ("abx", "aby", "abx"),
        ("abx", "ac", "ab"),
        ("ab", "b", "a"),
        ("ab", "bx", ""),
        ("", TOP, ""),
        ("z", TOP, ""),
        ("\U0010ffff", TOP, ""),
        (b"ab", b"ac", b"ab"),
        (b"a\xff", b"b", b"a\xff"),
    ],
)
def test_common_prefix(low: Any, high: Any, prefix: Any) -> None:
    assert common_prefix(low, high) == prefix


@our.examples(150)
@given(st.text("ab\U0010ffff", max_size=4), st.text("ab\U0010ffff", max_size=4))
def test_the_common_prefix_is_the_longest(one: str, other: str) -> None:
    low, high = sorted((one, other))
    if low == high:
        return
    prefix = common_prefix(low, high)
    fits = [
        size
        for size in range(len(low) + 1)
        if spans_include(prefix_spans(low[:size]), ((low, high),))
    ]
    assert len(prefix) == max(fits, default=0)


def test_the_named_domains_relate_as_they_should() -> None:
    for domain in (ANYTHING, PRESENT, ABSENT, EMPTY, point(Kind.NUMBER, 5)):
        assert ANYTHING.includes(domain)
        assert domain.includes(EMPTY)
        assert domain.union(domain) == domain
    assert PRESENT.union(ABSENT) == ANYTHING
    assert PRESENT.disjoint(ABSENT)
    assert ANYTHING.without_absent() == PRESENT
    assert PRESENT.without_absent() is PRESENT
    assert EMPTY.is_empty
    assert not ABSENT.is_empty
    assert not ABSENT.has_present


def test_nan_is_present_and_nothing_else() -> None:
    everything = of_spans(Kind.NUMBER, full(Kind.NUMBER))
    assert holds(PRESENT, math.nan)
    assert not holds(everything, math.nan)
    assert not everything.includes(PRESENT)
    assert PRESENT.includes(everything)


def test_a_long_operand_costs_few_steps() -> None:
    """The common prefix of an interval is found by halving, not by trying every length."""
    low = "a" * 60_000
    assert common_prefix(low, "b" * 60_000) == ""
    assert common_prefix(low + "b", low + "c") == low + "b"
