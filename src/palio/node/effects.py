"""Effects that a node asks of the shell round it, and the ports that the shell must give it.

A node does nothing itself: it is handed what happened, and when, and answers with effects, to be
carried out in their order. The simulator and the server carry out the very same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from palio.multicast.datagrams import Datagram
from palio.node.operations import Append, Operation, PutSubscription
from palio.protocol.messages import Fact, Message, Parcel


class Moment(NamedTuple):
    """When something happened: by the clock that only ever goes forward, and by that of the wall.

    Timers go by the first. The second stamps publications.
    """

    now: float
    wall_us: int


# --- effects ---


class Send(msgspec.Struct, frozen=True):
    """Write a message to a connection, after those before it."""

    link: int
    message: Message


class Close(NamedTuple):
    """Close a connection once everything before is written; `lost` need not be told of it."""

    link: int
    reason: str


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
    """The principal that is to answer; empty if anybody may."""


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


Answered: TypeAlias = Callable[[str | None], None]
"""Called with None once something is on the disk, or with why it is not."""


class Entry(NamedTuple):
    """Durable events that a journal holds."""

    entry: int
    parcel: Parcel
    wall_us: int


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
    operations: Iterable[Operation] = ()
    """The operations, of which durable state is the fold (`palio.node.queues`)."""
    last_offset: int = 0
    """The last that was used, also of what is over."""
    subscriptions: Sequence[PutSubscription] = ()
    """The durable subscriptions that live here."""
    facts: Sequence[Fact] = ()
    time_us: int = 0
    """The time of the last publication that is remembered."""
    bookmarks: Mapping[str, bytes] = MappingProxyType({})
    """Those of durable subscriptions that have one."""


class Store(Protocol):
    """The journal, as a node reads it. What it writes are effects."""

    def load(self) -> Stored:
        """Everything but the events. Called once; from then on the node knows what there is."""

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Entries by number, those that exist, in order. `JournalDamaged` names a bad one."""

    def heading(self, entry: int) -> Heading | None:
        """Return what is known of an entry whose events are damaged; None if that is too little."""
