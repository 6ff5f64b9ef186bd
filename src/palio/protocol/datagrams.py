"""Encrypt and fragment a group's datagrams into packets (`Sealer`), and reverse it (`Opener`).

| bytes | content |
|---|---|
| 17 | the stream: version, name, check (`group_keys`) |
| 6 | the packet's number among all of its sender's incarnation, little-endian |
| rest | one of four messages in msgpack, sealed by AES-GCM with the bytes above; 16 are its tag |

Messages are arrays: the sender, the numbers of flows, then an event's values or a batch as an Arrow
message, each with its schema. A fourth message is a fragment of one that exceeds a packet. Each
datagram describes its schema, as any other may be lost; both ends cache the schemas that they have
parsed. `docs/concepts/protocol.md` lists all checks.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from palio.errors import InvalidInput, LimitExceeded
from palio.model.limits import check_limit
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.multicast.datagrams import Datagram
from palio.protocol.group_keys import SALT_BYTES, STREAM_BYTES, UNSHARED, Ciphers, GroupKey
from palio.protocol.legal_parcels import batch_parcel, check_numbered
from palio.protocol.limits import (
    DATAGRAM_MTU,
    MAX_COUNTS_BYTES,
    MAX_DATAGRAM_BYTES,
    MAX_MTU,
    MAX_NAME_BYTES,
    MAX_PIECES,
    MAX_SENDERS,
    MAX_STREAMS,
    MIN_MTU,
    REPLAY_WINDOW,
    SHAPES_BYTES,
)
from palio.protocol.messages import Number
from palio.protocol.names import check_name
from palio.protocol.pieces import Pieces
from palio.protocol.plain import described, lone_parcel, shape_of

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
"""The last 12 bytes of a head, with the packet's number: a stream must never reuse a nonce."""

OVERHEAD_BYTES: Final = _HEAD + _TAG_BYTES
"""The bytes of a packet apart from its message."""

MAX_COUNTER: Final = (1 << 8 * _COUNTER_BYTES) - 1
"""Packets of one `Sealer`: a million a second for nine years."""

_PIECE_ROOM: Final = 6
"""The most bytes by which numbers and lengths of a fragment exceed those of an empty first one."""

_MOST_BYTES: Final = MAX_DATAGRAM_BYTES - MAX_COUNTS_BYTES - 8 * MAX_NAME_BYTES
"""The most bytes of events and their schema: the rest is for numbers and names."""

_VALUE_BYTES: Final = 15
"""The most bytes of a value, apart from texts."""

_TEXT_BYTES: Final = 4
"""The most bytes of a character."""

_FIELD_BYTES: Final = 500
"""The approximate memory of a schema's column."""

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
"""Why packets are dropped: below the least or above the greatest size; not sealed with the key;
one's own; duplicates, or too old to decide; of an earlier incarnation of the sender; beyond
`MAX_SENDERS`; sealed, but not legal. The last counts datagrams that expired without a fragment."""


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


# --- sealing ---


def fits(parcel: Parcel, most: int = _MOST_BYTES) -> bool:
    """Return whether events take at most `most` bytes, and fit a datagram of any group.

    >>> lone = Parcel.lone("", Shape(("text",), (str,)), ("a" * 1_000,)).stamped("p", 1, 1)
    >>> fits(lone), fits(lone, most=1_000)
    (True, False)
    """
    most = min(most, _MOST_BYTES) - len(described(parcel.shape))
    values = parcel.values
    if values is None:
        return bool(parcel.payload.size <= most)
    # Most events are far below the limit: an upper bound saves encoding them twice.
    bound = _VALUE_BYTES * len(values) + _TEXT_BYTES * parcel.text_bytes
    return bound <= most or len(_encode(values)) <= most


class _Outgoing:
    """Hold the cipher of a stream that this broker sends."""

    __slots__ = ("cipher", "stream")

    def __init__(self, ciphers: Ciphers, stream: bytes) -> None:
        self.stream = stream
        self.cipher = ciphers.cipher(stream)


class Sealer:
    """Turn datagrams into packets. It numbers them, so keep one for a sender's whole incarnation.

    `salt` is 16 random bytes of this sealer alone (`SALT_BYTES`), so that it has new keys.

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
        """Return packets of at most the mtu; raise `LimitExceeded` for too large a datagram."""
        message = self._message(datagram)
        check_limit("a datagram in bytes", "MAX_DATAGRAM_BYTES", MAX_DATAGRAM_BYTES, len(message))
        about = datagram.source, datagram.incarnation, datagram.plan
        outgoing = self._outgoing.get(about) or self._begin(about)
        if len(message) + OVERHEAD_BYTES <= self._mtu:
            return [self._sealed(outgoing, message)]
        first = self._counter + 1
        overhead = OVERHEAD_BYTES + len(_encode(_Piece(*about, first, 0, 0, b""))) + _PIECE_ROOM
        size = self._mtu - overhead
        fragments = [message[start : start + size] for start in range(0, len(message), size)]
        last = len(fragments) - 1
        return [
            self._sealed(outgoing, _encode(_Piece(*about, first, index, last, fragment)))
            for index, fragment in enumerate(fragments)
        ]

    def _message(self, datagram: Datagram) -> bytes:
        source, incarnation, plan, group, number, counts, parcel, durable = datagram
        if parcel is None:
            return _encode(_Counts(source, incarnation, plan, group, number, counts, durable))
        shape = described(parcel.shape)
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
            self._outgoing.clear()  # keys are derived again, and numbers go up across all streams
        stream = self._ciphers.stream(self._salt, *about)
        outgoing = self._outgoing[about] = _Outgoing(self._ciphers, stream)
        return outgoing


# --- opening ---

_Opened: TypeAlias = Datagram | str | None
"""A complete datagram, or why the packet is dropped; None for a fragment of an incomplete one."""


class _Sender:
    """Detect replays in a sender's newest incarnation: bit i of `seen` is packet `newest - i`."""

    __slots__ = ("incarnation", "newest", "seen")

    def __init__(self, incarnation: int) -> None:
        self.begin(incarnation)

    def begin(self, incarnation: int) -> None:
        """Start a new incarnation, with its own numbers."""
        self.incarnation = incarnation
        self.newest = -1
        self.seen = 0

    def is_fresh(self, counter: int) -> bool:
        """Return whether a packet is new, and not too old to decide that."""
        behind = self.newest - counter
        return behind < 0 or (behind < REPLAY_WINDOW and not self.seen >> behind & 1)

    def note(self, counter: int) -> None:
        """Mark a packet as received, and advance the window if it is the newest."""
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
    """Hold the state of a received stream. Its first packet that opens identifies its sender."""

    __slots__ = ("about", "cipher", "is_own", "sender")

    def __init__(self, ciphers: Ciphers, stream: bytes) -> None:
        self.cipher = ciphers.cipher(stream)
        self.about: tuple[str, int, int] | None = None
        self.sender: _Sender | None = None
        self.is_own = False

    def refuses(self, counter: int) -> str:
        """Return why a packet is to be dropped, before it costs a decryption; else empty."""
        if self.is_own:
            return "own"
        if self.sender is None or self.about is None:
            return ""
        if self.about[1] < self.sender.incarnation:
            return "stale"
        return "" if self.sender.is_fresh(counter) else "replayed"


class Opener:
    """Turn packets into datagrams, each once; drop forged, replayed, truncated and illegal ones.

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
        """Counts by reason: of packets, and for `incomplete` of datagrams."""

    def open(self, data: bytes, now: float) -> Datagram | None:
        """Return the datagram that a packet has or completes, if any. `now` never decreases."""
        opened = self._opened(data, now)
        if not isinstance(opened, str):
            return opened
        self.dropped[opened] += 1
        return None

    def _opened(self, data: bytes, now: float) -> _Opened:
        if len(data) <= OVERHEAD_BYTES:
            return "truncated"
        if len(data) > MAX_MTU:
            return "oversized"
        stream = data[:STREAM_BYTES]
        incoming = self._incoming.get(stream) or self._add_stream(stream)
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
        except Exception:  # noqa: BLE001  # parsers raise many kinds of errors on hostile bytes
            return "illegal"
        finally:
            self.dropped["incomplete"] = self._pieces.given_up

    def _add_stream(self, stream: bytes) -> _Incoming | None:
        """Add a new stream; None if its check does not fit the group key."""
        if not self._ciphers.knows(stream):
            return None
        if len(self._incoming) >= MAX_STREAMS:  # its sender's window stays, and stops replays
            del self._incoming[next(iter(self._incoming))]
        incoming = self._incoming[stream] = _Incoming(self._ciphers, stream)
        return incoming

    def _read(self, incoming: _Incoming, counter: int, message: bytes, now: float) -> _Opened:
        decoded = _decode(message)
        about = decoded.source, decoded.incarnation, decoded.plan
        if incoming.about is None:
            reason = self._identify(incoming, about) or incoming.refuses(counter)
            if reason:
                return reason
        sender = incoming.sender
        if about != incoming.about or sender is None:
            return "illegal"
        sender.note(counter)
        if isinstance(decoded, _Piece):
            source, index, of = decoded.source, decoded.place, decoded.last + 1
            whole = self._pieces.add(source, decoded.first, index, of, decoded.data, now=now)
            if whole is None:
                return None
            decoded = _decode(whole)
            inner = decoded.source, decoded.incarnation, decoded.plan
            if inner != about or isinstance(decoded, _Piece):
                return "illegal"
        return self._datagram(decoded)

    def _identify(self, incoming: _Incoming, about: tuple[str, int, int]) -> str:
        """Link a stream to its sender, or return why its packets are dropped."""
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
        elif incarnation > sender.incarnation:  # it supersedes the earlier one, and its fragments
            sender.begin(incarnation)
            self._pieces.give_up(source)
        incoming.about, incoming.sender = about, sender
        return ""

    def _datagram(self, message: _Counts) -> Datagram:
        parcel: Parcel | None = None
        if isinstance(message, _Lone):
            parcel = lone_parcel(message.publisher, self._shape(message.shape), message.values)
        elif isinstance(message, _Batch):
            parcel = batch_parcel(message.publisher, self._shape(message.shape), message.payload)
        if parcel is not None:
            check_numbered(message.source, parcel)
        if len(message.counts) % 4:
            raise ValueError("numbers of flows that are not of four bytes each")
        flow = message.source, message.incarnation, message.plan, message.group, message.number
        return Datagram(*flow, message.counts, parcel, message.durable)

    def _shape(self, description: bytes) -> Shape:
        shape = self._shapes.get(description)
        if shape is None:
            shape = shape_of(description)
            nbytes = len(description) + _FIELD_BYTES * len(shape.names)
            if self._shapes_bytes + nbytes > SHAPES_BYTES:
                self._shapes.clear()
                self._shapes_bytes = 0
            self._shapes[description] = shape
            self._shapes_bytes += nbytes
        return shape
