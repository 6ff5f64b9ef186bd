from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.client.outgoing import MAX_FORMS, Forms, gathered, lone, parcels
from palio.errors import InvalidEvent, LimitExceeded
from palio.model.events import to_batch
from palio.model.limits import MAX_ATTRIBUTES, MAX_LONE_BYTES
from palio.model.values import FIRST_TIME, LAST_TIME
from tests.strategies import shown, values


def batches(events: Any) -> list[pa.RecordBatch]:
    return [parcel.batch for parcel in parcels(events)]


def test_events_and_batches_become_batches_of_the_models_types() -> None:
    assert batches({"x": 1})[0].to_pylist() == [{"x": 1}]
    assert [batch.num_rows for batch in batches([{"x": 1}, {"x": "a"}, {"x": "b"}])] == [1, 2]
    narrow = pa.record_batch({"x": pa.array([1], pa.int8())})
    assert batches(narrow)[0].schema.field("x").type == pa.int64()
    assert batches([]) == []


@pytest.mark.parametrize(
    "wrong",
    [7, [7], {"$seq": 1}, [{"x": 1}, {"$x": 1}], pa.record_batch({"$time": [1]}), {"x": object()}],
    ids=["number", "list", "system", "second", "batch", "object"],
)
def test_what_is_no_event_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidEvent):
        batches(wrong)


def times(*raw: int, valid: str = "") -> pa.RecordBatch:
    """A batch whose column `t` holds microseconds as they are, whatever year that is."""
    mask = np.array([each == "0" for each in valid or "1" * len(raw)], np.bool_)
    numbers = pa.array(np.array(raw, np.int64), mask=mask)
    return pa.record_batch({"t": numbers.view(pa.timestamp("us", "UTC"))})


NOT_UTF8 = pa.Array.from_buffers(
    pa.utf8(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
)


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        (pa.record_batch({"s": NOT_UTF8}), "'s'"),
        (times(2**62), "'t'"),
        (times(0, LAST_TIME + 1), "'t'"),
        (times(FIRST_TIME - 1, 0), "'t'"),
        (times(0, 0, 2**62).slice(1), "'t'"),
    ],
)
def test_a_batch_that_nobody_could_read_is_refused_here(wrong: pa.RecordBatch, column: str) -> None:
    with pytest.raises(InvalidEvent, match=column):
        batches(wrong)


@pytest.mark.parametrize(
    "right",
    [
        times(FIRST_TIME, LAST_TIME),
        times(0, 2**62, valid="10"),
        times(2**62, valid="0"),
        times(2**62, 0, 2**62).slice(1, 1),
        times(),
    ],
)
def test_times_of_the_years_1_to_9999_pass_and_what_lies_under_a_null(
    right: pa.RecordBatch,
) -> None:
    (batch,) = batches(right)
    assert batch.equals(right)


@pytest.mark.parametrize("form", [dict, pa.RecordBatch.from_pylist])
def test_an_event_has_as_many_attributes_as_the_limit_says(form: Any) -> None:
    def wide(count: int) -> Any:
        event = {f"a{place}": 1 for place in range(count)}
        return form([event]) if form is not dict else event

    for count in (MAX_ATTRIBUTES - 1, MAX_ATTRIBUTES):
        assert batches(wide(count))[0].num_columns == count
    with pytest.raises(LimitExceeded, match="MAX_ATTRIBUTES"):
        batches(wide(MAX_ATTRIBUTES + 1))


class Named(NamedTuple):
    price: float


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (Named(1.0), r"not Named; publish it\._asdict\(\)"),
        ('{"price": 1}', r"not str; publish json\.loads of it"),
    ],
)
def test_a_record_is_told_how_it_becomes_an_event(record: Any, told: str) -> None:
    for published in (record, [record]):
        with pytest.raises(InvalidEvent, match=told):
            batches(published)


@given(st.dictionaries(st.sampled_from("abc"), values()))
def test_a_gathered_row_is_the_event(event: dict[str, Any]) -> None:
    found = Forms().of(event)
    if found is not None:
        shape, row = found
        batch = gathered(shape, [row, row])
        assert batch.schema == to_batch(event).schema
        assert repr(batch.to_pylist()) == repr([event] * 2)


def test_the_same_form_is_the_same_object() -> None:
    forms = Forms()
    one, other, third = forms.of({"x": 1}), forms.of({"x": 2}), forms.of({"x": 2.0})
    assert one is not None
    assert other is not None
    assert third is not None
    assert one[0] is other[0]
    assert one[0] is not third[0]


@pytest.mark.parametrize(
    "event", [{}, {"x": None}, {"t": datetime(2026, 1, 1, tzinfo=UTC)}, {"x": 1, "y": None}]
)
def test_what_must_be_looked_at_has_no_form(event: dict[str, Any]) -> None:
    assert Forms().of(event) is None


def test_a_bad_name_is_refused_each_time() -> None:
    forms = Forms()
    for _ in range(2):
        with pytest.raises(InvalidEvent, match="system"):
            forms.of({"$x": 1})


@pytest.mark.parametrize("count", [MAX_FORMS - 1, MAX_FORMS, MAX_FORMS + 1])
def test_forms_are_bounded(count: int) -> None:
    forms = Forms()
    for number in range(count):
        forms.of({f"x{number}": 1})
    assert len(forms._shapes) == (count if count <= MAX_FORMS else 1)


@given(st.dictionaries(st.sampled_from("abc"), values()))
def test_a_lone_row_is_the_event(event: dict[str, Any]) -> None:
    found = Forms().of(event)
    if found is not None:
        shape, row = found
        parcel = lone(shape, row)
        assert parcel is not None
        assert repr(parcel.event) == repr(event)
        assert parcel.batch.equals(to_batch(event))


@pytest.mark.parametrize("bad", [2**63, "half \ud800", "x" * (MAX_LONE_BYTES + 1)], ids=shown)
def test_what_does_not_fit_or_is_large_is_no_lone_row(bad: Any) -> None:
    found = Forms().of({"x": type(bad)()})
    assert found is not None
    shape, good = found
    assert lone(shape, good) is not None
    assert lone(shape, (bad,)) is None
