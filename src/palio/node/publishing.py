"""Admit the publications of clients, and route live and durable events.

All events go to clients and neighbours at once. Durable ones are also stored in the log, from which
durable subscriptions get them. Each event is accepted or refused; one lost later is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Final

from palio.errors import (
    IllegalMessage,
    InvalidEvent,
    NotAdvertised,
    NotPermitted,
    NotStored,
    PalioError,
)
from palio.matching.protocol import RowMask
from palio.model.events import DEDUP_ID, check_times, conform, refuse_system_names
from palio.model.limits import check_limit
from palio.model.masks import pack_mask, unpack_mask
from palio.model.parcels import runs, worth_copying
from palio.model.shapes import Shape
from palio.node.authority import NO_LIMITS, publishable, receivable
from palio.node.carrying import Carrying
from palio.node.core import Callbacks, Core
from palio.node.durability import NO_DISK, packed
from palio.node.durable import PendingHomes
from palio.node.latest import LATEST_PEER, LatestValues
from palio.node.limits import MAX_PENDING_RECEIPTS, TIME_AHEAD_US, TIME_KEPT_S
from palio.node.multicasting import Multicasting
from palio.node.name_validation import check_names
from palio.node.operations import PutTime
from palio.node.publish_barrier import PublishBarrier
from palio.node.reroutes import Reroutes
from palio.node.sessions import STORED, Neighbour, PeerSession, PendingReceipt, Session
from palio.node.streams import UNREAD
from palio.protocol.batches import check_size, check_texts
from palio.protocol.failures import failure
from palio.protocol.legal_parcels import check_numbered
from palio.protocol.limits import MAX_SHAPES
from palio.protocol.messages import (
    LEVELS,
    Accepted,
    Deliver,
    Forward,
    Parcel,
    Publish,
    Refused,
    StoredAt,
)
from palio.protocol.published_ids import PublishedIds
from palio.routing.messages import Batch
from palio.routing.protocol import Destined, Peer, matched_keys

_NO_DESTINATIONS: Final = Destined({}, {})


class Publishing:
    """The path of events through one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.times = Times(core)
        self.latest = LatestValues(core.settings.latest_by)
        self.publish_barrier = PublishBarrier(core, self._release_held)
        self.reroutes = Reroutes(core, self._release_held)
        self.multicasting = Multicasting(core, self._receive_addressed)
        self.carrying = Carrying(core)
        self._follows_sources = core.router.follows_sources
        self._is_advertised = core.router.takes_advertisements
        self._next_ticket = 0
        self._checked_shapes: set[Shape] = set()
        self._ids = PublishedIds()
        self.published = 0
        """Events that clients published here."""
        self.routed = 0
        """Events routed, from clients and neighbours."""
        self.delivered = 0
        """Events sent to sessions."""

    def begin(self) -> None:
        """Begin with what the disk and the settings say."""
        self.times.begin()
        self.multicasting.begin()
        core = self._core
        if core.settings.latest_by:
            core.route(core.router.attach(LATEST_PEER))
            core.route(core.router.receive(LATEST_PEER, Batch((self.latest.request,))))

    # --- from clients ---

    def publish(self, session: Session, message: Publish) -> None:
        """Accept or refuse the publication of a client."""
        if self.admits(session, message):
            self.accept(session, message)

    def admits(self, session: Session, message: Publish) -> bool:
        """Return whether a publication is within limits and readable; otherwise refuse it.

        Called once a message, also for one that arrives in parts.
        """
        if message.first_seq <= session.last_seq:
            raise IllegalMessage(session.peer, f"number {message.first_seq} was published before")
        session.last_seq = message.first_seq + message.parcel.count - 1
        try:
            if session.principal.limits is not NO_LIMITS:
                self._spend(session, message.parcel)
            self._check(message.parcel)
            if message.durable == "home":
                count = len(session.pending_receipts["home"]) + 1
                quantity = "the publications of a session that wait for their homes"
                check_limit(quantity, "MAX_PENDING_RECEIPTS", MAX_PENDING_RECEIPTS, count)
        except Exception as error:  # noqa: BLE001  # events are refused for our own faults, too
            self._refuse(session, message, error)
            return False
        return True

    def accept(self, session: Session, message: Publish) -> None:
        """Route and store events of an admitted publication, or of a part of one. Refuse single
        events that the client may not publish.

        All steps that may fail come before anything is sent or written. So an event that an engine
        fails on is refused, and never half accepted.
        """
        core, given = self._core, message.parcel
        last = message.first_seq + given.count - 1
        refused: list[Refused] = []
        matches: Mapping[str, RowMask] = {}
        ids: list[bytes | None] = []
        try:
            if session.stream.rows_begun:  # a part, perhaps not of the admitted message
                self._check(given)
            parcel = given.stamped(session.publisher, message.first_seq, self.times.next_us())
            if not session.principal.publishes_all:
                parcel = _only_permitted(session, parcel, refused)
            endpoint = session.endpoint or core.publisher_endpoints.of(session)
            if self._is_advertised and parcel.count:
                advertised = core.router.announced(endpoint, parcel)
                if advertised is not None:
                    parcel = _only_advertised(session, parcel, advertised, refused)
            if DEDUP_ID in parcel.shape.names and not self._is_retransmit(message, parcel):
                ids = self._ids.keys(session.owner, parcel.batch.column(DEDUP_ID).to_pylist())
                is_new = self._ids.first_time(ids)
                ids = list(compress(ids, is_new))
                parcel = parcel.take(list(compress(range(len(parcel)), is_new)))
            if message.durable and core.durability.events.is_ready:
                matches = self._durable_matches(parcel)
            is_held = self._must_wait(endpoint)
            to = _NO_DESTINATIONS if is_held else self._destinations(endpoint, parcel)
        except Exception as error:  # noqa: BLE001  # likewise
            self._ids.forget(ids)
            self._refuse(session, message, error)
            return
        for refusal in refused:
            session.send(core.out, refusal)
        self.published += parcel.count
        core.has_published = True
        is_durable = bool(message.durable)
        if is_durable:
            self._publish_durable(session, parcel, matches, last, message.durable, ids)
        if is_held:
            acknowledge = None if is_durable else partial(self._acknowledge_live, session, last)
            self.publish_barrier.put(endpoint, parcel, durable=is_durable, then=acknowledge)
            return
        self._send(to, parcel, durable=is_durable)
        if not is_durable:
            self._acknowledge_live(session, last)

    def _is_retransmit(self, message: Publish, parcel: Parcel) -> bool:
        """Return whether a client retransmits durable events, which their numbers show.

        They skip the dedup window, which would drop them and so acknowledge them before they are
        stored.
        """
        events = self._core.durability.events
        has_numbers = bool(message.durable) and events.is_ready
        return has_numbers and message.first_seq <= events.last_published(parcel.publisher)

    def _acknowledge_live(self, session: Session, last: int) -> None:
        session.send(self._core.out, Accepted(last, "memory"))

    def _must_wait(self, sender: Peer) -> bool:
        """Return whether events have to wait until a change of the spanning tree is over."""
        is_idle = not self._core.router.is_changing and not self.publish_barrier.waiting
        return not is_idle and self.publish_barrier.must_wait(sender)

    def _refuse(self, session: Session, message: Publish, error: Exception) -> None:
        """Refuse a publication for its error, or for a fault of the broker, which is logged."""
        if not isinstance(error, PalioError):
            owner = session.owner
            self._core.report("error", "publication_failed", client=owner, error=repr(error))
            error = InvalidEvent(f"the broker cannot handle these events: {error}")
        last = message.first_seq + len(message.parcel) - 1
        session.send(self._core.out, Refused(message.first_seq, last, failure(error)))
        self._acknowledge_in_order(session, last, message.durable)

    def _spend(self, session: Session, parcel: Parcel) -> None:
        """Charge events to the rate limit of the principal; refuse them when it is used up."""
        principal, now = session.principal, self._core.at.now
        wait_s = session.limiter.wait_s(principal.limits, now)
        if wait_s > 0:
            raise NotPermitted(
                f"{principal.name!r} publishes more than it was granted; "
                f"try again in {wait_s:.1f} s"
            )
        session.limiter.spend(principal.limits, len(parcel), parcel.nbytes, now)

    def _check(self, parcel: Parcel) -> None:
        """Refuse events that receivers could not read, as Arrow can hold more than Palio's types.

        A shape is checked once; sizes, times and texts are checked in every parcel.
        """
        if parcel.values is None:
            check_size(len(parcel), len(parcel.shape.names), parcel.nbytes)
            if parcel.shape.time_columns:
                check_times(parcel.batch, parcel.shape.time_columns)
        check_texts(parcel)
        if parcel.shape in self._checked_shapes:
            return
        conform(parcel.batch)
        refuse_system_names(parcel.shape.names)
        if len(self._checked_shapes) >= MAX_SHAPES:
            self._checked_shapes.clear()
        self._checked_shapes.add(parcel.shape)

    def _durable_matches(self, parcel: Parcel) -> Mapping[str, RowMask]:
        """Select the events that each durable subscription of the network matches."""
        return self._core.durability.interests.wanted(parcel) if len(parcel) else {}

    def _publish_durable(
        self,
        session: Session,
        parcel: Parcel,
        matches: Mapping[str, RowMask],
        last: int,
        stored_at: StoredAt,
        ids: Sequence[bytes | None],
    ) -> None:
        """Store events durably, and send the client a receipt once they are on this disk or, for
        `home`, on the disks of all homes too. Retransmitted events are stored once.
        """
        core = self._core
        if not len(parcel):
            self._acknowledge_in_order(session, last, stored_at)
            return
        callbacks = self._receipt_callbacks(session, parcel.seqs[0], last, stored_at, ids)
        if not core.settings.has_disk:
            callbacks.on_failure(NO_DISK)
            return
        at_homes = stored_at == "home"
        if core.durability.events.is_ready:
            self._store(parcel, matches, callbacks, at_homes=at_homes)
        else:
            core.catch_up.when_ready(
                partial(self._store_delayed, parcel, callbacks, at_homes=at_homes)
            )

    def _store_delayed(self, parcel: Parcel, callbacks: Callbacks, *, at_homes: bool) -> None:
        """Store events that came before this broker had synchronized with its network."""
        try:
            self._store(parcel, self._durable_matches(parcel), callbacks, at_homes=at_homes)
        except Exception as error:  # noqa: BLE001  # the client gets an answer for our own faults, too
            callbacks.on_failure(f"the broker cannot handle these events: {error}")

    def _store(
        self,
        parcel: Parcel,
        matches: Mapping[str, RowMask],
        callbacks: Callbacks,
        *,
        at_homes: bool,
    ) -> None:
        """Append events to the log, with the durable subscriptions that match them."""
        core = self._core
        events, at = core.durability.events, core.at
        matches = core.durability.history.matches(parcel, matches)
        last = events.last_published(parcel.publisher)
        is_retransmit = parcel.seqs[0] <= last
        token = PendingHomes(callbacks, is_retransmit=is_retransmit) if at_homes else callbacks
        if is_retransmit:
            fresh = parcel.numbers > last
            masks = {subject: mask[fresh] for subject, mask in matches.items()}
            matches = {subject: mask for subject, mask in masks.items() if mask.any()}
            parcel = parcel.select(fresh)
        parcel, shares = packed(parcel, matches)
        interests = core.durability.interests
        shares |= {share: UNREAD for share in shares if interests.is_unread(share)}
        times = self.times.unwritten()
        core.perform(events.publish(at.now, at.wall_us, parcel, shares, token, times))

    def _receipt_callbacks(
        self,
        session: Session,
        first: int,
        last: int,
        stored_at: StoredAt,
        ids: Sequence[bytes | None],
    ) -> Callbacks:
        """Return callbacks that send the receipt of some events, or their refusal.

        A receipt covers all earlier numbers of its level, so one waits for those before it.
        """
        self._next_ticket += 1
        ticket = self._next_ticket
        session.pending_receipts[stored_at].append(PendingReceipt(last, ticket))
        acknowledge = partial(self._acknowledge_stored, session, ticket, stored_at)

        def refuse(reason: str) -> None:
            error = NotStored(f"the broker could not write to its disk: {reason}")
            self._ids.forget(ids)
            session.send(self._core.out, Refused(first, last, failure(error)))
            acknowledge()

        return Callbacks(acknowledge, refuse)

    def _acknowledge_in_order(self, session: Session, last: int, stored_at: StoredAt) -> None:
        """Acknowledge events with nothing to store, once those before them are stored."""
        pending = session.pending_receipts[stored_at] if stored_at else None
        if pending and pending[-1].ticket == STORED:
            pending[-1] = PendingReceipt(last, STORED)  # one receipt covers both
        elif pending:
            pending.append(PendingReceipt(last, STORED))
        else:
            session.send(self._core.out, Accepted(last, LEVELS[stored_at]))

    def _acknowledge_stored(self, session: Session, ticket: int, stored_at: StoredAt) -> None:
        """Mark a publication as stored; acknowledge all before the first that is not stored yet."""
        pending = session.pending_receipts[stored_at]
        for index, receipt in enumerate(pending):
            if receipt.ticket == ticket:
                pending[index] = PendingReceipt(receipt.last_seq, STORED)
                break
        accepted = -1
        while pending and pending[0].ticket == STORED:
            accepted = pending.popleft().last_seq
        if accepted >= 0:
            session.send(self._core.out, Accepted(accepted, LEVELS[stored_at]))

    # --- from neighbours ---

    def forward(self, neighbour: Neighbour, message: Forward) -> None:
        """Route events that a neighbour forwards."""
        if message.source or message.detour is not None:
            check_names(neighbour.name, message)
        parcel = message.parcel
        check_numbered(neighbour.name, parcel)
        parcel.source = message.source or None
        if message.rows is not None:
            parcel = parcel.select(unpack_mask(message.rows, len(parcel)))
        if not neighbour.principal.publishes_all:
            parcel = self.carrying.admitted(neighbour, parcel)
        if not parcel.count:
            return
        if message.addressed is not None:
            self.multicasting.forward(neighbour, message, parcel)
        elif message.detour is not None:
            self.reroutes.receive(parcel, message.detour, durable=message.durable)
        elif self._must_wait(neighbour.peer):
            self.publish_barrier.put(neighbour.peer, parcel, durable=message.durable)
        else:
            to = self._destinations(neighbour.peer, parcel)
            self._send(to, parcel, durable=message.durable)

    # --- routing ---

    def _release_held(self, sender: Peer, parcel: Parcel, durable: bool) -> None:
        """Route events released from the barrier, or from a reroute. An error affects these alone,
        and is reported as a loss, since their publisher may have its receipt.
        """
        try:
            to = self._destinations(sender, parcel)
        except Exception as error:  # noqa: BLE001  # a fault of ours: it cannot be the publisher's
            self._core.fault("held events", error)
            self._core.loss_reports.note("held events failed")
            return
        self._send(to, parcel, durable=durable)

    def _destinations(self, sender: Peer, parcel: Parcel) -> Destined:
        """Return the receivers, each with the events that it gets."""
        if not parcel.count:
            return _NO_DESTINATIONS
        core = self._core
        if self.multicasting.is_on and (sender.is_client or sender.name == core.name):
            return self.multicasting.destined(sender, parcel)
        return Destined(core.router.route(sender, parcel), {})

    def _receive_addressed(self, parcel: Parcel, durable: bool) -> None:  # a callback
        """Send events that were addressed to this broker to its clients."""
        if len(parcel):
            self._send(Destined(self.multicasting.local(parcel), {}), parcel, durable=durable)

    def _send(self, to: Destined, parcel: Parcel, *, durable: bool) -> None:
        self.routed += parcel.count
        if to.brokers:
            self.multicasting.send(parcel, to.brokers, durable=durable)
        for peer, mask in to.peers.items():
            if peer.is_client:
                self._deliver(peer, parcel, mask, matched_keys(to.peers, peer), durable=durable)
            else:
                neighbour = self._core.neighbours.get(peer.name)
                if neighbour is not None and neighbour.is_taken_in:
                    self._forward_to(neighbour, parcel, mask, durable=durable)
                else:
                    self.reroutes.add(peer.name, Forward(parcel, pack_mask(mask), durable))

    def _deliver(
        self,
        peer: Peer,
        parcel: Parcel,
        mask: RowMask,
        keys: tuple[int, ...] | None,
        *,
        durable: bool,
    ) -> None:
        recipient = self._core.by_peer.get(peer)
        if recipient is None:
            if peer == LATEST_PEER:
                self.latest.note(parcel, mask)
            return
        session, key = recipient
        if durable and key >= 0:
            return  # a durable subscription gets durable events from its queue
        sent, rows = _selected(session, parcel, mask)
        self.delivered += 1 if parcel.count == 1 else int(mask.sum())
        matched = keys if key < 0 else None
        message = Deliver(sent, rows, key, subscriptions=matched)
        session.offer(self._core.out, message, self._core.settings.queue_bytes)

    def _forward_to(
        self, neighbour: Neighbour, parcel: Parcel, mask: RowMask, *, durable: bool
    ) -> None:
        principal = neighbour.principal
        if not principal.may_receive_all:
            mask = mask & receivable(principal, parcel)
            if not mask.any():
                return
        sent, rows = _selected(neighbour, parcel, mask)
        source = parcel.source or self._core.name if self._follows_sources else ""
        message = Forward(sent, rows, durable, source)
        neighbour.offer(self._core.out, message, self._core.settings.queue_bytes)


def _selected(session: PeerSession, parcel: Parcel, mask: RowMask) -> tuple[Parcel, bytes | None]:
    """Choose how to send selected rows: as the whole parcel with a mask, or as a copy of the rows.

    A whole parcel is cheaper, as all receivers share its encoding. A receiver without permission
    for all events gets a copy: even unselected rows must not reach it.
    """
    if parcel.count == 1 or mask.all():
        return parcel, None
    wanted = int(mask.sum())
    if session.principal.may_receive_all and not worth_copying(wanted, len(parcel)):
        return parcel, pack_mask(mask)
    return parcel.select(mask), None


def _only_permitted(session: Session, parcel: Parcel, refused: list[Refused]) -> Parcel:
    """Select the events that a session's principal may publish; refuse the others."""
    mask = publishable(session.principal, parcel)
    reason = f"{session.principal.name!r} may not publish this; it was granted less"
    return _refuse_others(parcel, mask, NotPermitted(reason), refused)


def _only_advertised(
    session: Session, parcel: Parcel, mask: RowMask, refused: list[Refused]
) -> Parcel:
    """Select the events that a session advertises; refuse the others, which no path leads from."""
    owner = f"the identity {session.identity!r}" if session.identity else "this session"
    count = len(mask) - int(mask.sum())
    return _refuse_others(parcel, mask, NotAdvertised(owner, count=count, of=len(mask)), refused)


def _refuse_others(
    parcel: Parcel, mask: RowMask, error: PalioError, refused: list[Refused]
) -> Parcel:
    """Select the events of a mask; add refusals of the others to `refused`."""
    reason = failure(error)
    refused += [
        Refused(first, last, reason) for first, last in runs(parcel.numbers[~mask].tolist())
    ]
    return parcel.select(mask)


class Times:
    """The times of publications: they never go back, as patterns order events by them.

    1. The time of a publication is the wall clock's, or a microsecond after the publication before,
       whichever is later. After a clock was set back, times advance by a microsecond each.
    2. The journal stores the last time, so that a restarted broker begins after it: with each
       durable publication, when the broker stops, and every `TIME_KEPT_S` for live ones.
    3. If the last time is more than `TIME_AHEAD_US` ahead of the wall clock at the start, the clock
       was wrong before: until it catches up, all events would seem simultaneous. So times start
       over at the wall clock, and a warning is logged. Restart a broker after correcting its clock.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last_us = self._stored_us = core.durability.last_time_us
        self._stored_at = 0.0

    def begin(self) -> None:
        """Compare the last time with the wall clock, when the broker starts."""
        core = self._core
        self._stored_at = core.at.now
        ahead_us = self._last_us - core.at.wall_us
        if ahead_us > TIME_AHEAD_US:
            core.report("warning", "clock_went_back", from_us=self._last_us, to_us=core.at.wall_us)
            self._last_us = self._stored_us = 0
        elif ahead_us > 0:
            core.report("warning", "clock_behind", behind_s=ahead_us / 1e6)

    def next_us(self) -> int:
        """Return the time of the next publication."""
        self._last_us = max(self._core.at.wall_us, self._last_us + 1)
        return self._last_us

    def unwritten(self) -> list[PutTime]:
        """Return the write of the last time, unless it is stored; the caller must append it."""
        if self._last_us == self._stored_us:
            return []
        self._stored_us, self._stored_at = self._last_us, self._core.at.now
        return [PutTime(self._last_us)]

    def store_if_due(self) -> None:
        """Store the last time if that was not done for `TIME_KEPT_S`."""
        if self._core.at.now - self._stored_at >= TIME_KEPT_S:
            operations = self.unwritten()
            if operations:
                self._core.append(operations)
