"""`Settling`: confirms that updates are in force at all brokers, by waves through the network.

1. The appends in flight are stored, or refused.
2. This broker announces its own facts, and stores them.
3. A wave goes through the routing tables. It crosses each link behind all facts due there.
4. The answer names the brokers that were not reached.

Brokers without a path when the wave was sent or answered count as not reached. If links came or
went in between, the wave is sent once more: a broker that moved meanwhile may have missed it (W4
in `tests.models.fact_waves`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from palio.node.cluster_state import ClusterState
from palio.node.limits import SHOWN_CHARS
from palio.node.sessions import Session
from palio.routing.protocol import Peer

Callback: TypeAlias = Callable[[tuple[str, ...]], None]
"""Called when a wave is answered, with the brokers that were not reached."""


class _SendWave(Protocol):
    """Sends a wave through the routing tables, from an endpoint."""

    def __call__(self, peer: Peer, wave: int, /) -> None: ...


class _AfterWrites(Protocol):
    """Calls back once appends in flight are stored or refused."""

    def __call__(self, callback: Callable[[], None], /) -> None: ...


class _Pending:
    """A confirmation that is pending."""

    __slots__ = ("callback", "map_version", "peer", "session", "unreached")

    def __init__(self, peer: Peer, callback: Callback, session: Session | None = None) -> None:
        self.peer = peer
        self.callback = callback
        self.session = session
        self.map_version: int | None = None
        """The version of the map when the wave was sent; None if it confirms tables alone."""
        self.unreached: set[str] = set()

    @property
    def subjects(self) -> frozenset[str]:
        """The durable subscriptions of the session, whose facts must be stored first."""
        durables = {} if self.session is None else self.session.durables
        return frozenset(durable.subject for durable in durables.values())


class Settling:
    """The pending confirmations, by the number of their wave."""

    def __init__(
        self,
        cluster_state: ClusterState,
        send_wave: _SendWave,
        when_flushed: _AfterWrites,
        when_written: _AfterWrites,
    ) -> None:
        self._cluster_state = cluster_state
        self._send_wave = send_wave
        self._when_flushed = when_flushed
        self._when_written = when_written  # the same, for this broker's own facts
        self._open: dict[int, _Pending] = {}
        self._postponed: list[int] = []
        """Those that wait for facts which the disk has refused."""
        self._next = 1

    def __len__(self) -> int:
        """Return the number of pending confirmations."""
        return len(self._open)

    def when_in_force(self, session: Session, callback: Callback) -> None:
        """Call back once a client's requests are in force at all brokers, and on the disk here."""

        def done(unreached: tuple[str, ...]) -> None:
            del session.waves[number]
            callback(unreached)

        number = self._begin(_Pending(session.peer, done, session))
        session.waves[number] = None
        # Claims are announced only when they are stored, so the disk comes first.
        self._when_flushed(lambda: self._announce_all(number))

    def when_known(self, peer: Peer, callback: Callback) -> None:
        """Call back once all brokers that can be reached have this broker's own facts."""
        self._announce_all(self._begin(_Pending(peer, callback)))

    def when_through(self, peer: Peer, callback: Callback) -> None:
        """Call back once routing updates of this broker are in force beyond its neighbours."""
        self._send_wave(peer, self._begin(_Pending(peer, callback)))

    def end(self, session: Session) -> None:
        """Drop the confirmations of a session that is over: its waves may never be answered."""
        for number in session.waves:
            del self._open[number]
        session.waves.clear()

    def written(self) -> None:
        """Continue the confirmations that waited for facts of this broker to be stored."""
        postponed, self._postponed = self._postponed, []
        for number in postponed:
            self._announce_all(number)

    def answered(self, number: int, unreached: Iterable[str]) -> None:
        """Handle the answer to a wave."""
        pending = self._open.get(number)
        if pending is None:
            return
        pending.unreached.update(self._names(unreached))
        if pending.map_version is not None:
            pending.unreached.update(self._cluster_state.unreachable())
            if not pending.unreached and pending.map_version != self._cluster_state.routing_version:
                self._send(number)
                return
        del self._open[number]
        pending.callback(tuple(sorted(pending.unreached)))

    def _names(self, unreached: Iterable[str]) -> Iterable[str]:
        """Return the unreached brokers in an answer. `b2/b1` stands for b2 that rejects facts of
        b1, which concerns b1 alone. Unknown names are left out, but one stays if there is no other:
        the caller must learn that a broker is unreached.
        """
        cluster_state = self._cluster_state
        names = []
        for target in unreached:
            broker, _, origin = target.partition("/")
            if origin in ("", cluster_state.name) and broker != cluster_state.name:
                names.append(broker)
        brokers = [name for name in names if cluster_state.knows(name)]
        return brokers or [name[:SHOWN_CHARS] for name in names[:1]]

    def _begin(self, pending: _Pending) -> int:
        number = self._next
        self._next += 1
        self._open[number] = pending
        return number

    def _announce_all(self, number: int) -> None:
        if number in self._open:  # else the session is over
            self._cluster_state.flush_pending()
            self._when_written(lambda: self._send(number))

    def _send(self, number: int) -> None:
        pending = self._open.get(number)
        if pending is None:
            return
        if self._cluster_state.has_unwritten(pending.subjects):
            self._postponed.append(number)
            return
        pending.map_version = self._cluster_state.routing_version
        pending.unreached.update(self._cluster_state.unreachable())
        self._send_wave(pending.peer, number)
