"""A message in parts says what it says as one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.protocol.dividing import is_divisible, part_of
from palio.protocol.messages import (
    Addressed,
    Carry,
    Deliver,
    Detour,
    Forward,
    Message,
    Parcel,
    Ping,
    Publish,
    pack_mask,
    unpack_mask,
)
from tests.strategies import examples

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
        (Carry(numbered(), "b1", 1, "b2", 1, 2, 0, ()), False),
        (Ping(), False),
    ],
)
def test_what_may_be_divided(message: Message, may_be: bool) -> None:
    assert is_divisible(message) == may_be
