"""`Datagram`: the message to a multicast group (docs/concepts/multicast.md, "On the network")."""

from __future__ import annotations

from typing import Final, NamedTuple

from palio.model.parcels import Parcel

COUNT_BITS: Final = 31
"""Low bits of flow numbers in a datagram; receivers add the high bits."""


class Datagram(NamedTuple):
    """An event, or none, and the last numbers of the flows to a group's members."""

    source: str
    """The broker that sends it."""
    incarnation: int
    """The incarnation of that broker."""
    plan: int
    """The plan of the group (`Epoch.id`)."""
    group: int
    number: int
    """Number of the event among all that this incarnation has sent, counted from 1."""
    counts: bytes
    """For each member of the group, in the order of the plan, four bytes, little-endian: the number
    of the last event of its flow, twice, and 1 more if that is this event."""
    parcel: Parcel | None = None
    """None in a report, which has only counts."""
    durable: bool = False
    """As in `Forward`."""
