"""`Datagram`: what a multicast group is sent (docs/concepts/multicast.md, "On the network")."""

from __future__ import annotations

from typing import Final, NamedTuple

from palio.model.parcels import Parcel

COUNT_BITS: Final = 31
"""Low bits of the numbers of flows that a datagram has; receivers know the others."""


class Datagram(NamedTuple):
    """An event, or none, and how far the flows to a group's members have got."""

    source: str
    """The broker that sends it."""
    incarnation: int
    """The incarnation of that broker: a greater one is later."""
    plan: int
    """The plan (`Epoch.id`) of which the group is one."""
    group: int
    number: int
    """Number of the event among all that this incarnation has sent, counted from 1."""
    counts: bytes
    """For each member of the group, in the order of the plan, four bytes, little-endian: the number
    of the last event of its flow, twice, and 1 more if that is this event."""
    parcel: Parcel | None = None
    """None where nothing is sent but the counts."""
    durable: bool = False
    """As in `Forward`."""
