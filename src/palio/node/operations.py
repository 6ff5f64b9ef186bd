"""Operations that a broker's disk keeps: durable state is their fold.

`palio.node.queues` is that fold in memory, and `palio.server.journal` the one on a disk. A `Action`
is what the parts for durable events want done, appends among it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from palio.protocol.messages import Carry, EntriesStored, Fact, Parcel, Share


class Target(NamedTuple):
    """An entry in the stream to a home; if that is this broker, in the queues here."""

    home: str
    offset: int
    """Its place in the log of this broker: no two of a stream have the same."""
    shares: tuple[Share, ...]


class Claim(NamedTuple):
    """That a durable subscription lives at a broker; the greatest `rank` counts (D5)."""

    subject: str
    number: int
    """Each claim has a greater one than all that its broker knew."""
    home: str
    """Empty if it is over: that outdoes all claims up to its number."""
    client: str = ""
    session_epoch: int = 0
    """The how many-th session of that client: of two that are claimed at once the later counts."""
    revision: int = 0
    """How often its filter was changed since."""
    since: int = 0
    """The first claim since it began: what was put for an earlier one had another owner."""
    claimed_us: int = 0
    filter: str = ""

    @property
    def is_over(self) -> bool:
        """True if its owner has ended it."""
        return not self.home

    @property
    def is_lapsed(self) -> bool:
        """True if it is over though its owner has not said so."""
        return self.is_over and not self.client

    @property
    def rank(self) -> tuple[int, bool, str, int, str, int]:
        """A total order, the same at all brokers."""
        return (
            self.number,
            self.is_over,
            self.client,
            self.session_epoch,
            self.home,
            self.revision,
        )


class Put(NamedTuple):
    """Keep events until every home has them and every queue here has dealt with them."""

    entry: int
    parcel: Parcel | None
    """None where the log is read as a broker starts: events are read when their turn comes."""
    wall_us: int
    targets: tuple[Target, ...]


class Cursor(NamedTuple):
    """All of an origin's stream up to an offset of its log is here: one append with the Put."""

    origin: str
    log: int
    offset: int


class Numbered(NamedTuple):
    """All that a publisher has sent here up to a number is kept, or was for nobody: one append with
    the Put. What it says again, as it has not heard so, is not kept twice.
    """

    publisher: str
    last: int


class Forgotten(NamedTuple):
    """These publishers say nothing again: of so many only the latest are remembered."""

    publishers: tuple[str, ...]


class Open(NamedTuple):
    """The newest claim of a durable subscription that is known here."""

    claim: Claim


class Retarget(NamedTuple):
    """The waiting entries of a durable subscription follow it: they take new offsets, from `first`
    on.
    """

    subject: str
    number: int
    to: str
    first: int
    reserved: int
    """Offsets that are kept free for it."""
    sent: tuple[tuple[str, int], ...]
    """Up to where the stream of each home may have been sent: that stays (D4)."""


class Close(NamedTuple):
    """A durable subscription is over: nothing waits for it, but for what was sent."""

    subject: str
    sent: tuple[tuple[str, int], ...]


class Renew(NamedTuple):
    """A home has another log, as it is new or has lost its disk: its stream starts over (D7)."""

    home: str
    log: int


class Ack(NamedTuple):
    """A durable subscription has dealt with all up to an offset, and with some above it (D6)."""

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
    """From now on this broker takes what is durable, and this is its log (D7). A journal that has
    lost transactions begins another one, too: what it forgot others believe to be there.
    """

    log: int


class Place(NamedTuple):
    """An entry in a stream, or in queues here, as a disk has it when a broker starts."""

    home: str
    offset: int
    entry: int
    shares: tuple[Share, ...]


class Discard(NamedTuple):
    """Nobody needs these entries."""

    entries: tuple[int, ...]


class PutSubscription(NamedTuple):
    """A durable subscription that lives at this broker, as it is now."""

    subject: str
    owner: str
    filter: str
    values: bytes
    """Parameter values as msgpack."""
    lease_s: float


class DropSubscription(NamedTuple):
    """A durable subscription lives here no longer: it has ended, or moved."""

    subject: str


class PutFacts(NamedTuple):
    """Facts about brokers, each replacing what was known of its origin and subject."""

    facts: tuple[Fact, ...]


class PutRecord(NamedTuple):
    """A value that a front keeps under a key of its own, as it is now."""

    key: str
    value: bytes


class DropRecord(NamedTuple):
    """A front keeps nothing under a key any more."""

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
"""Operations that only let go: they commute with all others, and use a reserve of the disk (L1)."""


def last_offset_of(operation: Operation) -> int:
    """The last offset that an operation uses; 0 if it uses none."""
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
    """Write these operations, all or none, after those before; sync; say that they are stored."""

    ticket: int
    term: int
    """How many refusals are known here. Who writes refuses what is of an earlier term: it was
    appended before it was known that something before it is not on the disk."""
    operations: tuple[Operation, ...]
    released: tuple[Releasing, ...] = ()
    """Entries that are over."""


class Transmit(NamedTuple):
    """Send a message to a broker, however many lie between; it may be lost."""

    broker: str
    message: Carry | EntriesStored


class Kept(NamedTuple):
    """An operation that somebody waits for is on the disk (L4)."""

    token: Any


class NotKept(NamedTuple):
    """The disk refused it: it was never there."""

    token: Any
    reason: str


class QueueReady(NamedTuple):
    """Something waits in the queue of a durable subscription here."""

    subject: str


class ClaimStored(NamedTuple):
    """A claim counts from now on: what lived at the home of the one before has gone there."""

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
    """The journal cannot give back an entry: a loss is carried in its stead."""

    entry: int
    home: str


class Impossible(NamedTuple):
    """Another broker said what cannot be."""

    broker: str
    what: str


Action: TypeAlias = (
    Append | Transmit | Kept | NotKept | QueueReady | ClaimStored | Damaged | Impossible
)
