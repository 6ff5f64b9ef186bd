"""`Publishing`: where events go, from clients and from neighbours, live and durable."""

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
from palio.model.parcels import Shape, runs, worth_copying
from palio.node.authority import NO_LIMITS, publishable, receivable
from palio.node.carrying import Carrying
from palio.node.core import Callbacks, Core
from palio.node.durability import NO_DISK, packed
from palio.node.durable import PendingHomes
from palio.node.limits import MAX_PROMISES, TIME_AHEAD_US, TIME_KEPT_S
from palio.node.multicasting import Multicasting
from palio.node.name_validation import check_names
from palio.node.operations import PutTime
from palio.node.publish_barrier import PublishBarrier
from palio.node.reroutes import Reroutes
from palio.node.sessions import Neighbour, PeerSession, Session
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
    pack_mask,
    unpack_mask,
)
from palio.protocol.published_ids import PublishedIds
from palio.routing.protocol import Destined, Peer, matched_keys

_NO_WAYS: Final = Destined({}, {})
"""Nobody listens."""


class Publishing:
    """The ways of events through one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.times = Times(core)
        self.publish_barrier = PublishBarrier(core, self._go)
        self.reroutes = Reroutes(core, self._go)
        self.multicasting = Multicasting(core, self._arrived)
        self.carrying = Carrying(core)
        self._follows_sources = core.router.follows_sources
        self._is_advertised = core.router.takes_advertisements
        self._next_ticket = 0
        self._sound: set[Shape] = set()
        self._ids = PublishedIds()
        self.published = 0
        """Events that clients published here."""
        self.routed = 0
        """Events that went through, from clients and neighbours."""
        self.delivered = 0
        """Events given to sessions."""

    # --- from clients ---

    def publish(self, session: Session, message: Publish) -> None:
        """A client publishes."""
        if self.admits(session, message):
            self.take(session, message)

    def admits(self, session: Session, message: Publish) -> bool:
        """Return whether a client may publish so much, and what can be read; else it is told."""
        if message.first_seq <= session.last_seq:
            raise IllegalMessage(session.peer, f"number {message.first_seq} was published before")
        session.last_seq = message.first_seq + message.parcel.count - 1
        try:
            if session.principal.limits is not NO_LIMITS:
                self._spend(session, message.parcel)
            self._check(message.parcel)
            if message.durable == "home":
                waiting = len(session.promises["home"])
                quantity = "the publications of a session that wait for their homes"
                check_limit(quantity, "MAX_PROMISES", MAX_PROMISES, waiting + 1)
        except Exception as error:  # noqa: BLE001  # a fault of ours is no reason for a false receipt
            self._failed(session, message, error)
            return False
        return True

    def take(self, session: Session, message: Publish) -> None:
        """Events that were admitted, perhaps as a part of more. What a client may not publish is
        refused row by row; the rest goes its way.

        All that may fail is done before anything is sent or written: whatever events do to an
        engine, they are taken or refused, and their publisher is informed which.
        """
        core, given = self._core, message.parcel
        last = message.first_seq + given.count - 1
        refused: list[Refused] = []
        wanted: Mapping[str, RowMask] = {}
        ids: list[bytes | None] = []
        try:
            if session.stream.rows_begun:  # a part, perhaps of another message than was admitted
                self._check(given)
            parcel = given.stamped(session.publisher, message.first_seq, self.times.next_us())
            if not session.principal.publishes_all:
                parcel = _permitted(session, parcel, refused)
            endpoint = session.endpoint or core.publisher_endpoints.of(session)
            if self._is_advertised and parcel.count:
                announced = core.router.announced(endpoint, parcel)
                if announced is not None:
                    parcel = _announced(session, parcel, announced, refused)
            if DEDUP_ID in parcel.shape.names and not self._is_retransmit(message, parcel):
                ids = self._ids.keys(session.owner, parcel.batch.column(DEDUP_ID).to_pylist())
                mask = self._ids.first_time(ids)
                ids = list(compress(ids, mask))
                parcel = parcel.select(mask)
            if message.durable and core.durability.events.is_ready:
                wanted = self._wanted(parcel)
            is_held = self._must_wait(endpoint)
            ways = _NO_WAYS if is_held else self._ways(endpoint, parcel)
        except Exception as error:  # noqa: BLE001  # likewise
            self._ids.forget(ids)
            self._failed(session, message, error)
            return
        for refusal in refused:
            session.say(core.out, refusal)
        self.published += parcel.count
        core.has_published = True
        is_durable = bool(message.durable)
        if is_durable:
            self._publish_durable(session, parcel, wanted, last, message.durable, ids)
        if is_held:
            answer = None if is_durable else partial(self._taken, session, last)
            self.publish_barrier.put(endpoint, parcel, durable=is_durable, then=answer)
            return
        self._send(ways, parcel, durable=is_durable)
        if not is_durable:
            self._taken(session, last)

    def _is_retransmit(self, message: Publish, parcel: Parcel) -> bool:
        """Return whether a client retransmits durable events, which are known by their numbers: it
        is told that they are stored once they are.
        """
        events = self._core.durability.events
        is_known = bool(message.durable) and events.is_ready
        return is_known and message.first_seq <= events.last_published(parcel.publisher)

    def _taken(self, session: Session, last: int) -> None:
        session.say(self._core.out, Accepted(last, "memory"))

    def _must_wait(self, sender: Peer) -> bool:
        """Return whether events have to wait while the tree of a graph changes."""
        is_idle = not self._core.router.is_changing and not self.publish_barrier.waiting
        return not is_idle and self.publish_barrier.must_wait(sender)

    def _failed(self, session: Session, message: Publish, error: Exception) -> None:
        """Events are refused, as something is wrong with them, or with us."""
        if not isinstance(error, PalioError):
            owner = session.owner
            self._core.report("error", "publication_failed", client=owner, error=repr(error))
            error = InvalidEvent(f"the broker cannot handle these events: {error}")
        self._refuse(session, message, error)

    def _refuse(self, session: Session, message: Publish, error: PalioError) -> None:
        last = message.first_seq + len(message.parcel) - 1
        session.say(self._core.out, Refused(message.first_seq, last, failure(error)))
        self._answer(session, last, message.durable)

    def _spend(self, session: Session, parcel: Parcel) -> None:
        """Count against what the principal may publish in a second."""
        principal, now = session.principal, self._core.at.now
        wait_s = session.limiter.wait_s(principal.limits, now)
        if wait_s > 0:
            raise NotPermitted(
                f"{principal.name!r} publishes more than it was granted; "
                f"try again in {wait_s:.1f} s"
            )
        session.limiter.spend(principal.limits, len(parcel), parcel.nbytes, now)

    def _check(self, parcel: Parcel) -> None:
        """A shape is looked at once, size and times always: not all that Arrow can hold can be
        read.
        """
        if parcel.values is None:
            check_size(len(parcel), len(parcel.shape.names), parcel.nbytes)
            if parcel.shape.time_columns:
                check_times(parcel.batch, parcel.shape.time_columns)
        check_texts(parcel)
        if parcel.shape in self._sound:
            return
        conform(parcel.batch)
        refuse_system_names(parcel.shape.names)
        if len(self._sound) >= MAX_SHAPES:
            self._sound.clear()
        self._sound.add(parcel.shape)

    def _wanted(self, parcel: Parcel) -> Mapping[str, RowMask]:
        return self._core.durability.interests.wanted(parcel) if len(parcel) else {}

    def _publish_durable(
        self,
        session: Session,
        parcel: Parcel,
        wanted: Mapping[str, RowMask],
        last: int,
        stored_at: StoredAt,
        ids: Sequence[bytes | None],
    ) -> None:
        """Keep events; the client is informed when they are on the disk, or on those of all homes,
        too. What it says again, as it has not heard so, is kept once.
        """
        core = self._core
        if not len(parcel):
            self._answer(session, last, stored_at)
            return
        callbacks = self._callbacks(session, parcel.seqs[0], last, stored_at, ids)
        if not core.settings.has_disk:
            callbacks.on_failure(NO_DISK)
            return
        at_homes = stored_at == "home"
        if core.durability.events.is_ready:
            self._keep(parcel, wanted, callbacks, at_homes=at_homes)
        else:
            core.when_ready(partial(self._keep_late, parcel, callbacks, at_homes=at_homes))

    def _keep_late(self, parcel: Parcel, callbacks: Callbacks, *, at_homes: bool) -> None:
        """The broker had just started."""
        try:
            self._keep(parcel, self._wanted(parcel), callbacks, at_homes=at_homes)
        except Exception as error:  # noqa: BLE001  # a fault of ours is no reason for no answer
            callbacks.on_failure(f"the broker cannot handle these events: {error}")

    def _keep(
        self, parcel: Parcel, wanted: Mapping[str, RowMask], callbacks: Callbacks, *, at_homes: bool
    ) -> None:
        """Keep events for all durable subscriptions that want them."""
        core = self._core
        events, at = core.durability.events, core.at
        last = events.last_published(parcel.publisher)
        is_retransmit = parcel.seqs[0] <= last
        token = PendingHomes(callbacks, is_retransmit=is_retransmit) if at_homes else callbacks
        if is_retransmit:
            fresh = parcel.numbers > last
            masks = {subject: mask[fresh] for subject, mask in wanted.items()}
            wanted = {subject: mask for subject, mask in masks.items() if mask.any()}
            parcel = parcel.select(fresh)
        parcel, shares = packed(parcel, wanted)
        interests = core.durability.interests
        shares |= {share: UNREAD for share in shares if interests.is_unread(share)}
        beside = self.times.to_keep()
        core.perform(events.publish(at.now, at.wall_us, parcel, shares, token, beside))

    def _callbacks(
        self,
        session: Session,
        first: int,
        last: int,
        stored_at: StoredAt,
        ids: Sequence[bytes | None],
    ) -> Callbacks:
        """The client is to be told what became of some publications, in the order of each level."""
        self._next_ticket += 1
        ticket = self._next_ticket
        session.promises[stored_at].append((last, ticket))

        def refused(reason: str) -> None:
            error = NotStored(f"the broker could not write to its disk: {reason}")
            self._ids.forget(ids)
            session.say(self._core.out, Refused(first, last, failure(error)))
            self.keep_callbacks(session, ticket, stored_at)

        return Callbacks(partial(self.keep_callbacks, session, ticket, stored_at), refused)

    def _answer(self, session: Session, last: int, stored_at: StoredAt) -> None:
        """Nothing is left to do for these: they are accepted once those before them are."""
        promises = session.promises[stored_at] if stored_at else None
        if promises and promises[-1][1] == 0:
            promises[-1] = last, 0  # one answer is for both
        elif promises:
            promises.append((last, 0))
        else:
            session.say(self._core.out, Accepted(last, LEVELS[stored_at]))

    def keep_callbacks(self, session: Session, ticket: int, stored_at: StoredAt) -> None:
        """One publication is stored; tell the client of all up to the first open one."""
        promises = session.promises[stored_at]
        for place, (last, open_ticket) in enumerate(promises):
            if open_ticket == ticket:
                promises[place] = (last, 0)
                break
        accepted = -1
        while promises and promises[0][1] == 0:
            accepted = promises.popleft()[0]
        if accepted >= 0:
            session.say(self._core.out, Accepted(accepted, LEVELS[stored_at]))

    # --- from neighbours ---

    def forward(self, neighbour: Neighbour, message: Forward) -> None:
        """A neighbour sends events for those who listen beyond."""
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
            self._send(self._ways(neighbour.peer, parcel), parcel, durable=message.durable)

    # --- the live way ---

    def _go(self, sender: Peer, parcel: Parcel, durable: bool) -> None:
        """Events that were held go their way. Whatever they do to an engine, others go theirs."""
        try:
            ways = self._ways(sender, parcel)
        except Exception as error:  # noqa: BLE001  # a fault of ours, after they were accepted
            self._core.fault("held events", error)
            self._core.loss_reports.note("held events failed")
            return
        self._send(ways, parcel, durable=durable)

    def _ways(self, sender: Peer, parcel: Parcel) -> Destined:
        """Return the receivers, each with the events that it gets."""
        if not parcel.count:
            return _NO_WAYS
        core = self._core
        if self.multicasting.is_on and (sender.is_client or sender.name == core.name):
            return self.multicasting.destined(sender, parcel)
        return Destined(core.router.route(sender, parcel), {})

    def _arrived(self, parcel: Parcel, durable: bool) -> None:  # a callback
        """Events that were addressed to this broker."""
        if len(parcel):
            self._send(Destined(self.multicasting.local(parcel), {}), parcel, durable=durable)

    def _send(self, to: Destined, parcel: Parcel, *, durable: bool) -> None:
        self.routed += parcel.count
        ways = to.peers
        if to.brokers:
            self.multicasting.send(parcel, to.brokers, durable=durable)
        for peer, mask in ways.items():
            if peer.is_client:
                self._deliver(peer, parcel, mask, matched_keys(ways, peer), durable=durable)
            else:
                neighbour = self._core.neighbours.get(peer.name)
                if neighbour is not None and neighbour.is_taken_in:
                    self._pass_on(neighbour, parcel, mask, durable=durable)
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
        place = self._core.by_peer.get(peer)
        if place is None or (durable and place[1] >= 0):
            return
        session, key = place
        sent, rows = _part(session, parcel, mask)
        self.delivered += 1 if parcel.count == 1 else int(mask.sum())
        named = keys if key < 0 else None
        message = Deliver(sent, rows, key, subscriptions=named)
        session.offer(self._core.out, message, self._core.settings.queue_bytes)

    def _pass_on(
        self, neighbour: Neighbour, parcel: Parcel, mask: RowMask, *, durable: bool
    ) -> None:
        principal = neighbour.principal
        if not principal.may_receive_all:
            mask = mask & receivable(principal, parcel)
            if not mask.any():
                return
        sent, rows = _part(neighbour, parcel, mask)
        source = parcel.source or self._core.name if self._follows_sources else ""
        message = Forward(sent, rows, durable, source)
        neighbour.offer(self._core.out, message, self._core.settings.queue_bytes)


def _part(party: PeerSession, parcel: Parcel, mask: RowMask) -> tuple[Parcel, bytes | None]:
    """Choose what to send so that a receiver gets some rows: the whole frame and which of it, or a
    copy.

    Rows that somebody may not receive are never sent, selected or not.
    """
    if parcel.count == 1 or mask.all():
        return parcel, None
    wanted = int(mask.sum())
    if party.principal.may_receive_all and not worth_copying(wanted, len(parcel)):
        return parcel, pack_mask(mask)
    return parcel.select(mask), None


def _permitted(session: Session, parcel: Parcel, refused: list[Refused]) -> Parcel:
    """Select the events that a session's principal may publish; the rest is refused."""
    mask = publishable(session.principal, parcel)
    reason = f"{session.principal.name!r} may not publish this; it was granted less"
    return _without(parcel, mask, NotPermitted(reason), refused)


def _announced(session: Session, parcel: Parcel, mask: RowMask, refused: list[Refused]) -> Parcel:
    """Select the events that a session advertises; the rest is refused, as nobody would receive
    it.
    """
    owner = f"the identity {session.identity!r}" if session.identity else "this session"
    count = len(mask) - int(mask.sum())
    return _without(parcel, mask, NotAdvertised(owner, count=count, of=len(mask)), refused)


def _without(parcel: Parcel, mask: RowMask, error: PalioError, refused: list[Refused]) -> Parcel:
    """Some events of a parcel; the others are refused."""
    why = failure(error)
    refused += [Refused(first, last, why) for first, last in runs(parcel.numbers[~mask])]
    return parcel.select(mask)


class Times:
    """The times of publications, which patterns go by and which do not go back.

    1. A publication is dated now by the wall, or a microsecond after the one before, whichever is
       later. Where a clock is put back, times advance by a microsecond until it has caught up.
    2. The journal remembers the last time, so a broker that starts again begins above it: with each
       durable publication, when the broker stops, and once in `TIME_KEPT_S` for live ones.
    3. A time that is more than `TIME_AHEAD_US` ahead of the wall when a broker starts was a
       mistake: for so long, everything would seem to happen at once. Times then start over at the
       wall, and that is reported: to restart a broker after its clock was put right is the remedy.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last_us = self._kept_us = core.durability.last_time_us
        self._kept_at = 0.0

    def begin(self) -> None:
        """The broker starts: look at the wall."""
        core = self._core
        self._kept_at = core.at.now
        ahead_us = self._last_us - core.at.wall_us
        if ahead_us > TIME_AHEAD_US:
            core.report("warning", "clock_went_back", from_us=self._last_us, to_us=core.at.wall_us)
            self._last_us = self._kept_us = 0
        elif ahead_us > 0:
            core.report("warning", "clock_behind", behind_s=ahead_us / 1e6)

    def next_us(self) -> int:
        """Now, or just after the publication before."""
        self._last_us = max(self._core.at.wall_us, self._last_us + 1)
        return self._last_us

    def to_keep(self) -> list[PutTime]:
        """Return what the journal is to remember beside what is written to it anyway."""
        if self._last_us == self._kept_us:
            return []
        self._kept_us, self._kept_at = self._last_us, self._core.at.now
        return [PutTime(self._last_us)]

    def keep(self) -> None:
        """Have the journal remember the last time, if that is due."""
        if self._core.at.now - self._kept_at >= TIME_KEPT_S:
            to_keep = self.to_keep()
            if to_keep:
                self._core.append(to_keep)
