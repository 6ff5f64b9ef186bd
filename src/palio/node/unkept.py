"""`Unkept`: what other brokers have said, and the disk of this one did not take.

It answers for that all the same, so that a full disk keeps nobody waiting. So it is written again
until it is there: a broker that starts anew must know what it has answered for. Nothing that is
newer is written before it: by the newest that a broker knows of each other one it is told what it
lacks. (What was on its way when it failed may come to the disk: then it is made good at once.)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from palio.node.registry import Registry
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact

__all__ = ["Unkept"]


class Unkept:
    """The facts that are yet to be written, by origin and subject.

    >>> from palio.node.registry import Registry
    >>> unkept = Unkept(Registry("b1"))
    >>> unkept.refuse([Fact("b2", 4, "ann/d"), Fact("b1", 1, "links")])
    >>> len(unkept)
    1
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[tuple[str, str], None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def refuse(self, facts: Iterable[Fact]) -> None:
        """They could not be written, and go before what waits already. This broker's own have a way
        of their own (`Untold`).
        """
        self._waiting = self._keys(facts) | self._waiting

    def before(self, news: list[Fact]) -> list[Fact]:
        """What to write where some facts are new: of those of others what has waited longest."""
        if not self._waiting:
            return news
        later = self._keys(news)
        for key in later:
            self._waiting.pop(key, None)
        self._waiting |= later
        return [fact for fact in news if fact.origin == self._registry.name] + self.take()

    def take(self) -> list[Fact]:
        """Some of them as they are known now, to be written; none that was forgotten meanwhile."""
        keys = list(islice(self._waiting, PORTION_FACTS))
        for key in keys:
            del self._waiting[key]
        found = [self._registry.fact(*key) for key in keys]
        return [fact for fact in found if fact is not None]

    def _keys(self, facts: Iterable[Fact]) -> dict[tuple[str, str], None]:
        own = self._registry.name
        return dict.fromkeys((each.origin, each.subject) for each in facts if each.origin != own)
