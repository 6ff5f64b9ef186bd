"""The tree equals the reference, whatever its switches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pytest

from palio.errors import LimitExceeded
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


def drawn(rng: random.Random, switches: dict[str, Any], count: int) -> dict[int, Filter]:
    """Some filters that a tree with these switches takes."""
    filters: dict[int, Filter] = {}
    for key in range(count):
        more = filters | {key: some_filter(rng)}
        with suppress(LimitExceeded):  # it would need too many paths, or trees
            Tree(more, **switches)
            filters = more
    return filters


def check(rng: random.Random, switches: dict[str, Any], count: int) -> None:
    """A tree finds what the reference finds, and the order of its filters does not matter."""
    filters = drawn(rng, switches, count)
    reference = Reference()
    for key, each in filters.items():
        reference.add(key, each)
    tree = Tree(filters, **switches)
    other = Tree(dict(reversed(filters.items())), **switches)
    assert str(tree) == str(other)
    assert tree.space() == other.space()
    for batch in to_batches(some_event(rng) for _ in range(32)):
        ours, theirs = tree.match(batch), reference.match(batch)
        assert ours.rows.tolist() == theirs.rows.tolist()
        assert ours.keys.tolist() == theirs.keys.tolist()
        other.match(batch)
    assert tree.work == other.work


@pytest.mark.parametrize("switches", share(SWITCHES, 8), ids=str)
def test_equals_the_reference(rng: random.Random, switches: dict[str, Any]) -> None:
    for count in (1, 3, 14):
        check(rng, switches, count)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(100))
def test_equals_the_reference_for_many_sets(rng: random.Random, number: int) -> None:
    for count in range(1, 30, 3):
        check(rng, SWITCHES[number % len(SWITCHES)], count)


@pytest.mark.parametrize("successors", [False, True])
def test_many_ranges_of_one_attribute(rng: random.Random, successors: bool) -> None:
    asked = [(rng.randrange(40), rng.randrange(1, 42), rng.randrange(3)) for _ in range(60)]
    engine = Tree(
        {
            key: parse_filter(f"x >= {low} AND x < {high} AND y = {y}")
            for key, (low, high, y) in enumerate(asked)
        },
        successors=successors,
    )
    batch = pa.record_batch(
        {"x": pa.array(range(-1, 42)), "y": pa.array([n % 3 for n in range(43)])}
    )
    expected = [
        (row, key)
        for row, x in enumerate(range(-1, 42))
        for key, (low, high, y) in enumerate(asked)
        if low <= x < high and y == row % 3
    ]
    found = engine.match(batch)
    assert list(zip(found.rows.tolist(), found.keys.tolist(), strict=True)) == expected


def test_one_sided_ranges_are_found_without_trying_all() -> None:
    engine = Tree({limit: parse_filter(f"price < {limit}") for limit in range(1000)})
    for price in (10, 500, 990):
        engine.work = Work()
        matches = 999 - price
        assert len(engine.match(to_batch({"price": price})).keys) == matches
        assert engine.work.visited < 4 * matches + 40


def test_narrow_ranges_are_found_without_trying_all() -> None:
    texts = [f"{low} <= price AND price < {low + 3}" for low in range(500)]
    engine = Tree({key: parse_filter(text) for key, text in enumerate(texts)})
    events = pa.record_batch({"price": pa.array(range(0, 500, 7))})
    engine.match(events)
    assert engine.work.visited < 60 * events.num_rows


def test_a_chain_longer_than_the_stack() -> None:
    engine = Tree({number: parse_filter(f"a{number:04} = 1") for number in range(1_010)})
    assert engine.match(to_batch({"a0017": 1})).keys.tolist() == [17]
    assert len(str(engine).splitlines()) == 2_020


def test_an_empty_tree_and_a_tree_of_the_constant_filters() -> None:
    events = pa.record_batch({"x": pa.array([1, None])})
    assert Tree({}).match(events).rows.tolist() == []
    engine = Tree({1: TRUE, 2: FALSE})
    assert engine.match(events).keys.tolist() == [1, 1]
    assert str(engine) == "[1]"
    assert engine.match(events.slice(0, 0)).rows.tolist() == []


def test_equal_filters_share_a_leaf_and_a_key_occurs_once() -> None:
    engine = Tree({1: parse_filter("x = 1 OR y = 1"), 2: parse_filter("y = 1 OR x = 1")})
    assert engine.space().leaves == 2
    assert engine.match(to_batch({"x": 1, "y": 1})).keys.tolist() == [1, 2]


# --- both searches reach the same leaves, each once; jumping visits fewer places ---


@pytest.mark.parametrize("collapse", [False, True])
def test_jumping_reaches_the_same_leaves_with_fewer_visits(
    rng: random.Random, collapse: bool
) -> None:
    switches: dict[str, Any] = {"schema": "abcdef", "collapse": collapse}
    engine = Tree(drawn(rng, switches, 60), **switches)
    (root,) = engine._forest.trees.values()
    walked, jumped = Work(), Work()
    for batch in to_batches(some_event(rng) for _ in range(150)):
        for row in TreeEvents(batch).rows(engine._slots):
            leaves, others = (
                reached(root, row, walked),
                reached_by_jumps(root, row, jumped),
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
