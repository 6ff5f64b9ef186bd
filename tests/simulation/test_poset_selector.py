"""The walk through the poset against the filters' own texts, and what it costs at the worst."""

from __future__ import annotations

import random
from typing import Any

import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.normalized import NormalizedFilter
from palio.simulation import poset_selector
from palio.simulation.poset_selector import MOST_LEVELS, MOST_TAKEN, PosetSelector
from tests.matching.test_index import some_events, some_filters, usable
from tests.routing.helpers import parse
from tests.strategies import fresh, some_bindings

MANY = 10_000


def walking(*texts: str) -> PosetSelector:
    """A selector of filters, each with its place as key and destination."""
    found = PosetSelector()
    for key, text in enumerate(texts):
        found.add(key, parse(text), {}, key)
        found.match_event({})  # which files it
    return found


@pytest.mark.parametrize("round_", range(2))
def test_equals_the_filters_as_they_are_written(seed: int, round_: int) -> None:
    """Filters of every shape come, go and change, so that some go that others lie beneath."""
    rng = random.Random(seed + round_)
    walk = PosetSelector()
    filters = list(some_filters(rng, 60))
    known: dict[int, dict[str, Any]] = {}
    for step in range(150):
        key = rng.randrange(len(filters))
        values = usable(filters[key], some_bindings(rng))
        if key not in known and values is not None:
            known[key] = values
            walk.add(key, filters[key], values, key % 7)
        elif key in known and values and rng.random() < 0.5:
            known[key] = values
            walk.bind(key, values, filters[key].bind(values))
        elif key in known:
            del known[key]
            walk.remove(key)
        if step % 10:
            continue
        texts = {at: fresh(str(filters[at].bind(known[at]))) for at in known}
        events = some_events(rng, [filters[at] for at in sorted(known)], 8)
        expected = [{at for at, each in texts.items() if each.matches(event)} for event in events]
        assert [set(walk.match_event(event)) for event in events] == expected
        routed = walk.route(RowParcel("p", events))
        for to in range(7):
            wanted = [any(at % 7 == to for at in keys) for keys in expected]
            assert routed[to].tolist() == wanted if to in routed else not any(wanted)
        assert len(walk) == len(known)


@pytest.mark.parametrize("levels", [1, 3])
def test_bounds_that_are_met_change_no_answer(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    monkeypatch.setattr(poset_selector, "MOST_LEVELS", levels)
    monkeypatch.setattr(poset_selector, "MOST_TAKEN", levels)
    monkeypatch.setattr(poset_selector, "_MOST_VAIN", levels)
    walk = PosetSelector()
    filters = [parse(f"a > {rng.randrange(9)} AND b < {rng.randrange(9)}") for _ in range(80)]
    for key, filter in enumerate(filters):
        walk.add(key, filter, {}, 0)
        if key % 3 == 0:
            walk.match_event({})
            walk.remove(key)
    left = [key for key in range(len(filters)) if key % 3]
    for _ in range(20):
        event = {"a": rng.randrange(10), "b": rng.randrange(10)}
        expected = {key for key in left if filters[key].matches(event)}
        assert set(walk.match_event(event)) == expected


def test_a_filter_is_tried_only_if_one_above_it_matches() -> None:
    walk = walking("a > 1", "a > 5", "a > 5 AND b = 2", "c = 1")
    assert [walk.tried(event) for event in ({"a": 0}, {"a": 3}, {"a": 9})] == [2, 3, 4]


def test_a_wider_filter_that_comes_later_is_above() -> None:
    walk = walking("a > 5 AND b = 2", "a > 5", "c = 1", "a > 1")
    assert [walk.tried(event) for event in ({"a": 0}, {"a": 3}, {"a": 9})] == [2, 3, 4]


def test_what_nobody_asks_for_stays_while_two_lie_beneath_it() -> None:
    walk = walking("a > 1", "a > 5", "a > 3 AND b = 1", "a > 8")
    walk.remove(0)
    assert walk.match_event({"a": 6, "b": 1}) == [1, 2]
    assert walk.tried({"a": 0}) == 1
    walk.remove(2)  # now one lies beneath it, and comes up
    assert [walk.tried(event) for event in ({"a": 0}, {"a": 6})] == [1, 2]
    walk.remove(1)
    walk.remove(3)
    assert walk.tried({"a": 9}) == 0


def test_a_filter_that_stayed_is_asked_for_again() -> None:
    walk = walking("a > 1", "a > 5", "a > 3 AND b = 1")
    walk.remove(0)
    walk.add(9, parse("a > 1"), {}, 4)
    assert walk.match_event({"a": 2}) == [9]


def test_equal_filters_are_tried_once() -> None:
    walk = walking("a > 1", "a > 1")
    assert walk.match_event({"a": 2}) == [0, 1]
    assert walk.tried({"a": 2}) == 1
    walk.remove(0)
    assert walk.match_event({"a": 2}) == [1]


def test_filters_that_match_nothing_are_no_hindrance() -> None:
    walk = walking("a > 5 AND a < 1", "a = 1", "a > 7 AND a < 1", "a > 0")
    assert sorted(walk.match_event({"a": 1})) == [1, 3]


def test_a_parameter_moves_a_filter() -> None:
    walk = PosetSelector()
    walk.add(1, parse("a > 5"), {}, 1)
    walk.add(2, parse("a > :low"), {"low": 7}, 2)
    assert walk.tried({"a": 0}) == 1
    walk.bind(2, {"low": 3}, parse("a > 3"))
    assert walk.match_event({"a": 4}) == [2]
    assert walk.tried({"a": 0}) == 1


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_filter_sinks_through_so_many_levels(beyond: int) -> None:
    """A chain that narrows has one filter a level, until there are no more levels."""
    size = MOST_LEVELS + 1 + beyond
    walk = walking(*[f"a > {n}" for n in range(size)])
    all_but_two = {"a": size - 2}
    assert walk.tried(all_but_two) == size - 1 + (beyond > 0)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_filter_takes_so_many_beneath_it(beyond: int) -> None:
    walk = PosetSelector()
    for key in range(MOST_TAKEN + beyond):
        walk.add(key, parse(f"a = {key}"), {}, 0)
    walk.add(-1, parse("a >= 0"), {}, 0)
    assert walk.tried({"a": -1}) == 1 + max(beyond, 0)


# --- what hostile sets cost ---


class Counted:
    """Counts what is compared with what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compared = 0
        honest = NormalizedFilter.covers

        def covers(one: NormalizedFilter, other: NormalizedFilter) -> bool | None:
            self.compared += 1
            return honest(one, other)

        monkeypatch.setattr(NormalizedFilter, "covers", covers)


HOSTILE: dict[str, list[str]] = {
    "a chain that narrows": [f"a > {n}" for n in range(MANY)],
    "a chain that widens": [f"a > {-n}" for n in range(MANY)],
    "an antichain of values": [f"a = {n}" for n in range(MANY)],
    "an antichain of intervals": [f"a > {n} AND a < {n + 2}" for n in range(MANY)],
}


@pytest.mark.parametrize("texts", HOSTILE.values(), ids=HOSTILE)
def test_hostile_sets_cost_no_more_for_being_large(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    walk = PosetSelector()
    for key, text in enumerate(texts):
        walk.add(key, fresh(text), {}, 0)
    walk.match_event({})
    assert counted.compared < MANY * (MOST_LEVELS + 16)
    before = counted.compared
    for key in range(MANY):
        walk.remove(key)
    assert counted.compared == before
    assert walk.tried({"a": 1}) == 0


@pytest.mark.parametrize("key", [0, MANY])
def test_a_wide_filter_that_comes_and_goes_costs_little(
    key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beneath it find their places once."""
    walk = PosetSelector()
    texts = [f"a = {n}" for n in range(MANY)]
    texts.insert(key, "a >= 0")
    for place, text in enumerate(texts):
        walk.add(place, fresh(text), {}, 0)
    walk.match_event({})
    counted = Counted(monkeypatch)
    for _ in range(10):
        walk.remove(key)
        walk.add(key, fresh("a >= 0"), {}, 0)
        assert key in walk.match_event({"a": 1})
    assert not counted.compared


def test_texts_are_compared_with_a_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    walk = walking(*[f"a CONTAINS 'x{n}y'" for n in range(300)])
    assert counted.compared < 300 * 20
    assert walk.match_event({"a": "x7y"}) == [7]
