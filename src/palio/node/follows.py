"""What durable events lead to: messages between brokers, and what is told to whoever waits."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from palio.node.log import Claim, Share, Write
from palio.protocol.messages import Parcel

__all__ = [
    "CarryEntry",
    "ClaimCounts",
    "Damaged",
    "Delivery",
    "EntriesStored",
    "Follow",
    "Impossible",
    "Kept",
    "NotKept",
    "QueueReady",
    "Say",
]


# --- messages ---


class CarryEntry(NamedTuple):
    """An entry on its way from its origin to a home."""

    origin: str
    log: int
    """Which log of the origin: one that has lost its disk begins a greater one."""
    home: str
    home_log: int
    """Which log the origin believes the home to have."""
    offset: int
    previous: int
    """The offset that the home has before that: its cursor, or the entry is not taken (D1)."""
    shares: tuple[Share, ...]
    parcel: Parcel


class EntriesStored(NamedTuple):
    """A home has stored an origin's stream up to an offset."""

    home: str
    home_log: int
    origin: str
    log: int
    offset: int
    is_asking: bool = False
    """Something after it came early, so what lies between is missed."""


# --- what follows ---


class Say(NamedTuple):
    """Send a message to a broker, however many lie between; it may be lost."""

    broker: str
    message: CarryEntry | EntriesStored


class Kept(NamedTuple):
    """What somebody waits for is on the disk (L4)."""

    token: Any


class NotKept(NamedTuple):
    """The disk refused it: it was never there."""

    token: Any
    reason: str


class QueueReady(NamedTuple):
    """Something waits in the queue of a durable subscription here."""

    subject: str


class ClaimCounts(NamedTuple):
    """A claim counts from now on: what lived at the home of the one before has gone there."""

    before: Claim | None
    claim: Claim


class Delivery(NamedTuple):
    """What an owner gets next."""

    offset: int
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


Follow: TypeAlias = Write | Say | Kept | NotKept | QueueReady | ClaimCounts | Damaged | Impossible
