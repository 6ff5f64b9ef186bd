"""Operations that a broker's disk stores: durable state is their fold.

`palio.node.queues` is that fold in memory, and `palio.server.journal` the one on a disk. An
`Action` is the output of the modules for durable events, which `Core.perform` carries out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from palio.protocol.messages import Carry, EntriesStored, Fact, Parcel, Share


class Target(NamedTuple):
    """The destination of an entry: the stream to a home, or the queues here if `home` is here."""

    home: str
    offset: int
    """The position in the log of this broker, unique within a stream."""
    shares: tuple[Share, ...]


class Claim(NamedTuple):
    """A statement that a durable subscription lives at a broker; the greatest `rank` wins (D5)."""

    subject: str
    number: int
    """Greater than that of every claim that its broker had when it was made."""
    home: str
    """Empty if the subscription is over, which supersedes all claims up to this number."""
    client: str = ""
    session_epoch: int = 0
    """The session count of the client. Of two concurrent claims the later session wins."""
    revision: int = 0
    """The number of changes of the filter since the claim."""
    since: int = 0
    """The number of the subscription's first claim. Entries put for a lower one belonged to an
    earlier subscription of this name."""
    claimed_us: int = 0
    filter: str = ""

    @property
    def is_over(self) -> bool:
        """True if its owner has ended it."""
        return not self.home

    @property
    def is_lapsed(self) -> bool:
        """True if the subscription ended by its lease, not by its owner."""
        return self.is_over and not self.client

    @property
    def rank(self) -> tuple[int, bool, str, int, str, int]:
        """The total order of claims, the same at all brokers."""
        return (
            self.number,
            self.is_over,
            self.client,
            self.session_epoch,
            self.home,
            self.revision,
        )


class Put(NamedTuple):
    """Store events until every home has stored them and every queue here has acked them."""

    entry: int
    parcel: Parcel | None
    """None when the log is read as a broker starts: events are read when they are sent."""
    wall_us: int
    targets: tuple[Target, ...]


class Cursor(NamedTuple):
    """An origin's stream is stored here up to an offset of its log: one append with the Put."""

    origin: str
    log: int
    offset: int


class Numbered(NamedTuple):
    """A publisher's events up to a number are stored, or matched nothing: one append with the Put.
    It lets the broker recognize events that the publisher retransmits for lack of a receipt.
    """

    publisher: str
    last: int


class Forgotten(NamedTuple):
    """Numbers of these publishers are removed: only the latest MAX_PUBLISHERS are remembered."""

    publishers: tuple[str, ...]


class Open(NamedTuple):
    """The newest claim of a durable subscription at this broker."""

    claim: Claim


class Retarget(NamedTuple):
    """Move the backlog of a durable subscription to its new home, with new offsets from `first`."""

    subject: str
    number: int
    to: str
    first: int
    reserved: int
    """The number of offsets that it may take."""
    sent: tuple[tuple[str, int], ...]
    """By home, the offset up to which its stream may have been sent: these entries stay (D4)."""


class Close(NamedTuple):
    """Remove the backlog of a durable subscription that is over, except entries that were sent."""

    subject: str
    sent: tuple[tuple[str, int], ...]


class Renew(NamedTuple):
    """Restart the stream to a home with another log: it is new, or has lost its disk (D7)."""

    home: str
    log: int


class Ack(NamedTuple):
    """A durable subscription has acked all up to an offset, and some offsets above it (D6)."""

    subject: str
    upto: int
    others: tuple[int, ...] = ()
    bookmark: bytes = b""


class Release(NamedTuple):
    """A home has stored its stream up to an offset in this log of it (D2)."""

    home: str
    log: int
    upto: int


class CaughtUp(NamedTuple):
    """This broker accepts durable requests from now on, under this log number (D7). A journal that
    has lost transactions begins another log, too: other brokers count on the lost entries.
    """

    log: int


class Place(NamedTuple):
    """An entry in a stream, or in queues here, read from the disk when a broker starts."""

    home: str
    offset: int
    entry: int
    shares: tuple[Share, ...]


class Discard(NamedTuple):
    """These entries are in no queue and no stream any more."""

    entries: tuple[int, ...]


class PutSubscription(NamedTuple):
    """The present state of a durable subscription that lives at this broker."""

    subject: str
    owner: str
    filter: str
    values: bytes
    """Parameter values as msgpack."""
    lease_s: float


class DropSubscription(NamedTuple):
    """A durable subscription has ended, or moved to another broker."""

    subject: str


class PutFacts(NamedTuple):
    """Facts about brokers, each replacing the one of its origin and subject."""

    facts: tuple[Fact, ...]


class PutRecord(NamedTuple):
    """The present value of a front under a key of its own."""

    key: str
    value: bytes


class DropRecord(NamedTuple):
    """A front has deleted a key."""

    key: str


class PutTime(NamedTuple):
    """The time of the last publication of this broker's clients."""

    time_us: int


Record: TypeAlias = PutRecord | DropRecord

Operation: TypeAlias = (
    Put
    | Numbered
    | Cursor
    | Open
    | Retarget
    | Close
    | Renew
    | CaughtUp
    | Place
    | Ack
    | Release
    | Discard
    | Forgotten
    | PutSubscription
    | DropSubscription
    | PutFacts
    | Record
    | PutTime
)

Releasing: TypeAlias = Ack | Release | Discard | Forgotten
"""Operations that only remove: they commute with all others, and may use a reserve of the disk, so
that a full disk can drain (L1)."""


def last_offset_of(operation: Operation) -> int:
    """Return the last offset that an operation uses; 0 if it uses none."""
    match operation:
        case Put(entry, _, _, targets):
            return max((target.offset for target in targets), default=entry)
        case Retarget(_, _, _, first, count):
            return first + count
        case Place(_, offset) | Release(_, _, offset):
            return offset
        case _:
            return 0


class Append(NamedTuple):
    """Write these operations, all or none, after earlier appends; sync; report the outcome."""

    ticket: int
    term: int
    """The number of refusals that the node has handled. The writer refuses appends of an earlier
    term: they were made before the node had learned that one before them is not on the disk."""
    operations: tuple[Operation, ...]
    released: tuple[Releasing, ...] = ()


class Transmit(NamedTuple):
    """Send a message to a broker, over any number of hops; it may be lost."""

    broker: str
    message: Carry | EntriesStored


class Kept(NamedTuple):
    """The append of a caller is on the disk (L4)."""

    token: Any


class NotKept(NamedTuple):
    """The disk refused the append of a caller: none of it is stored."""

    token: Any
    reason: str


class QueueReady(NamedTuple):
    """The queue of a durable subscription here has new entries."""

    subject: str


class ClaimStored(NamedTuple):
    """A claim is on the disk, and replaces the one before: the subscription may have moved."""

    before: Claim | None
    claim: Claim


class Delivery(NamedTuple):
    """The next delivery to an owner."""

    offset: int
    entry: int
    parcel: Parcel
    rows: bytes | None
    is_damaged: bool = False


class Damaged(NamedTuple):
    """The journal cannot read an entry: a loss marker is carried in its stead."""

    entry: int
    home: str


class Impossible(NamedTuple):
    """A message of another broker, or of an owner, contradicts the state here."""

    broker: str
    reason: str


Action: TypeAlias = (
    Append | Transmit | Kept | NotKept | QueueReady | ClaimStored | Damaged | Impossible
)
