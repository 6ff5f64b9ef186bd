"""Rows that changed lately: up to date whatever was changed, and exact whatever is compared."""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from palio.errors import InvalidInput
from palio.matching import snapshots, warming
from palio.matching.compile.cuts import Numbers, number_cuts, past_numbers
from palio.matching.index import Index
from palio.matching.recent import (
    FEW_EVENTS,
    HEAD,
    MOST_COMPARISONS,
    ChangeLog,
    RecentLayer,
    is_recent,
)
from palio.matching.reference import Reference
from palio.matching.segment import Costs
from palio.matching.subscriptions import Subscription
from palio.model import to_batch
from tests.matching.test_index import pairs, parsed

NUMBERS: Final[list[Any]] = [
    *(0, -0.0, 1, -1, 3, 3.0, 0.5, -2.5, 5e-324, -5e-324, 1e300, -1e300),
    *(2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 2.0**63, -(2.0**63), 2.0**63 - 1024),
]
TEXTS: Final = (
    *("a < :p", "a >= :p AND b <= :q", "a = :p AND c < 3", "a > :p AND a < :q", "TRUE"),
    *("a = :p AND LENGTH(s) > 1", "a > :p OR b < :q", "s = 'x' AND a < :p", "b > 1.5 AND c = :q"),
)


def number(rng: random.Random) -> int | float:
    drawn: int | float = rng.choice(NUMBERS)
    if rng.random() < 0.6:
        drawn = rng.choice((rng.randint(-3, 9), rng.uniform(-3, 9)))
    return drawn


def some_events(rng: random.Random, count: int) -> pa.RecordBatch:
    """Columns of integers, floats or texts, with nulls and NaN; one may be missing."""
    columns: dict[str, Any] = {"s": pa.array(rng.choices(["x", "yy", None], k=count), pa.utf8())}
    for name in "abc":
        drawn = [number(rng) for _ in range(count)]
        kind = rng.choice(("int", "int", "float", "float", "text", "none"))
        if kind == "int":
            whole = [max(-(2**63), min(2**63 - 1, int(each))) for each in drawn]
            columns[name] = pa.array([each if each % 7 else None for each in whole], pa.int64())
        elif kind == "float":
            floats = [float("nan") if rng.random() < 0.1 else float(each) for each in drawn]
            columns[name] = pa.array(floats, pa.float64())
        elif kind == "text":
            columns[name] = pa.array(["3"] * count, pa.utf8())
    return pa.record_batch(columns)


class Life:
    """An index and the reference through the same changes."""

    def __init__(self, rng: random.Random, large: int) -> None:
        self.rng, self.keys = rng, list(range(large))
        self.index, self.reference = Index(), Reference()
        for key in self.keys:
            self.add(key)
        self.index.merge()

    def add(self, key: int) -> None:
        filter = parsed(self.rng.choice(TEXTS))
        values = {name: number(self.rng) for name in sorted(filter.variables)}
        destination = self.rng.choice((key, key % 3))
        for engine in (self.index, self.reference):
            engine.add(key, filter, values, destination=destination)

    def change(self) -> None:
        move, key = self.rng.random(), self.rng.choice([*self.keys, 1000])
        if move < 0.2 or key == 1000:
            self.add(key := self.rng.randrange(90))
            self.keys = sorted({*self.keys, key})
        elif move < 0.3:
            self.keys.remove(key)
            for engine in (self.index, self.reference):
                engine.remove(key)
        else:
            names = sorted(self.index.subscription(key).filter.variables)
            if names:
                value = {self.rng.choice(names): number(self.rng)}
                for engine in (self.index, self.reference):
                    engine.bind(key, value)

    def check(self, events: int) -> None:
        batch = some_events(self.rng, events)
        found, expected = self.index.match(batch), self.reference.match(batch)
        assert found.rows.tolist() == expected.rows.tolist()
        assert found.keys.tolist() == expected.keys.tolist()
        assert self.index.count(batch) == self.reference.count(batch)
        routed, wanted = self.index.route(batch), self.reference.route(batch)
        assert routed.keys() == wanted.keys()
        assert all((routed[name] == wanted[name]).all() for name in wanted)
        for row in range(min(3, events)):
            event = batch.slice(row, 1).to_pylist()[0]
            assert self.index.match_event(event).tolist() == found.keys[found.rows == row].tolist()
            destinations = [name for name, mask in wanted.items() if mask[row]]
            assert self.index.route_event(event) == destinations


@pytest.mark.parametrize("large", [0, 50])
@pytest.mark.parametrize("plan", ["few", "many"])
@pytest.mark.parametrize("most", [9, snapshots.MAX_RECENT_ROWS])
def test_equals_the_reference_after_any_changes(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, large: int, plan: str, most: int
) -> None:
    warming.warm()
    costs = {"few": 0.0 if plan == "few" else 1.0, "many": 0.5}
    monkeypatch.setattr(Costs, "of", lambda *_: costs)
    monkeypatch.setattr(snapshots, "MAX_RECENT_ROWS", most)
    incarnation = Life(rng, large)
    for events in (20, 1, 0, 17, FEW_EVENTS, FEW_EVENTS + 1, 520, 40):
        for _ in range(rng.choice((0, 1, 12))):
            incarnation.change()
        incarnation.check(events)
    incarnation.index.merge()
    incarnation.check(20)


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_cuts_are_those_of_whole_columns(op: str) -> None:
    """The kernel's cut of one number is what numpy makes of a column of them."""
    log = ChangeLog()
    for key, each in enumerate(NUMBERS):
        log.note(key, Subscription(parsed(f"x {op} :p"), {"p": each}, key))
    recent, keys = RecentLayer.empty(warming.warm()).advanced(log, 0, len(NUMBERS))
    assert keys.tolist() == list(range(len(NUMBERS)))
    expected = set()
    for kind in (int, float):
        column = np.array([each for each in NUMBERS if type(each) is kind])
        made: list[Numbers] = []
        if op in ("=", ">=", "<"):
            made.append(number_cuts(column))
        if op in ("=", "<=", ">"):
            made.append(past_numbers(column))
        for cuts in made:
            expected |= set(
                zip(cuts.ints.tolist(), cuts.floats.tolist(), cuts.beyond.tolist(), strict=True)
            )
    ints, floats, beyond = (array.tolist() for array in recent.cuts[1:])
    found = list(zip(ints, floats, beyond, strict=True))
    assert sorted(expected, key=lambda cut: (cut[2], cut[0], cut[1])) == found


def test_many_changes_of_few_keys_leave_few_rows() -> None:
    warming.warm()
    index = Index()
    for step in range(400):
        index.add(step % 5, parsed("x >= :p"), {"p": step})
    batch = pa.record_batch({"x": [394, 395, 396, 399]})
    assert pairs(index, batch) == [
        *((1, key) for key in (0,)),
        *((2, key) for key in (0, 1)),
        *((3, key) for key in range(5)),
    ]
    assert index.explain_plan(1).recent == 5
    assert "5 filters that changed lately" in str(index.explain_plan(1))


def test_slots_with_many_cuts_and_with_few() -> None:
    """Running vectors are made by code or by event, and both are read alike."""
    warming.warm()
    index, reference = Index(), Reference()
    filters = parsed("x >= :p AND x < :q"), parsed("y >= :p AND y <= :q")
    for key in range(500):
        values = {"p": key / 2, "q": key / 2 + 40} if key % 2 else {"p": key % 5, "q": key % 7}
        for engine in (index, reference):
            engine.add(key, filters[1 - key % 2], values)
    draw = np.random.default_rng(1)
    batch = pa.record_batch({"x": draw.random(700) * 260, "y": draw.integers(0, 9, 700)})
    assert pairs(index, batch) == pairs(reference, batch)
    assert index.explain_plan(1).recent == 500
    assert index.count(batch) == reference.count(batch)


def test_what_is_added_in_bulk_is_compiled() -> None:
    warming.warm()
    index = Index()
    for key in range(snapshots.FEW_CHANGES + 1):
        index.add(key, parsed("x >= :p"), {"p": key})
    index.match(to_batch({"x": 1}))
    assert index.explain_plan(1).recent == 0
    assert len(index.explain_plan(1).layers) == 1


def test_a_row_in_the_recent_is_accounted_for() -> None:
    warming.warm()
    index = Index()
    before = index.memory()["changes"]
    index.add(1, parsed("x >= :p"), {"p": 1})
    index.match(to_batch({"x": 1}))
    assert index.memory()["changes"] > before


# --- the log ---


LESS, AT_LEAST = 1, 4
"""Numbers of the operators in a log."""


def subscription(text: str, **values: float) -> Subscription:
    return Subscription(parsed(text), values, 70)


def test_records_say_what_is_compared_with_what() -> None:
    log = ChangeLog()
    assert log.note(7, subscription("x < :p AND y >= 3", p=-5))
    assert log.note(8, subscription("y < :p", p=0.5))
    assert not log.note(7, None)
    assert log.slot_of == {"y": 0, "x": 1}
    words = log.words(0, 3)
    assert words[:8].tolist() == [7, 70, 2, 0, 0 << 3 | AT_LEAST, 1 << 3 | LESS, 3, -5]
    assert words[8:13].tolist() == [8, 70, 1, 1, 0 << 3 | LESS]
    assert words[13:14].view(np.float64).tolist() == [0.5]
    assert words[14:].tolist() == [7, 0, -1, 0]


def test_readers_keep_the_records_that_they_were_told_of() -> None:
    log = ChangeLog()
    log.note(1, subscription("x < :p", p=5))
    before = log.words(0, 1)
    for key in range(9):
        log.note(key, subscription("x < :p", p=key))
    assert before.tolist() == log.words(0, 1).tolist() == [1, 70, 1, 0, LESS, 5]
    assert log.words(9, 10).tolist() == [8, 70, 1, 0, LESS, 8]
    assert log.nbytes == 8 * 6 * 10


@pytest.mark.parametrize(
    ("text", "recent"),
    [
        ("TRUE", True),
        ("x < 5 AND x > 2 AND y = 0.5", True),
        ("x != 5", False),
        ("x < 5 OR y < 5", False),
        ("x < 5 AND LENGTH(s) > 1", False),
        ("s = 'a'", False),
        ("x IN (1, 2)", False),
    ],
)
def test_only_comparisons_with_numbers_are_recent_rows(text: str, recent: bool) -> None:
    assert is_recent(subscription(text)) is recent
    assert ChangeLog().note(1, subscription(text)) is recent


@pytest.mark.parametrize(
    ("count", "recent"),
    [(MOST_COMPARISONS - 1, True), (MOST_COMPARISONS, True), (MOST_COMPARISONS + 1, False)],
)
def test_a_filter_with_very_many_comparisons_is_compiled(count: int, recent: bool) -> None:
    long = subscription(" AND ".join(f"a{at} < {at}.5" for at in range(count)))
    assert is_recent(long) is recent
    log = ChangeLog()
    assert log.note(1, long) is recent
    if recent:
        assert log.words(0, 1)[2:HEAD].tolist() == [count, (1 << count) - 1]


def test_a_key_that_is_no_int64_is_refused() -> None:
    with pytest.raises(InvalidInput, match="64-bit"):
        ChangeLog().note(1 << 63, None)
