"""`Settling`: questions whether all is in force, each open until all that it takes have answered.

Three have to, one after the other: the disk; the registry, once brokers have what this one has said
of itself; and the routing tables, through which a wave goes to whoever is beyond. Whoever was not
reached is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from palio.node.limits import SHOWN_CHARS
from palio.node.registry import Registry
from palio.node.sessions import Session
from palio.routing.protocol import Peer

__all__ = ["Settling"]

Then: TypeAlias = Callable[[tuple[str, ...]], None]
"""What is done once all have answered: it is told who was not reached."""


class _AskTables(Protocol):
    """Have the routing tables send a wave, as if somebody at a place of theirs had asked."""

    def __call__(self, peer: Peer, wave: int, /) -> None: ...


class _AskDisk(Protocol):
    """Do something once what is being written is on the disk, or cannot be written."""

    def __call__(self, then: Callable[[], None], /) -> None: ...


class _Wave:
    """A question, open until so many have answered."""

    __slots__ = ("open", "then", "unreached")

    def __init__(self, open: int, then: Then) -> None:
        self.open = open
        self.then = then
        self.unreached: dict[str, None] = {}


class Settling:
    """The questions that are open, by number."""

    def __init__(self, registry: Registry, ask_tables: _AskTables, ask_disk: _AskDisk) -> None:
        self._registry = registry
        self._ask_tables = ask_tables
        self._ask_disk = ask_disk
        self._open: dict[int, _Wave] = {}
        self._next = 1

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def when_in_force(self, session: Session, then: Then) -> None:
        """Do something once all that a client asked for is in force everywhere, and on the disk
        here.
        """

        def done(unreached: tuple[str, ...]) -> None:
            del session.waves[wave]
            then(unreached)

        def on_disk() -> None:
            """What is on the disk is announced by now, and what could not be written refused."""
            if wave not in self._open:
                return  # the session is over

            def in_view(unreached: tuple[str, ...]) -> None:
                """Ask the tables only now: while the registry waited, links may have come into
                use, and what is under way on these is theirs to answer for.
                """
                del session.waves[view]
                self.answered(wave, unreached)
                self._ask_tables(session.peer, wave)

            view = self._begin(1, in_view)
            session.waves[view] = None
            mine = frozenset(each.subject for each in session.durables.values())
            self._registry.settle(view, mine)

        wave = self._begin(2, done)
        session.waves[wave] = None
        self._ask_disk(on_disk)

    def when_known(self, then: Then) -> None:
        """Do something once all brokers know what this one has said of itself, but for some."""
        self._registry.settle(self._begin(1, then))

    def when_through(self, peer: Peer, then: Then) -> None:
        """Do something once all that this broker has told its neighbours is in force beyond."""
        self._ask_tables(peer, self._begin(1, then))

    def end(self, session: Session) -> None:
        """A session is over: nobody waits for what it asked, and perhaps nobody answers."""
        for wave in session.waves:
            del self._open[wave]
        session.waves.clear()

    def answered(self, wave: int, unreached: Iterable[str]) -> None:
        """Routing tables or registry have answered."""
        state = self._open.get(wave)
        if state is None:
            return
        named = tuple(unreached)
        known = [each for each in named if self._registry.has_heard_of(each)]
        # What nobody has heard of is not told on; that somebody is unreached is.
        state.unreached.update(dict.fromkeys(known or [each[:SHOWN_CHARS] for each in named[:1]]))
        state.open -= 1
        if state.open == 0:
            del self._open[wave]
            state.then(tuple(sorted(state.unreached)))

    def _begin(self, open: int, then: Then) -> int:
        wave = self._next
        self._next += 1
        self._open[wave] = _Wave(open, then)
        return wave
