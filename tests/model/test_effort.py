"""Comparing two filters is a bounded piece of work, however large they are."""

from __future__ import annotations

from typing import Final

import pytest

import palio
from palio.model.constraints import Constraint, domain_of
from palio.model.domains import Domain, KindSet
from palio.model.filters import Conjunction
from palio.model.limits import MAX_COMPARISONS, MAX_CONJUNCTIONS, Effort
from palio.model.merging import merged
from palio.model.operators import Op
from palio.model.texts import TextTest
from palio.model.values import Kind


def likes(first: int) -> palio.Filter:
    """As many alternatives as a filter may have, none of which covers another."""
    return palio.parse_filter(
        " OR ".join(f"s LIKE '%a{first + n}b%c%'" for n in range(MAX_CONJUNCTIONS))
    )


@pytest.mark.parametrize("left", [1, 2])
def test_effort_is_spent_when_nothing_is_left(left: int) -> None:
    effort = Effort(left)
    assert [effort.spend(1) for _ in range(3)] == [True, left > 1, False]
    assert effort.is_spent


def test_large_filters_are_compared_no_longer_than_the_limit_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[float] = []
    compare = Conjunction.covers

    def counted(general: Conjunction, specific: Conjunction) -> bool:
        compared.append(general.weight + specific.weight)
        return compare(general, specific)

    monkeypatch.setattr(Conjunction, "covers", counted)
    assert not palio.covers(likes(0), likes(1_000))
    assert 0 < sum(compared) <= MAX_COMPARISONS


def test_what_is_equal_is_covered_however_large_it_is() -> None:
    assert palio.covers(likes(0), likes(0))


def test_what_is_not_merged_is_left_as_it_is() -> None:
    parts = [palio.parse_filter(f"a = {n} AND b = 1").conjunctions[0] for n in range(10)]
    (whole,) = merged(parts)
    assert str(whole).startswith("a IN (0, 1,")
    few = merged(parts, Effort(7))
    assert 1 < len(few) < len(parts)
    one, other = palio.Filter.of(few), palio.Filter.of([whole])
    for n in range(-1, 11):
        event = {"a": n, "b": 1}
        assert one.matches(event) == other.matches(event)


def offers(text: str) -> palio.Advertisement:
    return palio.parse_advertisement(text)


def counted_domains(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Count the intervals and tests that each call of a method of domains has to compare."""
    found: list[int] = []
    real = getattr(Domain, name)

    def counting(one: Domain, other: Domain) -> object:
        tests = one.text_tests + other.text_tests
        found.append((1 + tests) * (one.intervals + other.intervals))
        return real(one, other)

    monkeypatch.setattr(Domain, name, counting)
    return found


WORDS: Final = " AND ".join(f"s = 't{n}'" for n in range(600))
"""An advertisement of one attribute that may have any of 600 values."""


def test_an_advertisement_meets_a_filter_for_no_longer_than_the_limit_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quotes = offers(WORDS)
    heard = palio.parse_filter(" OR ".join(f"s LIKE '%x{n}y%'" for n in range(MAX_CONJUNCTIONS)))
    looked_at = counted_domains(monkeypatch, "disjoint")
    assert palio.overlaps(quotes, heard), "nobody looked to the end, so no event may be lost"
    assert 0 < sum(looked_at) <= 2 * MAX_COMPARISONS
    looked_at.clear()
    few = palio.Filter.of(heard.conjunctions[:3])
    assert not palio.overlaps(quotes, few)
    assert len(looked_at) == 3


def test_advertisements_are_compared_no_longer_than_the_limit_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def some(first: int) -> palio.Advertisement:
        return offers(" OR ".join(f"s LIKE '%a{first + n}b%c%'" for n in range(MAX_CONJUNCTIONS)))

    wide, narrow = some(0), some(500)
    looked_at = counted_domains(monkeypatch, "includes")
    assert not palio.covers_advertisement(wide, narrow)
    assert 0 < sum(looked_at) <= 2 * MAX_COMPARISONS
    assert palio.covers_advertisement(some(0), offers("s LIKE '%a0b%c%'"))


def test_what_an_advertisement_offers_is_joined_for_no_longer_than_the_limit_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lists(count: int) -> palio.Advertisement:
        each = (", ".join(str(2 * (at + count * n)) for n in range(64)) for at in range(count))
        return offers(" AND ".join(f"a IN ({numbers})" for numbers in each))

    (few,) = lists(10).alternatives
    assert len(few.domains["a"]) == 1
    looked_at = counted_domains(monkeypatch, "union")
    (many,) = lists(250).alternatives
    assert len(many.domains["a"]) > 1, "those that nobody got round to join stand side by side"
    assert sum(looked_at) <= 8 * MAX_COMPARISONS + 64
    for n in (0, 2, 31_998, 32_000, 1):
        meets = palio.overlaps(lists(250), palio.parse_filter(f"a = {n}"))
        assert meets is (n % 2 == 0 and n < 32_000)


@pytest.mark.parametrize(("tests", "units"), [(0, 4 / 8), (1, 4 / 8 + 8 + 4)])
def test_every_interval_is_held_against_every_test(tests: int, units: float) -> None:
    one = domain_of(Constraint.of("s", Op.IN, ("a", "b", "c")))
    spans = {Kind.STRING: KindSet((("a", "b"),), frozenset([TextTest(Op.LIKE, "%x")][:tests]))}
    for left in (units, units - 0.1):
        assert Effort(left).compare(one, Domain(False, spans)) is (left == units)
