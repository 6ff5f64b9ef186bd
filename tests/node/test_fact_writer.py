"""`FactWriter`: a disk has nothing newer of a broker without what came before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import pytest

from palio.node.effects import Moment
from palio.node.fact_writer import FactWriter
from palio.node.operations import Operation, PutFacts
from palio.node.registry import Registry
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact, Facts


class Written:
    """A writer whose appends a test lets succeed or fail, in order."""

    def __init__(self) -> None:
        self.registry = Registry("b1")
        self.registry.join("b2", Moment(0.0, 0))
        self.open: deque[tuple[tuple[Operation, ...], Callable[[], None], Callable[[str], None]]]
        self.open = deque()
        self.told: list[str] = []
        self.writer = FactWriter(self.registry, self._append)

    def _append(
        self,
        operations: Iterable[Operation],
        then: Callable[[], None],
        otherwise: Callable[[str], None],
    ) -> None:
        self.open.append((tuple(operations), then, otherwise))

    def write(self, *facts: Fact, operations: tuple[Operation, ...] = ()) -> None:
        for start in range(0, len(facts), PORTION_FACTS):
            others = tuple(fact for fact in facts if fact.origin != "b1")
            said = others[start : start + PORTION_FACTS]
            self.registry.receive("b2", Facts(said), Moment(0.0, 0))
        told = [f"{fact.origin} {fact.version}" for fact in facts[:1]]
        self.writer.write(
            facts,
            operations,
            lambda: self.told.extend(told),
            lambda reason: self.told.extend(f"{each} {reason}" for each in told),
        )

    def facts(self) -> list[list[Fact]]:
        """What the appends that are open write."""
        return [
            [fact for each in operations if isinstance(each, PutFacts) for fact in each.facts]
            for operations, _, _ in self.open
        ]

    def succeed(self) -> None:
        _, then, _ = self.open.popleft()
        then()

    def fail(self) -> None:
        _, _, otherwise = self.open.popleft()
        otherwise("full")


@pytest.fixture
def written() -> Written:
    return Written()


FACTS = [Fact("b2", 1 + n, f"ann/{n}", filter="x > 0") for n in range(PORTION_FACTS + 5)]
OWN = Fact("b1", 1, "links")


def test_what_was_refused_is_written_before_what_is_newer(written: Written) -> None:
    """Or a broker that starts again would know the new, and be told nothing of what came before."""
    written.write(FACTS[0])
    written.write(FACTS[1])
    written.fail()
    assert written.facts() == []
    assert len(written.writer) == 2
    written.writer.again()
    assert written.facts() == [FACTS[:2]]
    written.fail()
    written.write(FACTS[2])
    assert written.facts() == [FACTS[:3]]
    assert written.told == ["b2 1 full"]


def test_it_is_written_in_portions_and_what_is_newer_stays_behind_what_came_before(
    written: Written,
) -> None:
    newer = Fact("b2", 999, "ann/0", filter="x > 1")
    written.write(FACTS[0])
    written.write(*FACTS[1:])
    written.write(newer)
    written.fail()  # of that subject the newer waits, behind all others
    written.writer.again()
    assert written.facts() == [FACTS[1 : PORTION_FACTS + 1]]
    written.succeed()
    assert written.facts() == [[*FACTS[PORTION_FACTS + 1 :], newer]]


def test_what_is_answered_for_was_written_or_refused(written: Written) -> None:
    done: list[int] = []

    def ask() -> None:
        number = len(done)
        written.writer.when_written(lambda: done.append(number))

    written.write(FACTS[0])
    ask()  # behind what is on its way
    assert [operations for operations, _, _ in written.open][1:] == [()]
    written.open.pop()[1]()
    assert done == [0]
    written.write(FACTS[1])
    ask()
    assert len(written.open) == 1, "what it is about waits for its turn"
    written.succeed()
    assert written.facts() == [[FACTS[1]], []]
    written.open.pop()[1]()
    assert done == [0, 1]
    written.write(FACTS[2])
    ask()
    written.fail()
    assert written.facts() == [[]], "a full disk keeps nobody waiting"
    written.fail()
    assert done == [0, 1, 2]
