"""`FactWriter`: what brokers say comes to the disk, and what that refused once it takes writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from palio.node.operations import Operation, PutFacts
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
    """Writes facts in the order in which they came. As a disk keeps a prefix of what it is given
    (L1), it never has what is newer of an origin without what came before.

    It answers for what the disk refused all the same, so that a full disk keeps nobody waiting.

    >>> from palio.node.registry import Registry
    >>> appended = []
    >>> writer = FactWriter(Registry("b1"), lambda operations, *_: appended.append(operations))
    >>> writer.write([Fact("b2", 4, "links")], lambda: None, lambda _reason: None)
    >>> [[fact.version for fact in put.facts] for (put,) in appended], len(writer)
    ([[4]], 0)
    """

    def __init__(self, registry: Registry, append: Appending) -> None:
        self._registry = registry
        self._append = append
        self._refused: dict[tuple[str, str], Fact] = {}
        """Of each subject of others the newest that the disk did not take."""

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

        def refused(reason: str) -> None:
            for fact in news:
                if fact.origin != self._registry.name:
                    self._refused.pop((fact.origin, fact.subject), None)
                    self._refused[fact.origin, fact.subject] = fact
            otherwise(reason)

        self._append((PutFacts(tuple(news)),), then, refused)

    def again(self) -> None:
        """The disk takes writes again: write what it refused and what still counts."""
        refused, self._refused = self._refused, {}
        facts = [fact for key, fact in refused.items() if self._registry.fact(*key) is fact]
        facts.sort(key=lambda fact: fact.version)
        for first in range(0, len(facts), PORTION_FACTS):
            some = facts[first : first + PORTION_FACTS]
            self.write(some, lambda: None, lambda _reason: None)

    def when_written(self, then: Callable[[], None]) -> None:
        """Do something once all that is known now is on the disk, or was refused."""
        self._append((), then, lambda _reason: then())
