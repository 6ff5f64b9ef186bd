"""`Reroutes`: sends events for a peer whose link broke over other brokers.

When the session with a peer ends, some events may not have reached it. More events come for it
until the tree of the graph does without the link (`General.rerouted`). While another path exists,
each of these is sent there by itself. Its target handles it as if it had come over the link, and
drops duplicates by their numbers. A target that has restarted does not know the session, and drops
all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from palio.model.masks import unpack_mask
from palio.model.parcels import Parcel
from palio.node.authority import Principal, receivable
from palio.node.core import Core
from palio.node.limits import HELD_AT_ONCE, MAX_PARTED
from palio.node.sessions import Neighbour
from palio.protocol.limits import MAX_DETOUR
from palio.protocol.messages import Detour, Forward
from palio.routing.protocol import Peer


class _Parted(NamedTuple):
    session: str
    principal: Principal


class Reroutes:
    """The reroutes of one broker; it calls `arrived` with events that reach their target here."""

    def __init__(self, core: Core, arrived: Callable[[Peer, Parcel, bool], None]) -> None:
        self._core = core
        self._arrived = arrived
        # By peer, its last session that has ended.
        self._parted: dict[str, _Parted] = {}
        self.pending: deque[tuple[str, Forward]] = deque()
        """Messages to be rerouted, with the peer that each is for."""

    def part(self, neighbour: Neighbour, unacked: Iterable[Forward]) -> None:
        """Reroute the unacknowledged events of a peer whose session has ended."""
        name = neighbour.name
        self._parted.pop(name, None)
        self._parted[name] = _Parted(neighbour.id, neighbour.principal)
        if len(self._parted) > MAX_PARTED:
            del self._parted[next(iter(self._parted))]
        if self._core.router.has_alternate_path(neighbour.peer):
            self.pending += (
                (name, message)
                for message in unacked
                if message.detour is None and message.addressed is None
            )

    def add(self, name: str, message: Forward) -> None:
        """Reroute one more event for a peer, behind those that are pending."""
        if name in self._parted:
            self._core.has_follow_up = True
            self.pending.append((name, message))
            self.send_next()

    def send_next(self) -> None:
        """Send some of the pending events, up to `HELD_AT_ONCE`."""
        done = 0
        while self.pending and done < HELD_AT_ONCE:
            name, message = self.pending.popleft()
            session, principal = self._parted[name]
            parcel = message.parcel.select(unpack_mask(message.rows, len(message.parcel)))
            if not principal.may_receive_all:
                parcel = parcel.select(receivable(principal, parcel))
            done += 1 + len(parcel)
            path = self._core.durability.cluster_state.path(name)
            self._send(parcel, Detour(path, session), durable=message.durable)

    def receive(self, parcel: Parcel, detour: Detour, *, durable: bool) -> None:
        """Forward events on a detour to their target, or handle them as the target."""
        if detour.path:
            self._send(parcel, detour, durable=durable)
            return
        core, name = self._core, self._peer_of(detour.session)
        if name is not None:
            is_beyond = core.settings.is_outside(name)
            own = Peer.beyond(core.name) if is_beyond else Peer.broker(core.name)
            self._arrived(own, parcel, durable)

    def _peer_of(self, session: str) -> str | None:
        """Return the peer of a session, which may not have ended yet at this end."""
        neighbours = self._core.neighbours.values()
        unlinked = (
            neighbour.name
            for neighbour in neighbours
            if neighbour.id == session and neighbour.link is None
        )
        ended = (name for name, neighbour in self._parted.items() if neighbour.session == session)
        return next(chain(unlinked, ended), None)

    def _send(self, parcel: Parcel, detour: Detour, *, durable: bool) -> None:
        """Send events to the next broker on the path, those that it may receive. The end of the
        session has already been reported as a loss.
        """
        core = self._core
        neighbour = core.neighbours.get(detour.path[0]) if detour.path else None
        if neighbour is None or len(detour.path) > MAX_DETOUR + 1:
            return
        if not neighbour.principal.may_receive_all:
            parcel = parcel.select(receivable(neighbour.principal, parcel))
        if len(parcel):
            detour = Detour(detour.path[1:], detour.session)
            message = Forward(parcel, None, durable, detour=detour)
            neighbour.offer(core.out, message, core.settings.queue_bytes)
