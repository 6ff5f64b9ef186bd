"""What a node asks of the shell round it, and what the shell must give it.

A node does nothing itself: it is handed what happened, and when, and answers with effects, to be
carried out in their order. The simulator and the server carry out the very same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from palio.multicast.datagrams import Datagram
from palio.protocol.messages import Fact, Message, Parcel
from palio.protocol.seen_numbers import AddNumbers, DropNumbers, ForgetNumbers

__all__ = [
    "RELEASING",
    "AddNumbers",
    "Answered",
    "Append",
    "Assign",
    "Cast",
    "Close",
    "Dial",
    "DropEntries",
    "DropNumbers",
    "DropRecord",
    "DropSubscription",
    "Effect",
    "Entry",
    "Forget",
    "ForgetNumbers",
    "Heading",
    "Moment",
    "Operation",
    "PutEntry",
    "PutFacts",
    "PutRecord",
    "PutSubscription",
    "PutTime",
    "Record",
    "Report",
    "Send",
    "Store",
    "Stored",
    "Tune",
    "Undial",
]


class Moment(NamedTuple):
    """When something happened: by the clock that only ever goes forward, and by that of the wall.

    Timers go by the first. The second stamps publications.
    """

    now: float
    wall_us: int


# --- effects ---


class Send(NamedTuple):
    """Write a message to a connection, after those before it."""

    link: int
    message: Message


class Close(NamedTuple):
    """Close a connection once everything before is written; `lost` need not be told of it."""

    link: int
    reason: str


class Append(NamedTuple):
    """Write these operations to the journal, all or none, after those before; sync; call `stored`.

    A shell may write several at once and answer for all of them.
    """

    ticket: int
    operations: tuple[Operation, ...]
    released: tuple[Operation, ...] = ()
    """What is over: written with these, and without them if they cannot be; then as soon as the
    disk takes anything."""
    needs: tuple[int, ...] = ()
    """Tickets of appends before it: if one of these was refused, so is this one."""
    oldest: int = 0
    """The first append that was not answered when this one was made: none from here on needs one
    before that."""


class Cast(NamedTuple):
    """Send a datagram to its group."""

    datagram: Datagram


class Tune(NamedTuple):
    """Join these groups of a plan, and leave its others."""

    plan: int
    groups: tuple[int, ...]


class Dial(NamedTuple):
    """Connect to a broker, and again whenever that fails or the connection is lost.

    Each connection is handed to `dial` with this address, each failure to `unreachable`.
    """

    url: str
    name: str
    """Who is to answer; empty if anybody may."""


class Undial(NamedTuple):
    """Dial that address no more. A connection that stands stays."""

    url: str


class Report(NamedTuple):
    """Something that people want to read in a log: a level, a short name, and its details."""

    level: str
    event: str
    details: dict[str, Any]


Effect: TypeAlias = Send | Close | Append | Cast | Tune | Dial | Undial | Report


# --- the journal ---


class PutEntry(NamedTuple):
    """Take durable events into custody until every home has taken them."""

    entry: int
    parcel: Parcel
    homes: tuple[str, ...]
    """Brokers with durable subscriptions that the events match, this one among them or not."""
    wall_us: int
    subjects: tuple[str, ...] = ()
    """The durable subscriptions that alone it is for; none for all there that the events match."""


class Assign(NamedTuple):
    """An entry's rows for one durable subscription of this broker; None for all rows."""

    subscription: str
    entry: int
    rows: bytes | None


class DropEntries(NamedTuple):
    """Nobody needs these entries any longer."""

    entries: tuple[int, ...]


class Forget(NamedTuple):
    """A durable subscription has dealt with everything up to an entry; its bookmark, if new."""

    subscription: str
    entry: int
    bookmark: bytes = b""


class PutSubscription(NamedTuple):
    """A durable subscription of this broker, as it is now."""

    subscription: str
    owner: str
    filter: str
    values: bytes
    """Parameter values as msgpack."""
    lease_s: float


class DropSubscription(NamedTuple):
    """A durable subscription has ended, with all that waits for it."""

    subscription: str


class PutFacts(NamedTuple):
    """Facts about brokers, each replacing what was known of its origin and subject."""

    facts: tuple[Fact, ...]


class PutRecord(NamedTuple):
    """What a front keeps under a key of its own, as it is now."""

    key: str
    value: bytes


class DropRecord(NamedTuple):
    """A front keeps nothing under a key any more."""

    key: str


Record: TypeAlias = PutRecord | DropRecord
Answered: TypeAlias = Callable[[str | None], None]
"""Called with None once something is on the disk, or with why it is not."""


class PutTime(NamedTuple):
    """The time of the last publication of this broker's clients."""

    time_us: int


Operation: TypeAlias = (
    PutEntry
    | Assign
    | DropEntries
    | Forget
    | PutSubscription
    | DropSubscription
    | AddNumbers
    | DropNumbers
    | ForgetNumbers
    | PutFacts
    | Record
    | PutTime
)


RELEASING: Final = (DropEntries, Forget, DropSubscription, DropNumbers, ForgetNumbers, DropRecord)
"""Operations that make room: a disk that is full takes steps of nothing else."""


class Entry(NamedTuple):
    """Durable events in custody."""

    entry: int
    parcel: Parcel
    homes: tuple[str, ...]
    wall_us: int
    subjects: tuple[str, ...] = ()
    """See `PutEntry`."""


ANYBODY: Final = "*"
"""The publisher of a gap of which nobody knows whose events were lost, nor how many."""


class Heading(NamedTuple):
    """Whose events an entry holds, the first and the last of their numbers, and when it came."""

    publisher: str
    """`ANYBODY` of what has no numbers."""
    first_seq: int
    last_seq: int
    wall_us: int


class Stored(NamedTuple):
    """All that a journal holds when a broker starts, apart from the events themselves."""

    epoch: int
    """How often the journal was opened before."""
    last_entry: int
    pending: Sequence[tuple[int, tuple[str, ...]]]
    """Entries in custody, in order, with the homes that have not taken them."""
    subscriptions: Sequence[PutSubscription]
    waiting: dict[str, Sequence[int]]
    """For each durable subscription the entries that it has not dealt with, in order."""
    windows: Sequence[AddNumbers]
    facts: Sequence[Fact]
    time_us: int = 0
    """The time of the last publication that is remembered."""
    bookmarks: Mapping[str, bytes] = MappingProxyType({})
    """Those of durable subscriptions that have one."""
    subjects: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    """By entry, the durable subscriptions that alone it is for."""


class Store(Protocol):
    """The journal, as a node reads it. What it writes are effects."""

    def load(self) -> Stored:
        """Everything but the events. Called once; from then on the node knows what there is."""

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Entries by number, those that exist, in order. `JournalDamaged` names a bad one."""

    def assigned(self, subscription: str, numbers: Sequence[int]) -> list[bytes | None]:
        """The rows of entries that a durable subscription waits for."""

    def heading(self, entry: int) -> Heading | None:
        """What is known of an entry whose events are damaged; None if that is so little."""
