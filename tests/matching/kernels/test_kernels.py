"""Compiled plans against plain Python on random rows, and when compiled code comes into use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.matching import store, warming
from palio.matching.compile.ranges import (
    DomainChoice,
    Range,
    RowTemplate,
    compile_templates,
    ranges_of,
)
from palio.matching.compile.rows import CompiledRows
from palio.matching.compiled import CompiledLayer
from palio.matching.destinations import Destinations
from palio.matching.index import Index
from palio.matching.kernels import fallback, registry
from palio.matching.layers import CodedBatch
from palio.matching.segment import Segment
from palio.model import to_batch
from palio.model.constraints import Constraint, domain_of
from palio.model.operators import Op
from tests.matching.test_index import parsed


def some_rows(draw: np.random.Generator, rows: int) -> CompiledRows:
    """Rows with intervals, equalities and unions on up to five of eight attributes."""
    terms: list[Range | DomainChoice] = []
    for at in range(8):
        here = np.flatnonzero(draw.random(rows) < 0.5)
        values = draw.integers(0, 40, len(here))
        match at % 3:
            case 0 | 1:
                ranges = ranges_of(f"a{at}", (Op.LT, Op.EQ)[at % 3], values, here)
                assert ranges is not None
                terms.append(ranges)
            case _:
                lists = [[1, 5, 9], [2, 3, 30], list(range(0, 40, 2))]
                domains = [domain_of(Constraint.of("x", "IN", each)) for each in lists]
                terms.append(DomainChoice(f"a{at}", domains, draw.integers(0, 3, len(here)), here))
    return compile_templates([RowTemplate(np.arange(rows) % (rows - 7), terms)])


@pytest.mark.parametrize("rows", [20, 500, 1500])
@pytest.mark.parametrize("events", [1, 511, 513])
def test_plans_equal_the_twin(rows: int, events: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    segment = Segment(some_rows(draw, rows), warming.warm())
    batch = pa.record_batch({f"a{at}": draw.integers(0, 40, events) for at in range(8)})
    codes = segment.codes_of(batch)
    assert (codes == fallback.code_batch(segment.compiled.universe, batch)).all()
    dead = segment.no_tombstones()
    first = np.uint64((1 << min(63, len(segment.keys))) - 1)
    dead[0] = draw.integers(0, 2**63, dtype=np.uint64) & first
    living = ~np.unpackbits(dead.view(np.uint8), bitorder="little").astype(np.bool_)
    pairs = fallback.match_rows(
        segment.compiled, segment.row_ranks, codes, living[segment.row_ranks]
    )
    for offsets, keys in (segment.match_many(codes, dead), segment.match_few(codes, dead)):
        found = np.repeat(np.arange(events), np.diff(offsets))
        ranks = np.searchsorted(segment.keys, keys)
        assert list(zip(found.tolist(), ranks.tolist(), strict=True)) == pairs
    counts = np.bincount([rank for _, rank in pairs], minlength=len(segment.keys))
    assert (segment.count(codes, dead) == counts).all()
    destinations = np.arange(len(segment.keys)) % 3
    layer = CompiledLayer(segment, dead, Destinations(segment.keys, destinations))
    masks, names = layer.route(CodedBatch(codes, batch))
    expected = np.zeros((3, events), np.bool_)
    for event, rank in pairs:
        expected[rank % 3, event] = True
    hit = np.flatnonzero(expected.any(axis=1))
    assert names.tolist() == hit.tolist()
    assert (masks == expected[hit]).all()


def test_a_spare_thread_compiles_and_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = warming.warm()
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(warming, "WARM_PAIRS", 7)
    monkeypatch.setattr(registry, "_missed", [0])
    monkeypatch.setattr(store, "MERGE_ROWS", 4)
    jobs: list[Callable[[], Any]] = []
    index = Index(jobs.append)
    event = to_batch({"x": 1})
    for key in range(8):
        index.add(key, parsed(f"x >= {key % 2}"))
    assert index.match(event).keys.tolist() == list(range(8))
    assert {part.plan for part in index.explain_plan(1).layers} == {"fallback"}
    merge, warm = jobs
    assert warm is warming.warm

    registry._loaded.append(loaded)
    for key in range(8, 20):
        index.add(key, parsed("x = 1"))
    assert index.match(event).keys.tolist() == list(range(20))
    assert "fallback" not in {part.plan for part in index.explain_plan(1).layers}
    index.remove(0)
    merge()
    assert index.match(event).keys.tolist() == list(range(1, 20)), "not yet in place"
    index.add(1, parsed("x = 2"))
    assert index.match(event).keys.tolist() == list(range(2, 20))
    index.merge()
    assert len(index.explain_plan(1).layers) == 1
    assert "event by event" in str(index.explain_plan(1))
