"""What is read of an Arrow message's head agrees with Arrow, and lets nothing grow."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.model.events import to_batch
from palio.protocol.ipc import check_batch_message, is_compressed
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


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_are_seen(codec: str) -> None:
    words = pa.record_batch({"s": pa.array(["a" * 500] * 9).dictionary_encode(), "x": [1] * 9})
    _, dictionary, batch = messages(words, codec)
    assert is_compressed(dictionary, 8)
    assert is_compressed(batch, 8)
    with pytest.raises(ValueError, match="compressed"):
        check_batch_message(batch)


def test_what_is_not_compressed_is_not_taken_for_it() -> None:
    words = pa.record_batch({"s": pa.array(["a", "b"]).dictionary_encode()})
    for message in messages(words, None):
        assert not is_compressed(message, 8)


@given(st.dictionaries(st.sampled_from("abcd"), values()), st.integers(1, 5))
def test_what_palio_writes_is_taken(event: dict[str, Any], count: int) -> None:
    batch = to_batch(event)
    batch = pa.Table.from_batches([batch] * count).combine_chunks().to_batches()[0]
    check_batch_message(batch.serialize().to_pybytes())


def test_the_same_bytes_twice_are_refused() -> None:
    message = overlapping(LONG)
    read = pa.ipc.read_record_batch(pa.py_buffer(message), LONG.schema)
    read.validate(full=True)
    assert read.equals(LONG)  # Arrow takes it
    assert read.nbytes > 4 * len(message)
    with pytest.raises(ValueError, match="overlap"):
        check_batch_message(message)


def test_the_old_form_is_refused() -> None:
    message = LONG.serialize().to_pybytes()[4:]
    assert pa.ipc.read_record_batch(pa.py_buffer(message), LONG.schema).equals(LONG)
    with pytest.raises(ValueError, match=r"before 0\.15"):
        check_batch_message(message)


@given(st.binary(max_size=200))
def test_no_bytes_break_it(data: bytes) -> None:
    for read in (is_compressed, check_batch_message):
        with suppress(ValueError, struct.error, IndexError):
            read(data)
