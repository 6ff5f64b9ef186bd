"""The bounded queue between a bus and one consumer.

Events wait in the batches they came in, with the rows that matched. Beyond the size of the queue
the oldest are dropped and remembered as gaps, which are reported before the next event, so that it
always knows what it has not seen.

What still matches is decided when events are *taken*: one that fails its subscription's parameters
of that moment is left out and counted as spurious (parametric 3.3).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import compress
from typing import Any, Final, Protocol, TypeAlias

from palio.client.arrivals import Arrival
from palio.client.events import Event, Gap
from palio.engine import pa
from palio.errors import Closed, InvalidFilter, InvalidInput, PalioError
from palio.model.events import EXPIRES, SEQ
from palio.model.limits import check_limit
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.protocol.receipts import Entry, Receipts

DEFAULT_QUEUE_SIZE: Final = 10_000
"""Events that wait for a consumer unless it asks otherwise: a second or so of a busy stream."""

MAX_QUEUE_SIZE: Final = 10_000_000
"""The most a consumer may ask for: beyond this a queue is an archive."""


def check_queue_size(queue_size: int) -> None:
    """Refuse a queue that could hold nothing, or too much."""
    if not isinstance(queue_size, int) or isinstance(queue_size, bool):
        raise InvalidInput(f"queue_size is a whole number of events, not {queue_size!r:.40}")
    if queue_size < 1:
        raise InvalidInput(f"queue_size is at least 1, not {queue_size}")
    check_limit("queue_size", "MAX_QUEUE_SIZE", MAX_QUEUE_SIZE, queue_size)


class Consumer(Protocol):
    """The part of a subscription that its queue needs."""

    version: int
    receipts: Receipts
    left: int | None
    """How many events more it takes; None for any number."""
    expired: int
    """Events that were left out as their time had run out."""

    def still_wants(self, event: Event) -> bool:
        """True if an event that waited still matches; count it as spurious if not."""

    def report(self, gap: Gap) -> None:
        """Report to the application what it lost."""

    def took(self, count: int) -> None:
        """Note that `count` of the events `left` were queued."""


class QueuedEvent:
    """One event for one subscription, of as few objects as possible: there may be thousands."""

    __slots__ = ("_row", "_shape", "consumer", "publisher", "version")

    entry: Entry | None = None

    def __init__(
        self, consumer: Consumer, publisher: str, shape: Shape, row: Mapping[str, Any]
    ) -> None:
        self.consumer = consumer
        self.publisher = publisher
        self.version = consumer.version
        self._shape = shape
        self._row: Mapping[str, Any] | None = row
        """It, system columns and all, which others may share; None once it was taken."""

    def __len__(self) -> int:
        return self._row is not None

    def _take(self) -> Mapping[str, Any]:
        row, self._row = self._row, None
        assert row is not None, "taken once"
        return row

    def keep(self, count: int) -> None:
        """Drop the event if none is to be kept."""
        if not count:
            self._row = None

    def drop(self, _count: int) -> Gap:
        """Drop the event; the gap that this leaves."""
        number = self._take()[SEQ]
        return Gap(self.publisher, number, number, 1)

    def next_event(self) -> Event:
        """The event."""
        return Event.of(self._take(), self.publisher)

    def rest(self) -> pa.RecordBatch | None:
        """The event as a batch, if it still matches."""
        row = self._take()
        is_current = self.version == self.consumer.version
        if (not is_current or EXPIRES in row) and not _is_wanted(
            self.consumer, Event.of(row, self.publisher), is_current=is_current
        ):
            return None
        values = tuple([row.get(name) for name in self._shape.names])
        return Parcel.lone(self.publisher, self._shape, values).batch

    def singles(self) -> list[QueuedEvent]:
        """The event itself."""
        return [self]

    @property
    def first_seq(self) -> int:
        """The number of the event."""
        assert self._row is not None, "not yet taken"
        number: int = self._row[SEQ]
        return number


class QueuedEvents:
    """Some events of an arrival for one subscription, or events made one by one (no arrival)."""

    __slots__ = (
        "_arrival",
        "_decoded",
        "_selected",
        "_start",
        "consumer",
        "entry",
        "publisher",
        "version",
    )

    def __init__(
        self,
        consumer: Consumer,
        arrival: Arrival,
        selected: Sequence[int],
        entry: Entry | None = None,
    ) -> None:
        self.consumer = consumer
        self.publisher = arrival.publisher
        self.version = consumer.version
        self.entry = entry
        """What is acknowledged to the broker when these were dealt with, if anything."""
        self._arrival: Arrival | None = arrival
        self._selected = selected
        self._decoded: list[Event] | None = None
        self._start = 0

    @classmethod
    def made(
        cls, consumer: Consumer, publisher: str, events: list[Event], entry: Entry | None = None
    ) -> QueuedEvents:
        """Composites of a pattern, whose last events are of one publisher."""
        queued = cls.__new__(cls)
        queued.consumer, queued.publisher, queued.version = consumer, publisher, consumer.version
        queued.entry, queued._arrival = entry, None
        queued._selected, queued._start = range(len(events)), 0
        queued._decoded = events
        return queued

    def __len__(self) -> int:
        return len(self._selected) - self._start

    def keep(self, count: int) -> None:
        """Leave out all but the first events."""
        self._selected = self._selected[:count]

    def drop(self, count: int) -> Gap:
        """Drop the next events; the gap that this leaves."""
        start, self._start = self._start, self._start + count
        first, last = (self._number(place) for place in (start, start + count - 1))
        return Gap(self.publisher, first, last, count)

    def _number(self, place: int) -> int:
        """The number of one of its events."""
        if self._arrival is None:
            return self._events()[place].seq
        return self._arrival.number(self._selected[place])

    def next_event(self) -> Event:
        """The next event; all are decoded when the first is asked for."""
        event = self._events()[self._start]
        self._start += 1
        return event

    def rest(self) -> pa.RecordBatch | None:
        """The remaining events that still match, with the system columns; None for none."""
        current = self.version == self.consumer.version
        if self._arrival is None:
            self._refuse_composites(current=current)
            return None
        start, self._start = self._start, len(self._selected)
        selected = self._selected[start:]
        if not current or EXPIRES in self._arrival.shape.names:
            fits = [
                _is_wanted(self.consumer, event, is_current=current)
                for event in self._events()[start:]
            ]
            selected = list(compress(selected, fits))
        self._account(len(self._selected) - start, len(selected))
        if not selected:
            return None
        batch = self._arrival.batch
        return (
            batch if len(selected) == batch.num_rows else batch.take(pa.array(selected, pa.int64()))
        )

    def _refuse_composites(self, *, current: bool) -> None:
        """Drop composites up to the first that still matches, which no batch can hold."""
        while len(self):
            if current or self.consumer.still_wants(self._events()[self._start]):
                raise InvalidFilter(
                    "a pattern gives sequences of events, which are no rows of one batch; "
                    "iterate over the subscription itself"
                )
            self._start += 1

    def _account(self, count: int, wanted: int) -> None:
        """Note that events of a batch were taken; those not wanted any longer are dealt with."""
        if self.entry is not None:
            receipts = self.consumer.receipts
            receipts.make(self.entry, count - wanted).give()
            receipts.take(receipts.make(self.entry, wanted))

    def singles(self) -> list[QueuedEvents]:
        """The same, one event each."""
        return [
            QueuedEvents.made(self.consumer, self.publisher, [event]) for event in self._events()
        ]

    @property
    def first_seq(self) -> int:
        """The number of its first event."""
        return self._events()[0].seq

    def _events(self) -> list[Event]:
        if self._decoded is None:
            assert self._arrival is not None, "what was made is decoded"
            self._decoded = [self._event(row) for row in self._arrival.rows_at(self._selected)]
        return self._decoded

    def _event(self, row: Mapping[str, Any]) -> Event:
        receipt = None
        if self.entry is not None:
            receipt = self.consumer.receipts.make(self.entry, seq=row[SEQ])
        return Event.of(row, self.publisher, receipt)


now: Final = partial(datetime.now, UTC)
"""The clock by which events expire."""


def _is_wanted(consumer: Consumer, event: Event, *, is_current: bool) -> bool:
    """True for an event that is to be delivered: its time has not run out, and it still matches,
    which is so where nothing has changed since it was queued.
    """
    if event.expires is not None and event.expires <= now():
        consumer.expired += 1
        return False
    return is_current or consumer.still_wants(event)


_NOTHING: Final[deque[Queued]] = deque(maxlen=0)
"""The content of all unused queues, shared: an empty deque takes 760 bytes."""


_NO_GAPS: Final[dict[tuple[Consumer, str, type[Gap]], Gap]] = {}
"""The gaps of a queue that has none."""

Queued: TypeAlias = QueuedEvents | QueuedEvent


class DeliveryQueue:
    """The events of a consumer in the order of arrival, bounded in number."""

    __slots__ = ("_arrived", "_end", "_gap_callbacks", "_gaps", "_waiting", "queue_size", "waiting")

    def __init__(self, queue_size: int = DEFAULT_QUEUE_SIZE) -> None:
        check_queue_size(queue_size)
        self.queue_size = queue_size
        self.waiting = 0
        """Events that wait."""
        self._waiting = _NOTHING
        self._gaps = _NO_GAPS
        self._gap_callbacks: list[Callable[[], object]] | None = None
        self._arrived: asyncio.Event | None = None
        """Made when a consumer first waits."""
        self._end: PalioError | None = None

    def offer(self, queued: Queued) -> int:
        """Queue events, dropping the oldest events where there are too many. How many its consumer
        takes, who may end with them.
        """
        left = queued.consumer.left
        if left is not None:
            queued.keep(left)
        taken = len(queued)
        if not taken:
            return 0
        if self._waiting is _NOTHING:
            self._waiting = deque()
        self._waiting.append(queued)
        self.waiting += taken
        while self.waiting > self.queue_size:
            oldest = next((queued for queued in self._waiting if queued.entry is None), None)
            if oldest is None:  # what its home keeps is never dropped
                break
            count = min(self.waiting - self.queue_size, len(oldest))
            if count:
                self.note(oldest.consumer, oldest.drop(count))
                self.waiting -= count
            if not len(oldest):
                self._waiting.remove(oldest)
        self._wake()
        if left is not None:
            queued.consumer.took(taken)
        return taken

    @contextmanager
    def ahead(self) -> Iterator[Sequence[Queued]]:
        """Let events that are offered in the block precede those that wait, which it yields."""
        behind, self._waiting = self._waiting, deque()
        try:
            yield tuple(queued for queued in behind if len(queued))
        finally:
            self._waiting.extend(behind)

    async def take_event(self) -> tuple[Consumer, Event]:
        """The next event that still matches, with whose it is."""
        while True:
            queued = await self._head()
            consumer, event = queued.consumer, queued.next_event()
            self.waiting -= 1
            wanted = _is_wanted(consumer, event, is_current=queued.version == consumer.version)
            if event.receipt is not None:
                if wanted:
                    consumer.receipts.take(event.receipt)
                else:
                    event.receipt.give()
            if wanted:
                return consumer, event

    async def take_batch(self) -> tuple[str, pa.RecordBatch]:
        """The rest of the next batch in which anything still matches, and its publisher."""
        while True:
            queued = await self._head()
            count = len(queued)
            try:
                batch = queued.rest()
            finally:
                self.waiting -= count - len(queued)
            if batch is not None:
                return queued.publisher, batch

    async def _head(self) -> Queued:
        """The first that holds events, once there is one; gaps before it are reported first."""
        while True:
            while self._gaps:
                oldest = next(iter(self._gaps))
                oldest[0].report(self._gaps.pop(oldest))
            callback, self._gap_callbacks = self._gap_callbacks, None
            for notify in callback or ():
                notify()
            while self._waiting:
                if len(self._waiting[0]):
                    return self._waiting[0]
                self._waiting.popleft()
            if self._end is not None:
                raise self._end
            if self._arrived is None:
                self._arrived = asyncio.Event()
            self._arrived.clear()
            await self._arrived.wait()

    def _wake(self) -> None:
        """Wake the waiting consumers."""
        if self._arrived is not None:
            self._arrived.set()

    def note(self, consumer: Consumer, gap: Gap) -> None:
        """Store a gap, joined with an unreported one of the same publisher.

        The oldest events are dropped first and none is taken in between, so the two are adjacent.
        Events too late for a pattern have a gap of their own.
        """
        self._wake()
        kind = type(gap)
        earlier = self._gaps.get((consumer, gap.publisher, kind))
        if earlier is not None:
            first = min(earlier.first_seq, gap.first_seq)
            last = max(earlier.last_seq, gap.last_seq)
            reason = earlier.reason or gap.reason
            gap = kind(gap.publisher, first, last, earlier.count + gap.count, reason)
        if self._gaps is _NO_GAPS:
            self._gaps = {}
        self._gaps[consumer, gap.publisher, kind] = gap

    def after_gaps(self, callback: Callable[[], object]) -> None:
        """Call `callback` once the pending gaps were reported."""
        if self._gap_callbacks is None:
            self._gap_callbacks = []
        self._gap_callbacks.append(callback)
        self._wake()

    def discard(self, consumer: Consumer) -> None:
        """Drop the backlog of one subscription."""
        self._waiting = deque(queued for queued in self._waiting if queued.consumer is not consumer)
        self._gaps = {key: gap for key, gap in self._gaps.items() if key[0] is not consumer}
        self.waiting = sum(map(len, self._waiting))

    def close(self, error: PalioError | None = None) -> None:
        """Accept no more events; the backlog is still delivered, and then the error raised."""
        self._end = (
            self._end
            or error
            or Closed("the subscription is closed, and everything it had was delivered")
        )
        self._wake()
