"""`Outflow`: the sender's state of the flow to one receiver."""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import inf
from typing import NamedTuple

from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.multicast.limits import BACKOFF_S, JUDGED, MOST_BACKOFF_S


class ByLinks(NamedTuple):
    """Events to send by links, with their number in each receiver's flow."""

    parcel: Parcel
    durable: bool
    to: tuple[tuple[str, int], ...]


class FlowState(NamedTuple):
    """The state of a flow, sent to its receiver by links."""

    receiver: str
    receiver_life: int
    stage: int
    """0: the receiver is asked to confirm. 1: events sent before the flow precede this message.
    2: the flow is in use."""
    number: int
    """The last number sent."""
    gone: int
    """Numbers up to this one can no longer be resent."""
    is_cast: bool
    """True if events go by datagrams."""


class UnackedEvents:
    """Events in flight to some receivers."""

    __slots__ = ("asked_by", "at", "blocks", "datagram", "durable", "open", "parcel", "repeated_at")

    def __init__(self, parcel: Parcel, now: float, *, durable: bool, open: int) -> None:
        self.parcel = parcel
        self.at = now
        self.durable = durable
        self.open = open
        """Receivers that have not acknowledged them."""
        self.blocks = 0
        """Those of them whose acks the window needs."""
        self.datagram: Datagram | None = None
        self.asked_by = ""
        self.repeated_at = -inf


class Outflow:
    """The flow to one receiver."""

    __slots__ = (
        "acked",
        "backoff_s",
        "gone",
        "incarnation",
        "is_cast",
        "joined",
        "may_cast",
        "name",
        "number",
        "progressed_at",
        "released",
        "repaired",
        "repaired_from",
        "retry_at",
        "stage",
        "unacked",
    )

    def __init__(self, name: str, incarnation: int, number: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.number = self.acked = self.gone = self.released = number
        self.progressed_at = -inf
        """Time of the last progress, or when it was last found stuck."""
        self.stage = 0
        self.joined: tuple[int, ...] = ()
        """The plans whose groups the receiver has joined."""
        self.may_cast = True
        """False while the receiver is served by links, as it did not keep up."""
        self.retry_at = -inf
        """Time to try datagrams again."""
        self.backoff_s = 0.0
        """Seconds on links before that."""
        self.repaired = 0
        """Events resent since `repaired_from`."""
        self.repaired_from = number
        self.is_cast = False
        """True if the receiver is sent datagrams of the plan in use."""
        self.unacked: deque[UnackedEvents] = deque()
        """Unacknowledged events; the first has the number `acked + 1`."""

    @property
    def state(self) -> FlowState:
        """The state to send to the receiver."""
        return FlowState(
            self.name, self.incarnation, self.stage, self.number, self.gone, self.is_cast
        )

    @property
    def oldest(self) -> float:
        """The number of the first datagram in the window that lacks this receiver's ack."""
        pending = islice(self.unacked, self.released - self.acked, None)
        return next((sent.datagram.number for sent in pending if sent.datagram is not None), inf)

    def lacks_half(self) -> bool:
        """Return whether half of the last events were resent, so that links had cost less."""
        count = self.number - self.repaired_from
        if count < JUDGED:
            return False
        lacked = self.repaired > count / 2
        self.repaired, self.repaired_from = 0, self.number
        return lacked

    def move_to_links(self, now: float) -> None:
        """Serve the receiver by links until a retry; for longer if the last retry was recent."""
        is_repeated = now < self.retry_at + MOST_BACKOFF_S
        self.backoff_s = min(MOST_BACKOFF_S, 2 * self.backoff_s) if is_repeated else BACKOFF_S
        self.retry_at = now + self.backoff_s
        self.may_cast = False

    def resume_cast(self) -> None:
        """Serve the receiver by datagrams again, and judge it by later events only."""
        self.repaired, self.repaired_from = 0, self.number
        self.may_cast = True


class PendingEvents(NamedTuple):
    """Events that are pending until the window opens."""

    parcel: Parcel
    durable: bool
    brokers: tuple[str, ...]
    is_small: bool
