from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidEvent, LimitExceeded
from palio.model.events import PAYLOAD
from palio.model.limits import MAX_DEPTH
from palio.model.payloads import as_mapping, cloud_event_of, data_of, event_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Side(Enum):
    BUY = "buy"


@dataclass
class Size:
    width: float
    unit: str | None = None


class Order(msgspec.Struct):
    id: UUID
    size: Size
    tags: list[str]


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1), JSON_LIKE))
def test_data_come_back_as_they_were_and_their_scalars_are_attributes(data: dict[str, Any]) -> None:
    try:
        event = event_of(data)
    except InvalidEvent:  # "" is no name of an attribute
        return
    if PAYLOAD in event:
        assert data_of(event[PAYLOAD], event) == data
    else:
        assert event == data
    for name, value in data.items():
        if isinstance(value, bool | int | str):
            assert event[name] == value


@pytest.mark.parametrize("value", [1, "a", None, b"a", NOON, 0.5, Side.BUY, UUID(int=1), date.min])
def test_what_attributes_give_back_needs_no_payload(value: object) -> None:
    assert event_of({"x": value}) == {"x": value}


def test_values_inside_lists_come_back_too() -> None:
    given_ = [NOON, b"\xff", float("inf"), {1: "a"}, -(2**63)]
    event = event_of({"x": given_})
    assert set(event) == {PAYLOAD}
    assert data_of(event[PAYLOAD], event) == {"x": given_}


def test_what_becomes_text_or_a_list() -> None:
    given_ = [Decimal("0.10"), UUID(int=1), date(2026, 1, 31), Side.BUY, (1, 2), np.int64(3)]
    given_ += [MappingProxyType({"a": Size(1.0)})]
    event = event_of({"x": given_})
    assert data_of(event[PAYLOAD], event)["x"] == [
        *("0.10", "00000000-0000-0000-0000-000000000001", "2026-01-31", "buy", [1, 2], 3),
        {"a": {"width": 1.0, "unit": None}},
    ]


def test_filters_compare_a_decimal_as_a_number_and_no_digit_is_lost() -> None:
    event = event_of({"price": Decimal("9.950")})
    assert event["price"] == 9.95
    assert data_of(event[PAYLOAD], event) == {"price": "9.950"}


def test_a_typed_object_keeps_its_fields() -> None:
    order = Order(UUID(int=1), Size(1.5), ["a"])
    fields = as_mapping(order)
    assert fields == {"id": UUID(int=1), "size": {"width": 1.5, "unit": None}, "tags": ["a"]}
    assert as_mapping(Size(1.0)) == {"width": 1.0, "unit": None}
    assert as_mapping({"width": 1.0}) is None
    assert as_mapping("text") is None


@pytest.mark.parametrize("keeps", [False, True])
def test_nulls_of_typed_objects_come_back(keeps: bool) -> None:
    event = event_of({"width": 1.0, "unit": None}, keeps_nulls=keeps)
    assert (PAYLOAD in event) == keeps


@pytest.mark.parametrize(
    ("value", "problem"),
    [([2**64], "do not fit"), ([object()], "no attribute type"), (["\ud800"], "do not fit")],
)
def test_what_no_payload_can_hold_is_refused(value: object, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        event_of({"x": value})


def test_nesting_is_bounded() -> None:
    deep: Any = {}
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
        event_of(deep)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidEvent, match="do not fit"):
        event_of({"a": deep})


@pytest.mark.parametrize("payload", [5, "text", b"", b"\x81", b"{", b"\xdd" * 100_000, b"[" * 9])
def test_what_is_no_payload_is_said(payload: object) -> None:
    with pytest.raises(InvalidEvent, match="neither MessagePack nor a CloudEvent"):
        data_of(payload, {})


@pytest.mark.parametrize(
    "attributes",
    [{}, {"x": 2, "a.b": "c"}, {"x": True, "a.b": "c"}, {"x": 1, "a.b": 0.5}, {"x": 1, "a.b": "d"}],
)
def test_data_that_are_not_those_of_the_attributes_are_refused(attributes: dict[str, Any]) -> None:
    event = event_of({"x": 1, "a": {"b": "c"}})
    with pytest.raises(InvalidEvent, match="and the attributes of the event do not"):
        data_of(event[PAYLOAD], attributes)
    assert data_of(event[PAYLOAD], {"x": 1, "a.b": "c", "more": 1}) == {"x": 1, "a": {"b": "c"}}


def test_the_data_of_a_cloud_event() -> None:
    assert data_of(b'{"type": "t", "data": [1]}', {}) == [1]
    assert data_of(b'{"type": "t"}', {}) is None
    assert data_of(b'{"type": "t", "data_base64": "AP8="}', {}) == b"\x00\xff"
    assert cloud_event_of(b'{"type": "t"}') == {"type": "t"}
    assert cloud_event_of(msgspec.msgpack.encode({"type": "t"})) is None
