"""The counting plan: which rows have one, and that it counts what plain Python finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.matching import counting, warming
from palio.matching.compile.ranges import Range, RowTemplate, compile_templates, ranges_of
from palio.matching.compile.rows import CompiledRows
from palio.matching.counting import Counting
from palio.matching.index import Index
from palio.matching.kernels import fallback
from palio.matching.kernels.records import CHUNK
from palio.matching.segment import Segment
from palio.model.operators import Op
from tests.matching.test_index import parsed


def intervals(draw: np.random.Generator, rows: int, most: int = 6) -> CompiledRows:
    """Rows with one to `most` intervals on as many of eight attributes."""
    terms: list[Range] = []
    chosen = np.argsort(draw.random((rows, 8)), axis=1)[:, :most]
    counts = draw.integers(1, most + 1, rows)
    for at in range(8):
        here = np.flatnonzero(
            [at in each[:count] for each, count in zip(chosen, counts, strict=True)]
        )
        low = draw.integers(0, 1_000, len(here))
        for op, values in ((Op.GE, low), (Op.LE, low + draw.integers(0, 300, len(here)))):
            ranges = ranges_of(f"a{at}", op, values, here)
            assert ranges is not None
            terms.append(ranges)
    return compile_templates([RowTemplate(np.arange(rows), terms)])


def events_of(draw: np.random.Generator, count: int) -> pa.RecordBatch:
    """Events of which every attribute is sometimes missing, and some values are very common."""
    columns: dict[str, Any] = {}
    for at in range(8):
        values = np.minimum(draw.integers(0, 1_300, count), draw.integers(100, 1_300))
        columns[f"a{at}"] = pa.array(values, mask=draw.random(count) < 0.1)
    return pa.record_batch(columns)


@pytest.mark.parametrize("events", [1, 31, 32, 33, 700, CHUNK, CHUNK + 1, 2 * CHUNK + 77])
def test_the_plan_counts_what_the_twin_finds(events: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    segment = Segment(intervals(draw, 60), warming.warm())
    codes = segment.codes_of(events_of(draw, events))
    dead = segment.no_tombstones()
    dead[0] = draw.integers(0, 2**60, dtype=np.uint64) & np.uint64(0x0F0F0F0F0F0F0F0F)
    plan = segment.counting
    assert plan is not None
    found = np.zeros(len(segment.keys), np.int64)
    plan.count(warming.warm(), codes, dead, found)
    living = ~np.unpackbits(dead.view(np.uint8), bitorder="little").astype(np.bool_)
    pairs = fallback.match_rows(
        segment.compiled, segment.row_ranks, codes, living[segment.row_ranks]
    )
    wanted = np.bincount([rank for _, rank in pairs], minlength=len(segment.keys))
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("is_planned", [True, False])
def test_an_index_counts_the_same_either_way(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, is_planned: bool
) -> None:
    draw = np.random.default_rng(seed)
    warming.warm()
    if not is_planned:
        monkeypatch.setattr(Counting, "of", lambda *_: None)
    index = Index()
    low = draw.integers(0, 1_000, (3_000, 2))
    for key, (a, b) in enumerate(low.tolist()):
        index.add(key, parsed(f"a0 >= {a} AND a0 < {a + 50} AND a1 BETWEEN {b} AND {b + 90}"))
    index.remove(7)
    batch = events_of(draw, CHUNK)
    a0, a1 = (np.array(batch.column(at).fill_null(-1)) for at in (0, 1))
    wanted = {
        key: int(((a0 >= a) & (a0 < a + 50) & (a1 >= b) & (a1 <= b + 90)).sum())
        for key, (a, b) in enumerate(low.tolist())
        if key != 7
    }
    assert index.count(batch) == {key: count for key, count in wanted.items() if count}


def compiled(*filters: str) -> CompiledRows:
    index = Index()
    for key, text in enumerate(filters):
        index.add(key, parsed(text))
    warming.warm()
    index.merge()
    (layer,) = index._store.layers
    return layer.segment.compiled


@pytest.mark.parametrize(
    ("filters", "is_planned"),
    [
        (("a < 5 AND b > 3", "c = 'x'"), True),
        (("a < 5", "a IN (1, 9)"), False),
        (("a < 5", "TRUE"), False),
    ],
)
def test_only_intervals_are_counted_so(filters: tuple[str, ...], *, is_planned: bool) -> None:
    rows = compiled(*filters)
    assert (Counting.of(rows, np.arange(rows.rows)) is not None) == is_planned


@pytest.mark.parametrize(("limit", "actual"), [("MOST_ROWS", 60), ("MOST_CODES", 0)])
def test_limits(seed: int, monkeypatch: pytest.MonkeyPatch, limit: str, actual: int) -> None:
    rows = intervals(np.random.default_rng(seed), 60)
    actual = actual or int(rows.universe.code_counts.max())
    for most, is_planned in ((actual - 1, False), (actual, True), (actual + 1, True)):
        monkeypatch.setattr(counting, limit, most)
        assert (Counting.of(rows, np.arange(60)) is not None) == is_planned


def test_few_slots_lead() -> None:
    filters = (f"a{at % 6} < 5 AND a{at % 6 + 1} < 5" for at in range(60))
    assert led_by(*filters) == {"a1", "a3", "a5"}


def test_a_much_narrower_predicate_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_MOVED", 0)
    rows = compiled(*(f"a < 500 AND b = {at}" for at in range(9)), "a < 1 AND b < 9")
    plan = Counting.of(rows, np.arange(10))
    assert plan is not None
    slots = np.repeat(plan.pivots.slots, np.diff(plan.pivots.row_offsets))
    led = dict(zip(plan.pivots.ranks.tolist(), slots.tolist(), strict=True))
    assert [led[rank] == rows.universe.slot_of["b"] for rank in range(10)] == [True] * 9 + [False]


def test_a_slot_is_not_sorted_by_for_a_few_rows_that_another_could_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filters = [*(f"a < {at} AND b < {at}" for at in range(1, 40)), "a < 40 AND c = 1"]
    assert led_by(*filters) == {"a"}
    assert led_by(*filters, "c = 2 AND d = 1") == {"a", "c"}, "there is one that no other could"
    monkeypatch.setattr(counting, "MOST_MOVED", 0)
    assert led_by(*filters) == {"a", "c"}


def led_by(*filters: str) -> set[str]:
    """The names of the slots that pivot any row."""
    rows = compiled(*filters)
    plan = Counting.of(rows, np.arange(rows.rows))
    assert plan is not None
    names = {slot: name for name, slot in rows.universe.slot_of.items()}
    return {names[slot] for slot in plan.pivots.slots.tolist()}


def test_what_it_takes_is_learnt_from_what_it_took() -> None:
    terms = [
        each
        for name in ("x", "y")
        for each in (ranges_of(name, Op.LE, np.arange(200), np.arange(200)),)
        if each is not None
    ]
    segment = Segment(compile_templates([RowTemplate(np.arange(200), terms)]), warming.warm())
    zeros = pa.record_batch({name: np.zeros(CHUNK, np.int64) for name in ("x", "y")})
    plan = segment.counting
    assert plan is not None
    before = plan.ns(CHUNK)
    totals = np.zeros(200, np.int64)
    plan.count(warming.warm(), segment.codes_of(zeros), segment.no_tombstones(), totals)
    assert totals.tolist() == [CHUNK] * 200
    assert plan.ns(CHUNK) > before
