"""Where facts go: to the disk (`FactWriter`), and on to neighbours (`FactReports`).

When the tree of a hundred brokers changes, each of them says who its neighbours are and that events
may have been lost. All of that crosses every link. One message for each would be thousands. So what
comes is passed on at once a few times (`FACTS_AT_ONCE`); where more comes, once in `FACTS_S` all of
it in one message a neighbour, in its order. A broker that has much to do waits longer (`throttle`).

Facts about durable subscriptions go at once. Nothing but routing tables, which do not depend on
facts, overtakes what waits (`Neighbour.before`), and no wave does: it asks about facts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Protocol

from palio.node.limits import FACTS_AT_ONCE, FACTS_S, MAX_PAUSE_S
from palio.node.operations import Operation, PutFacts
from palio.node.registry import Registry
from palio.node.sessions import Neighbour
from palio.node.throttle import Lag, Throttle
from palio.node.vouching import is_subscription
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact, Facts


class _Appending(Protocol):
    """Writes, and does something once it is on the disk, or if it cannot be (`Core.append`)."""

    def __call__(
        self,
        operations: Iterable[Operation],
        then: Callable[[], None],
        otherwise: Callable[[str], None],
    ) -> object: ...


class FactWriter:
    """Writes facts in the order in which they came. As a disk keeps a prefix of what it is given
    (L1), it never has what is newer of an origin without what came before.

    A full disk keeps nobody waiting: what it refused is done with, as what is on it.

    >>> from palio.node.registry import Registry
    >>> appended = []
    >>> writer = FactWriter(Registry("b1"), lambda operations, *_: appended.append(operations))
    >>> writer.write([Fact("b2", 4, "links")], lambda: None, lambda _reason: None)
    >>> [[fact.version for fact in put.facts] for (put,) in appended], len(writer)
    ([[4]], 0)
    """

    def __init__(self, registry: Registry, append: _Appending) -> None:
        self._registry = registry
        self._append = append
        self._refused: dict[tuple[str, str], Fact] = {}
        """The newest fact of each subject of others that the disk did not take."""
        self._under_way = 0
        """Writes that the disk has neither taken nor refused."""

    def __len__(self) -> int:
        return len(self._refused)

    def write(
        self,
        news: Sequence[Fact],
        then: Callable[[], None],
        otherwise: Callable[[str], None],
    ) -> None:
        """Write what is new. What becomes of this broker's own that are refused is for `Untold` to
        say.
        """

        def written() -> None:
            self._under_way -= 1
            then()

        def refused(reason: str) -> None:
            self._under_way -= 1
            for fact in news:
                if fact.origin != self._registry.name:
                    self._refused.pop((fact.origin, fact.subject), None)
                    self._refused[fact.origin, fact.subject] = fact
            otherwise(reason)

        self._under_way += 1
        self._append((PutFacts(tuple(news)),), written, refused)

    def again(self) -> None:
        """The disk takes writes again: write what it refused and what still counts."""
        refused, self._refused = self._refused, {}
        facts = [fact for key, fact in refused.items() if self._registry.fact(*key) is fact]
        facts.sort(key=lambda fact: fact.version)
        for first in range(0, len(facts), PORTION_FACTS):
            some = facts[first : first + PORTION_FACTS]
            self.write(some, lambda: None, lambda _reason: None)

    @property
    def is_writing(self) -> bool:
        """True if the disk has yet to take or refuse something."""
        return self._under_way > 0


class FactReports:
    """Facts that wait to be passed on: `tell` is called with them."""

    def __init__(self, tell: Callable[[Neighbour, Facts], None], lag: Lag) -> None:
        self._tell = tell
        self._facts: dict[Neighbour, list[Fact]] = {}
        """In the order in which they are to be told."""
        self._throttle = Throttle(FACTS_S, MAX_PAUSE_S, FACTS_AT_ONCE, lag)

    def put(self, neighbour: Neighbour, message: Facts) -> None:
        """A neighbour is to be told something: with the next `look` that is due."""
        waiting = self._facts.setdefault(neighbour, [])
        neighbour.before = partial(self.hurry, neighbour)
        waiting += message.facts
        is_urgent = any(is_subscription(fact.subject) for fact in message.facts)
        if is_urgent or len(waiting) >= PORTION_FACTS:
            self.hurry(neighbour)

    def hurry(self, neighbour: Neighbour) -> None:
        """Send a neighbour the facts that wait."""
        neighbour.before = None
        facts = self._facts.pop(neighbour, None)
        if facts:
            self._tell(neighbour, Facts(tuple(facts)))

    @property
    def wake_at(self) -> float:
        """When `look` is next to be called."""
        return self._throttle.due_at if self._facts else inf

    def look(self, now: float) -> None:
        """Something has happened, or it is time: tell what is to be told by now."""
        if self.wake_at > now:
            return
        self._throttle.tell(now)
        for neighbour in list(self._facts):
            self.hurry(neighbour)
