"""`Later`: facts that are learned a message at a time, with other inputs in between.

When a link is down, all that others had said of the neighbour at its other end is believed at once,
and that may be much. What comes of the same origins meanwhile waits behind it: the facts of an
origin are learned in their order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact

__all__ = ["Later", "Said"]


class Said(NamedTuple):
    """Facts, and the neighbour that said them."""

    source: str
    facts: Sequence[Fact]


class Later:
    """What is yet to be learned, in order.

    >>> later = Later()
    >>> later.put("c", [Fact("a", 5, "links")])
    >>> later.concerns([Fact("a", 6, "links")]), later.concerns([Fact("b", 6, "links")])
    (True, False)
    >>> later.take().source, later.take()
    ('c', None)
    """

    def __init__(self) -> None:
        self.waiting: deque[Said] = deque()
        self._origins: Counter[str] = Counter()

    def put(self, source: str, facts: Sequence[Fact]) -> None:
        """Facts wait behind those before, no more at a time than a message has."""
        for start in range(0, len(facts), PORTION_FACTS):
            self.waiting.append(Said(source, facts[start : start + PORTION_FACTS]))
        self._origins.update(fact.origin for fact in facts)

    def concerns(self, facts: Sequence[Fact]) -> bool:
        """Whether others of their origins wait."""
        return bool(self.waiting) and any(fact.origin in self._origins for fact in facts)

    def take(self) -> Said | None:
        """What is learned next."""
        if not self.waiting:
            return None
        said = self.waiting.popleft()
        self._origins.subtract(fact.origin for fact in said.facts)
        self._origins = +self._origins
        return said

    def forget(self, source: str) -> None:
        """A neighbour is gone: what it said of others is not believed."""
        left = [each for each in self.waiting if each.source != source]
        self.waiting.clear()
        self.waiting += left
        self._origins = Counter(fact.origin for said in self.waiting for fact in said.facts)
