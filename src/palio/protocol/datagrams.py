"""`Sealer` and `Opener`: datagrams of a group to bytes and back, encrypted, in pieces, none twice.

| bytes | what |
|---|---|
| 17 | the stream: version, name, check (`group_keys`) |
| 6 | the number of this packet, of all that its sender has sealed in this incarnation;
little-endian | | | one of four messages in msgpack, sealed by AES-GCM with all before it; 16 bytes
more |

The messages are arrays: whose they are, then the numbers of flows, then an event as its values or
a batch as an Arrow message, each beside its shape; or a piece of such a message that is too long
for one packet. A shape is described in each datagram, as any other may have been lost; both ends
remember what they have made of it. `docs/concepts/protocol.md` lists all that is checked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from palio.errors import InvalidInput, LimitExceeded
from palio.model.events import SEQ, TIME, TIMESTAMP
from palio.model.limits import MAX_ATTRIBUTES, check_limit
from palio.model.parcels import Parcel, Shape
from palio.multicast.datagrams import Datagram
from palio.protocol.group_keys import SALT_BYTES, STREAM_BYTES, UNSHARED, Ciphers, GroupKey
from palio.protocol.legal_parcels import batch_parcel, check_numbered, legal_shape, lone_parcel
from palio.protocol.limits import (
    DATAGRAM_MTU,
    MAX_COUNTS_BYTES,
    MAX_DATAGRAM_BYTES,
    MAX_MTU,
    MAX_NAME_BYTES,
    MAX_PIECES,
    MAX_SENDERS,
    MAX_SHAPES,
    MAX_STREAMS,
    MIN_MTU,
    REPLAY_WINDOW,
    SHAPES_BYTES,
)
from palio.protocol.messages import Number
from palio.protocol.names import check_name
from palio.protocol.pieces import Pieces

__all__ = [
    "DROPS",
    "OVERHEAD_BYTES",
    "SALT_BYTES",
    "UNSHARED",
    "GroupKey",
    "Opener",
    "Sealer",
    "fits",
]

_COUNTER_BYTES: Final = 6
_TAG_BYTES: Final = 16
_HEAD: Final = STREAM_BYTES + _COUNTER_BYTES
_NONCE: Final = slice(_HEAD - 12, _HEAD)
"""The end of a head: no two of a stream are alike there."""

OVERHEAD_BYTES: Final = _HEAD + _TAG_BYTES
"""Bytes of a packet beside the message in it."""

MAX_COUNTER: Final = (1 << 8 * _COUNTER_BYTES) - 1
"""Packets of one `Sealer`: a million a second for nine years."""

_PIECE_ROOM: Final = 6
"""Bytes that numbers and lengths in a piece may take beyond those of an empty first one."""

_MOST_BYTES: Final = MAX_DATAGRAM_BYTES - MAX_COUNTS_BYTES - 8 * MAX_NAME_BYTES
"""Bytes that events and their shape may take: the rest is for numbers and names."""

_VALUE_BYTES: Final = 15
"""Bytes that a value takes at the most, texts apart."""

_TEXT_BYTES: Final = 4
"""Bytes that a character takes at the most."""

_FIELD_BYTES: Final = 500
"""About what a column of a shape takes in memory."""

DROPS: Final = (
    "truncated",
    "oversized",
    "forged",
    "own",
    "replayed",
    "stale",
    "crowded",
    "illegal",
    "incomplete",
)
"""Why datagrams were dropped: shorter or longer than any; not sealed with the key; one's own; heard
before, or too late to tell; of an earlier incarnation of its sender; of one sender too many;
sealed, but not legal; lacking a piece."""


# --- the messages ---

_Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MAX_PIECES)]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    source: str
    incarnation: Number
    plan: Number


class _Counts(_Head, frozen=True, tag=0):
    group: Number
    number: Number
    counts: Annotated[bytes, msgspec.Meta(max_length=MAX_COUNTS_BYTES)]
    durable: bool


class _Lone(_Counts, frozen=True, tag=1):
    publisher: str
    shape: bytes
    values: Any


class _Batch(_Counts, frozen=True, tag=2):
    publisher: str
    shape: bytes
    payload: bytes


class _Piece(_Head, frozen=True, tag=3):
    first: Number
    place: _Place
    last: _Place
    data: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Counts | _Lone | _Batch | _Piece).decode

_Names: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=1 + MAX_ATTRIBUTES)]
"""The letters of a shape's types and the names of its attributes, without those of the system."""

_decode_names: Final = msgspec.msgpack.Decoder(_Names).decode

_LETTERS: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "b",
    pa.int64(): "i",
    pa.float64(): "f",
    pa.utf8(): "s",
    pa.binary(): "y",
    TIMESTAMP: "t",
}
_TYPES: Final = {letter: kind for kind, letter in _LETTERS.items()}
_SYSTEM: Final[tuple[tuple[str, str], ...]] = ((SEQ, "i"), (TIME, "t"))
_STAMPED: Final = "$"
"""The last letter of a shape whose last columns are those of the system."""


@lru_cache(maxsize=MAX_SHAPES)
def _described(shape: Shape) -> bytes:
    """A letter for each type, and the names."""
    names = list(shape.names)
    letters = "".join([_LETTERS[kind] for kind in shape.schema.types])
    if tuple(zip(names[-2:], letters[-2:], strict=True)) == _SYSTEM:
        del names[-2:]
        letters = letters[:-2] + _STAMPED
    return _encode([letters, *names])


def _shape_of(described: bytes) -> Shape:
    letters, *names = _decode_names(described)
    fields = list(zip(names, letters.removesuffix(_STAMPED), strict=True))
    if letters.endswith(_STAMPED):
        fields += _SYSTEM
    return legal_shape(pa.schema([(name, _TYPES[letter]) for name, letter in fields]))


# --- sealing ---


def fits(parcel: Parcel, most: int = _MOST_BYTES) -> bool:
    """Return whether events take no more than so many bytes, and go in a datagram of any group.

    >>> lone = Parcel.of("", pa.record_batch({"text": ["a" * 1_000]})).stamped("p", 1, 1)
    >>> fits(lone), fits(lone, most=1_000)
    (True, False)
    """
    most = min(most, _MOST_BYTES) - len(_described(parcel.shape))
    values = parcel.values
    if values is None:
        return bool(parcel.payload.size <= most)
    bound = _VALUE_BYTES * len(values) + _TEXT_BYTES * parcel.text_bytes
    return bound <= most or len(_encode(values)) <= most


class _Outgoing:
    """A stream that is sent."""

    __slots__ = ("cipher", "stream")

    def __init__(self, ciphers: Ciphers, stream: bytes) -> None:
        self.stream = stream
        self.cipher = ciphers.cipher(stream)


class Sealer:
    """Datagrams to packets. Keep one for the incarnation of a sender: it numbers all that it seals.

    `salt` is 16 random bytes of this sealer alone (`SALT_BYTES`).

    >>> opener = Opener(UNSHARED, "b2")
    >>> (packet,) = Sealer(UNSHARED, salt=bytes(16)).seal(Datagram("b1", 1, 7, 0, 1, bytes(8)))
    >>> len(packet), opener.open(packet, 0.0).source, opener.open(packet, 0.0)
    (59, 'b1', None)
    """

    def __init__(self, key: GroupKey, mtu: int = DATAGRAM_MTU, *, salt: bytes) -> None:
        if not MIN_MTU <= mtu <= MAX_MTU:
            raise InvalidInput(f"an mtu is from {MIN_MTU} to {MAX_MTU} bytes, not {mtu}")
        if len(salt) < SALT_BYTES:
            raise InvalidInput(f"a salt has {SALT_BYTES} random bytes or more, not {len(salt)}")
        self._mtu = mtu
        self._salt = salt
        self._ciphers = Ciphers(key)
        self._outgoing: dict[tuple[str, int, int], _Outgoing] = {}
        self._counter = 0

    def seal(self, datagram: Datagram) -> list[bytes]:
        """Packets of which none is longer than the mtu; `LimitExceeded` for what does not fit."""
        message = self._message(datagram)
        check_limit("a datagram in bytes", "MAX_DATAGRAM_BYTES", MAX_DATAGRAM_BYTES, len(message))
        about = datagram.source, datagram.incarnation, datagram.plan
        outgoing = self._outgoing.get(about) or self._begin(about)
        if len(message) + OVERHEAD_BYTES <= self._mtu:
            return [self._sealed(outgoing, message)]
        first = self._counter + 1
        beside = OVERHEAD_BYTES + len(_encode(_Piece(*about, first, 0, 0, b""))) + _PIECE_ROOM
        room = self._mtu - beside
        parts = [message[start : start + room] for start in range(0, len(message), room)]
        last = len(parts) - 1
        return [
            self._sealed(outgoing, _encode(_Piece(*about, first, place, last, part)))
            for place, part in enumerate(parts)
        ]

    def _message(self, datagram: Datagram) -> bytes:
        source, incarnation, plan, group, number, counts, parcel, durable = datagram
        if parcel is None:
            return _encode(_Counts(source, incarnation, plan, group, number, counts, durable))
        shape = _described(parcel.shape)
        of = source, incarnation, plan, group, number, counts, durable, parcel.publisher, shape
        if parcel.values is not None:
            return _encode(_Lone(*of, parcel.values))
        return _encode(_Batch(*of, parcel.payload.to_pybytes()))

    def _sealed(self, outgoing: _Outgoing, message: bytes) -> bytes:
        self._counter += 1
        if self._counter > MAX_COUNTER:
            raise LimitExceeded(
                "packets of one incarnation", limit="MAX_COUNTER", maximum=MAX_COUNTER
            )
        head = outgoing.stream + self._counter.to_bytes(_COUNTER_BYTES, "little")
        return head + outgoing.cipher.encrypt(head[_NONCE], message, head)

    def _begin(self, about: tuple[str, int, int]) -> _Outgoing:
        if len(self._outgoing) >= MAX_STREAMS:
            self._outgoing.clear()
        stream = self._ciphers.stream(self._salt, *about)
        outgoing = self._outgoing[about] = _Outgoing(self._ciphers, stream)
        return outgoing


# --- opening ---

_Found: TypeAlias = Datagram | str | None
"""The message that a packet is or completes, or why it is dropped; None for a piece with others to
come."""


class _Sender:
    """The packets of a sender in its newest incarnation."""

    __slots__ = ("incarnation", "newest", "seen")

    def __init__(self, incarnation: int) -> None:
        self.begin(incarnation)

    def begin(self, incarnation: int) -> None:
        """An incarnation of which nothing was heard yet."""
        self.incarnation = incarnation
        self.newest = -1
        self.seen = 0

    def is_fresh(self, counter: int) -> bool:
        """Return whether a packet was not heard, and is not too old to tell."""
        behind = self.newest - counter
        return behind < 0 or (behind < REPLAY_WINDOW and not self.seen >> behind & 1)

    def note(self, counter: int) -> None:
        """A packet was heard: the bits of those that were, from the newest on backwards."""
        ahead = counter - self.newest
        if ahead <= 0:
            self.seen |= 1 << -ahead
        elif ahead >= REPLAY_WINDOW:
            self.newest, self.seen = counter, 1
        else:
            self.newest = counter
            self.seen = (self.seen << ahead | 1) & _WINDOW


_WINDOW: Final = (1 << REPLAY_WINDOW) - 1


class _Incoming:
    """A stream that is heard. Whose it is is not known before the first packet that opens."""

    __slots__ = ("about", "cipher", "is_own", "sender")

    def __init__(self, ciphers: Ciphers, stream: bytes) -> None:
        self.cipher = ciphers.cipher(stream)
        self.about: tuple[str, int, int] | None = None
        self.sender: _Sender | None = None
        self.is_own = False

    def refuses(self, counter: int) -> str:
        """Why a packet is dropped, opened or not; empty if it is not."""
        if self.is_own:
            return "own"
        if self.sender is None or self.about is None:
            return ""
        if self.about[1] < self.sender.incarnation:
            return "stale"
        return "" if self.sender.is_fresh(counter) else "replayed"


class Opener:
    """Packets to datagrams, each once: what is forged, a copy, cut short or illegal is dropped.

    >>> opener = Opener(UNSHARED, "b2")
    >>> opener.open(b"noise", now=0.0)
    >>> opener.dropped["truncated"]
    1
    """

    def __init__(self, key: GroupKey, name: str) -> None:
        from cryptography.exceptions import InvalidTag

        self._name = name
        self._ciphers = Ciphers(key)
        self._forged = InvalidTag
        self._incoming: dict[bytes, _Incoming] = {}
        self._senders: dict[str, _Sender] = {}
        self._shapes: dict[bytes, Shape] = {}
        self._shapes_bytes = 0
        self._pieces = Pieces()
        self.dropped: dict[str, int] = dict.fromkeys(DROPS, 0)
        """Packets that were dropped; datagrams, where they were `incomplete`."""

    def open(self, data: bytes, now: float) -> Datagram | None:
        """The datagram that a packet is or completes. `now` grows."""
        found = self._opened(data, now)
        if not isinstance(found, str):
            return found
        self.dropped[found] += 1
        return None

    def _opened(self, data: bytes, now: float) -> _Found:
        if len(data) <= OVERHEAD_BYTES:
            return "truncated"
        if len(data) > MAX_MTU:
            return "oversized"
        stream = data[:STREAM_BYTES]
        incoming = self._incoming.get(stream) or self._meet(stream)
        if incoming is None:
            return "forged"
        counter = int.from_bytes(data[STREAM_BYTES:_HEAD], "little")
        reason = incoming.refuses(counter)
        if reason:
            return reason
        head = data[:_HEAD]
        try:
            message = incoming.cipher.decrypt(head[_NONCE], data[_HEAD:], head)
        except self._forged:
            return "forged"
        try:
            return self._read(incoming, counter, message, now)
        except Exception:  # noqa: BLE001  # whatever parsers make of hostile bytes
            return "illegal"
        finally:
            self.dropped["incomplete"] = self._pieces.given_up

    def _meet(self, stream: bytes) -> _Incoming | None:
        """A stream of which nothing was heard; None if it is no stream of this key."""
        if not self._ciphers.knows(stream):
            return None
        if len(self._incoming) >= MAX_STREAMS:
            del self._incoming[next(iter(self._incoming))]
        incoming = self._incoming[stream] = _Incoming(self._ciphers, stream)
        return incoming

    def _read(self, incoming: _Incoming, counter: int, message: bytes, now: float) -> _Found:
        said = _decode(message)
        about = said.source, said.incarnation, said.plan
        if incoming.about is None:
            reason = self._know(incoming, about) or incoming.refuses(counter)
            if reason:
                return reason
        sender = incoming.sender
        if about != incoming.about or sender is None:
            return "illegal"
        sender.note(counter)
        if isinstance(said, _Piece):
            place, of = said.place, said.last + 1
            whole = self._pieces.add(said.source, said.first, place, of, said.data, now=now)
            if whole is None:
                return None
            said = _decode(whole)
            if (said.source, said.incarnation, said.plan) != about or isinstance(said, _Piece):
                return "illegal"
        return self._datagram(said)

    def _know(self, incoming: _Incoming, about: tuple[str, int, int]) -> str:
        """A stream has told whose it is. Why it is not heard, if it is not."""
        source, incarnation, _ = about
        if source == self._name:
            incoming.is_own = True
            return "own"
        sender = self._senders.get(source)
        if sender is None:
            check_name(source, "a broker")
            if len(self._senders) >= MAX_SENDERS:
                return "crowded"
            sender = self._senders[source] = _Sender(incarnation)
        elif incarnation > sender.incarnation:
            sender.begin(incarnation)
            self._pieces.give_up(source)
        incoming.about, incoming.sender = about, sender
        return ""

    def _datagram(self, said: _Counts) -> Datagram:
        parcel: Parcel | None = None
        if isinstance(said, _Lone):
            parcel = lone_parcel(said.publisher, self._shape(said.shape), said.values)
        elif isinstance(said, _Batch):
            parcel = batch_parcel(said.publisher, self._shape(said.shape), said.payload)
        if parcel is not None:
            check_numbered(said.source, parcel)
        if len(said.counts) % 4:
            raise ValueError("numbers of flows that are not of four bytes each")
        of = said.source, said.incarnation, said.plan, said.group, said.number, said.counts
        return Datagram(*of, parcel, said.durable)

    def _shape(self, described: bytes) -> Shape:
        shape = self._shapes.get(described)
        if shape is None:
            shape = _shape_of(described)
            nbytes = len(described) + _FIELD_BYTES * len(shape.names)
            if self._shapes_bytes + nbytes > SHAPES_BYTES:
                self._shapes.clear()
                self._shapes_bytes = 0
            self._shapes[described] = shape
            self._shapes_bytes += nbytes
        return shape
