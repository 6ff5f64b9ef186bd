"""Messages as frames and back: `u32 length | u8 kind | u32 checksum | body`, little-endian.

| kind | body |
|---|---|
| 0 shape | `u32 number` and a description (`plain.described`), which has this number from now on |
| 1 control | a message in msgpack |
| 2 events | `u32 length` of a message in msgpack, the message, and an Arrow batch message |

A schema is sent once a connection and referred to by its number. A single event is sent as its
values within a control message: a batch of one costs ten times as much. So are all events to an end
that has no Arrow (`Hello.plain`). Routers' filters are sent as their canonical text.
One that does not parse, as it is of a newer grammar, counts as TRUE: then too many events are sent,
and none is lost.

The checksum covers kind, length and body, so a damaged frame is detected before it is decoded.
TCP's own check misses one damaged segment in 65,536, and a proxy between two brokers may check
nothing. It is XXH3 cut to 32 bits, which costs a tenth of a microsecond for a small frame and runs
at 60 GB/s on large ones. It detects accidents, not attackers: for those there is TLS. `Encoder` and
`Decoder` have the state of one direction of one connection, and do no input or output.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import structs
from xxhash import xxh3_64, xxh3_64_intdigest

from palio.errors import DamagedFrame, IllegalMessage, InvalidInput
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.advertisements import Advertisement, UnreadAdvertisement
from palio.model.filters import Filter, UnreadFilter
from palio.model.shapes import Shape
from palio.model.values import checked
from palio.protocol.limits import (
    MAX_FRAME_BYTES,
    MAX_SHAPES,
    PORTION_BYTES,
)
from palio.protocol.messages import Carry, Deliver, Forward, Message, Parcel, Probe, Publish
from palio.protocol.plain import described, lone_parcel, row_parcel, shape_of

HEAD: Final = struct.Struct("<IBI")
_LOW: Final = (1 << 32) - 1
_NUMBER: Final = struct.Struct("<I")

SHAPE: Final = 0
CONTROL: Final = 1
EVENTS: Final = 2


_WITH_EVENTS: Final = (Publish, Deliver, Forward, Carry, Probe)


class Encoder:
    """Messages to frames, for one direction of one connection.

    >>> from palio.protocol.messages import Ping
    >>> b"".join(Encoder().encode(Ping()))[9:]
    b'\\x81\\xa4type\\xa4Ping'
    """

    def __init__(self, max_shapes: int = MAX_SHAPES) -> None:
        self.plain = False
        """True if the other end has no Arrow: all events are sent as values."""
        self._shapes: dict[Shape, int] = {}
        self._number = 0  # of the shape of the events being encoded: `_hook` writes it
        self._max_shapes = max_shapes
        self._msgpack = msgspec.msgpack.Encoder(enc_hook=self._hook)

    def encode(self, message: Message) -> list[Any]:
        """Return buffers to write in sequence: a frame, or two if the shape is new."""
        if not isinstance(message, _WITH_EVENTS):
            return [self._control(message)]
        if self.plain and isinstance(message, Deliver):
            message = _selected(message)
        parcel = message.parcel
        number = self._shapes.get(parcel.shape)
        buffers = [] if number is not None else self._described(parcel.shape)
        self._number = self._shapes[parcel.shape] if number is None else number
        if parcel.values is not None or self.plain:
            return [*buffers, self._control(message)]
        head = self._msgpack.encode(message)
        payload = parcel.payload
        return [*buffers, framed(EVENTS, _NUMBER.pack(len(head)) + head, payload), payload]

    def _control(self, message: Message) -> bytes:
        return framed(CONTROL, self._msgpack.encode(message))

    def _described(self, shape: Shape) -> list[Any]:
        """Number a shape, and return the frame that describes it."""
        # The other end clears its table, too, when it receives number 0.
        if len(self._shapes) >= self._max_shapes:
            self._shapes.clear()
        number = self._shapes[shape] = len(self._shapes)
        return [framed(SHAPE, _NUMBER.pack(number) + described(shape))]

    def _hook(self, value: object) -> object:
        if isinstance(value, Parcel):
            number = self._number
            if value.values is not None:
                return [value.publisher, number, value.values]
            if self.plain:
                return [value.publisher, number, *value.value_rows]
            return [value.publisher, number]
        if isinstance(value, Filter | Advertisement):
            return str(value)
        if isinstance(value, Mapping):
            return dict(value)
        try:
            return checked(value)  # a subclass of a legal type, as of numpy
        except InvalidInput:
            raise TypeError(f"{type(value).__name__} does not travel") from None


def _selected(message: Deliver) -> Deliver:
    """Leave out the rows that are for others: an end without Arrow need not read masks."""
    if message.rows is None:
        return message
    from palio.model.masks import unpack_mask

    parcel = message.parcel.select(unpack_mask(message.rows, len(message.parcel)))
    return structs.replace(message, parcel=parcel, rows=None)


def framed(kind: int, start: bytes, payload: Any = None) -> bytes:
    """Return the head of a frame and the start of its body; `payload` is the rest, if any.

    >>> len(framed(CONTROL, b"abc"))
    12
    """
    if payload is None:
        size = len(start)
        checksum = xxh3_64_intdigest(start, size << 8 | kind)  # the head is covered as well
    else:
        size = len(start) + payload.size
        hashed = xxh3_64(start, size << 8 | kind)
        hashed.update(payload)
        checksum = hashed.intdigest()
    return HEAD.pack(size, kind, checksum & _LOW) + start


UNREADABLE: Final = framed(CONTROL, b"\xc1")
"""A frame that does not decode, as no msgpack begins so: for simulations and tests."""


class Decoder:
    """Bytes to messages, for one direction of one connection.

    >>> from palio.protocol.messages import Ping
    >>> list(Decoder("peer").feed(b"".join(Encoder().encode(Ping()))))
    [Ping()]
    """

    def __init__(
        self,
        sender: object,
        *,
        max_frame: int = MAX_FRAME_BYTES,
        max_control: int = MAX_FRAME_BYTES,
        max_shapes: int = MAX_SHAPES,
        plain: bool = False,
    ) -> None:
        self._plain = plain  # several events may come as values, which are larger than columns
        self.sender = sender
        self.max_frame = 2 * max_frame if plain else max_frame
        self.max_control = max_control
        """The most bytes of a frame without a batch of events."""
        self.announced = 0
        """Bytes of a frame that the last `feed` left incomplete."""
        self._max_shapes = max_shapes
        self._shapes: dict[int, Shape] = {}
        self._rest = bytearray()
        self._payload: bytes | None = None
        self._filters = self._filter_chars = 0
        self._msgpack = msgspec.msgpack.Decoder(Message, dec_hook=self._hook)

    @property
    def waiting(self) -> int:
        """Bytes received and not yet decoded."""
        return len(self._rest)

    def keep(self, data: bytes) -> None:
        """Store bytes to decode later."""
        self._rest += data

    def drop(self) -> None:
        """Drop bytes not yet decoded."""
        self._rest.clear()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Message]:
        """Yield the messages that more bytes complete; raise `IllegalMessage` for a bad frame.

        After that error the connection has to be closed: the start of the next frame is unknown. A
        caller that stops before the end continues by another `feed`, of no bytes if none came.
        """
        rest = self._rest
        if rest:
            rest += data
            data = rest
            self.announced = 0
        start = 0
        try:
            while len(data) - start >= HEAD.size:
                size, kind, checksum = HEAD.unpack_from(data, start)
                if size > self.max_frame:
                    raise self._too_long(size)
                end = start + HEAD.size + size
                if len(data) < end:
                    self.announced = size
                    break
                with memoryview(data) as view, view[start + HEAD.size : end] as body:
                    start = end
                    if xxh3_64_intdigest(body, size << 8 | kind) & _LOW != checksum:
                        raise DamagedFrame(self.sender, f"{size} bytes, damaged in transit")
                    message = self._read(kind, body)
                if message is not None:
                    yield message
        finally:
            if data is rest:
                del rest[:start]
            elif start < len(data):
                rest += memoryview(data)[start:]

    def _read(self, kind: int, body: memoryview) -> Message | None:
        self._filters = self._filter_chars = 0
        try:
            if kind == CONTROL:
                if len(body) > self.max_control:
                    raise self._illegal(
                        f"a message of {len(body)} bytes without a batch of events; "
                        f"{self.max_control} is the most (MAX_REQUEST_BYTES)"
                    )
                self._payload = None
                message: Message = self._msgpack.decode(body)
                return message
            if kind == EVENTS:
                return self._events(body)
            if kind == SHAPE:
                self._learn(bytes(body))
                return None
        except IllegalMessage:
            raise
        except Exception as error:  # noqa: BLE001  # whatever parsers make of hostile bytes
            raise self._illegal(f"a frame that cannot be read: {error}") from None
        raise self._illegal(f"a frame of kind {kind}, which does not exist")

    def _learn(self, body: bytes) -> None:
        (number,) = _NUMBER.unpack_from(body)
        if number >= self._max_shapes:
            raise self._illegal(f"shape {number}; {self._max_shapes} is the most (MAX_SHAPES)")
        if number == 0:
            self._shapes.clear()
        self._shapes[number] = shape_of(body[_NUMBER.size :])

    def _events(self, body: memoryview) -> Message:
        (size,) = _NUMBER.unpack_from(body)
        end = _NUMBER.size + size
        if end > len(body):
            raise self._illegal("an events frame that is shorter than its header")
        # A copy: Arrow wants its buffers aligned, and the frame's memory is reused.
        self._payload = bytes(body[end:])
        message: Message = self._msgpack.decode(body[_NUMBER.size : end])
        return message

    def _hook(self, kind: type, value: Any) -> object:
        if kind is Parcel:
            return self._parcel(*value)
        if kind is Filter or kind is Advertisement:
            return self._stated(kind, self._counted(value))
        raise TypeError(f"{kind.__name__} does not travel")

    def _counted(self, text: Any) -> str:
        """Return a filter's text, and limit those of one frame, as they take long to parse. A
        single one may have any length; several, only as much as `portions` sends together.
        """
        if not isinstance(text, str):
            raise ValueError(f"{type(text).__name__} in the place of a filter's text")
        self._filters += 1
        self._filter_chars += len(text)
        if self._filters > 1 and self._filter_chars > PORTION_BYTES:
            raise ValueError(
                f"several filters with more than {PORTION_BYTES} characters together "
                "(PORTION_BYTES)"
            )
        return text

    def _stated(self, kind: type, text: str) -> Filter | Advertisement:
        """Parse a filter's text; one that does not parse counts as TRUE."""
        try:
            return parse_filter(text) if kind is Filter else parse_advertisement(text)
        except InvalidInput:
            return UnreadFilter(text) if kind is Filter else UnreadAdvertisement(text)

    def _parcel(self, publisher: Any, number: Any, *rows: Any) -> Parcel:
        shape = self._shapes.get(number) if isinstance(number, int) else None
        if shape is None or not isinstance(publisher, str):
            raise ValueError(f"events of shape {number!r}, which was never described")
        if self._payload is None:
            if self._plain and len(rows) != 1:
                return row_parcel(publisher, shape, rows)
            return lone_parcel(publisher, shape, rows[0] if len(rows) == 1 else None)
        if rows:
            raise ValueError("events both as values and as a batch")
        from palio.protocol.legal_parcels import batch_parcel

        return batch_parcel(publisher, shape, self._payload)

    def _too_long(self, size: int) -> IllegalMessage:
        """Return the error of a frame that no authenticated end makes: its length was damaged."""
        kind = DamagedFrame if self.max_frame >= MAX_FRAME_BYTES else IllegalMessage
        most = f"{self.max_frame} is the most (MAX_FRAME_BYTES)"
        return kind(self.sender, f"a frame of {size} bytes; {most}")

    def _illegal(self, reason: str) -> IllegalMessage:
        return IllegalMessage(self.sender, reason)


class Transport(Protocol):
    """The methods that are used of `asyncio.Transport`."""

    def is_closing(self) -> bool:
        """Return whether writes are refused or dropped."""

    def write(self, data: Any) -> None:
        """Write one buffer."""

    def writelines(self, list_of_data: Any) -> None:
        """Write buffers in sequence, in one system call."""


def write(transport: Transport | None, buffers: list[Any]) -> bool:
    """Write buffers to a transport; return False if it is closing.

    A closing transport of asyncio drops them silently, one of uvloop raises, perhaps before its
    protocol is notified. They are lost like all bytes in flight: sequenced messages are kept until
    they are acked, and retransmitted.
    """
    if transport is None or transport.is_closing():
        return False
    if len(buffers) == 1:
        transport.write(buffers[0])
    else:
        transport.writelines(buffers)
    return True
