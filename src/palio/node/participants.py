"""`Participants`: the brokers that take part in multicast flows, by their facts.

Such a fact (`PART`) has the broker's incarnation in `claimed_us`. Its text is two plans by their
ids, 0 for none: that whose groups the broker has joined, and that by which it sends. An empty text
ends the participation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from palio.node.fact_verifier import PART
from palio.protocol.limits import MAX_NUMBER
from palio.protocol.messages import Fact


class Participant(NamedTuple):
    """A broker that takes part."""

    incarnation: int
    joined: tuple[int, ...]
    """The plan whose groups it has joined, preceded by one that it may not have left yet."""
    used: int
    """The plan by which it sends."""


def text_of(joined: int, used: int) -> str:
    """Return a broker's statement under `PART`.

    >>> text_of(7, 0)
    '7 0'
    """
    return f"{joined} {used}"


class Participants(dict[str, Participant]):
    """The participating brokers, by name.

    >>> participants = Participants()
    >>> participants.learn([Fact("b2", 1, PART, filter="7 0", claimed_us=5)])
    ['b2']
    >>> participants.learn([Fact("b2", 2, PART, filter="8 7", claimed_us=5)]), participants["b2"]
    (['b2'], Participant(incarnation=5, joined=(7, 8), used=7))
    >>> participants.learn([Fact("b2", 3, PART, filter="what?", claimed_us=5)]), participants
    (['b2'], {})
    """

    def learn(self, facts: Iterable[Fact]) -> list[str]:
        """Apply new facts; return the brokers that they are about."""
        origins: dict[str, None] = {}
        for fact in facts:
            if fact.subject == PART:
                origins[fact.origin] = None
                self._learn(fact)
        return list(origins)

    def _learn(self, fact: Fact) -> None:
        before = self.pop(fact.origin, None)
        numbers = _read(fact.filter)
        if numbers is None:
            return
        joined, used = numbers
        is_same = before is not None and before.incarnation == fact.claimed_us and before.joined
        earlier = before.joined[-1] if before is not None and is_same else joined
        plans = tuple(dict.fromkeys(plan for plan in (earlier, joined) if plan))
        self[fact.origin] = Participant(fact.claimed_us, plans, used)


def _read(text: str) -> tuple[int, int] | None:
    """Return the two numbers of a statement; None if it is malformed."""
    parts = text.split(" ")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    if any(len(part) > len(str(MAX_NUMBER)) for part in parts):
        return None
    joined, used = map(int, parts)
    return joined, used
