"""`Outflow`: the flow from one broker to another, as its sender knows it."""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import inf
from typing import NamedTuple

from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.multicast.limits import AWAY_S, JUDGED, MOST_AWAY_S


class ByLinks(NamedTuple):
    """Events to be sent by links, with the number that they have in each receiver's flow."""

    parcel: Parcel
    durable: bool
    to: tuple[tuple[str, int], ...]


class FlowState(NamedTuple):
    """State of a flow, sent to its receiver by links."""

    receiver: str
    receiver_life: int
    stage: int
    """0: are you there? 1: what went before the flow has gone before this. 2: it continues."""
    number: int
    """The last."""
    gone: int
    """Up to this number nothing can be had."""
    is_cast: bool
    """True if it is sent by datagrams."""


class UnheardEvents:
    """Events that are on their way to some receivers."""

    __slots__ = ("asked_by", "at", "blocks", "datagram", "durable", "open", "parcel", "repeated_at")

    def __init__(self, parcel: Parcel, now: float, *, durable: bool, open: int) -> None:
        self.parcel = parcel
        self.at = now
        self.durable = durable
        self.open = open
        """Receivers that have not received it."""
        self.blocks = 0
        """Those among them for whom the window waits."""
        self.datagram: Datagram | None = None
        self.asked_by = ""
        self.repeated_at = -inf


class Outflow:
    """The flow to one receiver."""

    __slots__ = (
        "away_s",
        "back_at",
        "further_at",
        "gone",
        "heard",
        "incarnation",
        "is_cast",
        "joined",
        "may_cast",
        "name",
        "number",
        "released",
        "repaired",
        "repaired_from",
        "stage",
        "unheard",
    )

    def __init__(self, name: str, incarnation: int, number: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.number = self.heard = self.gone = self.released = number
        self.further_at = -inf
        """Time at which it last got further, or was found stuck."""
        self.stage = 0
        self.joined: tuple[int, ...] = ()
        """The plans whose groups it receives."""
        self.may_cast = True
        """True if it keeps up; it was moved to links if not."""
        self.back_at = -inf
        """Time at which that is tried again..."""
        self.away_s = 0.0
        """...after so many seconds."""
        self.repaired = 0
        """Events since `repaired_from` that were sent again."""
        self.repaired_from = number
        self.is_cast = False
        """True if it is sent datagrams of the plan in use."""
        self.unheard: deque[UnheardEvents] = deque()
        """Events that it has not acknowledged: the first of them has the number `heard + 1`."""

    @property
    def state(self) -> FlowState:
        """The state that its receiver is sent."""
        return FlowState(
            self.name, self.incarnation, self.stage, self.number, self.gone, self.is_cast
        )

    @property
    def oldest(self) -> float:
        """The number of the first datagram for which the window waits because of its receiver."""
        waited = islice(self.unheard, self.released - self.heard, None)
        return next((sent.datagram.number for sent in waited if sent.datagram is not None), inf)

    def lacks_most(self) -> bool:
        """Return whether half of some events were sent again, so that links would have done with
        less.
        """
        count = self.number - self.repaired_from
        if count < JUDGED:
            return False
        lacked = self.repaired > count / 2
        self.repaired, self.repaired_from = 0, self.number
        return lacked

    def move(self, now: float) -> None:
        """From now on it goes by links, until it has been tried again."""
        is_again = now < self.back_at + MOST_AWAY_S
        self.away_s = min(MOST_AWAY_S, 2 * self.away_s) if is_again else AWAY_S
        self.back_at = now + self.away_s
        self.may_cast = False

    def come_back(self) -> None:
        """It is tried again, and judged by what comes then."""
        self.repaired, self.repaired_from = 0, self.number
        self.may_cast = True


class WaitingEvents(NamedTuple):
    """Events that wait for the window."""

    parcel: Parcel
    durable: bool
    brokers: tuple[str, ...]
    is_small: bool
