"""`Dispatcher`: finds out which subscriptions of one place want an event, and queues it for them.

It has the engine and the subscriptions by number, and knows neither brokers nor loops. What comes
is handed to it by its owner: a bus hands it what is published there, a client's upstream what the
broker delivers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.client.delivery_queue import DeliveryQueue, QueuedEvents
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.upstream import Upstream
from palio.errors import PalioError
from palio.matching.index import Index
from palio.matching.protocol import Matcher, Matches, RowMask
from palio.model.events import rows
from palio.model.filters import Filter
from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.parcels import Parcel, worth_copying
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.receipts import Entry

__all__ = ["Dispatcher"]

FEW_SUBSCRIPTIONS: Final = 8
"""So few are asked one by one whether they want an event: the engine begins at a higher price."""


def _new_matcher() -> Matcher:
    """An engine that compiles and merges beside the loop; a program may end before it has."""
    return Index(submit=_in_thread)


def _in_thread(job: Callable[[], Any]) -> None:
    threading.Thread(target=job, name="palio-engine", daemon=True).start()


class Dispatcher:
    """The subscriptions of one place, and the engine over them."""

    def __init__(self, upstream: Upstream, matcher: Matcher | None) -> None:
        self.spurious = 0
        """Events that came and were for no subscription any longer."""
        self._upstream = upstream
        self._matcher = _new_matcher() if matcher is None else matcher
        self._registered: dict[int, Registration] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._registered)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registered.values())

    def get(self, number: int) -> Registration | None:
        """The subscription of a number, if there is one."""
        return self._registered.get(number)

    def register(
        self,
        what: Filter | Pattern,
        values: Bindings,
        queue: DeliveryQueue,
        options: SubscriptionOptions,
    ) -> Registration:
        """Queue what matches from now on."""
        number = self._next_number
        # What comes for a durable subscription is for it alone: it has an engine of its own.
        matcher = _new_matcher() if options.durable else self._matcher
        new = Registration(
            number, what, values, matcher, self._upstream, queue, options, self._remove
        )
        self._next_number += 1
        self._registered[number] = new
        return new

    def _remove(self, registration: Registration) -> None:
        registration.uninstall()
        del self._registered[registration.number]

    def end(self, error: PalioError | None = None) -> None:
        """End all: what waits is still delivered, and then an error if there is one."""
        for each in list(self._registered.values()):
            each.end(error)

    # --- events ---

    def match(self, batch: pa.RecordBatch) -> Matches:
        """What matches among stamped events, by the engine's keys."""
        return self._matcher.match(batch)

    def match_event(self, event: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """The keys of what an event matches, found without making a batch of it."""
        return self._matcher.match_event(event)

    def deliver(self, parcel: Parcel, mask: RowMask) -> None:
        """Queue some of the events that came for whoever wants them."""
        matches = _within(mask, self._matcher.match(parcel.batch))
        self.spurious += int(mask.sum()) - _rows_of(matches, len(parcel))
        self.queue(parcel.publisher, parcel.batch, matches)

    def deliver_event(self, parcel: Parcel) -> None:
        """Queue an event that came by itself for whoever wants it."""
        wanting = self._wanting(parcel)
        if not wanting:
            self.spurious += 1
        elif len(wanting) == 1:
            (only,) = wanting
            queued = _lone(only, parcel)
            if queued is not None:
                only.queue.offer(queued)
        else:
            _offer((each.queue, _lone(each, parcel)) for each in wanting)

    def _wanting(self, parcel: Parcel) -> list[Registration]:
        """The subscriptions that want an event that came by itself, but for durable ones."""
        event, registered = parcel.event, self._registered
        assert event is not None
        if len(registered) <= FEW_SUBSCRIPTIONS:
            return [
                each for each in registered.values() if not each.durable and each.concerns(event)
            ]
        keys = self.match_event(event)
        numbers: list[int] = np.unique(keys // MAX_PATTERN_STEPS).tolist()
        return [registered[each] for each in numbers]

    def deliver_durable(
        self, registration: Registration, parcel: Parcel, mask: RowMask, entry: int
    ) -> None:
        """Queue some of the events that came for a durable subscription, in an entry of its custody
        (0: in none). What it wants no longer is acknowledged.
        """
        numbers, receipts = parcel.numbers, registration.receipts
        if entry:
            if receipts.again(entry, parcel.publisher, numbers[mask]):
                return
            mask &= receipts.fresh(parcel.publisher, numbers)
        matches = _within(mask, registration.matcher.match(parcel.batch))
        wanted = _rows_of(matches, len(parcel))
        registration.spurious += int(mask.sum()) - wanted
        expected = None
        if entry:
            expected = receipts.expect(entry, parcel.publisher, numbers[mask], wanted)
        self.queue(parcel.publisher, parcel.batch, matches, expected)

    def queue(
        self, publisher: str, batch: pa.RecordBatch, matches: Matches, entry: Entry | None = None
    ) -> tuple[int, bool]:
        """Queue the stamped events of a batch that match: how many deliveries, and whether a queue
        fills up.
        """
        found = []
        for number, selected in _by_subscription(matches):
            registration = self._registered[number]
            if registration.sequences is None:
                kept, places = _kept(batch, selected)
                queued = QueuedEvents(registration, publisher, kept, places, entry=entry)
                found.append((registration.queue, queued))
            else:
                chosen = rows(batch, selected.tolist())
                composites = registration.assemble(chosen, publisher)
                if composites is not None:
                    found.append((registration.queue, composites))
        deliveries = 0
        for _, queued in found:
            deliveries += len(queued)
        _offer(found)
        return deliveries, any(queue.waiting * 2 > queue.capacity for queue, _ in found)


def _lone(registration: Registration, parcel: Parcel) -> QueuedEvents | None:
    if registration.sequences is None:
        return QueuedEvents.lone(registration, parcel)
    assert parcel.event is not None
    return registration.assemble([parcel.event], parcel.publisher)


def _offer(found: Iterable[tuple[DeliveryQueue, QueuedEvents | None]]) -> None:
    """Queue events; where subscriptions share a queue, one by one in the order of publication."""
    by_queue: dict[DeliveryQueue, list[QueuedEvents]] = {}
    for queue, queued in found:
        if queued is not None:
            by_queue.setdefault(queue, []).append(queued)
    for queue, own in by_queue.items():
        if len(own) > 1:
            singles = [single for queued in own for single in queued.singles()]
            own[:] = sorted(singles, key=lambda each: each.first_seq)
        for queued in own:
            queue.offer(queued)


def _by_subscription(matches: Matches) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Matches by the number of the subscription, with the rows that match, each once."""
    numbers = matches.keys // MAX_PATTERN_STEPS
    order = np.argsort(numbers, kind="stable")
    numbers, found = numbers[order], matches.rows[order]
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(bounds):
        if start < end:
            selected = found[start:end]
            if (np.diff(selected) <= 0).any():  # several steps of a pattern want the same event
                selected = np.unique(selected)
            yield int(numbers[start]), selected


def _kept(
    batch: pa.RecordBatch, selected: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows that a queue keeps: a copy where few match, so that it does not hold all others."""
    if not worth_copying(len(selected), batch.num_rows):
        return batch, selected
    return batch.take(selected), np.arange(len(selected))


def _within(mask: RowMask, matches: Matches) -> Matches:
    """The matches in some rows."""
    if mask.all():
        return matches
    keep = mask[matches.rows]
    return Matches(matches.rows[keep], matches.keys[keep])


def _rows_of(matches: Matches, count: int) -> int:
    """How many of `count` rows somebody wants."""
    wanted = np.zeros(count, np.bool_)
    wanted[matches.rows] = True
    return int(wanted.sum())
