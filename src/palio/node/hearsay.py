"""`Hearsay`: what one neighbour says that another one said, while that one could say it itself.

Where facts are not signed they are bound to the link they come by: of a broker that is a neighbour
a fact counts only if it comes from that neighbour. What comes by others is held until the neighbour
has said as much itself, and then answered for; or until its link is down, and then believed.
"""

from __future__ import annotations

from palio.node.limits import MAX_HEARSAY, MAX_HEARSAY_CHARS
from palio.protocol.messages import Fact

__all__ = ["Hearsay"]


class Hearsay:
    """Facts by origin, with the neighbours they came from.

    >>> hearsay = Hearsay()
    >>> hearsay.hold("c", Fact("a", 5, "links")), hearsay.answered("a", 4), hearsay.answered("a", 5)
    (True, {}, {'c': (5,)})
    """

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[str, Fact]]] = {}
        self._chars: dict[str, int] = {}
        """By source, what is held of its facts."""

    def hold(self, source: str, fact: Fact) -> bool:
        """Keep a fact for later, if there is room."""
        held = self._held.get(fact.origin, [])
        chars = self._chars.get(source, 0) + fact.chars
        if len(held) >= MAX_HEARSAY or chars > MAX_HEARSAY_CHARS:
            return False
        self._held.setdefault(fact.origin, []).append((source, fact))
        self._chars[source] = chars
        return True

    def answered(self, origin: str, version: int) -> dict[str, tuple[int, ...]]:
        """The origin has spoken up to a version: whom to answer, for which versions."""
        answers: dict[str, dict[int, None]] = {}
        kept = []
        for source, fact in self._held.pop(origin, ()):
            if fact.version > version:
                kept.append((source, fact))
            else:
                answers.setdefault(source, {})[fact.version] = None
                self._chars[source] -= fact.chars
        if kept:
            self._held[origin] = kept
        return {source: tuple(versions) for source, versions in answers.items()}

    def believed(self, gone: str) -> dict[str, list[Fact]]:
        """A neighbour is gone: what the others say that it said; what it said of others is not."""
        found: dict[str, list[Fact]] = {}
        for source, fact in self._held.pop(gone, ()):
            found.setdefault(source, []).append(fact)
            self._chars[source] -= fact.chars
        for origin in list(self._held):
            self._held[origin] = [each for each in self._held[origin] if each[0] != gone]
        self._chars.pop(gone, None)
        return found
