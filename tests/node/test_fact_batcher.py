"""Facts are written in order, and told on together where they are many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import pytest

from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment
from palio.node.fact_batcher import FactBatcher, FactWriter
from palio.node.fact_verifier import LINKS, LOSS_REPORT
from palio.node.limits import BEHIND_S, FACTS_BURST, FACTS_INTERVAL_S, MAX_INTERVAL_S
from palio.node.operations import Operation, PutFacts
from palio.node.sessions import Neighbour
from palio.node.settings import Settings
from palio.node.throttle import Lag
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Fact, Facts, Message, Probed
from palio.routing.algorithms import find_algorithm
from palio.simulation.topologies import star
from palio.simulation.world import World


class Told:
    """Two neighbours, and what they are told."""

    def __init__(self) -> None:
        self.world = World.of(star(3), find_algorithm("general").new, settings=SETTINGS)
        self.one, self.other = self.world.nodes["b1"]._core.neighbours.values()
        self.facts: list[tuple[Neighbour, Facts]] = []
        self.lag = Lag()
        self.reports = FactBatcher(
            lambda neighbour, facts: self.facts.append((neighbour, facts)), self.lag
        )


SETTINGS = Settings(routing="general", discovery=True)


def fact(origin: str, version: int, subject: str = LOSS_REPORT) -> Fact:
    return Fact(origin, version, subject)


def test_a_few_are_told_at_once_and_then_all_that_came_in_a_while() -> None:
    told = Told()
    for number in range(FACTS_BURST):
        told.reports.put(told.one, Facts((fact("b9", number + 1),)))
        told.reports.send_due(5.0)
        assert len(told.facts) == number + 1
    for number in range(20):
        told.reports.put(told.one, Facts((fact(f"c{number}", 1),)))
        told.reports.send_due(5.0)
    assert len(told.facts) == FACTS_BURST
    assert told.reports.wake_at == pytest.approx(5.0 + FACTS_INTERVAL_S)
    told.reports.send_due(told.reports.wake_at)
    assert [len(facts.facts) for _, facts in told.facts[FACTS_BURST:]] == [20]
    assert told.one.before is None


def test_who_has_no_time_tells_more_with_each_message() -> None:
    told = Told()
    told.lag.note(BEHIND_S, 5.0)
    for number in range(FACTS_BURST + 1):
        told.reports.put(told.one, Facts((fact("b9", number + 1),)))
        told.reports.send_due(5.0)
    assert told.reports.wake_at == pytest.approx(5.0 + MAX_INTERVAL_S)


def test_all_is_told_in_its_order() -> None:
    told = Told()
    said = [fact("a", 1), fact("b", 5), fact("a", 2, LINKS), fact("a", 3)]
    for each in said:
        told.reports.put(told.one, Facts((each,)))
    told.reports.send_due(0.0)
    assert told.facts == [(told.one, Facts(tuple(said)))]


def test_what_is_durable_goes_at_once_behind_what_waits_for_that_neighbour() -> None:
    told = Told()
    lapse, durable = fact("a", 1), fact("a", 2, "alice/orders")
    told.reports.put(told.other, Facts((lapse,)))
    told.reports.put(told.one, Facts((lapse,)))
    told.reports.put(told.one, Facts((durable,)))
    assert told.facts == [(told.one, Facts((lapse, durable)))]


def test_nothing_that_a_neighbour_is_told_overtakes_facts() -> None:
    told = Told()
    told.reports.put(told.one, Facts((fact("a", 1),)))
    told.one.send([], Probed(1, ()))
    assert len(told.facts) == 1
    assert told.one.before is None


@pytest.mark.parametrize(("count", "messages"), [(PORTION_FACTS - 1, 0), (PORTION_FACTS, 1)])
def test_a_message_that_is_full_goes_at_once(count: int, messages: int) -> None:
    told = Told()
    for number in range(count):
        told.reports.put(told.one, Facts((fact(f"c{number}", 1),)))
    assert len(told.facts) == messages


def test_a_change_of_the_whole_network_takes_few_messages() -> None:
    """All leaves of a star say at once that it has come together."""
    counts = [0, 0]

    def count(_sender: str, message: Message) -> bool:
        if isinstance(message, Facts):
            counts[0] += 1
            counts[1] += len(message.facts)
        return False

    world = World(settings=SETTINGS)
    world.spoils = count
    topology = star(40)
    for name in topology.brokers:
        world.add_broker(name, find_algorithm("general").new)
    for one, other in topology.edges:
        world.connect(one, other)
    world.run(10.0)
    assert counts[0] < counts[1] / 4
    listener, publisher = world.client("alice", "b1"), world.client("bob", "b20")
    listener.subscribe("TRUE")
    world.run(1.0)
    publisher.publish({"x": 1})
    world.run(1.0)
    assert [row["x"] for _, _, row in listener.heard] == [1]


# --- the disk has nothing newer of a broker without what came before ---


class Written:
    """A writer whose appends a test lets succeed or fail, in order."""

    def __init__(self) -> None:
        self.cluster_state = ClusterState("b1")
        self.cluster_state.peer_up("b2", Moment(0.0, 0))
        self.open: deque[tuple[tuple[Operation, ...], Callable[[], None], Callable[[str], None]]]
        self.open = deque()
        self.told: list[str] = []
        self.writer = FactWriter(self.cluster_state, self._append)

    def _append(
        self,
        operations: Iterable[Operation],
        on_success: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self.open.append((tuple(operations), on_success, on_failure))

    def write(self, *facts: Fact) -> None:
        for start in range(0, len(facts), PORTION_FACTS):
            others = tuple(fact for fact in facts if fact.origin != "b1")
            said = others[start : start + PORTION_FACTS]
            self.cluster_state.receive("b2", Facts(said), Moment(0.0, 0))
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
    written.writer.retry()
    assert written.facts() == [[FACTS[1], newer]], "of each subject the newest"
    written.fail()
    written.writer.retry()
    written.succeed()
    assert (written.facts(), len(written.writer)) == ([], 0)
    assert written.told == ["b2 1 full", "b2 2 full", "b2 999 full"]


def test_it_is_written_in_portions(written: Written) -> None:
    written.write(*FACTS)
    written.fail()
    written.writer.retry()
    assert written.facts() == [FACTS[:PORTION_FACTS], FACTS[PORTION_FACTS:]]


def test_own_facts_are_left_to_whoever_says_them_again(written: Written) -> None:
    written.write(OWN)
    written.fail()
    assert (len(written.writer), written.told) == (0, ["b1 1 full"])


def test_it_is_writing_until_all_was_written_or_refused(written: Written) -> None:
    """A full disk keeps nobody waiting."""
    written.write(FACTS[0])
    written.write(FACTS[1])
    written.succeed()
    assert written.writer.is_writing
    written.fail()
    assert not written.writer.is_writing
