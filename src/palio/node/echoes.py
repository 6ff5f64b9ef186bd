"""`Echoes`: answers that are owed for facts, until all beyond have answered.

Whoever learned a fact passes it on, and answers once all its other neighbours have. Answers of one
origin are given in the order of its versions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Echoes", "KnownNeighbour", "PendingEcho"]


class PendingEcho:
    """An answer that is owed to whom a fact came from, or to ourselves (`parent` is None)."""

    __slots__ = ("about", "parent", "ticket", "unreached", "version")

    def __init__(
        self, version: int, parent: str | None, ticket: int = 0, about: frozenset[str] = frozenset()
    ) -> None:
        self.version = version
        self.parent = parent
        self.ticket = ticket
        self.about = about
        """Of our own facts, the subjects that it is asked about."""
        self.unreached: dict[str, None] = {}


class KnownNeighbour:
    """What a neighbour has, and what all beyond it have."""

    __slots__ = ("asked_at", "heard", "is_equal", "known_at", "missing", "unbelieved")

    def __init__(self, now: float) -> None:
        self.asked_at = now
        """When it was told what is known here."""
        self.known_at = now
        """When it said what it knows."""
        self.unbelieved: dict[str, None] = {}
        """Origins of which it said something that was not believed."""
        self.is_equal = False
        """Whether it has said what it knows and was sent the rest."""
        self.heard: dict[str, int] = {}
        """By origin, the version that it has answered for."""
        self.missing: dict[str, set[str]] = {}
        """By origin, the subjects of facts that it could not take."""


class Echoes:
    """What is owed, by origin. `neighbours` are those of the registry, which come and go."""

    def __init__(self, neighbours: Mapping[str, KnownNeighbour]) -> None:
        self._neighbours = neighbours
        self._pending: dict[str, deque[PendingEcho]] = {}

    @property
    def origins(self) -> list[str]:
        """Those for whose facts something is owed."""
        return list(self._pending)

    def owe(self, origin: str, echo: PendingEcho) -> None:
        """An answer is owed for what an origin said, before those for what it said later."""
        pending = self._pending.setdefault(origin, deque())
        place = len(pending)
        while place and pending[place - 1].version > echo.version:
            place -= 1
        pending.insert(place, echo)

    def call_off(self, origin: str, subject: str, newest: int) -> list[PendingEcho]:
        """What an origin said of a subject is not told: nothing newer than `newest` is to be
        answered. Take out the answers that are asked for about just that.
        """
        pending = self._pending.get(origin, ())
        for echo in pending:
            echo.version = min(echo.version, newest)
        if pending:
            self._pending[origin] = deque(each for each in pending if subject not in each.about)
        return [each for each in pending if subject in each.about]

    def note_unreached(
        self, origin: str, version: int, source: str, unreached: Iterable[str]
    ) -> None:
        """A neighbour answers up to a version that some brokers beyond it were not reached."""
        for echo in self._pending.get(origin, ()):
            if echo.version <= version and echo.parent != source:
                echo.unreached.update(dict.fromkeys(unreached))

    def leave(self, origin: str, name: str, gone: KnownNeighbour) -> None:
        """A neighbour is gone: it answers for nothing more, and is owed nothing."""
        pending = self._pending[origin]
        for echo in pending:
            if echo.version > gone.heard.get(origin, 0) and echo.parent != name:
                echo.unreached[name] = None
        self._pending[origin] = deque(echo for echo in pending if echo.parent != name)

    def complete(self, origin: str) -> Iterator[PendingEcho]:
        """Take out the answers for which all others have answered, in the order of versions."""
        pending = self._pending.get(origin)
        while pending:
            echo = pending[0]
            if not self._is_everywhere(origin, echo):
                return
            pending.popleft()
            for name, state in self._neighbours.items():
                if state.missing.get(origin) and name != echo.parent:
                    echo.unreached[name] = None
            yield echo
        self._pending.pop(origin, None)

    def _is_everywhere(self, origin: str, echo: PendingEcho) -> bool:
        return all(
            state.is_equal and state.heard.get(origin, 0) >= echo.version
            for name, state in self._neighbours.items()
            if name not in (echo.parent, origin)
        )
