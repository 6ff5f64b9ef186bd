"""Events that come from outside are those that a broker can have made, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.errors import IllegalMessage, InvalidInput, LimitExceeded
from palio.model.events import stamped, timestamp_type, to_batch
from palio.model.limits import MAX_EVENT_TEXT_BYTES, MAX_STREAM_MESSAGES
from palio.model.shapes import Shape
from palio.protocol.legal_parcels import (
    batch_parcel,
    check_numbered,
    legal_shape,
    read_shape,
    stream_batches,
)
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    MAX_NUMBER,
    MAX_PUBLISHER_CHARS,
)
from palio.protocol.messages import Parcel
from palio.protocol.plain import lone_parcel
from tests.model.test_ipc import LONG, overlapping

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    ("number", "is_legal"),
    [(-1, False), (0, True), (MAX_NUMBER - 1, True), (MAX_NUMBER, True), (MAX_NUMBER + 1, False)],
)
def test_numbers_begin_at_0_and_have_an_end(number: int, is_legal: bool, rows: int) -> None:
    batch = pa.record_batch({"x": list(range(rows))})
    first = number if number <= 0 else number - rows + 1
    parcel = Parcel.of("", batch).stamped("p", first, 0)
    assert (parcel.values is not None) == (rows == 1)
    if is_legal:
        check_numbered("b2", parcel)
    else:
        with pytest.raises(IllegalMessage, match="from 0 to"):
            check_numbered("b2", parcel)


@pytest.mark.parametrize("extra", [0, 1])
def test_no_event_has_more_text_than_was_published(extra: int) -> None:
    batch = to_batch({"s": "a" * (MAX_EVENT_TEXT_BYTES + extra)})
    numbered = Parcel("p", stamped(batch, 1, 0))
    if extra:
        with pytest.raises(IllegalMessage, match="MAX_EVENT_TEXT_BYTES"):
            check_numbered("b2", numbered)
        with pytest.raises(LimitExceeded, match="MAX_EVENT_TEXT_BYTES"):
            list(stream_batches(stream(batch)))
    else:
        check_numbered("b2", numbered)
        assert len(list(stream_batches(stream(batch)))) == 1


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
        with pytest.raises(IllegalMessage, match="whose name is too long"):
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


def test_a_batch_is_read_in_full_before_it_counts() -> None:
    shape = legal_shape(LONG.schema)
    message = bytearray(LONG.serialize().to_pybytes())
    assert len(batch_parcel("p", shape, bytes(message))) == LONG.num_rows
    with pytest.raises(ValueError, match="overlap"):
        batch_parcel("p", shape, overlapping(LONG))
    message[message.index(b"xxxx")] = 0xFF
    with pytest.raises(ValueError, match="UTF8"):
        batch_parcel("p", shape, bytes(message))


def test_what_a_field_says_of_itself_is_not_kept() -> None:
    """A broker remembers a thousand shapes for each connection."""
    field = pa.field("x", pa.int64(), nullable=False, metadata={"pandas": "x" * 10_000})
    schema = pa.schema([field], metadata={"pandas": "x" * 10_000})
    shape = read_shape(schema.serialize().to_pybytes())
    assert shape == Shape.of(pa.schema([("x", pa.int64())]))
    assert shape.schema.serialize().size < 1_000


def test_a_time_that_no_receiver_reads_is_no_brokers() -> None:
    times = pa.array([2**60, 0], pa.int64()).cast(timestamp_type())
    batch = stamped(pa.record_batch({"t": times}), 1, 0)
    with pytest.raises(IllegalMessage, match="years 1 to 9999"):
        check_numbered("b2", Parcel("p", batch))


@pytest.mark.parametrize("end", [b"", b"x" * 64], ids=["alone", "and more"])
def test_the_end_of_a_stream_is_neither_a_batch_nor_a_shape(end: bytes) -> None:
    mark = b"\xff\xff\xff\xff\0\0\0\0" + end
    with pytest.raises(ValueError, match="no batch"):
        batch_parcel("p", legal_shape(LONG.schema), mark)
    with pytest.raises(ValueError, match="no schema"):
        read_shape(mark)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_batch_has_so_many_rows(extra: int) -> None:
    batch = pa.record_batch({"x": [True] * (MAX_BATCH_ROWS + extra)})
    shape, message = legal_shape(batch.schema), batch.serialize().to_pybytes()
    if extra > 0:
        with pytest.raises(ValueError, match="MAX_BATCH_ROWS"):
            batch_parcel("p", shape, message)
    else:
        assert len(batch_parcel("p", shape, message)) == MAX_BATCH_ROWS + extra


# --- streams of clients ---


def stream(*batches: pa.RecordBatch, codec: Any = None, deltas: bool = False) -> bytes:
    """Batches of one schema as Arrow writes them."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def without_columns(count: int) -> pa.RecordBatch:
    kind: Any = pa.struct([])
    structs: Any = pa.Array.from_buffers(kind, count, [None])
    return pa.RecordBatch.from_struct_array(structs)


def empty_ones(count: int) -> Any:
    """Texts of a fixed length, which is 0."""
    return pa.Array.from_buffers(pa.binary(0), count, [None, pa.py_buffer(b"")])


def named_often(text: Any, count: int) -> Any:
    """A text that is named many times by a byte each."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), text)


def viewed_often(count: int) -> Any:
    """A text of a million characters under many views."""
    parts: Any = pa.array(["a" * 1_000_000], pa.string_view()).buffers()
    views: Any = pa.py_buffer(parts[1].to_pybytes() * count)
    return pa.Array.from_buffers(pa.string_view(), count, [None, views, parts[2]])


MIXED = pa.record_batch(
    {
        "d": pa.array(["x", "y", None]).dictionary_encode(),
        "i": pa.array([1, None, 3], pa.int8()),
        "v": pa.array(["a" * 30, None, "c"], pa.string_view()),
        "b": pa.array([b"ab", b"c", None], pa.large_binary()),
        "t": pa.array([1, 2, 3], pa.timestamp("ms", "Europe/Rome")),
        "n": pa.nulls(3),
    }
)


def test_a_stream_is_read_as_events() -> None:
    described = MIXED.replace_schema_metadata({"pandas": "{}"})
    one, two = stream_batches(stream(described, described[:0], described[1:]))
    assert {field.name: str(field.type) for field in one.schema} == {
        "d": "string",
        "i": "int64",
        "v": "string",
        "b": "binary",
        "t": "timestamp[us, tz=UTC]",
    }
    assert not one.schema.metadata
    assert one.column("v").to_pylist() == ["a" * 30, None, "c"]
    assert two.column("d").to_pylist() == ["y", None]
    assert [each.num_rows for each in stream_batches(stream(without_columns(5)))] == [5]


@pytest.mark.parametrize("value", [0x7F, 0xFF])
def test_a_stream_with_one_altered_byte_is_refused_or_is_sound(value: int) -> None:
    """Arrow follows some lengths before anybody has validated them, and dies of it."""
    whole = stream(MIXED)
    sound = refused = 0
    for at in range(len(whole)):
        altered = whole[:at] + bytes([value]) + whole[at + 1 :]
        try:
            batches = list(stream_batches(altered))
        except InvalidInput:
            refused += 1
            continue
        sound += 1
        for batch in batches:
            batch.validate(full=True)
            batch.take(np.arange(batch.num_rows)).validate(full=True)
    assert refused > 50
    assert sound > 50


def test_a_view_under_a_null_leads_nowhere_either() -> None:
    """Arrow does not validate it, and follows it when it casts the column."""
    parts: Any = pa.array(["a" * 30, "b" * 30], pa.string_view()).buffers()
    views = bytearray(parts[1].to_pybytes())
    views[16 + 8 : 16 + 12] = b"\xff\xff\xff\x7f"  # the number of a buffer
    valid: Any = pa.py_buffer(b"\x01")
    damaged: Any = pa.py_buffer(bytes(views))
    column: Any = pa.Array.from_buffers(pa.string_view(), 2, [valid, damaged, *parts[2:]])
    column.validate(full=True)
    for each in (column, named_often(column, 1)):
        with pytest.raises(InvalidInput, match="not an Arrow stream"):
            list(stream_batches(stream(pa.record_batch({"x": each}))))


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (pa.record_batch({"x": [[1]]}), "parts"),
        (pa.record_batch({"x": pa.array([1], pa.date32())}), "no attribute type"),
        (pa.record_batch({"x": [1], "y" * 300: [1]}), "MAX_NAME_CHARS"),
        (pa.record_batch({"x": pa.nulls(10**8)}), "MAX_CHUNK_ROWS"),
        (pa.record_batch({f"c{each}": pa.nulls(10**5) for each in range(50)}), "MAX_CHUNK_CELLS"),
        (without_columns(10**8), "MAX_CHUNK_ROWS"),
        (pa.record_batch({"x": empty_ones(10**8)}), "MAX_CHUNK_ROWS"),
        (pa.record_batch({"x": named_often(pa.array(["a" * 10**6]), 10**5)}), "MAX_BATCH_BYTES"),
        (pa.record_batch({"x": viewed_often(10**5)}), "MAX_BATCH_BYTES"),
        (pa.record_batch({"x": named_often(viewed_often(10**5), 1)}), "MAX_BATCH_BYTES"),
        (pa.record_batch({"x": pa.array([b"\xff"]).view(pa.utf8())}), "UTF8"),
    ],
    ids=[
        *("nested", "a date", "a long name", "nulls", "many nulls", "no columns"),
        *("texts of no bytes", "one text often", "one text under views", "in a dictionary"),
        "no text",
    ],
)
def test_a_stream_that_becomes_too_much_or_no_events_is_refused(
    batch: pa.RecordBatch, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        list(stream_batches(stream(batch)))


def test_a_dictionary_in_parts_is_refused_before_arrow_joins_them() -> None:
    """Some versions of Arrow do so before they validate the parts."""
    few, more = (pa.array(texts).dictionary_encode() for texts in (["a"], ["a", "b"]))
    one, two = (pa.record_batch({"x": column}) for column in (few, more))
    assert sum(each.num_rows for each in stream_batches(stream(one, two))) == 3
    with pytest.raises(InvalidInput, match="in parts; send each whole"):
        list(stream_batches(stream(one, two, deltas=True)))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_stream_is_refused_before_it_is_inflated(codec: str) -> None:
    many = pa.record_batch({"x": np.zeros(10**7, np.int64)})
    allocated = pa.total_allocated_bytes()
    packed = stream(many, codec=codec)
    del many
    with pytest.raises(InvalidInput, match="compressed"):
        list(stream_batches(packed))
    assert pa.total_allocated_bytes() - allocated < 10**6


def test_batches_of_a_stream_count_together() -> None:
    half = pa.record_batch({"x": ["a" * (MAX_BATCH_BYTES // 32)] * 16})
    assert len(list(stream_batches(stream(half)))) == 1
    with pytest.raises(InvalidInput, match="MAX_BATCH_BYTES"):
        list(stream_batches(stream(half, half)))


@pytest.mark.parametrize("extra", [0, 1])
def test_a_stream_has_a_largest_number_of_messages(extra: int) -> None:
    one = pa.record_batch({"x": [1]})
    whole = stream(*[one] * (MAX_STREAM_MESSAGES - 1 + extra))
    if extra:
        with pytest.raises(InvalidInput, match="MAX_STREAM_MESSAGES"):
            list(stream_batches(whole))
    else:
        assert len(list(stream_batches(whole))) == MAX_STREAM_MESSAGES - 1


@pytest.mark.parametrize("data", [b"", b"junk" * 50, stream(MIXED)[:-200], b"\xff" * 64])
def test_bytes_that_are_no_stream_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not an Arrow stream"):
        list(stream_batches(data))
