"""`Consumers`: sends the entries of durable subscriptions to their owners' sessions, and takes what
becomes of them.

`Deliveries` decides which entry is sent next; this module knows sessions, queues and the disk.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final

import msgspec
import numpy as np

from palio.errors import SubscriptionEnded
from palio.model.masks import unpack_mask
from palio.node.authority import receivable
from palio.node.core import Callbacks, Core
from palio.node.dead_letters import dead_letter, letters_of
from palio.node.deliveries import AT_ONCE, NO_KEYS, Flight
from palio.node.durability import packed
from palio.node.limits import BLOCKED_S, GROUP_PREFETCH, MAX_HELD_EVENTS
from palio.node.loss_markers import LossMarker
from palio.node.operations import Delivery
from palio.node.sessions import Durable, Session, SessionConsumer
from palio.protocol.failures import failure
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Acknowledge, Blocked, Deliver, Ended, Nack, Parcel

BURY_AGAIN_S: Final = 1.0
"""The time until an event is tried again whose dead letter the disk refused: that of the disk."""


class Consumers:
    """The sessions that take the entries of the durable subscriptions that live at one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._alarms: list[tuple[float, int, Durable]] = []
        """A heap by time: when deadlines and delays of a durable subscription may be over."""
        self._counter = count()
        self.dead_letters = 0
        """Events that became dead letters."""
        self.redelivered = 0
        """Entries that were sent again."""

    # --- who is there ---

    def attach(self, durable: Durable, session: Session, key: int) -> None:
        """Let a session take the entries of a durable subscription, under a key of it."""
        core, consumer = self._core, SessionConsumer(session, key)
        durable.consumers[session] = consumer
        durable.deliveries.join(consumer)
        session.durables[key] = durable
        if durable.is_blocked:
            session.send(core.out, Blocked(key, is_blocked=True))
        if len(durable.consumers) == 1:
            core.by_peer[durable.peer] = (session, key)
            core.route(core.router.attach(durable.peer))

    def evict(self, durable: Durable) -> None:
        """Detach a durable subscription that has moved or ended, and notify its sessions here."""
        problem = (
            f"{durable.subject} was taken over by another session, or ended there; subscribe "
            "again to take it back"
        )
        for session, consumer in list(durable.consumers.items()):
            ended = Ended((consumer.key,), failure(SubscriptionEnded(problem)))
            session.send(self._core.out, ended)
            self.release(durable, session)

    def release(self, durable: Durable, session: Session) -> None:
        """Detach a session from a durable subscription, and return what it has. Without a session
        the subscription only collects events.
        """
        core, consumer = self._core, durable.consumers.pop(session, None)
        if consumer is None:
            return
        over = durable.deliveries.leave(core.at.now, consumer)
        session.let_go(consumer.key)
        session.durables.pop(consumer.key, None)
        session.stalled.pop(durable, None)
        self._bury(durable, over)
        if durable.consumers:  # one of them gets live events from now on
            other, heir = next(iter(durable.consumers.items()))
            core.by_peer[durable.peer] = (other, heir.key)
            self.pump(durable)
            return
        durable.stuck_at, durable.is_blocked = inf, False
        durable.disconnected_at = core.at.now
        del core.by_peer[durable.peer]
        core.route(core.router.detach(durable.peer))

    # --- sending ---

    def pump(self, durable: Durable) -> None:
        """Send the backlog of a durable subscription, as far as windows allow."""
        events, now = self._core.durability.events, self._core.at.now
        deliveries = durable.deliveries
        # Until its claim is stored, the backlog may belong to an earlier one of the same name.
        while durable.claim is not None and (consumer := _free_consumer(durable)) is not None:
            flight = deliveries.next_returned(now)
            if flight is None and deliveries.held >= MAX_HELD_EVENTS:
                break
            after = deliveries.sent if flight is None else flight.offset - 1
            delivery = events.delivery(durable.subject, after)
            if flight is None:
                if delivery is None:
                    break
                keys = _keys(delivery, deliveries.policy.order_by)
                flight = deliveries.begin(delivery.offset, keys)
                if flight is None:
                    continue  # all its events are held
            if delivery is None or delivery.offset != flight.offset:
                deliveries.forget(now, flight)  # its entry has left the queue
            else:
                self._send(durable, consumer, delivery, flight)
        self._note_progress(durable)
        self._set_alarm(durable)

    def _note_progress(self, durable: Durable) -> None:
        """Report a backlog that waits for acks for long, and its end."""
        core, now = self._core, self._core.at.now
        if not self._is_stuck(durable):
            durable.stuck_at = inf
        elif durable.stuck_at == inf:
            durable.stuck_at = now
        is_blocked = durable.stuck_at + BLOCKED_S <= now
        if is_blocked == durable.is_blocked:
            return
        durable.is_blocked = is_blocked
        for session, consumer in durable.consumers.items():
            session.send(core.out, Blocked(consumer.key, is_blocked))
        if is_blocked:
            level = "debug" if durable.was_blocked else "warning"
            durable.was_blocked = True
            core.report(
                level,
                "delivery_blocked",
                subscription=durable.subject,
                waiting=len(core.durability.events.backlog(durable.subject)),
                consumers=len(durable.consumers),
            )

    def _is_stuck(self, durable: Durable) -> bool:
        """Return whether an entry waits, and no ack has made room for it."""
        deliveries = durable.deliveries
        if durable.claim is None or not durable.consumers:
            return False
        has_returned = deliveries.next_returned(self._core.at.now) is not None
        is_full = all(not _has_window(durable, consumer) for consumer in durable.consumers.values())
        if not is_full and (has_returned or deliveries.held < MAX_HELD_EVENTS):
            return False
        backlog = self._core.durability.events.backlog(durable.subject)
        return has_returned or backlog.next(deliveries.sent) is not None

    def _send(
        self, durable: Durable, consumer: SessionConsumer, delivery: Delivery, flight: Flight
    ) -> None:
        core, session, offset = self._core, consumer.session, delivery.offset
        self.redelivered += bool(flight.had) or flight.attempt > 1
        durable.stuck_at = inf
        durable.deliveries.send(core.at.now, consumer, flight, delivery.parcel.held_bytes)
        if len(durable.consumers) > 1:  # now it is the turn of the others
            durable.consumers[session] = durable.consumers.pop(session)
        if delivery.is_damaged:
            core.report_damage(delivery.entry, subscription=durable.subject)
        marker = LossMarker.of(delivery.parcel)
        if marker is not None:
            for message in marker.delivery_for(consumer.key, offset):
                session.send(core.out, message)
            return
        parcel, rows = delivery.parcel, delivery.rows
        if flight.seqs is not None:
            parcel, rows = _selected(delivery, flight), None
        deliver = Deliver(
            parcel, rows, consumer.key, offset, attempt=flight.attempt, part=flight.is_part
        )
        session.send(core.out, _permitted(session, deliver))

    # --- what becomes of it ---

    def acknowledge(self, session: Session, request: Acknowledge) -> None:
        """Settle entries, and send more."""
        durable = session.durables.get(request.key)
        if durable is None:
            return  # it was unsubscribed or moved meanwhile
        core, deliveries, durability = self._core, durable.deliveries, self._core.durability
        subject, bookmark, now = durable.subject, request.bookmark, core.at.now
        consumer, upto, others = durable.consumers[session], request.entry, request.others
        if not durability.events.was_assigned(max(upto, *others, 0)):
            core.warn("ack_rejected", subject, 1, reason="ack of what was never assigned")
            return
        if request.seqs:
            self._narrow(durable, others)
        settled = deliveries.acknowledge(now, consumer, upto, others, request.seqs)
        if bookmark and not durability.bookmarks.keep(subject, bookmark):
            core.warn("bookmark_rejected", session.principal.name, 1, subscription=subject)
        elif settled or bookmark or upto:
            floor = deliveries.floor
            above = tuple(offset for offset in settled if offset > floor)
            core.perform(durability.events.acknowledge(now, subject, floor, above, bookmark))
        consumer.held(request.held)
        self.pump(durable)

    def reject(self, session: Session, request: Nack) -> None:
        """Return an entry, or some of its events, to be sent again."""
        durable = session.durables.get(request.key)
        if durable is None:
            return
        if request.seqs:
            self._narrow(durable, (request.entry,))
        over = durable.deliveries.reject(
            self._core.at.now,
            durable.consumers[session],
            request.entry,
            request.seqs,
            request.delay_s,
            request.reason,
        )
        self._bury(durable, over)
        self.pump(durable)

    # --- dead letters ---

    def _bury(self, durable: Durable, over: list[Flight]) -> None:
        """Make dead letters of entries that had their last attempt."""
        core, deliveries = self._core, durable.deliveries
        events, now = core.durability.events, core.at.now
        for flight in over:
            delivery = events.delivery(durable.subject, flight.offset - 1)
            if delivery is None or delivery.offset != flight.offset:
                deliveries.forget(now, flight)  # its entry has left the queue
            elif LossMarker.of(delivery.parcel) is not None:
                deliveries.retry(flight, AT_ONCE)  # a gap is reported until it is acknowledged
            else:
                self._bury_events(durable, flight, delivery)

    def _bury_events(self, durable: Durable, flight: Flight, delivery: Delivery) -> None:
        core, at, subject = self._core, self._core.at, durable.subject
        events = core.durability.events
        parcel = _selected(delivery, flight)
        core.report(
            "warning",
            "dead_letter",
            subscription=subject,
            publisher=parcel.publisher,
            first_seq=parcel.seqs[0],
            last_seq=parcel.seqs[-1],
            attempts=flight.attempt,
            reason=flight.reason,
        )
        first = events.log.offsets(len(parcel))
        publisher = letters_of(core.name, events.streams.log_number)
        letter = dead_letter(parcel, subject, flight.reason, flight.attempt)
        letter = letter.stamped(publisher, first, at.wall_us)
        letter, shares = packed(letter, core.durability.wanted_letters(letter, subject))
        entry = flight.offset if durable.deliveries.is_last(flight) else 0
        callbacks = Callbacks(
            partial(self._buried, durable, flight, entry),
            partial(self._not_buried, durable, flight),
        )
        self.dead_letters += len(parcel)
        core.perform(events.bury(at.now, at.wall_us, subject, entry, letter, shares, callbacks))

    def _buried(self, durable: Durable, flight: Flight, acknowledged: int) -> None:
        """Settle the entry; the append of its letter has not, if other events were open then."""
        core, deliveries = self._core, durable.deliveries
        now, subject = core.at.now, durable.subject
        if deliveries.forget(now, flight) and not acknowledged:
            above = (flight.offset,) if flight.offset > deliveries.floor else ()
            core.perform(
                core.durability.events.acknowledge(now, subject, deliveries.floor, above, b"")
            )
        self.pump(durable)  # the next events of its keys are due

    def _not_buried(self, durable: Durable, flight: Flight, _reason: str) -> None:
        """Try the entry once more, as the disk refused its letter."""
        durable.deliveries.retry(flight, self._core.at.now + BURY_AGAIN_S)
        self._set_alarm(durable)

    def _narrow(self, durable: Durable, offsets: tuple[int, ...]) -> None:
        """Find the numbers of the events of entries of which a request concerns a part."""
        for offset in offsets:
            delivery = self._core.durability.events.delivery(durable.subject, offset - 1)
            if delivery is not None and delivery.offset == offset:
                parcel = delivery.parcel
                mask = unpack_mask(delivery.rows, len(parcel))
                durable.deliveries.narrow(offset, parcel.numbers[mask].tolist())

    # --- time ---

    def _set_alarm(self, durable: Durable) -> None:
        at = durable.deliveries.wake_at(self._core.at.now)
        if not durable.is_blocked:
            at = min(at, durable.stuck_at + BLOCKED_S)
        if at < durable.alarm_at:
            durable.alarm_at = at
            heappush(self._alarms, (at, next(self._counter), durable))

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return self._alarms[0][0] if self._alarms else inf

    def tick(self) -> bool:
        """Return entries whose deadline is over, and send those whose delay is; return whether
        anything was due.
        """
        now, due = self._core.at.now, list[Durable]()
        while self._alarms and self._alarms[0][0] <= now:
            _, _, durable = heappop(self._alarms)
            durable.alarm_at = inf
            due.append(durable)
        for durable in due:
            self._bury(durable, durable.deliveries.expire(now))
            self.pump(durable)
        return bool(due)


def _keys(delivery: Delivery, order_by: str) -> Mapping[int, Hashable]:
    """Return the numbers of an entry's events with the values of an attribute, None for none."""
    if not order_by or LossMarker.of(delivery.parcel) is not None:
        return NO_KEYS
    seqs, events = delivery.parcel.seqs, delivery.parcel.rows
    rows = np.flatnonzero(unpack_mask(delivery.rows, len(seqs))).tolist()
    return {seqs[row]: events[row].get(order_by) for row in rows}


def _selected(delivery: Delivery, flight: Flight) -> Parcel:
    """Return the events of an entry that a flight has."""
    parcel, seqs = delivery.parcel, flight.seqs
    mask = unpack_mask(delivery.rows, len(parcel))
    if seqs is not None:
        mask = mask & np.array([seq in seqs for seq in parcel.seqs], np.bool_)
    return parcel.select(mask)


def _free_consumer(durable: Durable) -> SessionConsumer | None:
    """Return the consumer that gets the next entry: of those with room the one with the fewest, of
    these the one whose turn it is; a late one only if there is no other.
    """
    free = []
    for session, consumer in durable.consumers.items():
        if session.link is None or not session.has_room:
            session.stalled[durable] = None  # it continues once the session has room
        elif _has_window(durable, consumer):
            free.append(consumer)  # else its next acknowledgement resumes it
    return min(free, key=_load, default=None)


def _has_window(durable: Durable, consumer: SessionConsumer) -> bool:
    """Return whether a consumer may be sent more before it acknowledges."""
    most = 1 if consumer.is_late else GROUP_PREFETCH
    is_group = durable.deliveries.policy.is_group
    return consumer.in_flight < WINDOW_BYTES and (not is_group or len(consumer.flights) < most)


def _load(consumer: SessionConsumer) -> tuple[bool, int]:
    return consumer.is_late, len(consumer.flights)


def _permitted(session: Session, delivery: Deliver) -> Deliver:
    """Return a delivery without rows that the grant denies by now: rows of the backlog may have
    been matched under a wider grant.
    """
    if session.principal.may_receive_all:
        return delivery
    parcel = delivery.parcel
    mask = unpack_mask(delivery.rows, len(parcel)) & receivable(session.principal, parcel)
    return msgspec.structs.replace(delivery, parcel=parcel.select(mask), rows=None)
