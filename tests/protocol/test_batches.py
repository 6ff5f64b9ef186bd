"""The size of a batch as events, on both sides of each limit and against what casting makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import LimitExceeded
from palio.model.events import STAMP_BYTES, to_batch
from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.model.masks import pack_mask, unpack_mask
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.protocol.batches import (
    PART_BYTES,
    check_chunk,
    check_size,
    check_texts,
    is_divisible,
    part_of,
    parts,
)
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_CHUNK_CELLS,
    MAX_CHUNK_ROWS,
    MAX_FRAME_BYTES,
)
from palio.protocol.messages import (
    Addressed,
    Carry,
    Deliver,
    Detour,
    Forward,
    Message,
    Ping,
    Publish,
)
from tests.strategies import examples


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_limits_hold_on_both_sides(extra: int) -> None:
    narrow = 1_024
    sizes = {
        "MAX_BATCH_CELLS": (narrow, MAX_BATCH_CELLS // narrow + extra, 0),
        "MAX_BATCH_ROWS": (MAX_BATCH_ROWS + extra, 0, 0),
        "MAX_BATCH_BYTES": (narrow, 1, MAX_BATCH_BYTES - STAMP_BYTES * narrow + extra),
    }
    for limit, (rows, columns, nbytes) in sizes.items():
        if extra > 0:
            with pytest.raises(LimitExceeded, match=limit):
                check_size(rows, columns, nbytes)
        else:
            check_size(rows, columns, nbytes)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_what_a_front_takes_has_limits_too(extra: int) -> None:
    wide = MAX_CHUNK_CELLS // 1_024 + extra
    sizes = {"MAX_CHUNK_CELLS": (1_024, wide, 0), "MAX_CHUNK_ROWS": (MAX_CHUNK_ROWS + extra, 0, 0)}
    for limit, (rows, columns, nbytes) in sizes.items():
        if extra > 0:
            with pytest.raises(LimitExceeded, match=limit):
                check_chunk(rows, columns, nbytes)
        elif limit != "MAX_CHUNK_ROWS":  # so many rows are too many bytes, too
            check_chunk(rows, columns, nbytes)


def test_a_batch_of_the_size_that_frames_are_made_for_is_taken() -> None:
    columns = MAX_BATCH_CELLS // MAX_BATCH_ROWS
    check_size(MAX_BATCH_ROWS, columns, nbytes=MAX_BATCH_CELLS * 8)
    assert MAX_BATCH_BYTES < MAX_FRAME_BYTES


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize(
    ("rows", "columns", "limit"),
    [
        (MAX_BATCH_ROWS, 1, MAX_BATCH_ROWS),
        (MAX_BATCH_CELLS // 256, 256, MAX_BATCH_CELLS // 256),
        (PART_BYTES // 10_000, 1, PART_BYTES // 10_000),
    ],
    ids=["long", "wide", "heavy"],
)
def test_what_is_more_than_one_message_leaves_in_parts(
    rows: int, columns: int, limit: int, extra: int
) -> None:
    size = 9_996 if rows < 1_000 else 0  # with an offset of four bytes
    column = pa.array(["a" * size] * (rows + extra))
    batch = pa.record_batch({f"c{place}": column for place in range(columns)})
    listed = list(parts(batch))
    assert len(listed) == (1 if rows + extra <= limit and batch.nbytes <= PART_BYTES else 2)
    assert pa.Table.from_batches(listed).to_batches() == listed
    assert pa.Table.from_batches(listed).equals(pa.Table.from_batches([batch]))
    for part in listed:
        check_size(part.num_rows, part.num_columns, part.nbytes)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_an_event_has_so_much_text_in_all_its_attributes(extra: int) -> None:
    size = MAX_EVENT_TEXT_BYTES // 2
    event = {"s": "\xe9" * (size // 2), "b": b"\xff" * (size + extra), "x": 1}
    batch = to_batch(event)
    lone = Parcel.lone("p", Shape.of(batch.schema), tuple(event.values()))
    several = pa.record_batch({"s": ["a" * size] * 9 + ["a" * (2 * size + extra)]})
    for each in (Parcel("p", batch), lone, Parcel("p", several)):
        if extra > 0:
            with pytest.raises(LimitExceeded, match="MAX_EVENT_TEXT_BYTES"):
                check_texts(each)
            with pytest.raises(LimitExceeded, match="MAX_EVENT_TEXT_BYTES"):
                list(parts(each.batch))
        else:
            check_texts(each)
            assert sum(len(part) for part in parts(each.batch)) == len(each)


def test_nothing_has_no_parts_and_an_event_cannot_be_divided() -> None:
    assert list(parts(pa.record_batch({"x": pa.array([], pa.int64())}))) == []
    with pytest.raises(LimitExceeded, match="MAX_BATCH_BYTES"):
        list(parts(pa.record_batch({"x": ["a" * MAX_BATCH_BYTES]})))


ROWS = 20


def numbered(first: int = 10) -> Parcel:
    batch = pa.record_batch({"x": range(ROWS)})
    return Parcel("", batch).stamped("ann/1", first, 1_000)


@given(st.sets(st.integers(1, ROWS - 1)), st.lists(st.booleans(), min_size=ROWS, max_size=ROWS))
@examples(50)
def test_parts_are_the_rows_of_the_whole_each_once(cuts: set[int], wanted: list[bool]) -> None:
    mask = np.array(wanted)
    whole = Forward(numbered(), pack_mask(mask), durable=True, source="b7")
    whole.parcel.source = "b7"
    ends = [*sorted(cuts), ROWS]
    parts = [part_of(whole, first, end) for first, end in zip([0, *ends], ends, strict=False)]
    rows = [
        number
        for part in parts
        for number in part.parcel.numbers[unpack_mask(part.rows, len(part.parcel))].tolist()
    ]
    assert rows == whole.parcel.numbers[mask].tolist()
    assert {(each.durable, each.source, each.parcel.source) for each in parts} == {
        (True, "b7", "b7")
    }


@given(st.sets(st.integers(1, ROWS - 1)))
@examples(50)
def test_parts_of_a_publication_go_on_from_number_to_number(cuts: set[int]) -> None:
    whole = Publish(Parcel("", pa.record_batch({"x": range(ROWS)})), 100, durable=True)
    ends = [*sorted(cuts), ROWS]
    parts = [part_of(whole, first, end) for first, end in zip([0, *ends], ends, strict=False)]
    assert [
        (part.first_seq + place, x)
        for part in parts
        for place, x in enumerate(part.parcel.batch["x"].to_pylist())
    ] == [(100 + x, x) for x in range(ROWS)]
    assert all(part.durable for part in parts)


def test_a_part_that_is_all_is_the_message_itself() -> None:
    message = Publish(Parcel("", pa.record_batch({"x": range(ROWS)})), 1)
    assert part_of(message, 0, ROWS) is message
    assert part_of(message, 0, ROWS + 5) is message


@pytest.mark.parametrize(
    ("message", "may_be"),
    [
        (Publish(numbered(), 1), True),
        (Forward(numbered()), True),
        (Forward(numbered(), detour=Detour(("b1",), "session")), False),
        (Forward(numbered(), addressed=Addressed((("b1", 1),), 1)), False),
        (Deliver(numbered()), False),
        (Carry(numbered(), "b2", 1, "b1", 1, 2, 0, ()), False),
        (Ping(), False),
    ],
)
def test_what_may_be_divided(message: Message, may_be: bool) -> None:
    assert is_divisible(message) == may_be
