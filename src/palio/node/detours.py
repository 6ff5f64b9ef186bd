"""`Detours`: events for a neighbour to which the link broke go round, over other brokers.

When the session with a neighbour ends, there are events that it has perhaps not seen, and more come
for it until the tree of the graph does without the link (`General.parted`). As long as brokers know
of another way they go there one by one, and from their target they go on as if they had come over
the link: what it had seen is known by its number. A broker that has restarted knows nothing of
the session, and takes none of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from palio.model.parcels import Parcel
from palio.node.authority import Principal, hearable
from palio.node.core import Core
from palio.node.limits import HELD_AT_ONCE, MAX_PARTED
from palio.node.sessions import Neighbour
from palio.protocol.limits import MAX_DETOUR
from palio.protocol.messages import Detour, Forward, unpack_mask
from palio.routing.protocol import Peer


class _Parted(NamedTuple):
    session: str
    principal: Principal


class Detours:
    """The detours of one broker; `arrived` is called with events that came here by one."""

    def __init__(self, core: Core, arrived: Callable[[Peer, Parcel, bool], None]) -> None:
        self._core = core
        self._arrived = arrived
        self._parted: dict[str, _Parted] = {}
        """By neighbour, the last session that has ended."""
        self.waiting: deque[tuple[str, Forward]] = deque()
        """By neighbour that they are for, what is yet to be sent round."""

    def part(self, neighbour: Neighbour, unseen: Iterable[Forward]) -> None:
        """The session with a neighbour has ended, and perhaps it has not seen these events."""
        name = neighbour.name
        self._parted.pop(name, None)
        self._parted[name] = _Parted(neighbour.id, neighbour.principal)
        if len(self._parted) > MAX_PARTED:
            del self._parted[next(iter(self._parted))]
        if self._core.router.goes_round(neighbour.peer):
            self.waiting += (
                (name, each) for each in unseen if each.detour is None and each.addressed is None
            )

    def add(self, name: str, message: Forward) -> None:
        """More comes for it, behind what waits."""
        if name in self._parted:
            self._core.has_follow_up = True
            self.waiting.append((name, message))
            self.go_on()

    def go_on(self) -> None:
        """Send some of what waits."""
        done = 0
        while self.waiting and done < HELD_AT_ONCE:
            name, message = self.waiting.popleft()
            session, principal = self._parted[name]
            parcel = message.parcel.select(unpack_mask(message.rows, len(message.parcel)))
            if not principal.hears_all:
                parcel = parcel.select(hearable(principal, parcel))
            done += 1 + len(parcel)
            path = self._core.durability.registry.way(name)
            self._send(parcel, Detour(path, session), durable=message.durable)

    def receive(self, parcel: Parcel, detour: Detour, *, durable: bool) -> None:
        """Events come by a detour: on to their target, or they are there."""
        if detour.path:
            self._send(parcel, detour, durable=durable)
            return
        core, name = self._core, self._whose(detour.session)
        if name is not None:
            is_beyond = core.settings.is_outside(name)
            own = Peer.beyond(core.name) if is_beyond else Peer.broker(core.name)
            self._arrived(own, parcel, durable)

    def _whose(self, session: str) -> str | None:
        """With which neighbour there was a session; it may not have ended yet at this end."""
        neighbours = self._core.neighbours.values()
        lost = (each.name for each in neighbours if each.id == session and each.link is None)
        ended = (name for name, each in self._parted.items() if each.session == session)
        return next(chain(lost, ended), None)

    def _send(self, parcel: Parcel, detour: Detour, *, durable: bool) -> None:
        """To the next broker on the way, as far as it may receive them. That some may be lost was
        told when the session ended.
        """
        core = self._core
        neighbour = core.neighbours.get(detour.path[0]) if detour.path else None
        if neighbour is None or len(detour.path) > MAX_DETOUR + 1:
            return
        if not neighbour.principal.hears_all:
            parcel = parcel.select(hearable(neighbour.principal, parcel))
        if len(parcel):
            detour = Detour(detour.path[1:], detour.session)
            message = Forward(parcel, None, durable, detour=detour)
            neighbour.offer(core.out, message, core.settings.queue_bytes)
