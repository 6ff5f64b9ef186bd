"""Events as plain values: described shapes are read back, and what fits none is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.model.limits import MAX_ATTRIBUTES
from palio.model.shapes import Shape
from palio.protocol.plain import described, lone_parcel, row_parcel, shape_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = (bool, int, float, str, bytes, datetime)


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(KINDS)), st.booleans())
def test_a_described_shape_is_read_back(kinds: dict[str, type], is_stamped: bool) -> None:
    shape = Shape(tuple(kinds), tuple(kinds.values()))
    shape = shape.stamped if is_stamped else shape
    assert shape_of(described(shape)) == shape


@pytest.mark.parametrize(
    ("description", "why"),
    [
        (["z", "x"], "types"),
        (["ii", "x"], "types"),
        (["i"], "types"),
        (["i", ""], "name"),
        (["ii", "x", "x"], "twice"),
        (["i$", "$seq"], "twice"),
        (["i", 5], "str"),
        ({"x": "i"}, "array"),
    ],
)
def test_a_shape_has_names_and_types_of_the_model(description: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        shape_of(msgspec.msgpack.encode(description))


@pytest.mark.parametrize("extra", [0, 1])
def test_a_shape_has_as_many_names_as_an_event(extra: int) -> None:
    names = [f"x{number}" for number in range(MAX_ATTRIBUTES + extra)]
    description = msgspec.msgpack.encode(["i" * len(names), *names])
    if extra:
        with pytest.raises(ValueError, match="MAX_ATTRIBUTES"):
            shape_of(description)
    else:
        assert len(shape_of(description).names) == MAX_ATTRIBUTES


@pytest.mark.parametrize("values", [None, [], [1, 2], ["1"], [True], [1 << 63]])
def test_values_are_those_of_their_shape(values: Any) -> None:
    with pytest.raises(ValueError, match="values"):
        lone_parcel("p", Shape(("x",), (int,)), values)


def test_several_events_have_numbers() -> None:
    shape = Shape(("x",), (int,))
    parcel = row_parcel("p", shape.stamped, [[5, 7, NOW], [None, 9, NOW]])
    assert (len(parcel), parcel.seqs, parcel.shape) == (2, (7, 9), shape.stamped)
    assert parcel.rows[1] == {"$seq": 9, "$time": NOW}
    assert parcel.take([1]).shape == shape.stamped
    assert len(row_parcel("p", shape.stamped, [])) == 0
    with pytest.raises(ValueError, match="seq"):
        row_parcel("p", shape, [[5], [6]])
    with pytest.raises(ValueError, match="values"):
        row_parcel("p", shape.stamped, [[5, 7, NOW], [6]])
