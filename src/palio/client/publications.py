"""`Publications`: what a client publishes, from the call to the broker's answer.

Everything offered in one turn of the loop leaves at its end, events of one form as one batch; so
many publications at once cost little more than one, and a lone one waits for nothing. Numbers are
given when a batch leaves. Offers wait while the connection is away or the broker is behind (no more
than a window of bytes is unanswered).

If the session is lost, durable publications that were not answered go again under their old
numbers, by which brokers tell what came before. Others may or may not have been published; whoever
waits for them is told so with `Unreachable`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

import pyarrow as pa

from palio.client.events import Published
from palio.client.outgoing import Publishable, batches
from palio.client.rows import Form, Forms, Row
from palio.errors import LimitExceeded, PalioError, Unreachable
from palio.protocol.batches import PART_BYTES, parts
from palio.protocol.failures import error_of
from palio.protocol.limits import MAX_BATCH_CELLS, WINDOW_BYTES
from palio.protocol.messages import Accepted, Message, Parcel, Publish, Refused

__all__ = ["GATHERED_ROWS", "MAX_WAITING", "Line", "Publications"]

GATHERED_ROWS: Final = 4_096
"""Single events that leave as one batch: enough that the cost of a batch no longer counts."""

MAX_WAITING: Final = 1_000_000
"""Events that were offered and have not left; beyond, offers are refused."""

_UNFIT: Final = (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError)
"""What gathering rows may raise for a value that does not fit."""


class Line(Protocol):
    """The way to the broker."""

    @property
    def is_open(self) -> bool:
        """Whether more may be sent now."""

    def send(self, message: Message) -> None:
        """Send a counted message."""


class _Offer:
    """One call of `publish`, until it is answered."""

    __slots__ = ("batches", "count", "durable", "error", "first", "form", "future", "last", "row")

    first: int
    last: int
    """Its numbers, once it has left."""

    def __init__(self, durable: bool) -> None:
        self.durable = durable
        self.form: Form | None = None
        self.row: Row = ()
        self.batches: list[pa.RecordBatch] = []
        self.count = 1
        self.error: PalioError | None = None
        self.future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

    def answer(self, level: str) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(Published(self.first, self.last, level=level))


class _Flight:
    """A batch on its way, and the offers that it ends."""

    __slots__ = ("first", "last", "nbytes", "offers", "parcel")

    def __init__(self, parcel: Parcel, first: int, offers: list[_Offer]) -> None:
        self.parcel = parcel
        self.first = first
        self.last = first + len(parcel) - 1
        if parcel.values is None:
            _ = parcel.payload  # to add up what a batch takes costs more than to write it
        self.nbytes = parcel.nbytes
        self.offers = offers


class Publications:
    """Offers that wait, and batches on their way."""

    def __init__(
        self,
        line: Line,
        *,
        window: int = WINDOW_BYTES,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._line = line
        self._window = window
        self._max_waiting = max_waiting
        self._forms = Forms()
        self._offers: deque[_Offer] = deque()
        self._waiting = 0
        self._next = 1
        self._flights: dict[bool, deque[_Flight]] = {False: deque(), True: deque()}
        self._unanswered_bytes = 0
        self._flush: asyncio.Handle | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        """Events that were offered and have not left."""
        return self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether everything that was offered has been answered."""
        return not (self._offers or self._flights[False] or self._flights[True])

    def offer(self, events: Publishable, *, durable: bool = False) -> asyncio.Future[Published]:
        """Take events to be published; what is wrong with them is raised here or by the future."""
        found = self._forms.of(events) if type(events) is dict else None
        if found is None:
            listed = batches(events)
            offer = _Offer(durable)
            offer.batches = [part for batch in listed for part in parts(batch)]
            offer.count = sum(batch.num_rows for batch in listed)
            if not offer.count:
                offer.future.set_result(
                    Published(self._next, self._next - 1, level="durable" if durable else "memory")
                )
                return offer.future
        else:
            offer = _Offer(durable)
            offer.form, offer.row = found
        if self._waiting + offer.count > self._max_waiting and self._waiting:
            raise LimitExceeded(
                "the number of events that wait to be published",
                limit="MAX_WAITING",
                maximum=self._max_waiting,
                actual=self._waiting + offer.count,
            )
        self._offers.append(offer)
        self._waiting += offer.count
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self.flush)
        return offer.future

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        self._flush = None
        offers = self._offers
        while offers and self._line.is_open and self._unanswered_bytes < self._window:
            if offers[0].future.cancelled():
                self._waiting -= offers.popleft().count
            elif offers[0].form is not None:
                self._send_rows()
            else:
                self._send_batches(offers.popleft())

    def _send_rows(self) -> None:
        """Send the offers at the head that have one form as one batch."""
        offers = self._offers
        form, durable = offers[0].form, offers[0].durable
        assert form is not None
        most = min(GATHERED_ROWS, max(1, MAX_BATCH_CELLS // len(form.shape.names)))
        alike: list[_Offer] = []
        while offers and len(alike) < most:
            offer = offers[0]
            if offer.form is not form or offer.durable != durable:
                break
            offers.popleft()
            if offer.future.cancelled():
                self._waiting -= 1
            else:
                alike.append(offer)
        lone = form.lone(alike[0].row) if len(alike) == 1 else None
        if lone is not None:
            alike[0].first = alike[0].last = self._next
            self._waiting -= 1
            self._depart(lone, alike, durable=durable)
            return
        try:
            batch = form.gather([offer.row for offer in alike])
        except _UNFIT:
            self._send_one_by_one(form, alike)
            return
        if batch.nbytes > PART_BYTES:
            self._send_one_by_one(form, alike)
            return
        for number, offer in enumerate(alike, start=self._next):
            offer.first = offer.last = number
        self._waiting -= len(alike)
        self._depart(_parcel(batch), alike, durable=durable)

    def _send_one_by_one(self, form: Form, alike: list[_Offer]) -> None:
        """Send each event by itself; the one that does not fit is told why."""
        for offer in alike:
            try:
                (batch,) = batches(form.event(offer.row))
                offer.batches = list(parts(batch))
            except PalioError as error:
                self._waiting -= 1
                offer.error = error
                offer.answer("")
            else:
                self._send_batches(offer)

    def _send_batches(self, offer: _Offer) -> None:
        offer.first, offer.last = self._next, self._next + offer.count - 1
        self._waiting -= offer.count
        for batch in offer.batches[:-1]:
            self._depart(_parcel(batch), [], durable=offer.durable)
        self._depart(_parcel(offer.batches[-1]), [offer], durable=offer.durable)

    def _depart(self, parcel: Parcel, offers: list[_Offer], *, durable: bool) -> None:
        flight = _Flight(parcel, self._next, offers)
        self._next = flight.last + 1
        self._flights[durable].append(flight)
        self._line.send(Publish(flight.parcel, flight.first, durable))
        self._unanswered_bytes += flight.nbytes

    # --- answers ---

    def accepted(self, message: Accepted) -> None:
        """The broker holds what was published at one level up to a number."""
        flights = self._flights[message.level == "durable"]
        while flights and flights[0].last <= message.seq:
            self._land(flights.popleft(), message.level)
        self._went_on()

    def refused(self, message: Refused) -> None:
        """The broker did not take some events; whoever offered them is told when they land."""
        self._fail(message.first_seq, message.last_seq, error_of(message.failure))

    def _fail(self, first_seq: int, last_seq: int, error: PalioError) -> None:
        for flights in self._flights.values():
            for flight in flights:
                for offer in flight.offers:
                    if offer.first <= last_seq and first_seq <= offer.last:
                        offer.error = offer.error or error

    def give_up(self, first_seq: int, error: PalioError) -> None:
        """The broker cannot take a batch: it has not been published."""
        for flights in self._flights.values():
            for flight in [each for each in flights if each.first == first_seq]:
                self._fail(flight.first, flight.last, error)
                flights.remove(flight)
                self._land(flight, "")
        self._went_on()

    def _land(self, flight: _Flight, level: str) -> None:
        self._unanswered_bytes -= flight.nbytes
        for offer in flight.offers:
            offer.answer(level)

    def _went_on(self) -> None:
        if self._offers:
            self.flush()
        if self._idle and self.is_idle:
            waiting, self._idle = self._idle, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    # --- the session ---

    def renew(self) -> None:
        """The broker has forgotten us: durable events go again, of others nobody knows."""
        lost, self._flights[False] = self._flights[False], deque()
        for flight in lost:
            for offer in flight.offers:
                offer.error = Unreachable(
                    "the session was lost before the broker answered: the events may or may not "
                    "have been published; publish them durably where that matters"
                )
            self._land(flight, "")
        for flight in self._flights[True]:
            self._line.send(Publish(flight.parcel, flight.first, True))
        self._went_on()

    def end(self, error: PalioError) -> None:
        """There will be no more answers."""
        flights = [*self._flights[False], *self._flights[True]]
        offers = [*(offer for flight in flights for offer in flight.offers), *self._offers]
        self._flights = {False: deque(), True: deque()}
        self._offers.clear()
        self._waiting = self._unanswered_bytes = 0
        for offer in offers:
            offer.error = offer.error or error
            offer.answer("")
        self._went_on()

    async def idle(self) -> None:
        """Wait until everything that was offered has been answered."""
        if not self.is_idle:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future


def _parcel(batch: pa.RecordBatch) -> Parcel:
    return Parcel.of("", batch)  # whose events they are is the broker's to say
