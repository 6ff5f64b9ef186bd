"""`Publications`: the events that a client has published and its broker has not answered.

Events are numbered in sequence. The broker answers by number: `Accepted` for all events of one
level (`LEVELS`) up to a number, `Refused` for a range of events, before they are accepted. If the
session is lost, durable events are retransmitted under their old numbers, by which brokers drop
duplicates. Whether other events were published remains unknown. While a client moves, durable
events go to the new broker too, and the old one answers for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, Protocol

from palio.errors import PalioError, Unreachable
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import (
    LEVELS,
    Accepted,
    Message,
    Parcel,
    Publish,
    Refused,
    StoredAt,
)

_UNKNOWN: Final = (
    "the session was lost before the broker answered: the events may or may not have been "
    "published; publish them durably where that matters"
)


class Receipt(Protocol):
    """A callback for the answer to events that were published together."""

    first: int
    last: int

    def refuse(self, refused: Refused) -> None:
        """Note that the broker refuses some of these events; the others are answered later."""

    def fail(self, error: PalioError) -> None:
        """Note, before `answer`, that the outcome is unknown or that publishing failed."""

    def answer(self, level: str) -> None:
        """Note the end: the broker has all events not refused, unless `fail` was called."""


class _Flight:
    """A parcel in flight, and the receipts for its events."""

    __slots__ = ("durable", "first", "is_last", "is_sent", "last", "nbytes", "parcel", "receipts")

    def __init__(
        self,
        parcel: Parcel,
        first: int,
        receipts: Sequence[Receipt],
        *,
        durable: StoredAt,
        is_last: bool,
    ) -> None:
        self.parcel = parcel
        self.durable = durable
        self.is_last = is_last
        self.first = first
        self.last = first + len(parcel) - 1
        if parcel.values is None:
            _ = parcel.payload  # to add up the size of a batch costs more than to encode it
        self.nbytes = parcel.nbytes
        self.receipts = receipts
        self.is_sent = False
        """True if it was sent to the present broker."""


class Publications:
    """Parcels in flight, in the order of their numbers.

    >>> sent = []
    >>> publications = Publications(sent.append)
    >>> publications.next
    1
    """

    def __init__(self, send: Callable[[Message], None], *, window: int = WINDOW_BYTES) -> None:
        self.next = 1
        """The number of the next event."""
        self._send = send
        self._window = window
        self._flights: dict[StoredAt, deque[_Flight]] = _no_flights()
        self._behind: deque[_Flight] = deque()
        """Live publications that were sent to the broker that is being left."""
        self._is_crossing = False
        """True until that broker is left."""
        self._unanswered_bytes = 0

    @property
    def has_room(self) -> bool:
        """True if more may be sent before the broker answers."""
        return self._unanswered_bytes < self._window

    @property
    def oldest(self) -> int:
        """The number of the first event without an answer; of the next event, if all have one."""
        waiting = (*self._flights.values(), self._behind)
        return min((flights[0].first for flights in waiting if flights), default=self.next)

    @property
    def is_idle(self) -> bool:
        """True if all events were answered."""
        return self.oldest == self.next

    def publish(
        self,
        parcel: Parcel,
        receipts: Sequence[Receipt],
        *,
        durable: StoredAt,
        is_last: bool = True,
    ) -> None:
        """Send events under the next numbers. If no more events of their publication follow
        (`is_last`), their answer ends the receipts.
        """
        flight = _Flight(parcel, self.next, receipts, durable=durable, is_last=is_last)
        self.next = flight.last + 1
        self._flights[durable].append(flight)
        self._unanswered_bytes += flight.nbytes
        if not self._is_crossing:
            self._send_all([flight])

    # --- answers ---

    def accepted(self, message: Accepted, *, behind: bool = False) -> None:
        """Take an answer: the broker has the events of one level up to a number. `behind`: it is
        the broker that is being left.
        """
        for stored_at, flights in self._of(behind=behind):
            while flights and LEVELS[stored_at] == message.level and flights[0].last <= message.seq:
                self._land(flights.popleft(), message.level)

    def refused(self, message: Refused, *, behind: bool = False) -> None:
        """Note that the broker refuses some events; their receipts end with the answer."""
        first, last = message.first_seq, message.last_seq
        for _, flights in self._of(behind=behind):
            for flight in flights:
                if flight.first <= last and first <= flight.last:
                    for receipt in flight.receipts:
                        if receipt.first <= last and first <= receipt.last:
                            receipt.refuse(message)

    def _of(self, *, behind: bool) -> list[tuple[StoredAt, deque[_Flight]]]:
        """Return the publications that a broker may answer: while one is being left, nothing has
        been sent to the next.
        """
        durable = [(level, flights) for level, flights in self._flights.items() if level]
        return [(False, self._behind), *durable] if behind else list(self._flights.items())

    def _land(self, flight: _Flight, level: str) -> None:
        self._unanswered_bytes -= flight.nbytes
        if flight.is_last:
            for receipt in flight.receipts:
                receipt.answer(level)

    def _fail(self, flight: _Flight, error: PalioError) -> None:
        for receipt in flight.receipts:
            receipt.fail(error)
        self._land(flight, "")

    # --- the session ---

    def begin(self) -> None:
        """Send the events that were published before the first session."""
        self._send_all(chain(*self._flights.values()))

    def _send_all(self, flights: Iterable[_Flight]) -> None:
        assert not self._is_crossing, "these would overtake events sent to the old broker"
        for flight in sorted(flights, key=lambda flight: flight.first):
            flight.is_sent = True
            self._send(Publish(flight.parcel, flight.first, flight.durable))

    def renew(self) -> None:
        """Retransmit durable events to a broker without the session; others are unknown."""
        self.cross()
        self.left()

    def cross(self) -> None:
        """Begin a move to another broker. Nothing is sent to it until the old one is `left`: later
        events there would overtake earlier ones, which receivers would drop as duplicates.
        """
        live = self._flights[False]
        self._behind += (flight for flight in live if flight.is_sent)
        self._flights[False] = deque(flight for flight in live if not flight.is_sent)
        for flight in chain(*self._flights.values()):
            flight.is_sent = False
        self._is_crossing = True

    def left(self) -> None:
        """Complete a move: durable events are retransmitted to the new broker; the outcome of
        others is unknown.
        """
        lost, self._behind = self._behind, deque()
        for flight in lost:
            self._fail(flight, Unreachable(_UNKNOWN))
        self._is_crossing = False
        waiting = chain(*self._flights.values())
        self._send_all(flight for flight in waiting if not flight.is_sent)

    def end(self, error: PalioError) -> None:
        """Fail all events without an answer."""
        flights = [*self._behind, *chain(*self._flights.values())]
        self._flights, self._behind = _no_flights(), deque()
        for flight in flights:
            self._fail(flight, error)


def _no_flights() -> dict[StoredAt, deque[_Flight]]:
    return {stored_at: deque() for stored_at in LEVELS}
