"""A lone event is the batch of one that it stands for, in everything anyone may ask of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.model.events import stamped, timestamp_type, to_batch
from palio.model.limits import MAX_LONE_BYTES
from palio.model.parcels import Parcel, runs, worth_copying
from palio.model.shapes import Shape
from tests.strategies import values

EVENTS = st.dictionaries(st.sampled_from("abcd"), values(), min_size=1)

VALUES = (True, 2**63 - 1, 0.5, "é", b"\xff", datetime(2026, 1, 1, tzinfo=UTC))
SCHEMA = to_batch(dict(zip("bifsyt", VALUES, strict=True))).schema


@given(EVENTS)
def test_a_lone_event_means_its_batch(event: dict[str, Any]) -> None:
    batch = to_batch(event)
    lone = Parcel.of("p", batch)
    assert lone.values is not None
    assert (lone.publisher, len(lone), lone.shape) == ("p", 1, Shape.of(batch.schema))
    assert lone.batch.equals(batch)
    assert lone.batch.schema == batch.schema
    assert repr(lone) == repr(Parcel("p", batch))


@given(EVENTS)
def test_both_are_stamped_alike(event: dict[str, Any]) -> None:
    batch = to_batch(event)
    lone = Parcel.of("", batch).stamped("p", 7, 1_000_001)
    other = Parcel("", batch).stamped("p", 7, 1_000_001)
    assert lone.values is not None
    assert lone.shape == other.shape == Shape.of(lone.batch.schema)
    assert lone.batch.equals(stamped(batch, 7, 1_000_001))
    assert other.batch.equals(lone.batch)
    assert lone.numbers.tolist() == other.numbers.tolist() == [7]
    assert lone.publisher == other.publisher == "p"


def test_nulls_are_absent_from_the_mapping() -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    lone = Parcel.lone("p", Shape.of(schema), (None, 3))
    assert lone.event == {"y": 3}
    assert lone.batch.to_pylist() == [{"x": None, "y": 3}]
    assert Parcel("p", lone.batch).event is None


def test_several_events_and_events_without_attributes_are_batches() -> None:
    assert Parcel.of("p", pa.record_batch({"x": [1, 2]})).values is None
    assert Parcel.of("p", to_batch({})).values is None
    assert Parcel.of("p", to_batch({"x": None})).values is None


def test_a_time_beyond_those_of_python_stays_in_its_batch() -> None:
    batch = pa.record_batch({"t": pa.array([2**62], timestamp_type())})
    assert Parcel.of("p", batch).values is None


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_large_event_is_a_batch(extra: int) -> None:
    overhead = to_batch({"s": ""}).nbytes
    batch = to_batch({"s": "x" * (MAX_LONE_BYTES - overhead + extra)})
    assert batch.nbytes == MAX_LONE_BYTES + extra
    assert (Parcel.of("p", batch).values is not None) is (extra <= 0)


def test_what_it_weighs_does_not_change() -> None:
    lone = Parcel.of("p", to_batch({"s": "x" * 1_000, "y": b"z" * 100}))
    before = lone.nbytes
    assert before > 1_100
    assert len(lone.payload) > 0
    assert lone.nbytes == before
    without = Parcel.lone("p", lone.shape, (None, b"z" * 100))
    assert lone.nbytes - without.nbytes == 1_000


def test_rows_are_chosen() -> None:
    lone = Parcel.of("p", to_batch({"x": 1}))
    assert lone.select(np.array([True])) is lone
    assert len(lone.select(np.array([False]))) == 0
    several = Parcel("p", pa.record_batch({"x": [1, 2, 3]}))
    chosen = several.select(np.array([True, False, True]))
    assert chosen.batch.to_pylist() == [{"x": 1}, {"x": 3}]
    assert chosen.shape == several.shape


def test_a_slice_has_its_rows_and_whose_they_are() -> None:
    parcel = Parcel("p", stamped(pa.record_batch({"x": [5, 6, 7, 8]}), 20, 1_000))
    parcel.source = "b7"
    some = parcel.slice(1, 3)
    assert (some.publisher, some.source, some.shape) == ("p", "b7", parcel.shape)
    assert some.batch["x"].to_pylist() == [6, 7]
    assert some.seqs == (21, 22)
    assert pa.ipc.read_record_batch(some.payload, some.shape.schema).equals(some.batch)


def test_a_copy_for_one_receiver_is_kept_in_its_encoded_form_only() -> None:
    parcel = Parcel("p", pa.record_batch({"x": [1, 2, 3], "s": ["a", "b", "c"]}))
    copy = parcel.select(np.array([True, False, True]))
    weight, batch = copy.nbytes, copy.batch
    assert copy.batch is batch
    assert copy.payload.equals(batch.serialize())
    assert copy.batch is not batch
    assert copy.batch.equals(batch)
    assert (copy.nbytes, len(copy)) == (weight, 2)
    assert parcel.batch is parcel.batch


def test_a_batch_that_came_weighs_what_came_and_its_numbers() -> None:
    batch = pa.record_batch({"x": list(range(100))})
    came = Parcel("", batch, batch.serialize())
    stamped_one = came.stamped("p", 1, 2)
    assert stamped_one.nbytes == came.payload.size + 16 * 100
    assert abs(stamped_one.nbytes - stamped_one.payload.size) < 512
    before = stamped_one.nbytes
    _ = stamped_one.payload
    assert stamped_one.nbytes == before


@pytest.mark.parametrize(("wanted", "is_copied"), [(1, True), (2, True), (3, False), (8, False)])
def test_one_row_in_four_is_worth_a_copy(wanted: int, is_copied: bool) -> None:
    assert worth_copying(wanted, rows=8) is is_copied


def test_runs_are_ranges_that_cross_no_block() -> None:
    assert list(runs([])) == []
    assert list(runs([5, 6, 9, 11, 12])) == [(5, 6), (9, 9), (11, 12)]
    assert list(runs([5, 6, 9, 11, 12], block=6)) == [
        (5, 5),
        (6, 6),
        (9, 9),
        (11, 11),
        (12, 12),
    ]
