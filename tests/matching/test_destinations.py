"""Routing by programs and by pairs says where the pairs of a match go, in bounded memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from palio.matching import destinations as destinations_module
from palio.matching import warming
from palio.matching.compiled import CompiledLayer
from palio.matching.destinations import Destinations
from palio.matching.index import Index
from palio.matching.layers import CodedBatch
from palio.matching.segment import Segment
from tests.matching.kernels.test_kernels import some_rows
from tests.matching.test_index import parsed

Longs = npt.NDArray[np.int64]


def some_batch(draw: np.random.Generator, events: int) -> pa.RecordBatch:
    return pa.record_batch({f"a{at}": draw.integers(0, 40, events) for at in range(8)})


def layer_of(segment: Segment, by_rank: Longs) -> CompiledLayer:
    destinations = Destinations(segment.keys, by_rank)
    return CompiledLayer(segment, segment.no_tombstones(), destinations)


def expected_masks(layer: CompiledLayer, batch: pa.RecordBatch) -> dict[int, list[int]]:
    """From the pairs of the fallback: the rows of each destination that is hit."""
    fallback = Segment(layer.segment.compiled, None)
    offsets, keys = fallback.match(fallback.codes_of(batch), layer.tombstones)
    destinations = layer.destinations.of_keys(keys)
    rows = np.repeat(np.arange(batch.num_rows), np.diff(offsets))
    return {
        int(destination): np.unique(rows[destinations == destination]).tolist()
        for destination in np.unique(destinations)
    }


@pytest.mark.parametrize("count", [1, 5, 400], ids=["one", "by programs", "by pairs"])
@pytest.mark.parametrize("mask_bytes", [1, 1 << 24], ids=["block by block", "at once"])
def test_masks_are_those_of_the_pairs(
    count: int, mask_bytes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destinations_module, "MASK_BYTES", mask_bytes)
    draw = np.random.default_rng(seed)
    segment = Segment(some_rows(draw, 500), warming.warm())
    layer = layer_of(segment, draw.integers(-count, count, len(segment.keys)) * 3)
    layer.tombstones[0] = 0b1010110
    batch = some_batch(draw, 1100)
    masks, names = layer.route(CodedBatch(layer.codes_of(batch), batch))
    found = {
        name: np.flatnonzero(mask).tolist()
        for name, mask in zip(names.tolist(), masks, strict=True)
    }
    assert found == expected_masks(layer, batch)
    made = layer.destinations._programs
    assert made is not None
    assert (made.words is not None) == (count < 400)


@pytest.mark.parametrize("events", [1, 600])
@pytest.mark.parametrize("mask_bytes", [1, 1 << 24], ids=["block by block", "at once"])
def test_events_that_nobody_wants_go_nowhere(
    events: int, mask_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destinations_module, "MASK_BYTES", mask_bytes)
    index = Index()
    warming.warm()
    for key in range(100):
        index.add(key, parsed(f"x = {key}"), destination=key % 3)
    assert index.route(pa.record_batch({"x": np.full(events, 100)})) == {}


def test_programs_are_made_once_and_again_for_other_destinations(seed: int) -> None:
    draw = np.random.default_rng(seed)
    segment = Segment(some_rows(draw, 200), warming.warm())
    batch = some_batch(draw, 3)
    coded = CodedBatch(segment.codes_of(batch), batch)
    layer = layer_of(segment, np.arange(len(segment.keys)) % 2)
    layer.route(coded)
    first = layer.destinations._programs
    fewer = layer.without(segment.keys[:1])
    fewer.route(coded)
    assert fewer.destinations._programs is first, "a removal changes no destination"
    other = layer_of(segment, np.arange(len(segment.keys)) % 3)
    assert len(other.route(coded)[1]) <= 3
    assert other.destinations._programs is not first
    assert layer.memory()["routes"] > 0


def test_programs_are_made_once_kernels_are_there(seed: int) -> None:
    draw = np.random.default_rng(seed)
    segment = Segment(some_rows(draw, 200), None)
    batch = some_batch(draw, 3)
    layer = layer_of(segment, np.arange(len(segment.keys)) % 2)
    expected = expected_masks(layer, batch)
    for _ in range(2):
        masks, names = layer.route(CodedBatch(layer.codes_of(batch), batch))
        assert {
            name: np.flatnonzero(mask).tolist()
            for name, mask in zip(names.tolist(), masks, strict=True)
        } == expected
        layer.lay_out(warming.warm())
    layer.route(CodedBatch(layer.codes_of(batch), batch))
    made = layer.destinations._programs
    assert made is not None
    assert made.words is not None


@pytest.mark.parametrize("filters", [1, 20], ids=["a filter each", "twenty filters each"])
def test_many_destinations_take_memory_only_if_hit(filters: int) -> None:
    """A mask for each of them would take 400 MB (a filter each) or 20 MB."""
    warming.warm()
    count = 100_000
    index = Index()
    index.add_many(
        np.arange(count), parsed("x = :x AND y < 5"), {"x": np.arange(count)},
        destinations=np.arange(count) // filters,
    )  # fmt: skip
    xs = np.full(4096, -1)
    xs[:40] = np.arange(40) * 1000
    batch = pa.record_batch({"x": xs, "y": np.zeros(4096, np.int64)})
    index.route(batch)
    tracemalloc.start()
    masks = index.route(batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {name: np.flatnonzero(mask).tolist() for name, mask in masks.items()} == {
        at * 1000 // filters: [at] for at in range(40)
    }
    assert peak < 12_000_000


def test_one_event_goes_to_each_destination_once() -> None:
    index = Index()
    for key in range(6):
        index.add(key, parsed(f"x > {key}"), destination=key % 2 - 1)
    warming.warm()
    assert index.route_event({"x": 4}) == [-1, 0]
    assert index.route_event({"x": 1}) == [-1]
    assert index.route_event({"x": 0}) == []
    index.add(9, parsed("LENGTH(s) > 1"), destination=7)
    assert index.route_event({"x": 1, "s": "ab"}) == [-1, 7]
