"""`Deliveries`: the entries of one durable subscription that are with its consumers.

An entry is *sent* to one consumer, and *settled* when that consumer acknowledges it. A consumer
that rejects an entry, lets its deadline pass or leaves *returns* it: it is sent again once its
delay is over, before entries that were never sent. A subscription with one consumer is a group of
one. In an ordered group (`Policy.order_by`) an event is *held* while an earlier one of its key is
open.

```
C1  an event of an entry is with one consumer, returned, held, or settled
C2  the floor is below every open entry: an acknowledgement on the disk settles nothing else
C3  only the oldest entry of a consumer has a deadline, and counts an attempt if its consumer
    leaves: the others wait behind it, and perhaps nobody has begun with them
C4  a consumer is sent entries in order, except those that were returned or held
C5  an acknowledgement settles what its consumer was sent, and nobody has rejected since. Where an
    entry is delivered in parts (some of its events were rejected or acknowledged), it names events
C6  of the open events of one key the first is with a consumer or returned, and the others are held
```

Nothing of this is on the disk. After a restart all open entries count as never sent. The model is
`tests.models.deliveries`; `tests.node.test_deliveries_and_receipts` tries lists, with the clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

LEFT: Final = "its consumer left or was lost"
"""The reason of an attempt that ended with the session of its consumer."""

AT_ONCE: Final = 0.0
"""When entries without a delay are due: the same for all, so that they keep their order."""

NO_KEYS: Final[Mapping[int, Hashable]] = MappingProxyType({})
"""The keys of events that are in no order."""


class Policy(NamedTuple):
    """The options of a durable subscription that concern redelivery."""

    ack_timeout_s: float = 0.0
    """The deadline of an acknowledgement; 0 for none."""
    max_attempts: int = 0
    """Attempts until an event becomes a dead letter; 0 for any number."""
    is_group: bool = False
    """True if several sessions may take entries at a time."""
    order_by: str = ""
    """The attribute whose value is the key of an event; empty if events are in no order."""


class Flight:
    """An entry, or some events of it, that was sent and is not settled."""

    __slots__ = (
        "attempt",
        "consumer",
        "due",
        "had",
        "in_order",
        "is_part",
        "keys",
        "offset",
        "reason",
        "rejected",
        "seqs",
    )

    def __init__(
        self, offset: int, attempt: int = 1, keys: Mapping[int, Hashable] = NO_KEYS
    ) -> None:
        self.offset = offset
        self.attempt = attempt
        self.keys = keys
        """By the numbers of its events, their keys (C6)."""
        self.consumer: ConsumerState | None = None
        """None while it is returned or held."""
        self.due = inf
        """When it is sent again, while it is returned."""
        self.in_order = True
        """True if its consumer had nothing behind it: an acknowledgement up to an offset covers it
        (C4)."""
        self.seqs: frozenset[int] | None = None
        """The numbers of its events, if other events of the entry are apart; None for all."""
        self.is_part = False
        """True if they were apart already when it was sent."""
        self.had: set[ConsumerState] = set()
        """The consumers that it was sent to since it was last rejected (C5)."""
        self.rejected = False
        """True while no acknowledgement counts: it is held, or returned as its consumer rejected
        it."""
        self.reason = ""
        """Why its last attempt ended."""


class ConsumerState:
    """One session that takes entries of a durable subscription."""

    def __init__(self) -> None:
        self.flights: dict[Flight, None] = {}
        """The entries that it has, in the order in which they were sent."""
        self.in_flight = 0
        """The bytes of these that it has not buffered."""
        self.last = 0
        """The offset of the last entry that was sent in order."""
        self.since = 0.0
        """When its oldest entry became the oldest."""
        self.is_late = False
        """True if its last word was that a deadline was over."""
        self._sizes: dict[Flight, int] = {}

    def take(self, now: float, flight: Flight, size: int) -> None:
        """Add an entry."""
        if not self.flights:
            self.since = now
        flight.consumer, flight.in_order = self, flight.offset > self.last
        self.last = max(self.last, flight.offset)
        self.flights[flight] = None
        self._sizes[flight] = size
        self.in_flight += size

    def drop(self, now: float, flight: Flight) -> None:
        """Remove an entry."""
        if next(iter(self.flights)) is flight:
            self.since = now
        del self.flights[flight]
        self.in_flight -= self._sizes.pop(flight, 0)
        flight.consumer = None

    def held(self, upto: int) -> None:
        """Free the window of entries that it has buffered, up to an offset."""
        while self._sizes:
            flight = next(iter(self._sizes))
            if flight.offset > upto:
                break
            self.in_flight -= self._sizes.pop(flight)

    def covered(self, upto: int) -> Iterator[Flight]:
        """Yield the entries that an acknowledgement up to an offset covers (C4)."""
        for flight in self.flights:
            if flight.in_order:
                if flight.offset > upto:
                    break
                yield flight


class Deliveries:
    """The entries of one durable subscription that were sent and are open."""

    def __init__(self) -> None:
        self.policy = Policy()
        self.sent = 0
        """The offset up to which entries were sent, or settled without that."""
        self.consumers: dict[ConsumerState, None] = {}
        self._open: dict[int, list[Flight]] = {}
        """By offset, in order."""
        self._returned: list[tuple[float, int, int, Flight]] = []
        """A heap by time and offset. Some of its flights have been settled since."""
        self._passed: dict[Flight, None] = {}
        """Those that were returned and not rejected."""
        self._lines: dict[Hashable, deque[Flight]] = {}
        """By key, the held events behind its first open one, in order (C6)."""
        self.held = 0
        """The number of held events."""
        self._counter = count()

    # --- consumers ---

    def join(self, consumer: ConsumerState) -> None:
        """Add a consumer."""
        self.consumers[consumer] = None

    def leave(self, now: float, consumer: ConsumerState) -> list[Flight]:
        """Return the entries of a consumer to the subscription. The oldest counts an attempt (C3).
        The result are entries that had their last attempt.
        """
        del self.consumers[consumer]
        over: list[Flight] = []
        for place, flight in enumerate(list(consumer.flights)):
            if place:
                self._return(now, flight, AT_ONCE)
            else:
                over = self._fail(now, flight, AT_ONCE, LEFT)
        return over

    # --- sending ---

    def next_returned(self, now: float) -> Flight | None:
        """Return the first returned entry whose delay is over."""
        flight = self._first_returned()
        return flight if flight is not None and flight.due <= now else None

    def _first_returned(self) -> Flight | None:
        while self._returned:
            due, _, _, flight = self._returned[0]
            if flight.due == due:
                return flight
            heappop(self._returned)
        return None

    def begin(self, offset: int, keys: Mapping[int, Hashable] = NO_KEYS) -> Flight | None:
        """Take an entry that was never sent, in an ordered group with the numbers of its events and
        their keys (None for an event in no order). Return the events that may be sent, if any, and
        hold the others (C6).
        """
        assert offset > self.sent, f"C1: offset {offset} is sent for the first time twice"
        self.sent = offset
        first, held, own = Flight(offset), dict[int, Flight](), dict[int, Hashable]()
        for seq, key in keys.items():
            if key is None:
                continue
            if key not in self._lines:
                self._lines[key], own[seq] = deque(), key
                continue
            held[seq] = later = Flight(offset, keys={seq: key})
            later.seqs = frozenset({seq}) if len(keys) > 1 else None
            later.rejected = True
            self._lines[key].append(later)
        self.held += len(held)
        if own:
            first.keys = own
        if held:
            first.seqs = frozenset(keys.keys() - held)
        is_free = len(held) < len(keys) or not keys
        self._open[offset] = [first, *held.values()] if is_free else [*held.values()]
        return first if is_free else None

    def send(self, now: float, consumer: ConsumerState, flight: Flight, size: int) -> None:
        """Give a consumer what has begun or was returned."""
        assert flight.consumer is None, f"C1: offset {flight.offset} is with two consumers"
        flight.due, flight.rejected, flight.is_part = inf, False, flight.seqs is not None
        self._passed.pop(flight, None)
        if not flight.had:
            self._join_due(now, flight)
        flight.had.add(consumer)
        consumer.take(now, flight, size)

    def _join_due(self, now: float, flight: Flight) -> None:
        """Let events of the same entry that were held and are due travel with a flight: one round
        trip for an event of each key, and not for each event.
        """
        while flight.seqs and (other := self.next_returned(now)) is not None:
            if other.offset != flight.offset or other.had or other.attempt > 1:
                return
            assert other.seqs, "an entry is divided or not"
            flight.seqs |= other.seqs
            flight.keys = {**flight.keys, **other.keys}
            other.due = inf
            self._open[flight.offset].remove(other)

    # --- settling ---

    def acknowledge(
        self,
        now: float,
        consumer: ConsumerState,
        upto: int,
        others: Iterable[int] = (),
        seqs: Collection[int] = (),
    ) -> list[int]:
        """Settle the entries up to an offset that a consumer was sent in order, and `others` one by
        one: of these only the events `seqs`, if there are any. Return the offsets that are settled.
        """
        consumer.is_late = False
        covered = list(consumer.covered(upto))
        if not self.policy.is_group:  # its client may have had these, too, in an earlier session
            covered += [
                flight
                for flight in self._passed
                if flight.offset <= upto and flight.in_order and flight.seqs is None
            ]
            self.sent = max(self.sent, upto)
        settled = [flight.offset for flight in covered if self._settle(now, flight)]
        if all(flight.offset != upto for flight in covered):  # that one was sent again
            settled += self._settle_each(now, consumer, upto, ())
        for offset in others:
            settled += self._settle_each(now, consumer, offset, seqs)
        return settled

    def _settle_each(
        self, now: float, consumer: ConsumerState, offset: int, seqs: Collection[int]
    ) -> Iterator[int]:
        """Settle one entry, or some events of it; yield its offset if nothing of it is open. It
        counts for any consumer that has it now, as this one had it before (C5).
        """
        for flight in list(self._open.get(offset, ())):
            if flight.rejected or (flight.is_part and not seqs):
                continue
            # The client of a single consumer may have had a whole entry in an earlier session.
            is_whole = flight.seqs is None and not self.policy.is_group
            if consumer not in flight.had and not is_whole:
                continue
            left = flight.seqs.difference(seqs) if flight.seqs and seqs else frozenset()
            if left:
                flight.seqs = left
                self._free_keys(flight, left)
            elif self._settle(now, flight):
                yield offset

    def narrow(self, offset: int, numbers: Iterable[int]) -> None:
        """State the numbers of an entry's events, ahead of a call that concerns some of them."""
        for flight in self._open.get(offset, ()):
            if flight.seqs is None:
                flight.seqs = frozenset(numbers)

    def reject(
        self,
        now: float,
        consumer: ConsumerState,
        offset: int,
        seqs: Collection[int] = (),
        delay_s: float = 0.0,
        reason: str = "",
    ) -> list[Flight]:
        """Return an entry of a consumer, or only its events `seqs`, to be sent again after a delay.
        The result are entries that had their last attempt.
        """
        over: list[Flight] = []
        consumer.is_late = False
        for flight in list(self._open.get(offset, ())):
            if flight.rejected or flight.consumer not in (consumer, None):
                continue
            if flight.is_part and not seqs:
                continue
            part = self._part(flight, seqs)
            if part is None:
                continue
            part.rejected = True
            part.had = set()
            due = now + delay_s if delay_s else AT_ONCE
            if part.consumer is None:  # it was late: that attempt has counted
                self._passed.pop(part, None)
                self.retry(part, due)
            else:
                over += self._fail(now, part, due, reason)
        return over

    def _part(self, flight: Flight, seqs: Collection[int]) -> Flight | None:
        """Return a flight, or some of its events as a flight of their own; None if it has none."""
        if not flight.seqs or not seqs or flight.seqs.issubset(seqs):
            return flight
        some = flight.seqs.intersection(seqs)
        if not some:
            return None
        flight.seqs -= some
        part = Flight(flight.offset, flight.attempt, _keys_of(some, flight))
        flight.keys = _keys_of(flight.seqs, flight)
        part.seqs, part.consumer, part.is_part = some, flight.consumer, flight.is_part
        if part.consumer is not None:
            part.consumer.flights[part] = None
        self._open[flight.offset].append(part)
        return part

    def expire(self, now: float) -> list[Flight]:
        """Return the oldest entry of each consumer whose deadline is over (C3). The result are
        entries that had their last attempt.
        """
        timeout_s, over = self.policy.ack_timeout_s, list[Flight]()
        for consumer in self.consumers if timeout_s else ():
            if consumer.flights and consumer.since + timeout_s <= now:
                oldest = next(iter(consumer.flights))
                reason = f"not acknowledged within {timeout_s:g} s"
                over += self._fail(now, oldest, AT_ONCE, reason)
                consumer.is_late = True
                for flight in list(consumer.flights) if len(self.consumers) > 1 else ():
                    self._return(now, flight, AT_ONCE)  # the others need not wait for it
        return over

    def _fail(self, now: float, flight: Flight, due: float, reason: str) -> list[Flight]:
        """End an attempt."""
        flight.reason = reason
        if 0 < self.policy.max_attempts <= flight.attempt:
            flight.rejected = True
            self._return(now, flight, inf)
            return [flight]
        flight.attempt += 1
        self._return(now, flight, due)
        return []

    def _return(self, now: float, flight: Flight, due: float) -> None:
        if flight.consumer is not None:
            flight.consumer.drop(now, flight)
        if not flight.rejected:
            self._passed[flight] = None
        self.retry(flight, due)

    def retry(self, flight: Flight, due: float) -> None:
        """Send a returned entry at a time; inf for never, while it becomes a dead letter."""
        flight.due = due
        if due < inf:
            heappush(self._returned, (due, flight.offset, next(self._counter), flight))

    def forget(self, now: float, flight: Flight) -> bool:
        """Settle an entry that is a dead letter, or in its queue no longer. Return whether its
        offset is settled.
        """
        return self._settle(now, flight)

    def _settle(self, now: float, flight: Flight) -> bool:
        """Close a flight; return whether its offset is settled."""
        if flight.consumer is not None:
            flight.consumer.drop(now, flight)
        flight.due = inf
        self._passed.pop(flight, None)
        self._free_keys(flight, ())
        flights = self._open[flight.offset]
        flights.remove(flight)
        if not flights:
            del self._open[flight.offset]
        return not flights

    def _free_keys(self, flight: Flight, left: Collection[int]) -> None:
        """Free the keys of events that are settled, all but those `left`: the next event of each
        key is due.
        """
        for seq, key in flight.keys.items():
            if seq in left:
                continue
            if self._lines[key]:
                self.held -= 1
                self.retry(self._lines[key].popleft(), AT_ONCE)
            else:
                del self._lines[key]
        flight.keys = _keys_of(left, flight)

    # --- its state ---

    @property
    def floor(self) -> int:
        """The offset up to which all is settled (C2)."""
        first = next(iter(self._open), None)
        return self.sent if first is None else first - 1

    def is_last(self, flight: Flight) -> bool:
        """Return whether nothing else of an entry is open."""
        return self._open.get(flight.offset) == [flight]

    def is_open(self, offset: int) -> bool:
        """Return whether some event of an entry is not settled."""
        return offset > self.sent or offset in self._open

    def wake_at(self, now: float) -> float:
        """Return when the next deadline or delay is over; what is due by now waits for room."""
        returned, timeout_s = self._first_returned(), self.policy.ack_timeout_s
        due = inf if returned is None or returned.due <= now else returned.due
        if timeout_s:
            since = [each.since for each in self.consumers if each.flights]
            due = min(due, min(since, default=inf) + timeout_s)
        return due


def _keys_of(seqs: Collection[int], flight: Flight) -> Mapping[int, Hashable]:
    """Return the keys of some events of a flight."""
    if not flight.keys:
        return NO_KEYS
    return {seq: key for seq, key in flight.keys.items() if seq in seqs}
