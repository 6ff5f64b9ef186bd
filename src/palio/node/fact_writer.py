"""`FactWriter`: what brokers say comes to the disk, of other brokers in the order in which it came.

By the newest that a broker knows of each other one it is told what it lacks. So its disk never has
what is newer without what came before: of others it writes one part at a time, and the next once
that is there. A part that the disk did not take is written again, before all that is newer.

It answers for what the disk did not take all the same, so that a full disk keeps nobody waiting;
but not for what waits for its turn: a broker that starts anew must know what it has answered for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

from palio.node.effects import Operation, PutFacts
from palio.node.registry import Registry
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact

__all__ = ["FactWriter"]


class Appending(Protocol):
    """Writes, and does something once it is on the disk, or if it cannot be (`Core.append`)."""

    def __call__(
        self,
        operations: Iterable[Operation],
        then: Callable[[], None],
        otherwise: Callable[[str], None],
    ) -> object: ...


class FactWriter:
    """What is yet to be written, of each subject the newest. This broker's own facts do not wait:
    what becomes of those that are refused is for `Untold` to say.

    >>> from palio.node.registry import Registry
    >>> appended = []
    >>> writer = FactWriter(Registry("b1"), lambda operations, *_: appended.append(operations))
    >>> for version in (4, 5):
    ...     writer.write([Fact("b2", version, "links")], (), lambda: None, lambda _reason: None)
    >>> [[fact.version for fact in put.facts] for (put,) in appended], len(writer)
    ([[4]], 1)
    """

    def __init__(self, registry: Registry, append: Appending) -> None:
        self._registry = registry
        self._append = append
        self._waiting: dict[tuple[str, str], Fact] = {}
        self._is_writing = False
        """Whether facts of others are on their way to the disk."""
        self._afterwards: list[Callable[[], None]] = []
        """What is done once all that waits has had its turn."""

    def __len__(self) -> int:
        return len(self._waiting)

    def write(
        self,
        news: Sequence[Fact],
        operations: Iterable[Operation],
        then: Callable[[], None],
        otherwise: Callable[[str], None],
    ) -> None:
        """Write what is new and what goes with it; of others what has waited longest, if it is its
        turn. `then` and `otherwise` are for what goes to the disk now, which this broker's own is.
        """
        own = [fact for fact in news if fact.origin == self._registry.name]
        others = self._before([fact for fact in news if fact.origin != self._registry.name])
        written = tuple(operations)
        if own or others:
            written = (PutFacts((*own, *others)), *written)

        def stored() -> None:
            self._over(others)
            try:
                then()
            finally:
                self.again()

        def refused(reason: str) -> None:
            try:
                otherwise(reason)
            finally:
                self._refused(others)

        if written:
            self._append(written, stored, refused)

    def again(self) -> None:
        """Time has passed, or the disk takes something: write what waits."""
        self.write((), (), lambda: None, lambda _reason: None)
        self._go_on()

    def when_written(self, then: Callable[[], None]) -> None:
        """Do something once all that is known now is on the disk, or was refused."""
        self._afterwards.append(then)
        self._go_on()

    # --- turns ---

    def _before(self, news: list[Fact]) -> list[Fact]:
        """What to write where some facts of others are new."""
        if not self._waiting and not self._is_writing:
            self._is_writing = bool(news)
            return news
        for fact in news:
            self._waiting.pop(_key(fact), None)
            self._waiting[_key(fact)] = fact
        return self._take()

    def _take(self) -> list[Fact]:
        """Some of what waits, if nothing is being written; none that was forgotten meanwhile."""
        taken: list[Fact] = []
        while self._waiting and not self._is_writing:
            first = list(islice(self._waiting, PORTION_FACTS))
            waiting = [self._waiting.pop(key) for key in first]
            taken = [fact for fact in waiting if self._registry.fact(*_key(fact)) is not None]
            self._is_writing = bool(taken)
        return taken

    def _over(self, facts: list[Fact]) -> None:
        """These were written, or refused."""
        if facts:
            self._is_writing = False

    def _refused(self, facts: list[Fact]) -> None:
        """They could not be written, and go before what waits already, but for those of which
        something newer waits: that stays behind what came before it.
        """
        self._over(facts)
        first = {_key(fact): fact for fact in facts if _key(fact) not in self._waiting}
        self._waiting = first | self._waiting
        self._go_on()

    def _go_on(self) -> None:
        """Do what was to be done, unless something waits for its turn."""
        if not self._afterwards or (self._waiting and self._is_writing):
            return
        afterwards, self._afterwards = self._afterwards, []

        def go_on(_reason: str = "") -> None:
            for then in afterwards:
                then()

        self._append((), go_on, go_on)


def _key(fact: Fact) -> tuple[str, str]:
    return fact.origin, fact.subject
