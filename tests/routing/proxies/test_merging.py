"""Merging: the union exactly, no more messages than news, and what it does at its limit."""

from __future__ import annotations

import random
from typing import Final

import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import FALSE, TRUE, Conjunction, Constraint, Filter
from palio.model.limits import MAX_CONJUNCTIONS
from palio.routing.proxies.merging import (
    Demand,
    adjusted,
    combined,
    demand_of,
    includes,
    narrowed,
    says_the_same,
    widened,
    wishes_of,
)
from palio.routing.proxies.messages import Wish

LOW: Final = parse_filter("x < 3")
HIGH: Final = parse_filter("x > 5")
WIDE: Final = parse_filter("x < 4")


def distinct(count: int) -> Filter:
    """Alternatives no two of which merge."""
    parts = [
        Conjunction.of([Constraint.of("s", "=", f"S{n:05}"), Constraint.of("p", "<", n + 1)])
        for n in range(count)
    ]
    return Filter.of(parts)


def wish(filter: Filter, *, pre: bool = False, count: int | None = None) -> Demand:
    return demand_of([Wish(filter, pre, count)])


def test_a_demand_is_its_wishes() -> None:
    wishes = (Wish(LOW, True), Wish(HIGH, False, 3))
    assert wishes_of(demand_of(wishes)) == wishes


def random_specification(rng: random.Random) -> Filter:
    parts = []
    for _ in range(rng.randint(1, 2)):
        texts = [
            f"{name} {rng.choice(('<', '>=', '='))} {rng.randrange(6)}"
            for name in rng.sample("xyz", rng.randint(1, 2))
        ]
        parts.append(" AND ".join(texts))
    return parse_filter(" OR ".join(parts))


def test_a_merge_is_exactly_the_union_and_canonical(rng: random.Random) -> None:
    events = [{"x": x, "y": y, "z": z} for x in range(6) for y in range(6) for z in range(6)]
    for _ in range(60):
        filters = tuple(random_specification(rng) for _ in range(rng.randint(1, 6)))
        whole = widened(filters[0], filters[1:])
        assert whole == Filter.of(whole.conjunctions)
        for event in events:
            assert whole.matches(event) == any(each.matches(event) for each in filters)
        gone = rng.randrange(len(filters))
        rest = (*filters[:gone], *filters[gone + 1 :])
        merged = widened(FALSE, filters)
        less = narrowed(merged, (filters[gone],), rest)
        for event in events:
            assert less.matches(event) == any(each.matches(event) for each in rest)


def test_what_is_covered_leaves_the_very_same_specification() -> None:
    assert widened(WIDE, (LOW,)) is WIDE
    assert widened(WIDE, (parse_filter("x < 1 AND x > 2"),)) is WIDE
    assert widened(FALSE, (parse_filter("x < 1 AND x > 2"),)) == FALSE


@pytest.mark.parametrize("count", [MAX_CONJUNCTIONS - 1, MAX_CONJUNCTIONS])
def test_up_to_the_limit_a_merge_is_exact(count: int) -> None:
    every = distinct(count)
    assert widened(Filter(every.conjunctions[1:]), (Filter(every.conjunctions[:1]),)) == every


def test_beyond_the_limit_a_merge_is_everything_of_the_type() -> None:
    every = distinct(MAX_CONJUNCTIONS + 1)
    assert widened(Filter(every.conjunctions[1:]), (Filter(every.conjunctions[:1]),)) == TRUE


def test_below_the_limit_again_it_is_exact_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palio.routing.proxies.merging.MAX_CONJUNCTIONS", 5)
    every = distinct(6)
    whole, last = Filter(every.conjunctions[:-1]), Filter(every.conjunctions[-1:])
    assert widened(whole, (last,)) == TRUE
    assert narrowed(TRUE, (last,), (whole,)) == whole
    widened.cache_clear()  # it remembers the small limit


def test_what_a_lost_one_left_in_a_merge_goes_with_it() -> None:
    """Even if another wish covers it, which may go next."""
    merged = widened(parse_filter("x = 2"), (parse_filter("x IN (3, 9)"),))
    wide = parse_filter("x >= 3")
    now = narrowed(
        widened(merged, (wide,)), (parse_filter("x IN (3, 9)"),), (parse_filter("x = 2"), wide)
    )
    assert narrowed(now, (wide,), (parse_filter("x = 2"),)) == parse_filter("x = 2")


def test_includes_asks_each_alternative_for_one_that_covers_it() -> None:
    both = widened(LOW, (HIGH,))
    assert includes(both, LOW)
    assert includes(both, both)
    assert not includes(LOW, both)
    assert includes(LOW, FALSE)
    assert not includes(FALSE, LOW)


def test_a_pre_wish_hides_ordinary_ones_and_not_the_other_way() -> None:
    assert combined([wish(LOW), wish(WIDE, pre=True)]) == wish(WIDE, pre=True)
    assert combined([wish(LOW, pre=True), wish(WIDE)]) == wish(LOW, pre=True) | wish(WIDE)
    partly = combined([wish(widened(LOW, (HIGH,))), wish(WIDE, pre=True)])
    assert partly == wish(WIDE, pre=True) | wish(HIGH)


def test_counts_neither_merge_nor_add_up() -> None:
    assert combined([wish(LOW, count=2), wish(LOW, count=5)]) == wish(LOW, count=5)
    both = wish(LOW, count=2) | wish(WIDE, count=5)
    assert combined([wish(LOW, count=2), wish(WIDE, count=5)]) == both
    assert combined([wish(LOW, count=2), wish(WIDE)]) == wish(WIDE)
    assert combined([wish(LOW, count=2, pre=True), wish(WIDE)]) == wish(
        LOW, count=2, pre=True
    ) | wish(WIDE)
    assert combined([wish(LOW, count=2, pre=True), wish(WIDE, pre=True)]) == wish(WIDE, pre=True)


def test_an_adjusted_demand_is_what_combining_everything_gives(rng: random.Random) -> None:
    events = [{"x": x, "y": y, "z": z} for x in range(6) for y in range(6) for z in range(6)]
    for _ in range(40):
        demands = [
            wish(random_specification(rng), count=rng.choice((None, None, 2))) for _ in range(4)
        ]
        told = combined(demands)
        more = wish(random_specification(rng))
        grown = adjusted(told, [more])
        gone = demands.pop(rng.randrange(len(demands)))
        now = adjusted(told, [more], tuple(each for _, each in gone), [*demands, more])
        for found, wanted in (
            (grown, [*demands, gone, more]),
            (now, [*demands, more]),
        ):
            for event in events:
                assert any(f.matches(event) for _, f in found) == any(
                    f.matches(event) for each in wanted for _, f in each
                )


def test_only_news_is_told() -> None:
    assert says_the_same(wish(LOW), wish(LOW))
    assert not says_the_same(wish(LOW), wish(WIDE))
    assert not says_the_same(wish(LOW), wish(LOW, pre=True))
    assert not says_the_same({}, wish(LOW))
    assert says_the_same(wish(LOW, count=3), wish(LOW, count=2))
    assert not says_the_same(wish(LOW, count=2), wish(LOW, count=3))
    assert not says_the_same(wish(LOW, count=2), wish(LOW))
    assert not says_the_same(wish(LOW), wish(LOW, count=2))
    assert not says_the_same(wish(LOW, count=2), wish(HIGH, count=2))
    elsewise = parse_filter("x < 3 AND x < 4")
    assert elsewise != LOW
    assert says_the_same(wish(LOW), wish(elsewise))
