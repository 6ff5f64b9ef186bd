"""The bytes of a gRPC client, checked on their way: sizes, and bodies that would be inflated.

gRPC here takes messages of any length and inflates what says that it is compressed, gzip in its own
messages and zstd or lz4 in those of Arrow, before anybody is asked. `Inspector` reads no more than
it must to tell: the lengths of HTTP/2's frames, those of gRPC's messages within them, and the head
of an Arrow message within those. The headers of calls stay unread, so that it holds no tables.

HTTP/2: `u24 length | u8 kind | u8 flags | u32 stream`, after a preface that is always the same.
gRPC: `u8 compressed | u32 length`, big-endian, before each message. A message is a protobuf, in
which what Flight calls `data_header` has the number 2.
"""

from __future__ import annotations

import struct
from math import inf
from typing import Final
from urllib.parse import quote

from palio.errors import LimitExceeded, PalioError
from palio.protocol.ipc import is_compressed
from palio.protocol.limits import MAX_FRAME_BYTES

__all__ = ["PREFACE", "AnsweredCalls", "Illegal", "Inspector", "farewell"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

MAX_STREAMS_OPEN: Final = 256
"""Calls of one connection at once, as many as there are streams for all."""

MAX_HEAD_BYTES: Final = 2 << 20
"""The head of an Arrow message: the schema of an event with `MAX_ATTRIBUTES` names fits."""

_SAID_CHARS: Final = 300
"""Characters of the text in a last frame."""

_ENHANCE_YOUR_CALM: Final = 11
"""HTTP/2's code for a client that asks for too much."""

MAX_FIELDS: Final = 1_024
"""Fields of one message; Flight's have four, a path as many as it has parts."""

_FRAME: Final = struct.Struct(">BHBBI")
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_CONTINUATION = 9
_ENDS, _WHOLE, _PADDED = 0x1, 0x4, 0x8
_PREFIX: Final = struct.Struct(">BI")

_ONE, _HEAD, _METADATA, _BODY = 1, 2, 3, 1_000
_VARINT, _WORD64, _BYTES, _WORD32 = 0, 1, 2, 5


class Illegal(PalioError):
    """Bytes that no client of Flight sends; the connection ends."""


class _Frames:
    """Finds where frames begin, in bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0
        self._kind = self._flags = self._stream = 0

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a frame."""
        return not self._head and not self._left

    def feed(self, data: memoryview) -> None:
        """Take more bytes."""
        place, end = 0, len(data)
        while place < end:
            if not self._left:
                take = min(_FRAME.size - len(self._head), end - place)
                self._head += data[place : place + take]
                place += take
                if len(self._head) < _FRAME.size:
                    return
                high, low, self._kind, self._flags, stream = _FRAME.unpack(self._head)
                self._head.clear()
                self._left = high << 16 | low
                self._stream = stream & 0x7FFF_FFFF
                self._begins(self._kind, self._flags, self._stream, self._left)
                if not self._left:
                    self._ended(self._kind, self._flags, self._stream)
                continue
            take = min(self._left, end - place)
            self._left -= take
            if self._kind == _DATA:
                self._came(self._stream, data[place : place + take])
            place += take
            if not self._left:
                self._ended(self._kind, self._flags, self._stream)

    def _begins(self, kind: int, flags: int, stream: int, size: int) -> None:
        """A frame begins."""

    def _came(self, stream: int, data: memoryview) -> None:
        """More of a frame of data."""

    def _ended(self, kind: int, flags: int, stream: int) -> None:
        """A frame is over."""


class Inspector(_Frames):
    """One connection's way from the client, from its first byte."""

    def __init__(self) -> None:
        super().__init__()
        self._preface = bytearray()
        self._messages: dict[int, _Message] = {}
        self._open: set[int] = set()
        self._pad_follows = False
        self._padding = 0
        self._size = 0
        self._now = 0.0
        self.has_greeted = False
        """Whether preface and settings have come."""
        self.last_stream = 0

    @property
    def calls(self) -> list[int]:
        """Calls that have begun, and that neither end has broken off nor the server answered."""
        return sorted(self._open)

    @property
    def unfinished(self) -> int:
        """Bytes of messages that have not come whole."""
        return sum(each.taken for each in self._messages.values())

    @property
    def waiting_since(self) -> float:
        """When the first of them began; infinite if there are none."""
        return min((each.since for each in self._messages.values() if each.taken), default=inf)

    def feed(self, data: memoryview, now: float = 0.0) -> None:
        """Take more bytes. `Illegal` or `LimitExceeded`: none of them may go on."""
        self._now = now
        missing = len(PREFACE) - len(self._preface)
        if missing:
            self._preface += data[:missing]
            if not PREFACE.startswith(self._preface):
                raise Illegal("not HTTP/2")
            data = data[missing:]
        super().feed(data)

    def answered(self, stream: int) -> None:
        """The server has ended a call."""
        self._messages.pop(stream, None)
        self._open.discard(stream)

    def _begins(self, kind: int, flags: int, stream: int, size: int) -> None:
        if not self.has_greeted and kind != _SETTINGS:
            raise Illegal("settings come first")
        if kind == _HEADERS and stream > self.last_stream:
            self.last_stream = stream
            if len(self._open) >= MAX_STREAMS_OPEN:
                raise LimitExceeded(
                    "calls of one connection", limit="MAX_STREAMS_OPEN", maximum=MAX_STREAMS_OPEN
                )
            self._messages[stream] = _Message()
            self._open.add(stream)
        if kind == _DATA:
            self._pad_follows = bool(flags & _PADDED)
            self._padding, self._size = 0, size

    def _came(self, stream: int, data: memoryview) -> None:
        if self._pad_follows:
            self._pad_follows = False
            self._padding = data[0]
            self._size -= 1
            data = data[1:]
        content = data[: max(0, self._size - self._padding)]
        self._size -= len(data)
        message = self._messages.get(stream)
        if message is not None:
            message.feed(content, self._now)

    def _ended(self, kind: int, flags: int, stream: int) -> None:
        self.has_greeted = True
        if kind == _RESET:
            self.answered(stream)
        elif kind in (_DATA, _HEADERS) and flags & _ENDS:
            self._messages.pop(stream, None)


class AnsweredCalls(_Frames):
    """The other way: where something may be said in between, and which calls have been answered."""

    def __init__(self, inspector: Inspector) -> None:
        super().__init__()
        self._inspector = inspector
        self._begun: set[int] = set()
        self._is_split = False

    @property
    def is_between(self) -> bool:
        """Whether a frame may be put in before the next byte."""
        return super().is_between and not self._is_split

    def has_begun(self, stream: int) -> bool:
        """Whether the first headers of an answer have been sent."""
        return stream in self._begun

    def _ended(self, kind: int, flags: int, stream: int) -> None:
        if kind in (_HEADERS, _CONTINUATION):
            self._is_split = not flags & _WHOLE
            self._begun.add(stream)
        if kind == _RESET or (kind in (_DATA, _HEADERS) and flags & _ENDS):
            self._inspector.answered(stream)
            self._begun.discard(stream)


class _Message:
    """The messages of one call, one after another."""

    __slots__ = ("_fields", "_head", "_left", "_prefix", "_skip", "since", "taken")

    def __init__(self) -> None:
        self._prefix = bytearray()
        self._left = 0
        self._begin()

    def _begin(self) -> None:
        self._head = bytearray()
        self._skip = 0
        self._fields = 0
        self.taken = 0
        self.since = 0.0

    def feed(self, data: memoryview, now: float) -> None:
        """Take more bytes of the call's messages."""
        while data:
            if not self._left:
                missing = _PREFIX.size - len(self._prefix)
                self._prefix += data[:missing]
                data = data[missing:]
                if len(self._prefix) < _PREFIX.size:
                    return
                compressed, self._left = _PREFIX.unpack(self._prefix)
                self._prefix.clear()
                self._begin()
                self.since = now
                if compressed:
                    raise Illegal("messages must not be compressed")
                if self._left > MAX_FRAME_BYTES:
                    raise LimitExceeded(
                        "a message in bytes",
                        limit="MAX_FRAME_BYTES",
                        maximum=MAX_FRAME_BYTES,
                        actual=self._left,
                    )
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            self.taken = self.taken + len(part) if self._left else 0
            self._look(part)

    def _look(self, part: memoryview) -> None:
        """The fields of a message, as far as they have come."""
        while part:
            skipped = min(self._skip, len(part))
            self._skip -= skipped
            part = part[skipped:]
            self._head += part[:MAX_HEAD_BYTES]
            part = part[MAX_HEAD_BYTES:] if len(part) > MAX_HEAD_BYTES else part[:0]
            self._read_fields()

    def _read_fields(self) -> None:
        head, place = self._head, 0
        while True:
            after = self._field(head, place)
            if after is None:
                break
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise Illegal(f"a message of more than {MAX_FIELDS} fields (MAX_FIELDS)")
            place = after
            if place >= len(head):
                self._skip = place - len(head)
                place = len(head)
                break
        del head[:place]
        if len(head) > MAX_HEAD_BYTES:
            raise Illegal(f"a head of more than {MAX_HEAD_BYTES} bytes (MAX_HEAD_BYTES)")

    def _field(self, head: bytearray, place: int) -> int | None:
        """The end of the field that begins at a place; None if that is not known yet."""
        tag, place = _varint(head, place, 5)
        if place < 0:
            return None
        number, kind = tag >> 3, tag & 7
        if number in (_HEAD, _METADATA, _BODY) and kind != _BYTES:
            raise Illegal("a field of another type than Flight's")
        if kind == _VARINT:
            value, place = _varint(head, place, 10)
            if number == _ONE and value > 2:
                raise Illegal("a descriptor of a kind that does not exist")
            return place if place >= 0 else None
        if kind in (_WORD64, _WORD32):
            return place + (8 if kind == _WORD64 else 4)
        if kind != _BYTES:
            raise Illegal("a field of a type that Flight does not use")
        size, place = _varint(head, place, 5)
        if place < 0:
            return None
        if number == _HEAD:
            if size > MAX_HEAD_BYTES:
                raise Illegal(f"a head of more than {MAX_HEAD_BYTES} bytes (MAX_HEAD_BYTES)")
            if place + size > len(head):
                return None
            _check_head(bytes(head[place : place + size]))
        return place + size


def _check_head(head: bytes) -> None:
    try:
        inflates = is_compressed(head)
    except (struct.error, IndexError, ValueError):
        return  # no head of Arrow, which Arrow will say, or a ticket
    if inflates:
        raise Illegal("batches must not be compressed (IpcWriteOptions, compression)")


def _varint(data: bytearray, place: int, most: int) -> tuple[int, int]:
    """A number and where it ends; -1 if it has not come whole."""
    value = 0
    for count in range(most):
        if place >= len(data):
            return 0, -1
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if most == 5 and value > 0xFFFF_FFFF:
                break
            return value, place
    raise Illegal("a number that is too long")


def farewell(inspector: Inspector, answers: AnsweredCalls, reason: str, status: int) -> bytes:
    """The last frames of a connection: they answer its calls, and say why it ends.

    The headers are written in the form that needs no table (RFC 7541, 6.2.2).
    """
    said = quote(reason[:_SAID_CHARS]).encode()
    trailers = _literal(b"grpc-status", b"%d" % status) + _literal(b"grpc-message", said)
    frames = b""
    for stream in inspector.calls:
        head = b"" if answers.has_begun(stream) else _ANSWERED
        frames += _frame(_HEADERS, _ENDS | _WHOLE, stream, head + trailers)
    code = _ENHANCE_YOUR_CALM if status else 0
    last = struct.pack(">II", inspector.last_stream, code) + reason[:_SAID_CHARS].encode()
    return frames + _frame(_GOAWAY, 0, 0, last)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _FRAME.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """A length in a prefix of 7 bits (RFC 7541, 5.1), and the text as it is."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    found = bytearray((127,))
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    found.append(size)
    return bytes(found) + text


_ANSWERED: Final = b"\x88" + _literal(b"content-type", b"application/grpc")
"""Status 200, which the static table has, as all of gRPC's answers have it."""
