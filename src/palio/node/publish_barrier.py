"""`PublishBarrier`: a queue of publications while the spanning tree of a graph replaces a link.

Events that enter the network here are queued until the router uses the new tree
(`palio.routing.changes`), and are then sent in order. The broker aborts a change that takes too
long or queues too many events. The router then uses the new tree at once. Events in flight may be
lost, and are reported as after any change of paths (`LossReports`).
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


class PublishBarrier:
    """The publications queued at one broker; `send` sends them one after the other."""

    def __init__(self, core: Core, send: Callable[[Peer, Parcel, bool], None]) -> None:
        self._core = core
        self._send = send
        self.waiting: deque[_Held] = deque()
        """The events of each publication, in order."""
        self._senders: Counter[Peer] = Counter()
        self._bytes = 0
        self._since: float | None = None
        """The time at which this broker first saw the current change of the tree."""

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def is_over(self) -> bool:
        """True if the change is over, and events are yet to be sent."""
        return bool(self.waiting) and not self._core.router.is_changing

    def must_wait(self, sender: Peer) -> bool:
        """Return whether a sender's events must wait."""
        # A sender with queued events must wait behind them, to keep its order.
        return sender in self._senders or self._core.router.holds(sender)

    def put(
        self, sender: Peer, parcel: Parcel, *, durable: bool, then: Callable[[], None] | None = None
    ) -> None:
        """Queue events. `then` acknowledges them to their publisher: at once, while less than half
        of `HELD_BYTES` is used, and after that only once they are sent, which slows it down.
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

    def send_some(self) -> None:
        """Send some of the queued events, if the change is over."""
        sent = 0
        while self.is_over and sent < HELD_AT_ONCE:
            sender, parcel, durable, then = self.waiting.popleft()
            self._bytes -= parcel.held_bytes
            self._senders[sender] -= 1
            if not self._senders[sender]:
                del self._senders[sender]
            sent += len(parcel)
            # A client may be gone by now. Its permission was checked when it published, so the
            # events count as this broker's.
            source = Peer.broker(self._core.name) if sender.is_client else sender
            self._send(source, parcel, durable)
            if then is not None:
                then()

    def watch(self) -> None:
        """Abort a change of the tree that takes too long."""
        core = self._core
        if not core.router.is_changing:
            self._since = None
        elif self._since is None:
            self._since = core.at.now
        elif core.at.now - self._since > HELD_BEATS * core.settings.heartbeat_s:
            self._give_up("it takes too long")

    def _give_up(self, reason: str) -> None:
        self._since = None
        self._core.report("warning", "tree_change_aborted", reason=reason, held=len(self.waiting))
        self._core.route(self._core.router.give_up())
