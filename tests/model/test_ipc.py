"""The reader of an Arrow message's head agrees with Arrow, and lets nothing grow."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import LimitExceeded
from palio.model.events import to_batch
from palio.model.ipc import BATCH, DICTIONARY, SCHEMA, SYSTEM_COLUMNS, check_message
from palio.model.limits import MAX_ATTRIBUTES
from tests.strategies import values

LONG = pa.record_batch({f"c{place}": ["x" * 1_000] * 10 for place in range(8)})


def messages(batch: pa.RecordBatch, codec: Any) -> list[bytes]:
    """Schema, dictionaries and batch as they would travel in a stream, each with its body."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader: Any = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [message.serialize().to_pybytes() for message in reader]


def overlapping(batch: pa.RecordBatch) -> bytes:
    """The message of a batch, all of whose columns are equal, with the first one's bytes only."""
    message = bytearray(batch.serialize().to_pybytes())
    start = 8 + struct.unpack_from("<I", message, 4)[0]
    each = (len(message) - start) // batch.num_columns
    offsets = [
        at
        for at in range(0, start - 8, 8)
        if each <= struct.unpack_from("<q", message, at)[0] < len(message) - start
    ]
    for at in offsets:
        struct.pack_into("<q", message, at, struct.unpack_from("<q", message, at)[0] % each)
    body = struct.pack("<q", len(message) - start)
    place = message.index(body)
    message[place : place + 8] = struct.pack("<q", each)
    return bytes(message[: start + each])


def leading_elsewhere(message: bytes, text: bytes, other: bytes) -> bytes:
    """A message in which every offset to one text leads to another, longer one behind it."""
    changed = bytearray(message)
    here, there = (message.index(struct.pack("<I", len(each)) + each) for each in (text, other))
    for at in range(0, here, 4):
        if at + struct.unpack_from("<I", message, at)[0] == here:
            struct.pack_into("<I", changed, at, there - at)
    return bytes(changed)


WORDS = pa.record_batch({"s": pa.array(["a" * 500] * 9).dictionary_encode(), "x": [1] * 9})


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_are_refused(codec: str) -> None:
    schema, *others = messages(WORDS, codec)
    assert check_message(schema)
    for message in others:
        with pytest.raises(ValueError, match="compressed"):
            check_message(message)


def test_messages_of_a_stream_follow_each_other() -> None:
    parts = messages(WORDS, None)
    stream = b"".join(parts)
    kinds, end = [], 0
    for part in parts:
        message = check_message(stream, end)
        assert message is not None
        assert message.end == end + len(part)
        kinds.append(message.kind)
        end = message.end
    assert kinds == [SCHEMA, DICTIONARY, BATCH]
    assert check_message(b"\xff\xff\xff\xff\0\0\0\0") is None


@given(st.dictionaries(st.sampled_from("abcd"), values()), st.integers(1, 5))
def test_what_palio_writes_is_taken(event: dict[str, Any], count: int) -> None:
    batch = to_batch(event)
    batch = pa.Table.from_batches([batch] * count).combine_chunks().to_batches()[0]
    assert check_message(batch.serialize().to_pybytes())
    assert check_message(batch.schema.serialize().to_pybytes())


def test_the_same_bytes_twice_are_refused() -> None:
    message = overlapping(LONG)
    read = pa.ipc.read_record_batch(pa.py_buffer(message), LONG.schema)
    read.validate(full=True)
    assert read.equals(LONG)  # Arrow takes it
    assert read.nbytes > 4 * len(message)
    with pytest.raises(ValueError, match="overlap"):
        check_message(message)


def test_a_buffer_of_less_than_no_bytes_makes_no_room_for_others() -> None:
    """Arrow does not look at a buffer that it does not use: here that of no nulls."""
    message = overlapping(LONG)
    first = message.index(struct.pack("<4q", 0, 0, 0, 44))
    lying = message[: first + 8] + struct.pack("<q", -(1 << 40)) + message[first + 16 :]
    assert pa.ipc.read_record_batch(pa.py_buffer(lying), LONG.schema).equals(LONG)
    with pytest.raises(ValueError, match="less than no bytes"):
        check_message(lying)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("x", pa.int64())], metadata={"a": "n" * 5_000, "b": "yy"}),
        pa.schema([pa.field("x", pa.int64(), metadata={"a": "n" * 5_000, "b": "yy"})]),
        pa.schema([("n" * 5_000, pa.int64()), ("yy", pa.int64())]),
        pa.schema([("x", pa.timestamp("s", "n" * 5_000)), ("y", pa.timestamp("s", "yy"))]),
    ],
    ids=["metadata", "metadata of a column", "names", "zones"],
)
def test_a_schema_does_not_name_one_long_text_many_times(schema: pa.Schema) -> None:
    honest = schema.serialize().to_pybytes()
    assert check_message(honest)
    lying = leading_elsewhere(honest, b"yy", b"n" * 5_000)
    assert len(str(pa.ipc.read_schema(pa.py_buffer(lying)))) > len(str(schema))  # Arrow takes it
    with pytest.raises(ValueError, match="overlap"):
        check_message(lying)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_schema_has_no_more_columns_than_an_event(extra: int) -> None:
    count = MAX_ATTRIBUTES + SYSTEM_COLUMNS + extra
    described = pa.schema([(f"c{at}", pa.int64()) for at in range(count)]).serialize()
    if extra:
        with pytest.raises(LimitExceeded, match="MAX_ATTRIBUTES"):
            check_message(described.to_pybytes())
    else:
        assert check_message(described.to_pybytes())


def deep(levels: int) -> Any:
    kind: Any = pa.int64()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.int8()), pa.struct([]), pa.struct([("a", pa.int8())]), pa.dense_union([])),
        *(pa.map_(pa.int8(), pa.int8()), pa.run_end_encoded(pa.int32(), pa.int8())),
        *(pa.list_(pa.int8(), 2), pa.list_view(pa.int8()), deep(40)),
    ],
    ids=str,
)
def test_a_column_with_parts_is_refused(kind: Any) -> None:
    described = pa.schema([("x", kind)]).serialize().to_pybytes()
    with pytest.raises(ValueError, match="column 'x' is of a type with parts"):
        check_message(described)


@pytest.mark.parametrize("endianness", [0, 1])
def test_numbers_the_other_way_round_are_refused(endianness: int) -> None:
    """Arrow would turn them round before anybody can validate a batch."""
    message = struct.pack("<I5H2xiIB3x", 16, 10, 12, 0, 8, 4, 12, 16, SCHEMA)
    schema = struct.pack("<3H2xih2x", 6, 8, 4, 8, endianness)
    described = b"\xff\xff\xff\xff" + struct.pack("<I", 44) + message + schema
    if endianness:
        with pytest.raises(ValueError, match="big-endian"):
            check_message(described)
    else:
        assert check_message(described)


def test_the_old_form_is_refused() -> None:
    message = LONG.serialize().to_pybytes()[4:]
    assert pa.ipc.read_record_batch(pa.py_buffer(message), LONG.schema).equals(LONG)
    with pytest.raises(ValueError, match=r"before 0\.15"):
        check_message(message)


@pytest.mark.parametrize("body", [-1, -(1 << 63), 1 << 40, (1 << 63) - 1])
def test_a_body_is_as_long_as_it_is_said_to_be(body: int) -> None:
    message = LONG.serialize().to_pybytes()
    start = 8 + struct.unpack_from("<I", message, 4)[0]
    place = message.index(struct.pack("<q", len(message) - start))
    lying = message[:place] + struct.pack("<q", body) + message[place + 8 :]
    with pytest.raises(ValueError, match="of which"):
        check_message(lying)
    with pytest.raises(ValueError, match=r"of which|cut off"):
        check_message(message[:-1])


@given(st.binary(max_size=200))
def test_no_bytes_break_it(data: bytes) -> None:
    for message in (data, b"\xff\xff\xff\xff" + struct.pack("<I", len(data)) + data):
        with suppress(ValueError):
            check_message(message)
