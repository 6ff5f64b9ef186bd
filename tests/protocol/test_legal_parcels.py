"""Events that come from outside are those that a broker can have made, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from palio.errors import IllegalMessage
from palio.model.events import stamped, to_batch
from palio.protocol.legal_parcels import batch_parcel, check_numbered, legal_shape, lone_parcel
from palio.protocol.limits import MAX_BATCH_ROWS, MAX_NUMBER, MAX_PUBLISHER_CHARS
from palio.protocol.messages import Parcel
from tests.protocol.test_ipc import LONG, overlapping

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("seq", [-1, 0])
@pytest.mark.parametrize("rows", [1, 2])
def test_numbers_begin_at_0(seq: int, rows: int) -> None:
    batch = pa.record_batch({"x": list(range(rows))})
    parcel = Parcel.of("", batch).stamped("p", seq, 0)
    assert (parcel.values is not None) == (rows == 1)
    if seq < 0:
        with pytest.raises(IllegalMessage, match="from 0 on"):
            check_numbered("b2", parcel)
    else:
        check_numbered("b2", parcel)


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("rows", [1, 2])
def test_numbers_have_an_end(more: int, rows: int) -> None:
    batch = pa.record_batch({"x": list(range(rows))})
    parcel = Parcel.of("", batch).stamped("p", MAX_NUMBER + more - rows + 1, 0)
    if more > 0:
        with pytest.raises(IllegalMessage, match="from 0 on"):
            check_numbered("b2", parcel)
    else:
        check_numbered("b2", parcel)


def test_numbers_grow() -> None:
    batch = stamped(pa.record_batch({"x": [1, 2, 3]}), 1, 0).take([0, 2, 1])
    with pytest.raises(IllegalMessage, match="grow"):
        check_numbered("b2", Parcel("p", batch))


@pytest.mark.parametrize(
    "system",
    [{}, {"$seq": 1}, {"$time": NOW}, {"$seq": True, "$time": NOW}, {"$seq": 1, "$time": 5}],
)
def test_every_event_has_a_number_and_a_time(system: dict[str, Any]) -> None:
    batch = to_batch({"x": 1, **system})
    for parcel in (Parcel.of("p", batch), Parcel("p", batch)):
        with pytest.raises(IllegalMessage, match="without"):
            check_numbered("b2", parcel)


@pytest.mark.parametrize("absent", ["$seq", "$time"])
def test_no_event_lacks_them(absent: str) -> None:
    shape = legal_shape(to_batch({"x": 1, "$seq": 1, "$time": NOW}).schema)
    values = [
        None if name == absent else value
        for name, value in zip(shape.names, [1, 1, NOW], strict=True)
    ]
    lone = lone_parcel("p", shape, values)
    for parcel in (lone, Parcel("p", lone.batch)):
        with pytest.raises(IllegalMessage, match="without"):
            check_numbered("b2", parcel)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_publishers_name_has_a_limit(extra: int) -> None:
    parcel = Parcel.of("", to_batch({"x": 1})).stamped("p" * (MAX_PUBLISHER_CHARS + extra), 1, 0)
    if extra > 0:
        with pytest.raises(IllegalMessage, match="nobody is called"):
            check_numbered("b2", parcel)
    else:
        check_numbered("b2", parcel)


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("x", pa.int8(), "types"),
        ("x", pa.list_(pa.int64()), "no attribute type"),
        ("", pa.utf8(), "name"),
    ],
)
def test_a_shape_has_names_and_types_of_the_model(name: str, kind: pa.DataType, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        legal_shape(pa.schema([(name, kind)]))


def test_no_attribute_is_there_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        legal_shape(pa.schema([("x", pa.int64()), ("x", pa.int64())]))


@pytest.mark.parametrize("values", [None, [], [1, 2], ["1"], [True], [1 << 63]])
def test_values_are_those_of_their_shape(values: Any) -> None:
    with pytest.raises(ValueError, match="values"):
        lone_parcel("p", legal_shape(to_batch({"x": 1}).schema), values)


def test_a_batch_is_read_in_full_before_it_counts() -> None:
    shape = legal_shape(LONG.schema)
    message = bytearray(LONG.serialize().to_pybytes())
    assert len(batch_parcel("p", shape, bytes(message))) == LONG.num_rows
    with pytest.raises(ValueError, match="overlap"):
        batch_parcel("p", shape, overlapping(LONG))
    message[message.index(b"xxxx")] = 0xFF
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        batch_parcel("p", shape, bytes(message))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_batch_has_so_many_rows(extra: int) -> None:
    batch = pa.record_batch({"x": [True] * (MAX_BATCH_ROWS + extra)})
    shape, message = legal_shape(batch.schema), batch.serialize().to_pybytes()
    if extra > 0:
        with pytest.raises(ValueError, match="MAX_BATCH_ROWS"):
            batch_parcel("p", shape, message)
    else:
        assert len(batch_parcel("p", shape, message)) == MAX_BATCH_ROWS + extra
