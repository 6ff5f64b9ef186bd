"""`Outbox`: what an application offers for publication, until it leaves.

Everything offered in one turn of the loop leaves at its end, events of one form as one batch; so
many publications at once cost little more than one, and a lone one waits for nothing. Numbers are
given when a batch leaves (see `palio.protocol.publications`). Offers wait while the connection is
away or the broker is behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from palio.client.events import PublishReceipt
from palio.client.outgoing import (
    NO_MARKS,
    Forms,
    Marks,
    Publishable,
    Row,
    gathered,
    lone,
    parcels,
)
from palio.engine import is_installed, pa
from palio.errors import LimitExceeded, PalioError
from palio.model.shapes import Shape
from palio.protocol.batches import PART_BYTES, check_texts, parts
from palio.protocol.failures import error_of
from palio.protocol.limits import MAX_BATCH_CELLS
from palio.protocol.messages import LEVELS, Parcel, Refused, StoredAt
from palio.protocol.publications import Publications

GATHERED_ROWS: Final = 4_096
"""Single events that leave as one batch: enough that the cost of a batch no longer counts."""

MAX_WAITING: Final = 1_000_000
"""Events that were offered and have not left; beyond, offers are refused."""


class _Offer:
    """One call of `publish`, until it is answered (see `publications.Receipt`)."""

    __slots__ = ("count", "durable", "error", "first", "future", "last", "parcels", "row", "shape")

    first: int
    last: int
    """Its numbers, once it has left."""

    def __init__(self, durable: StoredAt) -> None:
        self.durable = durable
        self.shape: Shape | None = None
        self.row: Row = ()
        self.parcels: list[Parcel] = []
        self.count = 1
        self.error: PalioError | None = None
        self.future: asyncio.Future[PublishReceipt] = asyncio.get_running_loop().create_future()

    def refuse(self, refused: Refused) -> None:
        self.fail(error_of(refused.failure))

    def fail(self, error: PalioError) -> None:
        """Keep an error for the receipt; the first counts."""
        self.error = self.error or error

    def answer(self, level: str) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(PublishReceipt(self.first, self.last, level=level))


class Outbox:
    """Offers that wait to leave."""

    def __init__(
        self,
        publications: Publications,
        may_leave: Callable[[], bool],
        write: Callable[[], None] = lambda: None,
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._publications = publications
        self._may_leave = may_leave
        self._write = write
        self._max_waiting = max_waiting
        self._forms = Forms()
        self._offers: deque[_Offer] = deque()
        self._waiting = 0
        self._flush: asyncio.Handle | None = None
        self._idle: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until everything before a number is answered."""

    @property
    def waiting(self) -> int:
        """Events that were offered and have not left."""
        return self._waiting

    @property
    def is_idle(self) -> bool:
        """True if everything that was offered has been answered."""
        return not self._offers and self._publications.is_idle

    def offer(
        self, events: Publishable, *, durable: StoredAt = False, marks: Marks = NO_MARKS
    ) -> asyncio.Future[PublishReceipt]:
        """Take events to be published; what is wrong with them is raised here or by the future."""
        form = self._forms.of(events) if type(events) is dict and not marks else None
        if form is None:
            listed = parcels(events, marks)
            offer = _Offer(durable)
            offer.parcels = [part for parcel in listed for part in _parts(parcel)]
            offer.count = sum(map(len, listed))
            if not offer.count:
                after = self._publications.next
                offer.future.set_result(PublishReceipt(after, after - 1, level=LEVELS[durable]))
                return offer.future
        else:
            offer = _Offer(durable)
            offer.shape, offer.row = form
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
            self._flush = asyncio.get_running_loop().call_soon(self._gathered)
        return offer.future

    def _gathered(self) -> None:
        """The turn is over: what it offered leaves, and is written."""
        self.flush()
        self._write()

    def flush(self) -> None:
        """Send pending events, as far as the window allows."""
        self._flush = None
        offers = self._offers
        while offers and self._may_leave():
            if offers[0].future.cancelled():
                self._waiting -= offers.popleft().count
            elif offers[0].shape is not None:
                self._send_rows()
            else:
                self._send_batches(offers.popleft())

    def _send_rows(self) -> None:
        """Send the offers at the head of one form as one batch."""
        offers = self._offers
        shape, durable = offers[0].shape, offers[0].durable
        assert shape is not None
        most = min(GATHERED_ROWS, max(1, MAX_BATCH_CELLS // len(shape.names)))
        most = most if is_installed() else 1
        alike: list[_Offer] = []
        while (
            offers
            and offers[0].shape is shape
            and offers[0].durable == durable
            and len(alike) < most
        ):
            offer = offers.popleft()
            if offer.future.cancelled():
                self._waiting -= 1
            else:
                alike.append(offer)
        single = lone(shape, alike[0].row) if len(alike) == 1 else None
        if single is not None:
            alike[0].first = alike[0].last = self._publications.next
            self._waiting -= 1
            self._publications.publish(single, alike, durable=durable)
            return
        if not is_installed():
            self._send_one_by_one(shape, alike)
            return
        try:
            batch = gathered(shape, [offer.row for offer in alike])
            check_texts(Parcel("", batch))
        except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
            self._send_one_by_one(shape, alike)
            return
        if batch.nbytes > PART_BYTES:
            self._send_one_by_one(shape, alike)
            return
        for number, offer in enumerate(alike, start=self._publications.next):
            offer.first = offer.last = number
        self._waiting -= len(alike)
        self._publications.publish(_parcel(batch), alike, durable=durable)

    def _send_one_by_one(self, shape: Shape, alike: list[_Offer]) -> None:
        """Send each event by itself; the receipt of one that does not fit has the error."""
        for offer in alike:
            try:
                (parcel,) = parcels(dict(zip(shape.names, offer.row, strict=True)))
                offer.parcels = list(_parts(parcel))
            except PalioError as error:
                self._waiting -= 1
                offer.error = error
                offer.answer("")
            else:
                self._send_batches(offer)

    def _send_batches(self, offer: _Offer) -> None:
        publications = self._publications
        offer.first, offer.last = publications.next, publications.next + offer.count - 1
        self._waiting -= offer.count
        for parcel in offer.parcels[:-1]:
            publications.publish(parcel, (offer,), durable=offer.durable, is_last=False)
        publications.publish(offer.parcels[-1], (offer,), durable=offer.durable)

    def flow(self) -> None:
        """Send pending events after an answer, or with more room, and wake callers of `idle`."""
        if self._offers:
            self.flush()
        if self._idle:
            waiting, self._idle = self._idle, []
            for number, future in waiting:
                if not self._is_answered(number):
                    self._idle.append((number, future))
                elif not future.done():
                    future.set_result(None)

    def end(self, error: PalioError) -> None:
        """Nothing leaves any more."""
        offers = [*self._offers]
        self._offers.clear()
        self._waiting = 0
        for offer in offers:
            offer.fail(error)
            offer.answer("")
        self.flow()

    async def idle(self, *, sent_only: bool = False) -> None:
        """Wait until everything that was offered before, or has left already, is answered."""
        number = self._publications.next + (0 if sent_only else self._waiting)
        if not self._is_answered(number):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append((number, future))
            await future

    def _is_answered(self, number: int) -> bool:
        """True if all events before a number are; cancelled offers leave numbers unused."""
        return self.is_idle or self._publications.oldest >= number


def _parts(parcel: Parcel) -> Iterator[Parcel]:
    """Events in parts, each for one message."""
    if parcel.values is not None:
        check_texts(parcel)
        yield parcel
    else:
        yield from map(_parcel, parts(parcel.batch))


def _parcel(batch: pa.RecordBatch) -> Parcel:
    return Parcel.of("", batch)  # the broker fills in the publisher
