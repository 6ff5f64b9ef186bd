"""Compiled subscriptions match what their rows say, however these are sorted into tables."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import palio
from palio.matching import Index, Reference
from palio.model import Filter, to_batch
from palio.spark.compiling import (
    MAX_COLUMNS,
    MIN_TABLE_ROWS,
    CompiledSubscriptions,
    Wide,
    compile_rows,
)
from palio.spark.reading import read

START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def compiled(rows: list[dict[str, Any]], time: str | None = None) -> CompiledSubscriptions:
    subscriptions = read(rows)
    assert not subscriptions.rejects
    return compile_rows(subscriptions.table, np.arange(len(subscriptions)), time)


def hour(number: int) -> dt.datetime:
    return START + dt.timedelta(hours=number)


EVENTS: Final = pa.record_batch(
    {
        "n": pa.array([0, 3, 7, None, 12]),
        "s": ["a", "ab", None, "b", "abc"],
        "at": pa.array([hour(0), hour(3), None, hour(9), hour(30)], pa.timestamp("us", tz="UTC")),
    }
)


def drawn(rng: random.Random) -> dict[str, Any]:
    """A row of one of many shapes, with parameters of every sort."""
    shape = rng.randrange(7)
    n, s = rng.randrange(12), rng.choice(["a", "ab", "b"])
    shapes: dict[int, dict[str, Any]] = {
        0: {"filter": f"n < {n}"},
        1: {"filter": f"n >= {n}.5 AND s = '{s}'"},
        2: {"filter": "n < :n", "parameters": {"n": rng.choice([n, n + 0.5, s])}},
        3: {"filter": "s STARTS WITH :s OR n = 3", "parameters": {"s": s}},
        4: {"filter": "n IN :several", "parameters": {"several": [n, n + 1]}},
        5: {"filter": "n + 1 > :n", "parameters": {"n": n}},
        6: {"filter": "n > :valid_from", "parameters": {"valid_from": n}},
    }
    row = shapes[shape]
    since, until = sorted(rng.sample(range(12), 2))
    if rng.random() < 0.5:
        row["valid_from"] = hour(since)
    if rng.random() < 0.5:
        row["valid_to"] = hour(until)
    return row


def holds(row: dict[str, Any], event: dict[str, Any]) -> bool:
    """By the definition."""
    filter = palio.parse(row["filter"])
    assert isinstance(filter, Filter)
    at, since, until = event.get("at"), row.get("valid_from"), row.get("valid_to")
    return (
        filter.matches(event, row.get("parameters"))
        and (since is None or (at is not None and at >= since))
        and (until is None or (at is not None and at < until))
    )


def test_rows_of_all_sorts_match_by_the_definition(rng: random.Random) -> None:
    for _ in range(4):
        rows = [{"id": number, **drawn(rng)} for number in range(120)]
        found = compiled(rows, "at")
        assert found.rejects == []
        events = [
            {name: value for name, value in event.items() if value is not None}
            for event in EVENTS.to_pylist()
        ]
        expected = [
            (place, row["id"])
            for place, event in enumerate(events)
            for row in rows
            if holds(row, event)
        ]
        matches = found.engine.match(EVENTS)
        assert list(zip(matches.rows.tolist(), matches.keys.tolist(), strict=True)) == expected


@pytest.mark.parametrize("count", [MIN_TABLE_ROWS - 1, MIN_TABLE_ROWS, MIN_TABLE_ROWS + 1])
def test_few_rows_of_a_shape_and_many_are_alike(count: int) -> None:
    found = compiled([{"id": each, "filter": f"n < {each}"} for each in range(count)])
    assert found.engine.match(EVENTS.slice(0, 1)).keys.tolist() == list(range(1, count))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"filter": "n <"}, "ends too soon"),
        ({"filter": "n = 1 THEN n = 2"}, "pattern"),
        ({"filter": "n < :x"}, ":x has no value"),
        ({"filter": "n < :x", "parameters": {"y": 1}}, ":x has no value"),
        ({"filter": "n < :x", "parameters": {"x": None}}, ":x has no value"),
        ({"filter": "n < :x AND s LIKE :s", "parameters": {"x": 1}}, ":s has no value"),
        ({"filter": "n < :x", "parameters": {"x": [1, 2]}}, "only IN takes one"),
        ({"filter": "n < :x", "parameters": {"x": {"y": 1}}}, "a single value or a list"),
        ({"filter": "n < :x", "parameters": {"x": float("nan")}}, "NaN"),
        ({"filter": "s STARTS WITH :x", "parameters": {"x": 5}}, ":x"),
    ],
)
@pytest.mark.parametrize("count", [1, MIN_TABLE_ROWS])
def test_bad_rows_are_rejected_and_spoil_nothing(
    row: dict[str, Any], reason: str, count: int
) -> None:
    good = [{"id": -each, "filter": f"n < {each}"} for each in range(1, 6)]
    bad = [{"id": each, **row} for each in range(count)]
    found = compiled([*good, *bad])
    assert [key for key, _ in found.rejects] == list(range(5, 5 + count))
    assert all(reason in why for _, why in found.rejects)
    assert len(found.engine) == 5


def test_attributes_are_those_that_filters_name() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "filter": "a = 1 AND LENGTH(b) > c"},
        {"id": 2, "filter": "d = 1", "valid_to": hour(1)},
        *({"id": 3 + each, "filter": f"e = {each}"} for each in range(5)),
    ]
    assert compiled(rows).attributes == set("abcde")
    assert compiled(rows, "at").attributes == {*"abcde", "at"}


def test_only_some_rows(rng: random.Random) -> None:
    subscriptions = read([{"id": each, "filter": f"n >= {each}"} for each in range(20)])
    some = np.array(sorted(rng.sample(range(20), 8)))
    found = compile_rows(subscriptions.table, some)
    matches = found.engine.match(EVENTS.slice(4, 1)).keys.tolist()
    assert matches == [each for each in some.tolist() if each <= 12]


# --- one table of many shapes ---


def test_rows_of_many_shapes_mean_what_they_meant(rng: random.Random) -> None:
    wide, oracle = Wide(), Reference()
    operators = ["<", ">=", "=", "!=", "STARTS WITH", "ENDS WITH"]
    for place in range(80):
        parts, values = [], {}
        for number in range(rng.randint(1, 4)):
            operator = rng.choice(operators)
            text = operator.endswith("WITH") or rng.random() < 0.3
            parts.append(f"{'st'[number % 2] if text else 'xy'[number % 2]} {operator} :p{number}")
            values[f"p{number}"] = rng.choice(["a", "ab"]) if text else rng.choice([1, 2, 2.5])
        filter = palio.parse_filter(" AND ".join(parts))
        names = sorted(filter.variables)
        row = tuple(values[name] for name in names)
        if wide.add(filter, names, tuple(map(type, row)), [place], [row]):
            oracle.add(place, filter, values)
    assert len(wide.places) > 50
    engine = Index()
    engine.add_many(np.array(wide.places), wide.skeleton, wide.columns())
    for _ in range(60):
        event = {name: rng.choice([0, 1, 2, 2.5, 3]) for name in "xy" if rng.random() < 0.8}
        event |= {name: rng.choice(["a", "ab", "ba"]) for name in "st" if rng.random() < 0.8}  # type: ignore[misc]  # values of two kinds
        batch = to_batch(event)
        assert engine.match(batch).keys.tolist() == oracle.match(batch).keys.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "x < :a OR y < :a",
        "x + 1 < :a",
        "x IN :a",
        "x NOT IN :a",
        "x < :a AND y IS NULL",
        "x < :a AND y < 5",
        "TRUE",
    ],
)
def test_what_is_no_conjunction_of_plain_comparisons(text: str) -> None:
    wide = Wide()
    names = sorted(palio.parse_filter(text).variables)
    assert not wide.add(
        palio.parse_filter(text), names, [int] * len(names), [0], [(1,) * len(names)]
    )
    assert wide.places == []


def test_an_attribute_may_be_compared_several_times() -> None:
    wide = Wide()
    assert wide.add(palio.parse_filter("x > :a AND x > :b"), ["a", "b"], (int, int), [0], [(3, 5)])
    assert wide.add(palio.parse_filter("x > :a"), ["a"], (int,), [1], [(4,)])
    engine = Index()
    engine.add_many([0, 1], wide.skeleton, wide.columns())
    assert engine.match(to_batch({"x": 5})).keys.tolist() == [1]
    assert engine.match(to_batch({"x": 6})).keys.tolist() == [0, 1]


def test_the_limit_of_columns() -> None:
    wide = Wide()
    taken = [
        wide.add(palio.parse_filter(f"x{number} < :a"), ["a"], (int,), [number], [(1,)])
        for number in range(MAX_COLUMNS + 1)
    ]
    assert taken == [True] * MAX_COLUMNS + [False]
    assert wide.add(palio.parse_filter("x0 < :a"), ["a"], (int,), [MAX_COLUMNS], [(2,)])
    assert len(wide.columns()) == MAX_COLUMNS
