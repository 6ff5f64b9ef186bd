"""Costs of filters are counted before they are added; adversarial sets cost bounded work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.errors import LimitExceeded
from palio.matching import admission, building, combining, warming
from palio.matching import index as index_module
from palio.matching.admission import MAX_SCANS
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.model import Filter, to_batch
from palio.model.limits import MAX_CONJUNCTIONS
from tests.matching.test_index import pairs, parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 5", (1, 1, 0, 0, 0)),
        ("x IN (1, 3, 5) AND y IS NULL", (1, 4, 0, 0, 0)),
        ("s LIKE '%.csv' OR s LIKE '_%_' OR a IN CIDR '10.0.0.0/8'", (3, 3, 1, 2, 0)),
        ("s LIKE 'abc%'", (1, 1, 0, 0, 0)),
        ("s LIKE '%a%b%' OR s LIKE '%a%_' OR s CONTAINS 'abcdefghijklmnopqr'", (3, 3, 2, 1, 0)),
        ("s LIKE '%b%' AND NOT t LIKE '%b%' AND LENGTH(s) > 3", (1, 2, 2, 0, 4)),
    ],
)
def test_costs_are_counted(text: str, expected: tuple[int, ...]) -> None:
    found = Index().admission(parsed(text))
    assert (found.rows, found.lookups, found.scans) == (expected[0], *expected[2:4])
    assert found.intervals >= expected[1]
    assert (found.residual_cost > 0) == (expected[4] > 0)


def scanning(number: int) -> Filter:
    """A filter with a text test that nothing narrows down; each number has another one."""
    return parsed(f"s IN CIDR '{block(number)}'")


def block(number: int) -> str:
    return f"10.{number // 256}.{number % 256}.0/24"


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("tables", [False, True])
def test_scans_are_limited(extra: int, tables: bool) -> None:
    index = Index()
    wanted = MAX_SCANS + extra
    if tables:
        patterns = [block(number) for number in range(wanted - 1)]
        index.add_many(range(wanted - 1), parsed("s IN CIDR :pattern"), {"pattern": patterns})
    else:
        for number in range(wanted - 1):
            index.add(number, scanning(number))
    if extra <= 0:
        index.add(wanted, scanning(wanted))
        assert len(index) == wanted
        return
    with pytest.raises(LimitExceeded, match="MAX_SCANS = 1000"):
        index.add(wanted, scanning(wanted))
    index.add(0, parsed("s = 'a'"))
    index.add(wanted, scanning(wanted))
    assert (
        index.match(to_batch({"s": block(wanted).removesuffix("/24")})).keys.tolist()[-1] == wanted
    )


def test_plans_name_the_text_tests() -> None:
    index = Index()
    index.add(1, parsed("s LIKE '_%_' AND t LIKE '%a'"))
    (part,) = index.explain_plan(10).layers
    assert (part.lookups, part.scans) == (1, 1)
    assert "1 text tests tried on every distinct text" in str(index.explain_plan(10))


def rows_and_intervals(index: Index) -> tuple[int, int]:
    parts = index.explain_plan(1).layers
    return sum(part.rows for part in parts), sum(part.predicates for part in parts)


def test_many_overlapping_ranges_stay_linear() -> None:
    """Every pair of ranges overlaps: two predicates a filter, cuts by the number of ends."""
    warming.warm()
    count = 20_000
    index = Index()
    lows, highs = np.arange(count) * 0.5, 1e6 - np.arange(count)
    index.add_many(np.arange(count), parsed("x >= :a AND x < :b"), {"a": lows, "b": highs})
    assert rows_and_intervals(index) == (count, count)
    values = [0.25, 1e6 - 1.5, 500_000.0]
    batch = pa.record_batch({"x": values})
    expected = [int(((lows <= value) & (value < highs)).sum()) for value in values]
    assert np.bincount(index.match(batch).rows, minlength=3).tolist() == expected
    assert sum(index.memory().values()) < 600 * count


def test_one_attribute_with_very_many_values() -> None:
    warming.warm()
    count = 100_000
    index = Index()
    index.add_many(np.arange(count), parsed("x = :x"), {"x": np.arange(count) * 7919})
    assert index.match(pa.record_batch({"x": [7919 * 5, 3]})).keys.tolist() == [5]
    assert rows_and_intervals(index) == (count, count)
    assert sum(index.memory().values()) < 400 * count


def test_deep_alternatives_are_rows() -> None:
    many = " OR ".join(f"(x = {at} AND y > {at})" for at in range(MAX_CONJUNCTIONS))
    index = Index()
    for key in range(3):
        index.add(key, parsed(many))
    index.merge()
    assert rows_and_intervals(index) == (3 * MAX_CONJUNCTIONS, 2 * MAX_CONJUNCTIONS)


@pytest.mark.parametrize("budget", [1, 600])
def test_batches_are_matched_in_pieces_where_codes_would_be_many(
    monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(combining, "MAX_CODES", budget)
    index, reference = Index(), Reference()
    for key in range(6):
        for engine in (index, reference):
            engine.add(key, parsed(f"x >= {key} AND x < {key + 3}"))
    batch = pa.record_batch({"x": np.arange(1300) % 11})
    assert pairs(index, batch) == pairs(reference, batch)


@pytest.mark.parametrize("recent", [False, True])
@pytest.mark.parametrize("asked", ["match", "count", "route"])
def test_no_more_codes_are_made_at_once_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, asked: str, recent: bool
) -> None:
    """Whatever is asked, and of whichever layer: recent changes have as many attributes."""
    warming.warm()
    index, reference = Index(), Reference()
    for key in range(20):
        for engine in (index, reference):
            engine.add(key, parsed(f"a{key} < {key % 7} AND x > {key}"), destination=key % 3)
    if not recent:
        index.merge()
    batch = pa.record_batch({name: np.arange(1300) % 11 for name in ("x", "a3", "a9", "a19")})
    expected = answer(reference, asked, batch)
    widths: list[int] = []
    sliced: Any = combining.coded

    def coded(snapshot: Any, events: Any) -> Any:
        batches = sliced(snapshot, events)
        widths.extend(each.codes.size for _, each in batches)
        return batches

    monkeypatch.setattr(combining, "coded", coded)
    assert answer(index, asked, batch) == expected
    monkeypatch.setattr(combining, "MAX_CODES", 21 * 512)
    widths.clear()
    assert answer(index, asked, batch) == expected
    assert max(widths) <= 21 * 512


def answer(engine: Index | Reference, asked: str, batch: pa.RecordBatch) -> Any:
    """The answers of an engine, to be compared."""
    if asked == "route":
        return {name: mask.tolist() for name, mask in engine.route(batch).items()}
    return pairs(engine, batch) if asked == "match" else engine.count(batch)


def test_admission_changes_nothing() -> None:
    index = Index()
    given: dict[str, Any] = {"limit": 5}
    assert str(index.admission(parsed("x < :limit"), given)) == "1 rows, 1 intervals"
    assert len(index) == 0


def test_room_for_text_tests_is_made_by_a_job() -> None:
    """Adding at the limit waits for no merge, and unused text tests are not counted any more."""
    jobs: list[Any] = []
    index = Index(jobs.append)
    merged: list[int] = []
    for number in range(MAX_SCANS):
        index.add(number, scanning(number))
    jobs.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index, "merge", lambda: merged.append(1))
        for _ in range(3):
            with pytest.raises(LimitExceeded, match="MAX_SCANS = 1000"):
                index.add(MAX_SCANS, scanning(MAX_SCANS))
        assert jobs == [], "a merge would make no room"
        for number in range(10):
            index.add(number, parsed("s = 'a'"))
            index.add(MAX_SCANS + number, scanning(MAX_SCANS + number))
        assert len(jobs) == 1
        assert merged == []
    tried = index.explain_plan(1).layers
    assert sum(layer.scans for layer in tried) == MAX_SCANS + 10
    jobs.pop()()
    index.remove(0)
    assert sum(layer.scans for layer in index.explain_plan(1).layers) < MAX_SCANS + 10


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_text_tests_that_wait_for_a_merge_are_limited(
    extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of filters that were removed, until a merge: then there is room again."""
    monkeypatch.setattr(admission, "MAX_SCANS", 8)
    monkeypatch.setattr(index_module, "MAX_SCANS_TRIED", 12)
    monkeypatch.setattr(building, "FAN_OUT", 100)
    jobs: list[Any] = []
    index = Index(jobs.append)
    for number in range(8):
        index.add(number, scanning(number))
    assert index.explain_plan(1).layers, "all are compiled"

    def replace(number: int) -> None:
        index.add(number, parsed("s = 'a'"))
        index.add(8 + number, scanning(8 + number))

    for number in range(3 + extra):
        replace(number)
    if extra > 0:
        with pytest.raises(LimitExceeded):
            replace(4)
        (job,) = jobs
        job()
    replace(5)
    assert len(index) == 8 + 4 + extra
