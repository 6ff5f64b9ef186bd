"""`FactReports`: what brokers say of the network, where it is much, is told on together.

When the tree of a hundred brokers changes, each of them says who its neighbours are and that events
may have been lost. All of that crosses every link, and is answered on each. One message for each
would be tens of thousands. So what comes is told on at once a few times (`FACTS_AT_ONCE`); where
more comes, once in `FACTS_S` all of it in one message a neighbour: facts in their order, and then
the answers, those that are alike as one. A broker that has much to do waits longer (`throttle`).

Facts about durable subscriptions go at once. Nothing but routing tables, which do not depend on
facts, overtakes what waits (`Neighbour.before`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import TypeAlias

from palio.node.limits import FACTS_AT_ONCE, FACTS_S, MAX_BROKERS, MAX_PAUSE_S
from palio.node.sessions import Neighbour
from palio.node.throttle import Lag, Throttle
from palio.node.vouching import is_subscription
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Echo, Echoed, Fact, Facts

__all__ = ["Answers", "FactReports", "bundled"]

Answers: TypeAlias = dict[Neighbour, dict[str, list[Echo]]]
"""By neighbour and origin, in the order in which they are given."""


class FactReports:
    """What waits to be told on. `tell` is called with facts, and `answer` with answers, which may
    be given once all that was learned is on the disk.
    """

    def __init__(
        self,
        tell: Callable[[Neighbour, Facts], None],
        answer: Callable[[Answers], None],
        lag: Lag,
    ) -> None:
        self._tell = tell
        self._answer = answer
        self._facts: dict[Neighbour, list[Fact]] = {}
        """In the order in which they are to be told."""
        self._answers: Answers = {}
        self._throttle = Throttle(FACTS_S, MAX_PAUSE_S, FACTS_AT_ONCE, lag)

    def put(self, neighbour: Neighbour, message: Facts | Echo) -> None:
        """A neighbour is to be told something: with the next `look` that is due."""
        if isinstance(message, Echo):
            said = self._answers.setdefault(neighbour, {}).setdefault(message.origin, [])
            last = said[-1] if said else None
            if last is None or last.unreached != message.unreached or _is_too_much(last, message):
                said.append(message)
            else:
                said[-1] = Echo(last.origin, (*last.versions, *message.versions), last.unreached)
            return
        waiting = self._facts.setdefault(neighbour, [])
        neighbour.before = partial(self.hurry, neighbour)
        waiting += message.facts
        if len(waiting) >= PORTION_FACTS or any(map(is_subscription, _subjects(message.facts))):
            self.hurry(neighbour)

    def hurry(self, neighbour: Neighbour) -> None:
        """Tell a neighbour the facts that wait."""
        neighbour.before = None
        facts = self._facts.pop(neighbour, None)
        if facts:
            self._tell(neighbour, Facts(tuple(facts)))

    @property
    def wake_at(self) -> float:
        """When `look` is next to be called."""
        if self._facts or self._answers:
            return self._throttle.due_at
        return inf

    def look(self, now: float) -> None:
        """Something has happened, or it is time: tell what is to be told by now."""
        if self.wake_at > now:
            return
        if self._facts:
            self._throttle.tell(now)
            for neighbour in list(self._facts):
                self.hurry(neighbour)
        if self._answers:
            answers, self._answers = self._answers, {}
            self._answer(answers)


def bundled(echoes: Iterable[Echo]) -> Iterator[Echo | Echoed]:
    """Answers as messages, each of which a neighbour takes.

    >>> [type(each).__name__ for each in bundled([Echo("b1", (4,))])]
    ['Echo']
    >>> for each in next(bundled([Echo("b1", (4, 5)), Echo("b2", (7,))])).echoes:
    ...     print(each)
    Echo(origin='b1', versions=(4, 5), unreached=())
    Echo(origin='b2', versions=(7,), unreached=())
    """
    part: list[Echo] = []
    versions = names = 0
    for echo in echoes:
        versions += len(echo.versions)
        names += len(echo.unreached)
        if part and (versions > PORTION_FACTS or names > MAX_BROKERS):
            yield _joined(part)
            part, versions, names = [], len(echo.versions), len(echo.unreached)
        part.append(echo)
    if part:
        yield _joined(part)


def _joined(part: list[Echo]) -> Echo | Echoed:
    return part[0] if len(part) == 1 else Echoed(tuple(part))


def _is_too_much(one: Echo, other: Echo) -> bool:
    return len(one.versions) + len(other.versions) > PORTION_FACTS


def _subjects(facts: Iterable[Fact]) -> Iterator[str]:
    return (fact.subject for fact in facts)
