"""`Holding`: events that wait while the tree of a graph gives up a link for another.

What enters the network here is kept until the router has gone over to the other tree (`changes` of
the routing room), and then goes its way in the order in which it came. A change that takes long, or
while which too much comes together, is given up: then the router goes over at once, what is under
way may be lost, and that is told as any change of ways is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from palio.model.parcels import Parcel
from palio.node.core import Core
from palio.node.limits import HELD_AT_ONCE, HELD_BEATS, HELD_BYTES
from palio.routing.protocol import Peer


class _Held(NamedTuple):
    sender: Peer
    parcel: Parcel
    durable: bool
    then: Callable[[], None] | None


class Holding:
    """Events that wait at one broker; `send` is called with those of each publication in turn."""

    def __init__(self, core: Core, send: Callable[[Peer, Parcel, bool], None]) -> None:
        self._core = core
        self._send = send
        self.waiting: deque[_Held] = deque()
        """The events of each publication, in order."""
        self._senders: Counter[Peer] = Counter()
        self._bytes = 0
        self._since: float | None = None
        """When it was first seen that the tree changes."""

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def is_over(self) -> bool:
        """True if there is something that waits no longer."""
        return bool(self.waiting) and not self._core.router.is_changing

    def must_wait(self, sender: Peer) -> bool:
        """Return whether events that come now have to wait, or others of their sender do
        already.
        """
        return sender in self._senders or self._core.router.holds(sender)

    def put(
        self, sender: Peer, parcel: Parcel, *, durable: bool, then: Callable[[], None] | None = None
    ) -> None:
        """Events wait. `then` tells their publisher that they were taken: at once, as long as there
        is much room, and later only when they have gone.
        """
        if then is not None and self._bytes < HELD_BYTES // 2:
            then()
            then = None
        self._core.has_follow_up = True
        self.waiting.append(_Held(sender, parcel, durable, then))
        self._senders[sender] += 1
        self._bytes += parcel.held_bytes
        if self._bytes > HELD_BYTES:
            self._give_up("too many events wait for it")

    def go_on(self) -> None:
        """Some of what waits goes its way, if the change is over."""
        done = 0
        while self.is_over and done < HELD_AT_ONCE:
            sender, parcel, durable, then = self.waiting.popleft()
            self._bytes -= parcel.held_bytes
            self._senders[sender] -= 1
            if not self._senders[sender]:
                del self._senders[sender]
            done += len(parcel)
            # Who published may be gone by now; what it may publish was looked at when it did.
            whose = Peer.broker(self._core.name) if sender.is_client else sender
            self._send(whose, parcel, durable)
            if then is not None:
                then()

    def watch(self) -> None:
        """Look whether the tree has been changing for too long."""
        core = self._core
        if not core.router.is_changing:
            self._since = None
        elif self._since is None:
            self._since = core.at.now
        elif core.at.now - self._since > HELD_BEATS * core.settings.heartbeat_s:
            self._give_up("it takes too long")

    def _give_up(self, reason: str) -> None:
        self._since = None
        self._core.report("warning", "change_given_up", reason=reason, held=len(self.waiting))
        self._core.route(self._core.router.give_up())
