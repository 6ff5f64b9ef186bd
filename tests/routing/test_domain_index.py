"""Boxes of values: what meets what, exactly, wherever floats would round."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from palio.language.parsing import parse_filter
from palio.model.domains import Domain
from palio.routing.domain_index import DomainIndex, ValueSet, pieces_of
from palio.routing.text_sets import MOST_SPANS, MOST_TRIED
from tests.strategies import SEEDS, some_constraint


def domain(text: str) -> Domain:
    ((_, found),) = parse_filter(text).conjunctions[0].domains.items()
    return found


def values(text: str) -> list[ValueSet]:
    return pieces_of([domain(text)])


def meets(known: str, asked: str) -> bool:
    """By the index, in which either of the two may be."""
    verdicts = set()
    for one, other in ((known, asked), (asked, known)):
        for needing in (False, True):
            index: DomainIndex[str] = DomainIndex(needing=needing)
            index.add(one, [{"x": values(one)}])
            verdicts.add(bool(len(index.meeting([{"x": values(other)}]))))
    (verdict,) = verdicts
    return verdict


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("x < 5", "x >= 5", False),
        ("x <= 5", "x >= 5", True),
        ("x = 9007199254740993", "x = 9007199254740992.0", False),
        ("x > 9007199254740992", "x < 9007199254740994", True),
        ("x = INFINITY", "x < INFINITY", False),
        ("x = INFINITY", "x > 1.7e308", True),
        ("x = INFINITY", "x IN (1, INFINITY)", True),
        ("x = -INFINITY", "x < 0", True),
        ("x = 'abcdefgh'", "x = 'abcdefgi'", False),
        ("x < 'abcdefgh'", "x > 'abcdefgg'", True),
        ("x = 'a'", "x = 'a\0'", False),
        ("x = 'abcdefgh'", "x IN ('abcdefgg', 'abcdefgi')", False),
        ("x = 'abcdefgh'", "x NOT IN ('abcdefgg', 'abcdefgi')", True),
        ("x = X'00'", "x = X'0000'", False),
        ("x = 'ab'", "x ENDS WITH 'b'", True),
        ("x = 'ab'", "x ENDS WITH 'a'", False),
        ("x >= 'a'", "x ENDS WITH 'a'", True),
        ("x STARTS WITH 'ab'", "x NOT LIKE 'a%'", False),
        ("x ENDS WITH 'a'", "x ENDS WITH 'b'", False),
        ("x ENDS WITH X'61'", "x ENDS WITH X'62'", False),
        ("x ENDS WITH 'a'", "x = 1", False),
        ("x = TRUE", "x = 1", False),
        ("x = TRUE", "x >= FALSE", True),
        ("x IS NOT NULL", "x = 1", True),
        ("x IS NOT NULL", "x IS NOT NULL", True),
        ("x IS NOT NULL", "x CONTAINS 'a'", True),
        ("x < -INFINITY", "x IS NOT NULL", False),
    ],
)
def test_two_sets_of_values_meet(one: str, other: str, expected: bool) -> None:
    assert meets(one, other) is expected


@given(SEEDS)
def test_sets_meet_as_domains_do(seed: int) -> None:
    rng = random.Random(seed)
    index: DomainIndex[Domain] = DomainIndex(needing=True)
    known: dict[int, Domain] = {}
    for _ in range(12):
        drawn = domain(str(some_constraint(rng, ["x"]))).without_absent()
        found = index.meeting([{"x": pieces_of([drawn])}]).tolist()
        assert found == [n for n, each in sorted(known.items()) if not each.disjoint(drawn)]
        if known and rng.random() < 0.3:
            gone = rng.choice(list(known))
            index.remove(gone, [{"x": pieces_of([known.pop(gone)])}])
        number = index.add(drawn, [{"x": pieces_of([drawn])}])
        assert number is not None
        known[number] = drawn


def test_what_is_needed_must_be_named() -> None:
    index: DomainIndex[str] = DomainIndex(needing=True)
    index.add("x", [{"x": values("x > 1")}])
    index.add("x and y", [{"x": values("x > 1"), "y": values("y > 1")}])
    index.add("nothing", [{}])
    index.add("never", [])
    names = [index.items[each] for each in index.meeting([{"x": values("x = 2")}]).tolist()]
    assert names == ["x", "nothing"]


def test_what_is_asked_for_must_be_offered() -> None:
    index: DomainIndex[str] = DomainIndex(needing=False)
    index.add("x", [{"x": values("x > 1")}])
    index.add("x or y", [{"x": values("x > 1"), "y": []}, {"y": values("y > 1")}])
    index.remove(0, [{"x": values("x > 1")}])
    for asked, found in (({"x": values("x = 2")}, 1), ({"y": values("y = 2")}, 1), ({}, 1)):
        assert len(index.meeting([asked])) == found
    assert not len(index.meeting([{"x": values("x = 2"), "y": values("y = 2")}]))


@pytest.mark.parametrize("count", [MOST_SPANS - 1, MOST_SPANS, MOST_SPANS + 1])
def test_a_long_list_is_one_place(count: int) -> None:
    listed = f"x IN ({', '.join(str(2 * n) for n in range(count))})"
    for other, expected in (("x BETWEEN 1 AND 2", True), ("x > 2 AND x < 4", False)):
        assert meets(listed, other) is expected
    odd = f"x IN ({', '.join(str(2 * n + 1) for n in range(count))})"
    assert not meets(listed, odd)
    assert meets(f"x NOT IN ({', '.join(map(str, range(count)))})", odd)


@pytest.mark.parametrize(("spans", "is_given_up"), [(-1, False), (0, False), (1, True)])
def test_what_takes_long_to_compare_counts_as_meeting(spans: int, is_given_up: bool) -> None:
    most = MOST_TRIED - 2  # one test, held against itself and its own interval, too
    words = ", ".join(f"'a{n}'" for n in range(most + spans))
    assert meets("x CONTAINS 'b'", f"x IN ({words})") is is_given_up


def test_what_is_given_up_does_not_depend_on_who_is_asked() -> None:
    tests = " AND ".join(f"x CONTAINS 'm{n}'" for n in range(20))
    narrow = f"x >= 'm' AND x < 'n' AND {tests}"
    ends = [f"'{end}{n}'" for end in "az" for n in range(MOST_SPANS)]
    assert not meets(narrow, f"x IN ({', '.join(ends)})")
    assert meets(narrow, f"x IN ({', '.join(ends)}, 'm')")  # given up
    assert not meets(narrow, "x IN ('a', 'z')")
    assert meets(narrow, "x IN ('a', 'm', 'z')")  # given up
