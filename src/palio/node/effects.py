"""Effects that a node asks of its host, and the journal that the host must provide.

A node does no I/O. It gets an input with its time and returns effects, which the host carries out
in their order. The simulator and the server carry out the same effects.
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
    """The time of an input, by the monotonic clock (for timers) and by the wall clock (which stamps
    publications).
    """

    now: float
    wall_us: int


# --- effects ---


class Send(msgspec.Struct, frozen=True):
    """Write a message to a connection, after those sent before."""

    link: int
    message: Message


class Close(NamedTuple):
    """Close a connection once all messages before are written. The host need not call `lost`."""

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
    """Connect to a broker, and reconnect after each failure or loss.

    Each connection is handed to `dial` with this address, each failure to `unreachable`.
    """

    url: str
    name: str
    """The principal expected to answer; empty for any."""


class StopDialing(NamedTuple):
    """Stop dialing an address. An open connection stays."""

    url: str


class Report(NamedTuple):
    """Write a line to the log: its level, the name of the event, and its details."""

    level: str
    event: str
    details: dict[str, Any]


Effect: TypeAlias = Send | Close | Append | Cast | Tune | Dial | StopDialing | Report


# --- the journal ---


Answered: TypeAlias = Callable[[str | None], None]
"""Called with None once a record is on the disk, or with the reason why it is not."""


class Entry(NamedTuple):
    """Durable events that a journal keeps under one number."""

    entry: int
    parcel: Parcel
    wall_us: int


ANYBODY: Final = "*"
"""The publisher of a gap if neither the publisher of the lost events nor their number is known."""


class Heading(NamedTuple):
    """The publisher of an entry's events, their first and last numbers, and their arrival time."""

    publisher: str
    """`ANYBODY` if the events have no numbers."""
    first_seq: int
    last_seq: int
    wall_us: int


class Stored(NamedTuple):
    """The content of a journal when a broker starts, apart from the events themselves."""

    epoch: int
    """How often the journal was opened before."""
    operations: Iterable[Operation] = ()
    """The operations, of which durable state is the fold (`palio.node.queues`)."""
    last_offset: int = 0
    """The last offset in use, deleted entries included."""
    subscriptions: Sequence[PutSubscription] = ()
    """The durable subscriptions that live here."""
    facts: Sequence[Fact] = ()
    time_us: int = 0
    """The time of the last publication in the journal."""
    bookmarks: Mapping[str, bytes] = MappingProxyType({})
    """By durable subscription, if it has a bookmark."""


class Store(Protocol):
    """The journal, as a node reads it. A node writes to it by effects (`Append`)."""

    def load(self) -> Stored:
        """Return everything but the events. Called once, as the node starts."""

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Return the entries that exist, in order. `JournalDamaged` names a damaged one."""

    def heading(self, entry: int) -> Heading | None:
        """Return the heading of an entry whose events are damaged; None if that is damaged, too."""
