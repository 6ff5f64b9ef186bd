"""Changes that single events are tried on as they are."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.errors import InvalidEvent
from palio.matching import warming
from palio.matching.held import ADVANCING, LAYER, MAX_HELD, MOST_ANCHORS, Held, work_of
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.matching.subscriptions import Subscription
from palio.model import Filter, to_batch
from tests.matching.test_index import parsed, some_events, some_filters, usable
from tests.strategies import some_bindings


@pytest.mark.parametrize("round_", range(2))
def test_single_events_equal_the_reference_after_every_change(
    rng: random.Random, round_: int
) -> None:
    """Filters of every shape, none of them compiled or some; added, changed and removed."""
    warming.warm()
    index, reference = Index(), Reference()
    filters: dict[int, Filter] = {}
    for key, filter in enumerate(some_filters(rng, 60)):
        values = usable(filter, some_bindings(rng))
        if values is None:
            continue
        filters[key] = filter
        for engine in (index, reference):
            engine.add(key, filter, values, destination=key % 5)
        moved = rng.choice(list(filters))
        changed = usable(filters[moved], some_bindings(rng))
        goes = rng.random() < 0.5
        for engine in (index, reference):
            if changed is not None:
                engine.bind(moved, changed)
            elif goes:
                engine.remove(moved)
        if moved not in index:
            del filters[moved]
        if round_ and key == 10 * round_:
            index.merge()
        for event in some_events(rng, list(filters.values())[-3:], 2):
            expected = reference.match(to_batch(event)).keys.tolist()
            assert index.match_event(event).tolist() == expected
            assert index.route_event(event) == reference.route_event(event)


@pytest.mark.parametrize(
    ("text", "values", "work"),
    [
        ("x IN (1, 2, 3)", {}, 5),
        ("x IN :many AND y = 1", {"many": [1, 2, 3]}, 6),
        ("x = 1 OR s LIKE '%a'", {}, 3),
        ("x = 1 AND LENGTH(s) > 2", {}, 3),
    ],
)
def test_work_counts_constraints_and_constants(
    text: str, values: dict[str, Any], work: int
) -> None:
    assert work_of(Subscription(parsed(text), values, 0)) == work


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "values", "event"),
    [
        ("x = 5", {}, {"x": 5.0}),
        ("x = :v", {"v": 5.0}, {"x": 5}),
        ("x = :v", {"v": np.int64(5)}, {"x": np.float64(5)}),
        ("x = TRUE", {}, {"x": True}),
        ("t = :v", {"v": NOON}, {"t": NOON.astimezone(timezone(timedelta(hours=2)))}),
        ("x IN :v", {"v": {1, 2, 5.0}}, {"x": 5}),
        ("x IN :v", {"v": 5}, {"x": 5}),
        ("x IN (1, 5) AND s LIKE 'a%'", {}, {"x": 5, "s": "ab"}),
        (f"x IN ({', '.join(map(str, range(MOST_ANCHORS)))})", {}, {"x": 5}),
        (f"x IN ({', '.join(map(str, range(MOST_ANCHORS + 1)))})", {}, {"x": 5}),
        ("s = 'AB' IGNORE CASE", {}, {"s": "ab"}),
        ("b = X'00ff'", {}, {"b": bytearray(b"\x00\xff")}),
        ("x IS NULL", {}, {"s": "a"}),
        ("x IS NULL AND y IS NULL", {}, {"x": None}),
        ("x < y", {}, {"x": 1, "y": 2}),
        ("x != 5 OR s = 'a'", {}, {"s": "a"}),
    ],
)
def test_a_filter_is_found_by_its_anchor(
    text: str, values: dict[str, Any], event: dict[str, Any]
) -> None:
    held = Held().after([(7, Subscription(parsed(text), values, 3))])
    assert held.match(event) == [7]
    assert held.match({"z": 1, "x": None, "s": "other"} if "NULL" not in text else {"x": 1}) == []
    assert held.destination(7) == 3


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_a_comparison_holds_up_to_its_number(op: str) -> None:
    filter, values = parsed(f"x {op} :v"), {"v": 5}
    held = Held().after([(7, Subscription(filter, values, 0))])
    for x in (4, 4.5, 5, 5.0, 5.5, 6):
        assert held.match({"x": x}) == ([7] if filter.matches({"x": x}, values) else [])


def test_the_last_change_of_a_key_counts_and_what_was_held_before_stays() -> None:
    first = Held().after([(7, Subscription(parsed("x = 1"), {}, 0))])
    second = first.after([(7, Subscription(parsed("x = 2"), {}, 0)), (8, None)])
    third = second.after([(7, None)])
    assert [each.match({"x": 1}) for each in (first, second, third)] == [[7], [], []]
    assert [each.match({"x": 2}) for each in (first, second, third)] == [[], [7], []]
    assert third.left(np.array([6, 7, 8, 9])).tolist() == [6, 9]
    assert first.left(np.array([6, 7, 8, 9])).tolist() == [6, 8, 9]


def test_what_is_held_alone_is_told_in_order() -> None:
    index = Index()
    keys = [70_000, -5, 3, 1 << 40, -(1 << 33)]
    for key in keys:
        index.add(key, parsed("x = 1"))
    assert index.match_event({"x": 1}).tolist() == sorted(keys)


def test_what_is_no_event_is_refused() -> None:
    index = Index()
    index.add(1, parsed("s = 'a'"))
    for event in ({"x": [1]}, {"s": object()}, {"x": 1 << 70}):
        for ask in (index.match_event, index.route_event):
            with pytest.raises(InvalidEvent):
                ask(event)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_no_more_than_so_many_changes_are_held(extra: int) -> None:
    index = Index()
    for key in range(MAX_HELD + extra):
        index.add(key, parsed("s = 'a'"))
    assert len(index.match_event({"s": "a"})) == MAX_HELD + extra
    assert (index._store._state.latest.count > 0) is (extra > 0)


def test_what_was_tried_often_enough_is_compiled() -> None:
    """Numbers in place; for anything else the spare thread is asked, once."""
    warming.warm()
    jobs: list[Any] = []
    index = Index(jobs.append)
    keys = range(LAYER + 1)
    for key in keys:
        index.add(key, parsed("x < 5"))
    for _ in range(ADVANCING):
        assert index.match_event({"x": 4}).tolist() == [*keys]
        assert index._store._state.latest.count == 0
    assert index.match_event({"x": 4}).tolist() == [*keys]
    assert index._store._state.latest.count == len(keys)
    assert jobs == []
    index.add(99, parsed("s = 'a'"))
    while not jobs:
        assert index.match_event({"s": "a"}).tolist() == [99]
    assert index.match_event({"s": "a"}).tolist() == [99]
    (job,) = jobs
    assert index._store._state.latest.count == len(keys)
    job()
    assert index._store._state.latest.count == len(keys) + 1
    assert index.match_event({"s": "a", "x": 1}).tolist() == [*keys, 99]


@pytest.mark.parametrize(("filters", "is_held"), [(LAYER - 1, True), (LAYER, True), (11, False)])
def test_few_filters_that_stand_alone_are_not_compiled_for_single_events(
    filters: int, is_held: bool
) -> None:
    """Not after a batch either, which has them compiled; what is dearer moves to that."""
    index = Index()
    for key in range(filters):
        index.add(key, parsed("x < 5"))
    for _ in range(3 * ADVANCING):
        assert len(index.match_event({"x": 4})) == filters
    assert (index._store._state.latest.count == 0) is is_held
    assert len(index.match(pa.record_batch({"x": [4, 5]})).keys) == filters
    assert index.match_event({"x": 4}).tolist() == [*range(filters)]
    assert (len(index._event_view().held) == filters) is is_held
    index.remove(0)
    assert index.match_event({"x": 4}).tolist() == [*range(1, filters)]


def test_what_batches_have_compiled_is_not_held_beyond_the_limit() -> None:
    index = Index()
    for key in range(MAX_HELD):
        index.add(key, parsed(f"x = {key}"))
    assert index.match_event({"x": 4}).tolist() == [4]
    assert index.match(pa.record_batch({"x": [4, 5]})).keys.tolist() == [4, 5]
    assert len(index._event_view().held) == MAX_HELD
    index.add(MAX_HELD, parsed("x = 4"))
    assert index.match_event({"x": 4}).tolist() == [4, MAX_HELD]
    assert len(index._event_view().held) == 1
