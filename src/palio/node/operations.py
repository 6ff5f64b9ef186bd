"""The operations that a broker writes to its disk, and the actions of `DurableEvents`.

Durable state is what results when all stored operations are applied in order: in memory by
`palio.node.queues`, on a disk by `palio.server.journal`. An `Action` is an output of
`DurableEvents`, which `Core.perform` carries out.

Rules are cited by their letter and number: D1 to D7 (transfer between brokers) are listed at the
top of `durable.py`, L1 to L4 (writing to the disk) at the top of `log.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from palio.protocol.messages import Carry, EntriesStored, Fact, Parcel, Share


class Target(NamedTuple):
    """The destination of an entry: the stream to another home, or queues of this broker."""

    home: str
    offset: int
    """The entry's position in the log of this broker, unique within a stream."""
    shares: tuple[Share, ...]


class Claim(NamedTuple):
    """States which broker is the home of a durable subscription; the greatest `rank` wins (D5)."""

    subject: str
    number: int
    """Greater than the number of every claim that the claiming broker knew."""
    home: str
    """Empty if the subscription has ended, which supersedes all claims up to this number."""
    client: str = ""
    session_epoch: int = 0
    """The session count of the client. Of two concurrent claims the later session wins."""
    revision: int = 0
    """The number of changes of the filter since the claim."""
    since: int = 0
    """The number of the subscription's first claim. Entries stored under a lower number belong to
    an earlier subscription of the same name."""
    claimed_us: int = 0
    filter: str = ""

    @property
    def is_over(self) -> bool:
        """True if the subscription has ended, by its owner or by its lease."""
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
    """Stores one batch of events as an entry, and adds it to the streams and queues of `targets`.

    The entry stays until every other home has stored it and every queue here has acked it.
    """

    entry: int
    parcel: Parcel | None
    """None when the operation is read as a broker starts: events are read when they are sent."""
    wall_us: int
    targets: tuple[Target, ...]


class Cursor(NamedTuple):
    """Records the offset up to which an origin's stream is stored here, in the append of the last
    `Put` from that stream (D2).
    """

    origin: str
    log: int
    offset: int


class Numbered(NamedTuple):
    """Records the last number of a publisher whose events are stored, or matched no subscription,
    in the append of their `Put`. It identifies events that the publisher retransmits.
    """

    publisher: str
    last: int


class Forgotten(NamedTuple):
    """Removes the `Numbered` of some publishers: only the latest MAX_PUBLISHERS are kept."""

    publishers: tuple[str, ...]


class Open(NamedTuple):
    """Records a claim, which replaces the earlier claim of the same durable subscription."""

    claim: Claim


class Retarget(NamedTuple):
    """Moves the backlog of a durable subscription to the stream or queue of its new home.

    The moved entries get new offsets from `first` on.
    """

    subject: str
    number: int
    to: str
    first: int
    reserved: int
    """The maximum number of moved entries, each of which takes an offset."""
    sent: tuple[tuple[str, int], ...]
    """By home, the offset up to which its stream may have been sent. Entries up to there are not
    moved: the home may have stored them, and then hands them on itself (D4)."""


class Close(NamedTuple):
    """Removes the backlog of a durable subscription that has ended."""

    subject: str
    sent: tuple[tuple[str, int], ...]
    """By home, the offset up to which its stream may have been sent; these entries stay (D4)."""


class Renew(NamedTuple):
    """Restarts the stream to a home under another log number: the home is new, or has lost its disk
    (D7).
    """

    home: str
    log: int


class Ack(NamedTuple):
    """Removes entries that an owner has acknowledged from the queue of its durable subscription."""

    subject: str
    upto: int
    """All entries up to this offset are acknowledged."""
    others: tuple[int, ...] = ()
    """Further acknowledged offsets."""
    bookmark: bytes = b""
    """The owner's checkpoint, stored with the acknowledgement; empty: none."""


class Release(NamedTuple):
    """Removes entries up to an offset from the stream to a home, which has stored them (D2)."""

    home: str
    log: int
    upto: int


class CaughtUp(NamedTuple):
    """Records that this broker accepts durable requests from now on, under this log number (D7).

    A journal that has lost transactions needs a new number, too: it makes other brokers restart
    their streams to this one, instead of continuing after entries that are lost.
    """

    log: int


class Place(NamedTuple):
    """Adds an entry that is stored already to queues here, or, when a broker reads its disk at
    start, to a stream.
    """

    home: str
    offset: int
    entry: int
    shares: tuple[Share, ...]


class Discard(NamedTuple):
    """Deletes entries that are in no queue and no stream any more."""

    entries: tuple[int, ...]


class PutSubscription(NamedTuple):
    """Stores the present state of a durable subscription whose home is this broker."""

    subject: str
    owner: str
    filter: str
    values: bytes
    """Parameter values as msgpack."""
    lease_s: float


class DropSubscription(NamedTuple):
    """Deletes a durable subscription that has ended, or moved to another broker."""

    subject: str


class PutFacts(NamedTuple):
    """Stores facts about brokers, each in place of the one with its origin and subject."""

    facts: tuple[Fact, ...]


class PutRecord(NamedTuple):
    """Stores the value of a front end, such as HTTP, under a key."""

    key: str
    value: bytes


class DropRecord(NamedTuple):
    """Deletes a key of a front end."""

    key: str


class PutTime(NamedTuple):
    """Stores the time of the last publication by this broker's clients."""

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
"""Operations that only remove. They commute with all others, and they may use a reserve of disk
space, so that a full disk can drain (L1)."""


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
    """Writes operations after those of earlier appends, all or none; syncs; reports the outcome."""

    ticket: int
    term: int
    """The number of refusals that the node has handled. After a refusal the writer refuses appends
    of an earlier term: the node made them when it still counted on the refused append."""
    operations: tuple[Operation, ...]
    released: tuple[Releasing, ...] = ()
    """Removals written with them, which the writer tries even if it refuses `operations`."""


class Transmit(NamedTuple):
    """Sends a message to a broker, over any number of hops; it may be lost."""

    broker: str
    message: Carry | EntriesStored


class Kept(NamedTuple):
    """Reports to a caller that its append is on the disk (L4)."""

    token: Any


class NotKept(NamedTuple):
    """Reports to a caller that the disk refused its append: none of it is stored."""

    token: Any
    reason: str


class QueueReady(NamedTuple):
    """Reports new entries in the queue of a durable subscription here."""

    subject: str


class ClaimStored(NamedTuple):
    """Reports that a claim on the disk replaces an earlier one: the subscription may have moved."""

    before: Claim | None
    claim: Claim


class Delivery(NamedTuple):
    """An entry of a durable subscription's queue, read for delivery to the owner."""

    offset: int
    """The position that the owner acknowledges."""
    entry: int
    parcel: Parcel
    rows: bytes | None
    """A mask of the events that match; None: all."""
    is_damaged: bool = False
    """True if the entry could not be read; `parcel` is then a loss marker."""


class Damaged(NamedTuple):
    """Reports an entry that the journal cannot read; a loss marker is sent to the home instead."""

    entry: int
    home: str


class Impossible(NamedTuple):
    """Reports a protocol violation: a message of a broker that contradicts the state here."""

    broker: str
    reason: str


Action: TypeAlias = (
    Append | Transmit | Kept | NotKept | QueueReady | ClaimStored | Damaged | Impossible
)
