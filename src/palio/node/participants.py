"""`Participants`: who takes part in flows, as brokers say in facts.

Such a fact (`PART`) has the incarnation of the broker in `claimed_us`, and as its text two plans
by their ids, 0 for none: that whose groups it has joined, and that by which it sends. An empty
text says that it takes part no longer.
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
    """The plan whose groups it has joined, and before it that which it may not have left yet."""
    used: int
    """The plan by which it sends."""


def text_of(joined: int, used: int) -> str:
    """A broker's statement under `PART`.

    >>> text_of(7, 0)
    '7 0'
    """
    return f"{joined} {used}"


class Participants(dict[str, Participant]):
    """Those that are known, by name.

    >>> known = Participants()
    >>> known.learn([Fact("b2", 1, PART, filter="7 0", claimed_us=5)])
    ['b2']
    >>> known.learn([Fact("b2", 2, PART, filter="8 7", claimed_us=5)]), known["b2"]
    (['b2'], Participant(incarnation=5, joined=(7, 8), used=7))
    >>> known.learn([Fact("b2", 3, PART, filter="what?", claimed_us=5)]), known
    (['b2'], {})
    """

    def learn(self, facts: Iterable[Fact]) -> list[str]:
        """Facts are new: whom they concern."""
        concerned: dict[str, None] = {}
        for fact in facts:
            if fact.subject == PART:
                concerned[fact.origin] = None
                self._learn(fact)
        return list(concerned)

    def _learn(self, fact: Fact) -> None:
        before = self.pop(fact.origin, None)
        said = _read(fact.filter)
        if said is None:
            return
        joined, used = said
        is_same = before is not None and before.incarnation == fact.claimed_us and before.joined
        earlier = before.joined[-1] if before is not None and is_same else joined
        plans = tuple(dict.fromkeys(each for each in (earlier, joined) if each))
        self[fact.origin] = Participant(fact.claimed_us, plans, used)


def _read(text: str) -> tuple[int, int] | None:
    """Two numbers, or None for what is neither."""
    parts = text.split(" ")
    if len(parts) != 2 or not all(each.isascii() and each.isdecimal() for each in parts):
        return None
    if any(len(each) > len(str(MAX_NUMBER)) for each in parts):
        return None
    joined, used = map(int, parts)
    return joined, used
