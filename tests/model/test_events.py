"""Events as rows and as columns: values unchanged, whatever does not fit refused by name."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidEvent, LimitExceeded
from palio.model.events import (
    PUBLISHER,
    SEQ,
    SPARSE_CELLS,
    SPARSE_SHARE,
    TIME,
    check_times,
    conform,
    flatten,
    is_system_name,
    refuse_system_names,
    rows,
    timestamp_type,
    to_batch,
    to_batches,
)
from palio.model.limits import MAX_ATTRIBUTES, MAX_DEPTH, MAX_NAME_CHARS
from palio.model.values import LAST_TIME, checked
from tests import strategies as our

ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(("a", "b", "data.c", "odd name", "é")),
        our.values() | st.just(math.nan) | st.none(),
    ),
    max_size=6,
)


def seen(event: dict[str, Any]) -> dict[str, str]:
    """An event such that NaN equals itself and 1 differs from 1.0 and True."""
    return {name: repr(checked(value)) for name, value in event.items() if value is not None}


@our.examples(200)
@given(ROWS)
def test_rows_survive_the_columns_in_order(events: list[dict[str, Any]]) -> None:
    batches = list(to_batches(events))
    assert sum(batch.num_rows for batch in batches) == len(events)
    back = [seen(row) for batch in batches for row in rows(batch)]
    assert back == [seen(event) for event in events]
    for batch in batches:
        assert conform(batch) is batch


def test_a_new_batch_begins_where_a_type_changes() -> None:
    events: list[dict[str, Any]] = [
        {"x": 1},
        {"y": "a"},
        {"x": 2, "y": "b"},
        {"x": 0.5},
        {"x": True},
        {"x": None},
        {},
    ]
    batches = list(to_batches(events))
    assert [batch.num_rows for batch in batches] == [3, 1, 3]
    assert batches[0].schema.names == ["x", "y"]
    assert batches[0].schema.types == [pa.int64(), pa.utf8()]
    assert list(to_batches([])) == []
    assert to_batch({}).num_rows == 1
    assert list(rows(to_batch({"x": None}))) == [{}]


def test_some_rows_of_a_batch() -> None:
    batch = next(to_batches([{"x": 1}, {"x": 2}, {"x": 3}]))
    assert list(rows(batch, [2, 0, 2])) == [{"x": 3}, {"x": 1}, {"x": 3}]
    assert list(rows(batch, [])) == []


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"": 1}, "no attribute name"),
        ({5: 1}, "no attribute name"),
        ({"\ud800": 1}, "lone surrogate"),
        ({"x": []}, "attribute 'x': .* no attribute type"),
        ({"x": 2**63}, "attribute 'x': .* int64"),
        ({"x": "\ud800"}, "attribute 'x': .* lone surrogate"),
        ({"x": datetime(2026, 1, 1)}, "attribute 'x': .* no zone"),  # noqa: DTZ001  # that is the test
    ],
)
def test_a_row_that_is_no_event_is_refused(event: dict[Any, Any], problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        to_batch(event)


@pytest.mark.parametrize(
    ("column", "target"),
    [
        (pa.array([1, None], pa.int8()), pa.int64()),
        (pa.array([1, None], pa.uint32()), pa.int64()),
        (pa.array([2**63 - 1], pa.uint64()), pa.int64()),
        (pa.array([0.5, math.inf], pa.float32()), pa.float64()),
        (pa.array([0.5], pa.float16()), pa.float64()),
        (pa.array(["a", None], pa.large_utf8()), pa.utf8()),
        (pa.array(["a"], pa.string_view()), pa.utf8()),
        (pa.array([b"a"], pa.large_binary()), pa.binary()),
        (pa.array([b"ab"], pa.binary(2)), pa.binary()),
        (pa.array([b"ab"], pa.binary_view()), pa.binary()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.utf8()),
        (pa.array([1, 1]).dictionary_encode(), pa.int64()),
        (pa.array([1, 1], pa.int8()).dictionary_encode(), pa.int64()),
        (pa.array([our.TIMES[1]], pa.timestamp("s", "Europe/Berlin")), timestamp_type()),
        (pa.array([our.TIMES[1]], pa.timestamp("ns", "UTC")), timestamp_type()),
        (pa.array([our.TIMES[1]], pa.timestamp("us", "+02:00")), timestamp_type()),
        (pa.array([True]), pa.bool_()),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_columns_widen_without_changing_a_value(column: pa.Array[Any], target: pa.DataType) -> None:
    batch = conform(pa.record_batch({"x": column}))
    assert batch.schema.field("x").type == target
    assert batch.column("x").to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([2**63], pa.uint64()), "does not fit int64"),
        (
            pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["a"], pa.string_view())),
            "does not fit string",
        ),
        (pa.array([datetime(2026, 1, 1)]), "attach a zone"),  # noqa: DTZ001  # that is the test
        (pa.array([1], pa.timestamp("ns", "UTC")), "does not fit"),
        (pa.array([2**62], pa.timestamp("s", "UTC")), "does not fit"),
        (pa.array([datetime(2026, 1, 1, tzinfo=UTC).date()]), "no attribute type"),
        (pa.array([[1]]), "no attribute type"),
        (pa.array([{"a": 1}]), "no attribute type"),
        (pa.array([1], pa.decimal128(5)), "no attribute type"),
        (pa.array([1], pa.duration("s")), "no attribute type"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_column_that_could_lose_something_is_refused(column: pa.Array[Any], problem: str) -> None:
    with pytest.raises(InvalidEvent, match=f"column 'x' .*{problem}"):
        conform(pa.record_batch({"x": column}))


def test_conform_drops_columns_of_nothing_and_checks_names() -> None:
    nothing = pa.record_batch({"x": pa.nulls(2), "y": pa.array([1, 2])})
    assert conform(nothing).schema.names == ["y"]
    assert conform(nothing.select(["x"])).num_rows == 2
    with pytest.raises(InvalidEvent, match="column 'x' occurs twice"):
        conform(pa.record_batch([pa.array([1]), pa.array([2])], names=["x", "x"]))
    with pytest.raises(InvalidEvent, match="no attribute name"):
        conform(pa.record_batch({"": pa.array([1])}))


# --- flattening ---


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"a": 1, "b": {"c": "x", "d": {"e": True}}}, {"a": 1, "b.c": "x", "b.d.e": True}),
        ({"a": None, "b": [1, 2], "c": (3,), "d": {}}, {}),
        ({"a": [{"b": 1}]}, {}),
        ({"a.b": 1}, {"a.b": 1}),
        ({"a": {"": 1}}, {"a.": 1}),
        ({"": {"a": 1}}, {".a": 1}),
        ({"a": 0.5}, {"a": 0.5}),
    ],
)
def test_flattening(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert flatten(given_) == expected


@pytest.mark.parametrize(
    ("given_", "problem"),
    [
        ({"a": {"b": 1}, "a.b": 2}, "'a.b' occurs twice"),
        ({"": 1}, "no attribute name"),
        ({"a": {"b": 2**63}}, "'a.b': .* int64"),
        ({"a": {"b": 1j}}, "'a.b': .* no attribute type"),
    ],
)
def test_what_does_not_flatten(given_: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        flatten(given_)


def nested(levels: int) -> dict[str, Any]:
    event: dict[str, Any] = {"x": 1}
    for _ in range(levels - 1):
        event = {"a": event}
    return event


def wide(count: int) -> dict[str, Any]:
    return {f"a{place}": place for place in range(count)}


def test_limits_of_an_event() -> None:
    for levels in (MAX_DEPTH - 1, MAX_DEPTH):
        assert len(flatten(nested(levels))) == 1
    for levels in (MAX_DEPTH + 1, 50_000):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            flatten(nested(levels))
    for count in (MAX_ATTRIBUTES - 1, MAX_ATTRIBUTES):
        event = wide(count)
        assert len(flatten({"a": event})) == count
        batch = to_batch(event)
        assert conform(batch).num_columns == count
    event = wide(MAX_ATTRIBUTES + 1)
    for attempt in (flatten, to_batch):
        with pytest.raises(LimitExceeded, match="MAX_ATTRIBUTES"):
            attempt(event)
    with pytest.raises(LimitExceeded, match="MAX_ATTRIBUTES"):
        conform(pa.record_batch({name: pa.array([1]) for name in event}))


def test_rows_that_have_little_in_common_do_not_make_a_batch_too_wide() -> None:
    one, other = wide(MAX_ATTRIBUTES), {f"b{place}": 1 for place in range(MAX_ATTRIBUTES)}
    batches = list(to_batches([one, other, {"b0": 2}]))
    assert [batch.num_rows for batch in batches] == [1, 2]
    assert all(conform(batch) is batch for batch in batches)


def test_a_name_has_a_longest_length_at_every_door() -> None:
    longest, longer = "n" * MAX_NAME_CHARS, "n" * (MAX_NAME_CHARS + 1)
    assert flatten({longest: 1}) == {longest: 1}
    assert to_batch({longest: 1}).schema.names == [longest]
    assert conform(pa.record_batch({longest: pa.array([1], pa.int8())})).schema.names == [longest]
    for attempt in (
        lambda: flatten({"a": {"n" * (MAX_NAME_CHARS - 1): 1}}),
        lambda: to_batch({longer: 1}),
        lambda: conform(pa.record_batch({longer: pa.array([1])})),
        lambda: conform(pa.record_batch({longer: pa.array([1], pa.int8())})),
    ):
        with pytest.raises(LimitExceeded, match="MAX_NAME_CHARS"):
            attempt()


def test_a_batch_is_no_more_than_three_quarters_empty_but_for_a_small_one() -> None:
    events = [
        {f"n{(3 * at + part) % 4_000}": at for part in range(3)} | {"kind": "t"}
        for at in range(5_000)
    ]
    batches = list(to_batches(events))
    assert [row for batch in batches for row in rows(batch)] == events
    for batch in batches:
        cells, values = batch.num_rows * batch.num_columns, 4 * batch.num_rows
        assert cells <= SPARSE_CELLS + SPARSE_SHARE * values


def test_events_of_one_kind_stay_together_however_many_they_are() -> None:
    events = [{"a": at, "b": 2 * at} for at in range(20_000)]
    assert [batch.num_rows for batch in to_batches(events)] == [20_000]


def test_a_new_batch_begins_with_the_first_cell_too_many() -> None:
    wide = {f"w{at}": at for at in range(MAX_ATTRIBUTES - 1)}
    narrow = [{"n": at} for at in range(20)]
    most = next(
        count
        for count in range(1, 20)
        if (count + 1) * MAX_ATTRIBUTES > SPARSE_CELLS + SPARSE_SHARE * (len(wide) + count)
    )
    assert [batch.num_rows for batch in to_batches([wide, *narrow])] == [most, 21 - most]


@pytest.mark.parametrize("name", [PUBLISHER, SEQ, TIME, "$", "$any"])
def test_a_name_of_the_system_is_refused_by_name(name: str) -> None:
    assert is_system_name(name)
    with pytest.raises(
        InvalidEvent, match=re.escape(f"attribute {name!r}: names that begin with $")
    ):
        refuse_system_names(["price", name])


def test_other_names_are_the_publishers() -> None:
    assert not is_system_name("price$")
    refuse_system_names(["price$", "", 5])


@pytest.mark.parametrize("extra", [0, 1, 7])
@pytest.mark.parametrize("beyond", [0, 1])
def test_times_are_read_from_a_buffer_of_any_length(extra: int, beyond: int) -> None:
    data = (LAST_TIME + beyond).to_bytes(8, "little") + bytes(extra)
    column = pa.Array.from_buffers(timestamp_type(), 1, [None, pa.py_buffer(data)])
    batch = pa.record_batch({"t": column})
    if not beyond:
        check_times(batch)
    else:
        with pytest.raises(InvalidEvent, match="not in the years 1 to 9999"):
            check_times(batch)
