"""What durable events lead to: messages to other brokers, and what is told to whoever waits."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from palio.node.operations import Append, Claim
from palio.protocol.messages import Carry, EntriesStored, Parcel

__all__ = [
    "ClaimCounts",
    "Damaged",
    "Delivery",
    "Follow",
    "Impossible",
    "Kept",
    "NotKept",
    "QueueReady",
    "Say",
]


class Say(NamedTuple):
    """Send a message to a broker, however many lie between; it may be lost."""

    broker: str
    message: Carry | EntriesStored


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


Follow: TypeAlias = Append | Say | Kept | NotKept | QueueReady | ClaimCounts | Damaged | Impossible
