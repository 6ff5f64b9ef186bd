"""What a client of gRPC sends is told apart, in pieces of any size, without reading its headers."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from math import inf
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import LimitExceeded
from palio.protocol.limits import MAX_FRAME_BYTES
from palio.server.flight.frames import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_STREAMS_OPEN,
    PREFACE,
    AnsweredCalls,
    Illegal,
    Inspector,
    farewell,
)
from tests.protocol.test_ipc import messages

DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4
ENDS, WHOLE, PADDED = 1, 4, 8
CONTINUATION = 9
WORDS: Final = pa.record_batch({"s": pa.array(["a" * 500] * 90).dictionary_encode(), "x": [1] * 90})


def frame(kind: int, body: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


GREETING: Final = PREFACE + frame(SETTINGS)


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return found + bytes((value,))


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def message(body: bytes, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(body)) + body


def called(*sent: bytes, stream: int = 1) -> bytes:
    """A conversation with one call, each message in frames of some bytes."""
    data = GREETING + frame(HEADERS, b"\x82", stream=stream)
    for each in sent:
        for place in range(0, len(each), 16_384):
            data += frame(DATA, each[place : place + 16_384], stream=stream)
    return data


def put(codec: Any) -> list[bytes]:
    """What a client puts: a schema, a dictionary and a batch, as messages of Flight."""
    found: list[bytes] = []
    for each in messages(WORDS, codec):
        end = 8 + struct.unpack_from("<I", each, 4)[0]
        descriptor = field(1, b"\x08\x02\x12\x00") if not found else b""
        found.append(message(descriptor + field(2, each[8:end]) + field(1_000, each[end:])))
    return found


def fed(data: bytes, step: int = 1 << 20) -> Inspector:
    inspector = Inspector()
    for place in range(0, len(data), step):
        inspector.feed(memoryview(data)[place : place + step])
    return inspector


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_an_ordinary_conversation_goes_through(step: int) -> None:
    inspector = fed(called(*put(None)), step)
    assert inspector.has_greeted
    assert (inspector.calls, inspector.last_stream, inspector.unfinished) == ([1], 1, 0)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_bodies_are_refused_however_they_come(codec: str, step: int) -> None:
    _, dictionary, batch = put(codec)
    schema = put(None)[0]
    for sent in (dictionary, batch):
        with pytest.raises(Illegal, match="must not be compressed"):
            fed(called(schema, sent), step)


def test_a_compressed_body_is_seen_before_its_head_too() -> None:
    """A body may come first, and a second head is the one that counts."""
    _, _, plain = put(None)
    _, _, batch = put("zstd")
    for sent in (
        message(field(1_000, b"x" * 5_000) + batch[5:]),
        message(plain[5:] + batch[5:]),
        message(field(900, b"y" * 300) + b"\x08\x02" + batch[5:]),
        message(varint(900 << 3) + varint(1 << 60) + batch[5:]),
        message(varint(900 << 3 | 1) + bytes(8) + varint(900 << 3 | 5) + bytes(4) + batch[5:]),
    ):
        with pytest.raises(Illegal, match="must not be compressed"):
            fed(called(sent), 100)


def test_padding_is_no_part_of_a_message() -> None:
    whole = put("zstd")[2]
    half = len(whole) // 2
    data = GREETING + frame(HEADERS, b"\x82", stream=1)
    for part in (whole[:half], whole[half:]):
        data += frame(DATA, b"\x05" + part + bytes(5), flags=PADDED, stream=1)
    for step in (1, 50, 1 << 20):
        with pytest.raises(Illegal, match="must not be compressed"):
            fed(data, step)


def test_messages_that_grpc_would_inflate_are_refused() -> None:
    with pytest.raises(Illegal, match="must not be compressed"):
        fed(called(message(b"x" * 10, compressed=1)))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_message_has_a_largest_size(extra: int) -> None:
    start = called(struct.pack(">BI", 0, MAX_FRAME_BYTES + extra))
    if extra > 0:
        with pytest.raises(LimitExceeded, match="MAX_FRAME_BYTES"):
            fed(start)
    else:
        fed(start)


@pytest.mark.parametrize("extra", [0, 1])
def test_calls_of_a_connection_have_a_limit(extra: int) -> None:
    data = GREETING
    for number in range(MAX_STREAMS_OPEN + extra):
        data += frame(HEADERS, b"\x82", stream=2 * number + 1)
    if extra:
        with pytest.raises(LimitExceeded, match="MAX_STREAMS_OPEN"):
            fed(data)
    else:
        assert len(fed(data).calls) == MAX_STREAMS_OPEN


def test_a_call_ends_by_either_side() -> None:
    start = called(message(b""))
    assert fed(start + frame(RESET, bytes(4), stream=1)).calls == []
    inspector = fed(start + frame(DATA, flags=ENDS, stream=1))
    answers = AnsweredCalls(inspector)
    reply = frame(HEADERS, b"\x88", flags=WHOLE, stream=1)
    reply += frame(HEADERS, b"\x88", flags=WHOLE | ENDS, stream=1)
    answers.feed(memoryview(reply)[:-1])
    assert (inspector.calls, answers.is_between) == ([1], False)
    answers.feed(memoryview(reply)[-1:])
    assert (inspector.calls, answers.is_between) == ([], True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "not HTTP/2"),
        (PREFACE + frame(HEADERS, b"\x82", stream=1), "settings come first"),
        (called(message(b"\xff" * 20)), "too long"),
        (called(message(varint(2 << 3) + b"\x05")), "another type"),
        (called(message(varint(1_000 << 3 | 5) + bytes(4))), "another type"),
        (called(message(b"\x08\x03")), "does not exist"),
        (called(message(b"\x0b")), "does not use"),
        (called(message(b"\x20\x01" * (MAX_FIELDS + 1))), "MAX_FIELDS"),
        (called(message(b"\x12" + varint(MAX_HEAD_BYTES + 1) + bytes(9))), "MAX_HEAD_BYTES"),
    ],
)
def test_what_no_client_of_flight_sends_is_refused(data: bytes, reason: str) -> None:
    for step in (1, 1 << 20):
        with pytest.raises(Illegal, match=reason):
            fed(data, step)


def test_an_unfinished_message_is_counted() -> None:
    whole = message(field(1, bytes(50_000)))
    data = called(whole[:30_000])
    inspector = fed(data)
    assert inspector.unfinished == 30_000 - 5
    inspector.feed(memoryview(frame(DATA, whole[30_000:], stream=1)), 1.0)
    assert inspector.unfinished == 0
    assert inspector.waiting_since == inf


def test_each_message_has_its_own_time() -> None:
    """A client that puts one after another is never without an unfinished one."""
    whole = message(field(1, bytes(1_000)))
    inspector = fed(called(whole[:500]))
    for now in range(1, 5):
        inspector.feed(memoryview(frame(DATA, whole[500:] + whole[:500], stream=1)), now)
        assert inspector.unfinished
        assert inspector.waiting_since == now


def test_tickets_and_commands_are_not_taken_for_heads() -> None:
    for body in (b'{"durable": true}', b"", b"{}", b"\0" * 40, b"\xff" * 40, b" " * 100_000):
        fed(called(message(field(2, body)), message(b"\x08\x02" + field(2, body))))


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    for before in (b"", GREETING, called(), called(put(None)[0])):
        with suppress(Illegal, LimitExceeded):
            fed(before + data, 50)
    AnsweredCalls(Inspector()).feed(memoryview(data))


def test_no_change_of_a_byte_lets_a_compressed_body_through(seed: int) -> None:
    """Whatever Arrow would still read as that batch is refused."""
    draw = random.Random(seed)
    batch = put("zstd")[2]
    for _ in range(300):
        changed = bytearray(batch)
        changed[draw.randrange(5, 60)] ^= 1 << draw.randrange(8)
        with suppress(Illegal):
            fed(called(bytes(changed)), draw.choice((1, 64, 1 << 20)))


def test_nothing_is_put_between_headers_and_their_rest() -> None:
    answers = AnsweredCalls(fed(called()))
    answers.feed(memoryview(frame(HEADERS, b"\x88", stream=1)))
    assert not answers.is_between
    answers.feed(memoryview(frame(CONTINUATION, b"\x88", flags=WHOLE, stream=1)))
    assert answers.is_between


@pytest.mark.parametrize("length", [10, 126, 127, 128, 260])
def test_the_last_words_are_frames_that_answer_what_is_open(length: int) -> None:
    inspector = fed(called() + frame(HEADERS, b"\x82", stream=3))
    answers = AnsweredCalls(inspector)
    answers.feed(memoryview(frame(HEADERS, b"\x88", flags=WHOLE, stream=3)))
    said = farewell(inspector, answers, "x" * length, 3)
    assert said.count(b"x" * length) == 3  # two answers, and why the connection ends
    assert said.count(b"application/grpc") == 1  # one had begun
    answers.feed(memoryview(said))
    assert answers.is_between
    assert inspector.calls == []
