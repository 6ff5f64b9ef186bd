"""`Publishing`: where events go, from clients and from neighbours, live and durable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np

from palio.errors import (
    IllegalMessage,
    InvalidEvent,
    NotAdvertised,
    NotPermitted,
    NotStored,
    PalioError,
)
from palio.matching.protocol import RowMask
from palio.model.events import check_times, conform, refuse_system_names
from palio.model.parcels import Shape, runs, worth_copying
from palio.node.authority import NO_LIMITS, hearable, publishable
from palio.node.carrying import Carried, Carrying
from palio.node.core import Core
from palio.node.detours import Detours
from palio.node.durability import Addressees, Taken
from palio.node.effects import Entry
from palio.node.holding import Holding
from palio.node.moving import Moving
from palio.node.multicasting import Multicasting
from palio.node.sessions import Neighbour, PeerSession, Session
from palio.node.times import Times
from palio.protocol.batches import check_size
from palio.protocol.failures import failure
from palio.protocol.legal_parcels import check_numbered
from palio.protocol.limits import MAX_SHAPES
from palio.protocol.messages import (
    Accepted,
    Deliver,
    Forward,
    Parcel,
    Publish,
    Refused,
    pack_mask,
    unpack_mask,
)
from palio.routing.protocol import Destined, Peer, wanting

__all__ = ["Publishing"]


_NO_WAYS: Final = Destined({}, {})
"""Nobody listens."""


class Giver(Protocol):
    """Whoever gave events into custody, to be told what came of it."""

    def kept(self) -> None:
        """They are on the disk."""

    def refused(self, reason: str, /) -> None:
        """They could not be written."""

    def passes_on(self, entry: int, /) -> bool:
        """They could not be written, and are for other brokers alone: whether they go on all the
        same, from memory; else they are `refused`.
        """


class _Pending(NamedTuple):
    """Events that were taken into custody and are being written."""

    taken: Taken
    parcel: Parcel
    homes: tuple[str, ...]
    failures: int
    """How many writes had failed before."""
    is_sent: bool
    """Whether they are on their way to others already."""
    giver: Giver


class _Publication(NamedTuple):
    """A client published them."""

    core: Core
    publishing: Publishing
    session: Session
    ticket: int
    first: int
    last: int

    def kept(self) -> None:
        """See `Giver`."""
        self.publishing.keep_promise(self.session, self.ticket)

    def refused(self, reason: str, /) -> None:
        """See `Giver`."""
        error = NotStored(f"the broker could not write to its disk: {reason}")
        refusal = Refused(self.first, self.last, failure(error))
        self.session.say(self.core.out, refusal)
        self.kept()

    def passes_on(self, _entry: int, /) -> bool:
        """See `Giver`: durable is what is on a disk."""
        return False


class Publishing:
    """The ways of events through one broker."""

    def __init__(self, core: Core, moving: Moving) -> None:
        self._core = core
        self._moving = moving
        self.times = Times(core)
        self.holding = Holding(core, self._go)
        self.detours = Detours(core, self._go)
        self.multicasting = Multicasting(core, self._arrived)
        self.carrying = Carrying(core, self._take_over)
        self._next_ticket = 0
        self._sound: set[Shape] = set()
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
        """Whether a client may publish so much, and what can be read; else it is told."""
        if message.first_seq <= session.last_seq:
            raise IllegalMessage(session.peer, f"number {message.first_seq} was published before")
        session.last_seq = message.first_seq + len(message.parcel) - 1
        try:
            self._spend(session, message.parcel)
            self._check(message.parcel)
        except Exception as error:  # noqa: BLE001  # a fault of ours is no reason for a false receipt
            self._failed(session, message, error)
            return False
        return True

    def take(self, session: Session, message: Publish) -> None:
        """Events that were admitted, perhaps as a part of more. What a client may not publish is
        refused row by row; the rest goes its way.

        All that may fail is done before anything is sent or written: whatever events do to an
        engine, they are taken or refused, and their publisher is told which.
        """
        core, given = self._core, message.parcel
        last = message.first_seq + len(given) - 1
        refused: list[Refused] = []
        addressees: Addressees | None = None
        try:
            if session.stream.has_begun:  # a part, perhaps of another message than was admitted
                self._check(given)
            parcel = given.stamped(session.publisher, message.first_seq, self.times.next_us())
            if not session.principal.publishes_all:
                parcel = _permitted(session, parcel, refused)
            outlet = core.outlets.of(session)
            announced = core.router.announced(outlet, parcel) if len(parcel) else None
            if announced is not None:
                parcel = _announced(session, parcel, announced, refused)
            if message.durable and len(parcel):
                addressees = core.durability.addressees(parcel)
            is_held = self.holding.must_wait(outlet)
            ways = _NO_WAYS if is_held else self._ways(outlet, parcel)
        except Exception as error:  # noqa: BLE001  # likewise
            self._failed(session, message, error)
            return
        for each in refused:
            session.say(core.out, each)
        self.published += len(parcel)
        if message.durable:
            self._publish_durable(session, parcel, addressees, last)
        answer = None if message.durable else partial(self._taken, session, last)
        if is_held:
            self.holding.put(outlet, parcel, durable=message.durable, then=answer)
            return
        self._send(ways, parcel, durable=message.durable)
        if answer is not None:
            answer()

    def _taken(self, session: Session, last: int) -> None:
        session.say(self._core.out, Accepted(last, "memory"))

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
        self._answer(session, last, durable=message.durable)

    def _spend(self, session: Session, parcel: Parcel) -> None:
        """Count against what the principal may publish in a second."""
        principal, now = session.principal, self._core.at.now
        if principal.limits is NO_LIMITS:
            return
        wait_s = session.allowance.wait_s(principal.limits, now)
        if wait_s > 0:
            raise NotPermitted(
                f"{principal.name!r} publishes more than it was granted; "
                f"try again in {wait_s:.1f} s"
            )
        session.allowance.spend(principal.limits, len(parcel), parcel.nbytes, now)

    def _check(self, parcel: Parcel) -> None:
        """A shape is looked at once, size and times always: not all that Arrow can hold can be
        read.
        """
        if parcel.values is None:
            check_size(len(parcel), len(parcel.shape.names), parcel.nbytes)
            if parcel.shape.time_columns:
                check_times(parcel.batch, parcel.shape.time_columns)
        if parcel.shape in self._sound:
            return
        conform(parcel.batch)
        refuse_system_names(parcel.shape.names)
        if len(self._sound) >= MAX_SHAPES:
            self._sound.clear()
        self._sound.add(parcel.shape)

    def _publish_durable(
        self, session: Session, parcel: Parcel, addressees: Addressees | None, last: int
    ) -> None:
        """Into custody; the client is told when it is on the disk."""
        if addressees is None or not addressees.homes:
            self._answer(session, last, durable=True)
            return
        here, first = addressees.here, int(parcel.numbers[0])
        if len(parcel) > 1:
            rows: RowMask = np.logical_or.reduce(list(addressees.homes.values()))
            here, parcel = addressees.of(rows), parcel.select(rows)
        self._next_ticket += 1
        ticket = self._next_ticket
        session.promises.append((last, ticket))
        giver = _Publication(self._core, self, session, ticket, first, last)
        self._into_custody(parcel, tuple(addressees.homes), giver, here)

    def _answer(self, session: Session, last: int, *, durable: bool) -> None:
        """Nothing is left to do for these: they are accepted once those before them are."""
        if durable and session.promises:
            session.promises.append((last, 0))
        else:
            level = "durable" if durable else "memory"
            session.say(self._core.out, Accepted(last, level))

    def keep_promise(self, session: Session, ticket: int) -> None:
        """One publication is on the disk; tell the client of all up to the first open one."""
        promises = session.promises
        for place, (last, open_ticket) in enumerate(promises):
            if open_ticket == ticket:
                promises[place] = (last, 0)
                break
        accepted = -1
        while promises and promises[0][1] == 0:
            accepted = promises.popleft()[0]
        if accepted >= 0:
            session.say(self._core.out, Accepted(accepted, "durable"))

    # --- from neighbours ---

    def forward(self, neighbour: Neighbour, message: Forward) -> None:
        """A neighbour sends events for those who listen beyond."""
        check_numbered(neighbour.name, message.parcel)
        parcel = message.parcel
        parcel.source = message.source or None
        if message.rows is not None:
            parcel = parcel.select(unpack_mask(message.rows, len(parcel)))
        parcel = self.carrying.admitted(neighbour, parcel)
        if not len(parcel):
            return
        if message.addressed is not None:
            self.multicasting.forward(neighbour, message, parcel)
        elif message.detour is not None:
            self.detours.receive(parcel, message.detour, durable=message.durable)
        elif self.holding.must_wait(neighbour.peer):
            self.holding.put(neighbour.peer, parcel, durable=message.durable)
        else:
            self._send(self._ways(neighbour.peer, parcel), parcel, durable=message.durable)

    def _take_over(self, carried: Carried, is_first: bool) -> None:
        """What a neighbour carries here comes into custody. What is tried again is not sent on each
        time.
        """
        part = carried.part
        self._into_custody(
            part.parcel, part.homes, carried, subjects=part.subjects, at_once=is_first
        )

    def _into_custody(
        self,
        parcel: Parcel,
        homes: tuple[str, ...],
        giver: Giver,
        here: Mapping[int, RowMask] | None = None,
        subjects: tuple[str, ...] = (),
        *,
        at_once: bool = True,
    ) -> None:
        """Write, send on at once or then, and tell the giver when it is known what came of it.

        What is sent before it is on our disk is still in the custody of whom we have it from.
        """
        core = self._core
        taken = core.durability.take(parcel, homes, core.at.wall_us, here, subjects)
        if at_once:
            self._send_on(taken)
        pending = _Pending(taken, parcel, homes, core.failures, at_once, giver)
        writes = [*taken.writes, *self.times.to_keep()] if taken.writes else []
        core.append(
            writes,
            partial(self._written, pending),
            partial(self._unwritten, pending),
            needs=core.durability.needs(taken.assigned),
        )

    def _send_on(self, taken: Taken) -> None:
        """What was taken into custody goes towards other homes."""
        durability = self._core.durability
        for entry in (taken.entry, *taken.followers) if taken.entry else taken.followers:
            durability.custody.dispatch(entry, durability.registry.next_hop)

    def _written(self, pending: _Pending) -> None:
        """What was taken into custody is on the disk."""
        core, (entry, assigned, *_) = self._core, pending.taken
        custody = core.durability.custody
        if not pending.is_sent:
            self._send_on(pending.taken)
        gone = [subject for subject in assigned if not custody.lines_up(subject, entry)]
        if gone:  # the end of what they had here is written soon, perhaps before what goes on
            taken = Entry(entry, pending.parcel, pending.homes, core.at.wall_us)
            self._moving.follow(gone, taken, partial(_tell_giver, pending, core))
        elif pending.taken.has_known:  # what came before may be on its way to the disk once more
            self._moving.when_followed(partial(_tell_giver, pending, core))
        else:
            _tell_giver(pending, core)
        custody.release(entry, assigned)
        for follower in pending.taken.followers:
            custody.release(follower, ())
        for subject in assigned:
            durable = core.durability.here.get(subject)
            if durable is not None:
                core.pump(durable)
        if not gone:
            core.dismiss([entry])

    def _unwritten(self, pending: _Pending, reason: str) -> None:
        """What was taken into custody could not be written: it was never taken, unless it goes on
        from memory.
        """
        taken = pending.taken
        is_for_others = taken.entry and self._core.name not in pending.homes
        if is_for_others and pending.giver.passes_on(taken.entry):
            return  # it is on its way: what is tried again is for somebody here
        self._core.durability.take_back(taken)
        pending.giver.refused(reason)

    # --- the live way ---

    def _go(self, sender: Peer, parcel: Parcel, durable: bool) -> None:
        """Events that were held go their way. Whatever they do to an engine, others go theirs."""
        try:
            ways = self._ways(sender, parcel)
        except Exception as error:  # noqa: BLE001  # a fault of ours, after they were accepted
            self._core.fault("held events", error)
            self._core.lapses.note()
            return
        self._send(ways, parcel, durable=durable)

    def _ways(self, sender: Peer, parcel: Parcel) -> Destined:
        """Who listens, and to which of these events."""
        if not len(parcel):
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
        self.routed += len(parcel)
        ways = to.peers
        if to.brokers:
            self.multicasting.send(parcel, to.brokers, durable=durable)
        for peer, mask in ways.items():
            if peer.is_client:
                self._deliver(peer, parcel, mask, wanting(ways, peer), durable=durable)
            else:
                neighbour = self._core.neighbours.get(peer.name)
                if neighbour is not None:
                    self._pass_on(neighbour, parcel, mask, durable=durable)
                else:
                    self.detours.add(peer.name, Forward(parcel, pack_mask(mask), durable))

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
        self.delivered += 1 if len(parcel) == 1 else int(mask.sum())
        named = keys if key < 0 else None
        message = Deliver(sent, rows, key, subscriptions=named)
        session.offer(self._core.out, message, self._core.settings.queue_bytes)

    def _pass_on(
        self, neighbour: Neighbour, parcel: Parcel, mask: RowMask, *, durable: bool
    ) -> None:
        principal = neighbour.principal
        if not principal.hears_all:
            mask = mask & hearable(principal, parcel)
            if not mask.any():
                return
        sent, rows = _part(neighbour, parcel, mask)
        source = self._core.source_of(parcel)
        message = Forward(sent, rows, durable, source)
        neighbour.offer(self._core.out, message, self._core.settings.queue_bytes)


def _part(party: PeerSession, parcel: Parcel, mask: RowMask) -> tuple[Parcel, bytes | None]:
    """What to send so that a receiver gets some rows: the whole frame and which of it, or a copy.

    Rows that somebody may not hear are never sent, selected or not.
    """
    if len(parcel) == 1 or mask.all():
        return parcel, None
    wanted = int(mask.sum())
    if party.principal.hears_all and not worth_copying(wanted, len(parcel)):
        return parcel, pack_mask(mask)
    return parcel.select(mask), None


def _tell_giver(pending: _Pending, core: Core) -> None:
    """Tell the giver that it is on the disk for all that it is for."""
    if pending.taken.has_known and core.failures > pending.failures:
        # What had come before was perhaps not on the disk yet, and never got there.
        pending.giver.refused("what came before could not be written")
    else:
        pending.giver.kept()


def _permitted(session: Session, parcel: Parcel, refused: list[Refused]) -> Parcel:
    """What a session's principal may publish; the rest is refused."""
    mask = publishable(session.principal, parcel)
    reason = f"{session.principal.name!r} may not publish this; it was granted less"
    return _without(parcel, mask, NotPermitted(reason), refused)


def _announced(session: Session, parcel: Parcel, mask: RowMask, refused: list[Refused]) -> Parcel:
    """What a session's advertisements announce; the rest is refused, as nobody would hear it."""
    whose = f"the identity {session.identity!r}" if session.identity else "this session"
    count = len(mask) - int(mask.sum())
    return _without(parcel, mask, NotAdvertised(whose, count=count, of=len(mask)), refused)


def _without(parcel: Parcel, mask: RowMask, error: PalioError, refused: list[Refused]) -> Parcel:
    """Some events of a parcel; the others are refused."""
    why = failure(error)
    refused += [Refused(first, last, why) for first, last in runs(parcel.numbers[~mask])]
    return parcel.select(mask)
