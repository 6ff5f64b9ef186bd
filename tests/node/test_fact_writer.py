"""`FactWriter`: a disk has nothing newer of a broker without what came before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

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

    def write(self, *facts: Fact) -> None:
        for start in range(0, len(facts), PORTION_FACTS):
            others = tuple(fact for fact in facts if fact.origin != "b1")
            said = others[start : start + PORTION_FACTS]
            self.registry.receive("b2", Facts(said), Moment(0.0, 0))
        told = [f"{fact.origin} {fact.version}" for fact in facts[:1]]
        self.writer.write(
            facts,
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


def test_what_was_refused_is_written_once_the_disk_takes_writes(written: Written) -> None:
    for fact in FACTS[:2]:
        written.write(fact)
    newer = Fact("b2", 999, "ann/0", filter="x > 1")
    written.write(newer)
    for _ in range(3):  # a disk keeps a prefix of what it is given
        written.fail()
    assert (written.facts(), len(written.writer)) == ([], 2)
    written.writer.again()
    assert written.facts() == [[FACTS[1], newer]], "of each subject the newest"
    written.fail()
    written.writer.again()
    written.succeed()
    assert (written.facts(), len(written.writer)) == ([], 0)
    assert written.told == ["b2 1 full", "b2 2 full", "b2 999 full"]


def test_it_is_written_in_portions(written: Written) -> None:
    written.write(*FACTS)
    written.fail()
    written.writer.again()
    assert written.facts() == [FACTS[:PORTION_FACTS], FACTS[PORTION_FACTS:]]


def test_own_facts_are_left_to_whoever_says_them_again(written: Written) -> None:
    written.write(OWN)
    written.fail()
    assert (len(written.writer), written.told) == (0, ["b1 1 full"])


def test_what_is_answered_for_was_written_or_refused(written: Written) -> None:
    done: list[int] = []
    for number in range(2):
        written.writer.when_written(partial(done.append, number))
    assert [operations for operations, _, _ in written.open] == [(), ()]
    written.succeed()
    written.fail()
    assert done == [0, 1], "a full disk keeps nobody waiting"
