"""Comparing two filters is a bounded piece of work, however large they are."""

from __future__ import annotations

import pytest

import palio
from palio.model import relations
from palio.model.effort import Effort
from palio.model.filters import Conjunction
from palio.model.limits import MAX_COMPARISONS, MAX_CONJUNCTIONS
from palio.model.merging import merged


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
    compare = relations.conjunction_covers

    def counted(general: Conjunction, specific: Conjunction) -> bool:
        compared.append(general.weight + specific.weight)
        return compare(general, specific)

    monkeypatch.setattr(relations, "conjunction_covers", counted)
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
