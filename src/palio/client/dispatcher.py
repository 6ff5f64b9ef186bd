"""`Dispatcher`: finds the subscriptions of one client or bus that match an event, and queues it.

It has the engine and the subscriptions by number, and uses neither brokers nor loops. Its owner
passes the events: a bus those published to it, a client's upstream those that the broker delivers.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from palio.client.arrivals import Arrival
from palio.client.assembling import Assembling
from palio.client.bookmarks import NO_NUMBERS
from palio.client.delivery_queue import DeliveryQueue, Queued, QueuedEvent, QueuedEvents
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.upstream import Upstream
from palio.engine import is_installed, np, npt
from palio.errors import PalioError
from palio.matching.protocol import Matcher, Matches
from palio.model.filters import Filter
from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.parcels import Parcel, worth_copying
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.receipts import Entry

FEW_SUBSCRIPTIONS: Final = 8
"""Subscriptions up to which each is tested by itself: the engine has a higher fixed cost."""

FEW_EVENTS: Final = 8
"""Events up to which each is matched by itself, 10 to 25 us: a batch has a fixed cost of 130 us."""

Places: TypeAlias = Sequence[int]
"""Rows of a delivery."""

FIRST_ROW: Final = range(1)
"""The row of a single event."""

_FIRST: Final = [0]


def _new_matcher() -> Matcher:
    """An engine that compiles and merges beside the loop; a program may end before it has. Without
    `palio[engine]` each filter is evaluated by itself.
    """
    if not is_installed():
        from palio.matching.reference import Reference

        return Reference()
    from palio.matching.index import Index

    return Index(submit=_in_thread)


def _in_thread(job: Callable[[], Any]) -> None:
    threading.Thread(target=job, name="palio-engine", daemon=True).start()


class Recipients(NamedTuple):
    """Some of the events that came together, by who wants them."""

    arrival: Arrival
    by_subscription: list[tuple[Registration, Places]]
    events: int
    """How many events any subscription wants."""


class Dispatcher:
    """The subscriptions of one place, and the engine over them."""

    def __init__(self, upstream: Upstream, matcher: Matcher | None) -> None:
        self.spurious = 0
        """Events that came and were for no subscription any longer."""
        self._upstream = upstream
        self._given_matcher = matcher
        self._registered: dict[int, Registration] = {}
        self._on_end: Final = self._remove
        """One object for all: the garbage collector visits each."""
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._registered)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registered.values())

    @cached_property
    def _matcher(self) -> Matcher:
        """The engine of all subscriptions but durable ones; who only publishes loads none."""
        return _new_matcher() if self._given_matcher is None else self._given_matcher

    def get(self, number: int) -> Registration | None:
        """The subscription of a number, if there is one."""
        return self._registered.get(number)

    def register(
        self,
        filter: Filter | Pattern,
        values: Bindings,
        queue: DeliveryQueue,
        options: SubscriptionOptions,
    ) -> Registration:
        """Register a subscription: matching events are queued from now on."""
        number = self._next_number
        # A durable subscription receives its own deliveries, so it has an engine of its own.
        matcher = _new_matcher() if options.durable.name else self._matcher
        new = Registration(
            number, filter, values, matcher, self._upstream, queue, options, self._on_end
        )
        self._next_number += 1
        self._registered[number] = new
        return new

    def _remove(self, registration: Registration) -> None:
        registration.uninstall()
        del self._registered[registration.number]

    def end(self, error: PalioError | None = None) -> None:
        """End all subscriptions: their backlog is still delivered, then the error, if any."""
        for registration in list(self._registered.values()):
            registration.end(error)

    # --- events ---

    def match_event(self, event: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Return the keys that a single event matches, without making a batch of it."""
        return self._matcher.match_event(event)

    def deliver(self, parcel: Parcel, places: Places) -> None:
        """Queue some events of a delivery for the subscriptions that match."""
        wanted = self.wanted(Arrival(parcel), places)
        self.spurious += len(places) - wanted.events
        self.queue(wanted)

    def deliver_named(
        self, parcel: Parcel, numbers: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        """Queue a single event for the subscriptions that the broker lists. Subscriptions with
        unconfirmed changes are matched here.
        """
        registered = self._registered
        wanting = [
            registered[number]
            for number in numbers
            if number in registered and number not in unconfirmed
        ]
        if unconfirmed:
            event = parcel.rows[0]
            changed = [registered[number] for number in unconfirmed if number in registered]
            wanting += [
                registration
                for registration in changed
                if not registration.durable and registration.concerns(event)
            ]
        if not wanting:
            self.spurious += 1
            return
        if len(wanting) > 1:
            wanting.sort(key=_number)  # subscriptions that share a queue receive in this order
        publisher, shape, row = parcel.publisher, parcel.shape, parcel.rows[0]
        for registration in wanting:
            if registration.assembling is None:
                registration.queue.offer(QueuedEvent(registration, publisher, shape, row))
            else:
                complete = registration.assembling.push([row], publisher)
                if complete is not None:
                    registration.queue.offer(complete)

    def wanted(self, arrival: Arrival, places: Places) -> Recipients:
        """Match events with all subscriptions but durable ones."""
        if len(arrival) > FEW_EVENTS and not arrival.is_decoded:
            matches = self._matcher.match(arrival.batch)
            return self._by_number(arrival, _within(places, len(arrival), matches))
        indices: dict[Registration, list[int]] = {}
        events = 0
        for place in places:
            wanting = self._wanting(arrival.rows[place])
            events += bool(wanting)
            for recipient in wanting:
                indices.setdefault(recipient, []).append(place)
        ordered = sorted(
            indices.items(), key=_number_of
        )  # subscriptions that share a queue receive in this order
        return Recipients(
            arrival, [(registration, _places(of)) for registration, of in ordered], events
        )

    def _wanting(self, event: Mapping[str, Any]) -> list[Registration]:
        """The subscriptions that want an event, but for durable ones."""
        registered = self._registered
        if len(registered) <= FEW_SUBSCRIPTIONS or not is_installed():
            return [
                registration
                for registration in registered.values()
                if not registration.durable and registration.concerns(event)
            ]
        keys: list[int] = self.match_event(event).tolist()
        numbers = dict.fromkeys([key // MAX_PATTERN_STEPS for key in keys])
        return [registered[number] for number in numbers]

    def _wanted_by(
        self, registration: Registration, arrival: Arrival, places: Places
    ) -> Recipients:
        """Match events with one durable subscription."""
        if len(arrival) > FEW_EVENTS and not arrival.is_decoded:
            matches = registration.matcher.match(arrival.batch)
            return self._by_number(arrival, _within(places, len(arrival), matches))
        rows = arrival.rows
        wanted = [place for place in places if registration.concerns(rows[place])]
        offers = [(registration, _places(wanted))] if wanted else []
        return Recipients(arrival, offers, len(wanted))

    def _by_number(self, arrival: Arrival, matches: Matches) -> Recipients:
        """Matches by subscription."""
        registered = self._registered
        offers = [(registered[number], places) for number, places in _by_subscription(matches)]
        return Recipients(arrival, offers, _rows_of(matches, len(arrival)))

    def deliver_durable(
        self,
        registration: Registration,
        parcel: Parcel,
        places: Places,
        entry: int,
        attempt: int = 1,
        *,
        is_part: bool = False,
    ) -> None:
        """Queue some of the events that came for a durable subscription, in an entry of its queue
        (0: in none). What it wants no longer is acknowledged; an entry without events once the
        gap before it was reported.
        """
        if entry and not len(parcel):
            registration.queue.after_gaps(_lost(registration, entry, parcel.publisher))
            return
        if registration.assembling is not None:
            self._deliver_to_pattern(registration.assembling, registration, parcel, places, entry)
            return
        receipts = registration.receipts
        came: Entry | None = None
        if entry:
            numbers = parcel.seqs
            seqs = [numbers[place] for place in places]
            came = receipts.came(entry, parcel.publisher, seqs, attempt, is_part=is_part)
            places = list(compress(places, came.fresh))
        wanted = self._wanted_by(registration, Arrival(parcel), places)
        registration.spurious += len(places) - wanted.events
        if came is not None:
            receipts.expect(came, wanted.events)
        self.queue(wanted, came)

    def _deliver_to_pattern(
        self,
        assembling: Assembling,
        registration: Registration,
        parcel: Parcel,
        places: Places,
        entry: int,
    ) -> None:
        """Deliver to a durable pattern, whose own receipts detect duplicates."""
        arrival = Arrival(parcel)
        wanted = self._wanted_by(registration, arrival, places)
        registration.spurious += len(places) - wanted.events
        rows = [row for _, some in wanted.by_subscription for row in arrival.rows_at(some)]
        assembling.take_in(rows, parcel.publisher, entry, parcel.nbytes)

    def queue(self, wanted: Recipients, entry: Entry | None = None) -> tuple[int, bool]:
        """Queue events for their recipients; return the number of deliveries, and True if a queue
        is filling up.
        """
        arrival, by_subscription, _ = wanted
        count = len(arrival)
        arrival.share(sum([worth_copying(len(places), count) for _, places in by_subscription]))
        offers = []
        for registration, places in by_subscription:
            if registration.assembling is None:
                queued: Queued | None = _queued(registration, arrival, places, entry)
            else:
                queued = registration.assembling.push(arrival.rows_at(places), arrival.publisher)
            if queued is not None:
                offers.append((registration.queue, queued))
        return _offer(offers), any(queue.waiting * 2 > queue.queue_size for queue, _ in offers)


def _lost(registration: Registration, entry: int, publisher: str) -> Callable[[], None]:
    """An entry of a queue came without events: call the result once the gap for it was reported,
    which acknowledges it.
    """
    assembling, receipts = registration.assembling, registration.receipts
    if assembling is not None and assembling.receipts is not None:
        return assembling.receipts.receive_gap(entry)
    return receipts.make(receipts.expect(receipts.came(entry, publisher, NO_NUMBERS), 1)).give


def _queued(
    registration: Registration, arrival: Arrival, places: Places, entry: Entry | None
) -> Queued:
    """Events as a queue keeps them: by themselves where they are few of those that came."""
    if entry is None and len(places) == 1 and arrival.is_decoded:
        row = arrival.rows[places[0]]
        return QueuedEvent(registration, arrival.publisher, arrival.shape, row)
    few = arrival.picked(places)
    if few is None:
        return QueuedEvents(registration, arrival, places, entry)
    return QueuedEvents(registration, few, _all(len(places)), entry)


def _number(registration: Registration) -> int:
    """By which subscriptions are ordered."""
    return registration.number


def _number_of(wanted: tuple[Registration, list[int]]) -> int:
    return wanted[0].number


def _all(count: int) -> Places:
    """All rows of an arrival."""
    return FIRST_ROW if count == 1 else range(count)


def _places(listed: list[int]) -> Places:
    """Rows of an arrival; those of single events are shared."""
    return FIRST_ROW if listed == _FIRST else listed


def _offer(offers: Sequence[tuple[DeliveryQueue, Queued]]) -> int:
    """Queue events, where subscriptions share a queue one by one in the order of publication; how
    many were taken.
    """
    if len(offers) == 1:
        ((queue, queued),) = offers
        return queue.offer(queued)
    taken = 0
    by_queue: dict[DeliveryQueue, list[Queued]] = {}
    for queue, queued in offers:
        by_queue.setdefault(queue, []).append(queued)
    for queue, own in by_queue.items():
        if len(own) > 1:
            singles = [single for queued in own for single in queued.singles()]
            own[:] = sorted(singles, key=lambda single: single.first_seq)
        taken += sum([queue.offer(queued) for queued in own])
    return taken


def _by_subscription(matches: Matches) -> Iterator[tuple[int, Places]]:
    """Matches by the number of the subscription, with the rows that match, each once."""
    numbers = matches.keys // MAX_PATTERN_STEPS
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], matches.rows[order]
    begins = numbers[1:] != numbers[:-1]
    is_again = ~begins & (rows[1:] <= rows[:-1])
    is_any_again = bool(is_again.any())  # several steps of a pattern want one event
    bounds = [0, *(np.flatnonzero(begins) + 1).tolist(), len(numbers)]
    for start, end in pairwise(bounds):
        if start < end:
            selected = rows[start:end]
            if is_any_again and is_again[start : end - 1].any():
                selected = np.unique(selected)
            yield int(numbers[start]), array("q", selected.tobytes())


def _within(places: Places, count: int, matches: Matches) -> Matches:
    """Restrict the matches of so many rows to some of them."""
    if len(places) == count:
        return matches
    mask = np.zeros(count, np.bool_)
    mask[places] = True
    keep = mask[matches.rows]
    return Matches(matches.rows[keep], matches.keys[keep])


def _rows_of(matches: Matches, count: int) -> int:
    """Count the rows that any subscription matches."""
    wanted = np.zeros(count, np.bool_)
    wanted[matches.rows] = True
    return int(wanted.sum())
