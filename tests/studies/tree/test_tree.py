"""The tree equals the reference, whatever its switches, after every step of its incarnation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse_filter
from palio.matching.reference import Reference
from palio.model import FALSE, TRUE, Filter, Value, to_batch, to_batches
from palio.model.printing import show_value
from palio_studies.tree.events import TreeEvents
from palio_studies.tree.tree import Tree, Work, reached, reached_by_jumps
from tests.conftest import share

ATTRIBUTES: Final = "abcdef"
CONSTANTS: Final[dict[str, list[Value]]] = {
    "number": [-(2**63), -1, 0, 0.5, 1, 2, 2.5, 3, 2**53, 2**53 + 1, 1e300, math.inf],
    "string": ["", "a", "ab", "abc", "b", "ba", "B", "ABC", "10.1.2.3", "straße"],
    "time": [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours) for hours in range(3)],
    "bytes": [b"", b"a", b"ab", b"\xff"],
    "bool": [True, False],
}
KINDS: Final = ["number"] * 4 + ["string"] * 3 + ["time", "bytes", "bool"]
COMPARISONS: Final = ["=", "!=", "<", "<=", ">", ">="]

SWITCHES: Final[list[dict[str, Any]]] = [
    {"collapse": collapse, "successors": successors, "factored": factored, "schema": schema}
    for collapse in (False, True)
    for successors in (False, True)
    for factored in ((), ("a",), ("c", "a"))
    for schema in ("", "cab")
]


def some_constraint(rng: random.Random) -> str:
    name, kind, form = rng.choice(ATTRIBUTES), rng.choice(KINDS), rng.random()
    constants = [show_value(rng.choice(CONSTANTS[kind])) for _ in range(2)]
    if form < 0.2:
        return f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(constants)})"
    if form < 0.4 and kind == "string":
        return f"{name} STARTS WITH {constants[0]}"
    return f"{name} {rng.choice(COMPARISONS)} {constants[0]}"


def some_filter(rng: random.Random) -> Filter:
    alternatives = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        parts = [f"({some_constraint(rng)})" for _ in range(rng.choice([1, 2, 3, 3, 4]))]
        alternatives.append(" AND ".join(parts))
    return parse_filter(" OR ".join(alternatives))


def some_event(rng: random.Random) -> dict[str, Value]:
    event: dict[str, Value] = {}
    for name in ATTRIBUTES:
        if rng.random() < 0.8:
            event[name] = rng.choice(CONSTANTS[rng.choice(KINDS)])
            if rng.random() < 0.05:
                event[name] = math.nan
    return event


class Life:
    """A tree and a reference that live through the same things."""

    def __init__(self, rng: random.Random, switches: dict[str, Any]) -> None:
        self.rng = rng
        self.switches = switches
        self.tree = Tree(**switches)
        self.reference = Reference()
        self.filters: dict[int, Filter] = {}
        self.batches = list(to_batches(some_event(rng) for _ in range(16)))

    def step(self) -> None:
        rng = self.rng
        key = rng.randrange(14)
        if key in self.filters:
            self.tree.remove(key)
            self.reference.remove(key)
            del self.filters[key]
            return
        filter = some_filter(rng)
        try:
            self.tree.add(key, filter)
        except LimitExceeded:
            return  # it would need too many paths, or trees
        self.reference.add(key, filter)
        self.filters[key] = filter

    def check_answers(self) -> None:
        for batch in self.batches:
            ours, theirs = self.tree.match(batch), self.reference.match(batch)
            assert ours.rows.tolist() == theirs.rows.tolist()
            assert ours.keys.tolist() == theirs.keys.tolist()

    def check_structure(self) -> None:
        """A tree that never had what was removed is the same in structure, space and work."""
        fresh = Tree(**self.switches)
        for key in sorted(self.filters):
            fresh.add(key, self.filters[key])
        assert str(self.tree) == str(fresh)
        assert self.tree.space() == fresh.space()
        self.tree.work = Work()
        for batch in self.batches:
            self.tree.match(batch)
            fresh.match(batch)
        assert self.tree.work == fresh.work


@pytest.mark.parametrize("switches", share(SWITCHES, 8), ids=str)
def test_equals_the_reference_after_every_step(
    rng: random.Random, switches: dict[str, Any]
) -> None:
    incarnation = Life(rng, switches)
    for number in range(24):
        incarnation.step()
        incarnation.check_answers()
        if number % 6 == 5:
            incarnation.check_structure()


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(100))
def test_equals_the_reference_in_many_long_lives(rng: random.Random, number: int) -> None:
    incarnation = Life(rng, SWITCHES[number % len(SWITCHES)])
    for _ in range(60):
        incarnation.step()
        incarnation.check_answers()
        incarnation.check_structure()


@pytest.mark.parametrize("successors", [False, True])
def test_ranges_come_and_go(rng: random.Random, successors: bool) -> None:
    """Many cuts of one attribute: regions grow and shrink by pieces."""
    engine, live = Tree(successors=successors), dict[int, tuple[int, int, int]]()
    batch = pa.record_batch(
        {"x": pa.array(range(-1, 42)), "y": pa.array([n % 3 for n in range(43)])}
    )
    for step in range(300):
        key = rng.randrange(60)
        if key in live:
            engine.remove(key)
            del live[key]
        else:
            low, high, y = rng.randrange(40), rng.randrange(1, 42), rng.randrange(3)
            live[key] = low, high, y
            engine.add(key, parse_filter(f"x >= {low} AND x < {high} AND y = {y}"))
        if step % 20 == 19:
            expected = [
                (row, key)
                for row, x in enumerate(range(-1, 42))
                for key, (low, high, y) in sorted(live.items())
                if low <= x < high and y == row % 3
            ]
            found = engine.match(batch)
            assert list(zip(found.rows.tolist(), found.keys.tolist(), strict=True)) == expected
            fresh = Tree(successors=successors)
            for each, (low, high, y) in live.items():
                fresh.add(each, parse_filter(f"x >= {low} AND x < {high} AND y = {y}"))
            assert str(engine) == str(fresh)
            assert engine.space() == fresh.space()


def test_one_sided_ranges_are_found_without_trying_all() -> None:
    engine = Tree()
    for limit in range(1000):
        engine.add(limit, parse_filter(f"price < {limit}"))
    for price in (10, 500, 990):
        engine.work = Work()
        matches = 999 - price
        assert len(engine.match(to_batch({"price": price})).keys) == matches
        assert engine.work.visited < 4 * matches + 40


def test_narrow_ranges_are_found_without_trying_all() -> None:
    engine = Tree()
    for low in range(500):
        engine.add(low, parse_filter(f"{low} <= price AND price < {low + 3}"))
    events = pa.record_batch({"price": pa.array(range(0, 500, 7))})
    engine.match(events)
    assert engine.work.visited < 60 * events.num_rows


def test_a_chain_longer_than_the_stack() -> None:
    engine = Tree()
    for number in range(1_010):
        engine.add(number, parse_filter(f"a{number:04} = 1"))
    assert engine.match(to_batch({"a0017": 1})).keys.tolist() == [17]
    assert len(str(engine).splitlines()) == 2_020
    for number in range(1_010):
        engine.remove(number)
    assert engine.space().nodes == 0


def test_a_refused_change_changes_nothing() -> None:
    engine = Tree()
    engine.add(1, parse_filter("x < 1"))
    drawn = str(engine)
    with pytest.raises(InvalidInput, match="key 1 has a filter"):
        engine.add(1, parse_filter("x < 2"))
    with pytest.raises(KeyError):
        engine.remove(2)
    assert str(engine) == drawn
    assert len(engine) == 1


def test_a_filter_that_needs_too_many_trees_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("palio_studies.tree.factoring.MAX_TREES", 3)
    engine = Tree(factored=["x"])
    engine.add(1, parse_filter("x = 1 AND y = 1"))
    drawn = str(engine)
    with pytest.raises(LimitExceeded, match="MAX_TREES = 3"):
        engine.add(2, parse_filter("x = 2 AND y = 2 OR x = 3 AND y = 3"))
    assert str(engine) == drawn
    engine.add(2, parse_filter("x = 2 AND y = 2"))
    assert len(engine) == 2


def test_an_empty_tree_and_a_tree_of_the_constant_filters() -> None:
    engine = Tree()
    events = pa.record_batch({"x": pa.array([1, None])})
    assert engine.match(events).rows.tolist() == []
    engine.add(1, TRUE)
    engine.add(2, FALSE)
    assert engine.match(events).keys.tolist() == [1, 1]
    assert str(engine) == "[1]"
    assert engine.match(events.slice(0, 0)).rows.tolist() == []


def test_equal_filters_share_a_leaf_and_a_key_occurs_once() -> None:
    engine = Tree()
    engine.add(1, parse_filter("x = 1 OR y = 1"))
    engine.add(2, parse_filter("y = 1 OR x = 1"))
    assert engine.space().leaves == 2
    assert engine.match(to_batch({"x": 1, "y": 1})).keys.tolist() == [1, 2]


def test_attributes_leave_no_slots_behind() -> None:
    engine = Tree()
    for number in range(100):
        engine.add(number, parse_filter(f"attribute{number} = 1 AND other{number} > 2"))
        engine.remove(number)
    assert len(engine._slots) <= 2


# --- both searches reach the same leaves, each once; jumping visits fewer places ---


@pytest.mark.parametrize("collapse", [False, True])
def test_jumping_reaches_the_same_leaves_with_fewer_visits(
    rng: random.Random, collapse: bool
) -> None:
    engine = Tree("abcdef", collapse=collapse)
    for key in range(150):
        with suppress(LimitExceeded):
            engine.add(key, some_filter(rng))
    (tree,) = engine._forest.trees.values()
    walked, jumped = Work(), Work()
    for batch in to_batches(some_event(rng) for _ in range(150)):
        for row in TreeEvents(batch).rows(engine._slots):
            leaves, others = (
                reached(tree.root, row, walked),
                reached_by_jumps(tree.root, row, jumped),
            )
            assert len(set(leaves)) == len(leaves)
            assert len(others) == len(leaves)
            assert set(others) == set(leaves)
    assert jumped.visited < walked.visited
    assert jumped.tests < walked.tests


@pytest.mark.parametrize("search", [reached, reached_by_jumps])
def test_an_empty_tree_costs_nothing(search: Callable[..., list[object]]) -> None:
    work = Work()
    assert search(None, (), work) == []
    assert work == Work()
