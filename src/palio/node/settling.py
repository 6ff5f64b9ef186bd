"""`Settling`: questions whether all is in force everywhere, each open until it is answered.

First the disk has to have, or refuse, what is being written: then what this broker has to say of
itself is said, and once that is written, too, one wave goes through the routing tables. It crosses
each link behind all facts that are due there. Whoever was not reached is named.

Named are, too, the brokers to which no way led as the wave was sent, or as it was answered; and if
links have come or gone in between, it is sent again: who moved meanwhile may not have met it (W4 in
`tests.models.fact_waves`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from palio.node.cluster_state import ClusterState
from palio.node.limits import SHOWN_CHARS
from palio.node.sessions import Session
from palio.routing.protocol import Peer

Then: TypeAlias = Callable[[tuple[str, ...]], None]
"""The call once all have answered, with the brokers that were not reached."""


class _AskTables(Protocol):
    """Have the routing tables send a wave, as if somebody at a place of theirs had asked."""

    def __call__(self, peer: Peer, wave: int, /) -> None: ...


class _AskDisk(Protocol):
    """Do something once what is being written is on the disk, or cannot be written."""

    def __call__(self, then: Callable[[], None], /) -> None: ...


class _Question:
    """A question that is open."""

    __slots__ = ("peer", "routing_version", "session", "then", "unreached")

    def __init__(self, peer: Peer, then: Then, session: Session | None = None) -> None:
        self.peer = peer
        self.then = then
        self.session = session
        self.routing_version: int | None = None
        """The state of the map as the wave was sent; None if the question is about no facts."""
        self.unreached: set[str] = set()

    @property
    def subjects(self) -> frozenset[str]:
        """The durable subscriptions that it is asked about."""
        durables = {} if self.session is None else self.session.durables
        return frozenset(each.subject for each in durables.values())


class Settling:
    """The questions that are open, by number."""

    def __init__(
        self,
        cluster_state: ClusterState,
        ask_tables: _AskTables,
        ask_disk: _AskDisk,
        when_written: _AskDisk,
    ) -> None:
        self._cluster_state = cluster_state
        self._ask_tables = ask_tables
        self._ask_disk = ask_disk
        self._when_written = when_written
        """Likewise, and what this broker has announced of itself is being written."""
        self._open: dict[int, _Question] = {}
        self._put_off: list[int] = []
        """Those about something that could not be written."""
        self._next = 1

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def when_in_force(self, session: Session, then: Then) -> None:
        """Do something once all that a client asked for is in force everywhere, and on the disk
        here.
        """

        def done(unreached: tuple[str, ...]) -> None:
            del session.waves[number]
            then(unreached)

        number = self._begin(_Question(session.peer, done, session))
        session.waves[number] = None
        # What is on the disk is announced by then, and what could not be written refused.
        self._ask_disk(lambda: self._say_all(number))

    def when_known(self, peer: Peer, then: Then) -> None:
        """Do something once all brokers know what this one has announced of itself, but for
        some.
        """
        self._say_all(self._begin(_Question(peer, then)))

    def when_through(self, peer: Peer, then: Then) -> None:
        """Do something once all that this broker has told its neighbours is in force beyond."""
        self._ask_tables(peer, self._begin(_Question(peer, then)))

    def end(self, session: Session) -> None:
        """A session is over: nobody waits for what it asked, and perhaps nobody answers."""
        for number in session.waves:
            del self._open[number]
        session.waves.clear()

    def written(self) -> None:
        """Something that this broker has said is on the disk: ask about what has waited for it."""
        put_off, self._put_off = self._put_off, []
        for number in put_off:
            self._say_all(number)

    def answered(self, number: int, unreached: Iterable[str]) -> None:
        """The routing tables have answered."""
        question = self._open.get(number)
        if question is None:
            return
        question.unreached.update(self._named(unreached))
        if question.routing_version is not None:
            question.unreached.update(self._cluster_state.unreachable())
            if (
                not question.unreached
                and question.routing_version != self._cluster_state.routing_version
            ):
                self._send(number)
                return
        del self._open[number]
        question.then(tuple(sorted(question.unreached)))

    def _named(self, unreached: Iterable[str]) -> Iterable[str]:
        """Whom an answer names for this broker. `b2/b1` is b2 that does not believe b1. What nobody
        has learned of is not passed on; that somebody is unreached is.
        """
        cluster_state = self._cluster_state
        named = []
        for each in unreached:
            broker, _, origin = each.partition("/")
            if origin in ("", cluster_state.name) and broker != cluster_state.name:
                named.append(broker)
        known = [each for each in named if cluster_state.knows(each)]
        return known or [each[:SHOWN_CHARS] for each in named[:1]]

    def _begin(self, question: _Question) -> int:
        number = self._next
        self._next += 1
        self._open[number] = question
        return number

    def _say_all(self, number: int) -> None:
        if number in self._open:  # else the session is over
            self._cluster_state.flush_pending()
            self._when_written(lambda: self._send(number))

    def _send(self, number: int) -> None:
        question = self._open.get(number)
        if question is None:
            return
        if self._cluster_state.has_unwritten(question.subjects):
            self._put_off.append(number)
            return
        question.routing_version = self._cluster_state.routing_version
        question.unreached.update(self._cluster_state.unreachable())
        self._ask_tables(question.peer, number)
