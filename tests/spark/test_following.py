"""Both stages over history without Spark: batches in, batches out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import palio
from palio.spark import following
from palio.spark.following import (
    Completed,
    FindSteps,
    Follow,
    Follower,
    StepEvent,
    result_batch,
    stepwise,
)
from palio.spark.workers import ColumnSlots

START = datetime(2026, 1, 1, tzinfo=UTC)
INSTANT = pa.timestamp("us", tz="UTC")


PATTERNS = (
    palio.parse_pattern("x > 5 THEN x < 3"),
    palio.parse_pattern("x = 1 THEN x > 5 WITHIN 2s"),
)


def result(key: str, pattern: Any, events: Any) -> pa.Schema:
    fields: list[Any] = [(key, pa.utf8())] if key else []
    times = [("started", INSTANT), ("ended", INSTANT)]
    return pa.schema([*fields, ("pattern", pattern), *times, ("events", events)])


def step(second: int) -> StepEvent:
    return StepEvent(START + timedelta(seconds=second), (second,))


def test_events_that_match_no_step_go_no_further() -> None:
    schema = pa.schema([("k", pa.int64()), ("pattern", pa.int32()), ("steps", pa.int64())])
    find = FindSteps(PATTERNS, ColumnSlots((("x", 0),), (0,)), schema)
    batch = pa.record_batch({"x": [9, 4, 1, 2, None]})
    (found,) = find(iter([batch]))
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert rows == [(9, 0, 0b01), (9, 1, 0b10), (1, 0, 0b10), (1, 1, 0b01), (2, 0, 0b10)]


def test_a_value_that_no_attribute_holds_is_no_hit() -> None:
    schema = pa.schema([("k", pa.uint64()), ("pattern", pa.int32()), ("steps", pa.int64())])
    find = FindSteps(PATTERNS, ColumnSlots((("x", 0),), (0,)), schema)
    batch = pa.record_batch({"x": pa.array([2**63, 9], pa.uint64())})
    (found,) = find(iter([batch]))
    assert found.column(0).to_pylist() == [9, 9]


def test_a_follower_that_resumes_is_where_the_other_was() -> None:
    patterns = stepwise([palio.parse_pattern("a = 1 THEN b = 1 THEN c = 1 WITHIN 9s"), PATTERNS[0]])
    first = Follower(patterns)
    assert first.advance(0, 0b001, step(0)) == []
    assert first.advance(0, 0b010, step(1)) == []
    assert first.advance(1, 0b10, step(1)) == []  # no step that is awaited
    assert first.progress() == {0: (step(0), step(1))}
    second = Follower(patterns)
    second.resume(0, first.progress()[0])
    assert second.progress() == first.progress()
    assert second.advance(0, 0b100, step(9)) == [(step(0), step(1), step(9))]
    assert second.progress() == {}


def test_keys_are_followed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_BATCH_ROWS", 1)
    events = pa.list_(pa.struct([("at", INSTANT), ("n", pa.int64())]))
    schema = result("k", pa.int64(), events)
    hits = [("a", 0, 0, 1), ("b", 1, 0, 2), ("b", 2, 0, 1), ("b", 3, 0, 2), ("a", 4, 0, 2)]
    hits.sort()
    batch = pa.record_batch(
        {
            "k0": [key for key, *_ in hits],
            "k1": pa.array([START + timedelta(seconds=at) for _, at, *_ in hits], INSTANT),
            "k2": [10 * at for _, at, *_ in hits],
            "pattern": [number for *_, number, _ in hits],
            "steps": [steps for *_, steps in hits],
        }
    )
    found = list(Follow(PATTERNS, (7, 8), 1, 0, schema)(iter([batch])))
    rows: list[Any] = [row for each in found for row in each.to_pylist()]
    assert [len(each) for each in found] == [1, 1]
    assert [(row["k"], row["pattern"], [each["n"] for each in row["events"]]) for row in rows] == [
        ("a", 7, [0, 40]),
        ("b", 7, [20, 30]),
    ]
    assert (rows[1]["started"], rows[1]["ended"]) == (step(2).time, step(3).time)


def test_sequences_are_rows_of_the_result() -> None:
    events = pa.list_(pa.struct([("at", INSTANT)]))
    schema = result("", pa.utf8(), events)
    steps = tuple(StepEvent(step(each).time, ()) for each in (1, 2))
    row = result_batch([Completed((), "p", steps)], schema).to_pylist()[0]
    assert row["events"] == [{"at": each.time} for each in steps]
    assert (row["pattern"], row["started"]) == ("p", steps[0].time)
