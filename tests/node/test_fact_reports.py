"""Facts about the network are told on together where they are many."""

from __future__ import annotations

import pytest

from palio.node.fact_reports import Answers, FactReports, bundled
from palio.node.limits import BEHIND_S, FACTS_AT_ONCE, FACTS_S, MAX_BROKERS, MAX_PAUSE_S
from palio.node.sessions import Neighbour
from palio.node.settings import Settings
from palio.node.throttle import Lag
from palio.node.vouching import LAPSE, LINKS
from palio.protocol.limits import PORTION_FACTS
from palio.protocol.messages import Echo, Echoed, Fact, Facts, Message
from palio.routing.algorithms import find_algorithm
from palio.simulation.topologies import star
from palio.simulation.world import World


class Told:
    """Two neighbours, and what they are told."""

    def __init__(self) -> None:
        self.world = World.of(star(3), find_algorithm("general").new, settings=SETTINGS)
        self.one, self.other = self.world.nodes["b1"]._core.neighbours.values()
        self.facts: list[tuple[Neighbour, Facts]] = []
        self.answers: list[Answers] = []
        self.lag = Lag()
        self.reports = FactReports(
            lambda neighbour, facts: self.facts.append((neighbour, facts)),
            self.answers.append,
            self.lag,
        )


SETTINGS = Settings(routing="general", find=True)


def fact(origin: str, version: int, subject: str = LAPSE) -> Fact:
    return Fact(origin, version, subject)


def test_a_few_are_told_at_once_and_then_all_that_came_in_a_while() -> None:
    told = Told()
    for number in range(FACTS_AT_ONCE):
        told.reports.put(told.one, Facts((fact("b9", number + 1),)))
        told.reports.look(5.0)
        assert len(told.facts) == number + 1
    for number in range(20):
        told.reports.put(told.one, Facts((fact(f"c{number}", 1),)))
        told.reports.look(5.0)
    assert len(told.facts) == FACTS_AT_ONCE
    assert told.reports.wake_at == pytest.approx(5.0 + FACTS_S)
    told.reports.look(told.reports.wake_at)
    assert [len(facts.facts) for _, facts in told.facts[FACTS_AT_ONCE:]] == [20]
    assert told.one.before is None


def test_who_has_no_time_tells_more_with_each_message() -> None:
    told = Told()
    told.lag.note(BEHIND_S, 5.0)
    for number in range(FACTS_AT_ONCE + 1):
        told.reports.put(told.one, Facts((fact("b9", number + 1),)))
        told.reports.look(5.0)
    assert told.reports.wake_at == pytest.approx(5.0 + MAX_PAUSE_S)


def test_all_is_told_in_order_for_each_is_answered_by_itself() -> None:
    told = Told()
    said = [fact("a", 1), fact("b", 5), fact("a", 2, LINKS), fact("a", 3)]
    for each in said:
        told.reports.put(told.one, Facts((each,)))
    told.reports.look(0.0)
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
    told.one.say([], Echo("b", (1,)))
    assert len(told.facts) == 1
    assert told.one.before is None


@pytest.mark.parametrize(("count", "messages"), [(PORTION_FACTS - 1, 0), (PORTION_FACTS, 1)])
def test_a_message_that_is_full_goes_at_once(count: int, messages: int) -> None:
    told = Told()
    for number in range(count):
        told.reports.put(told.one, Facts((fact(f"c{number}", 1),)))
    assert len(told.facts) == messages


def test_answers_beside_each_other_that_are_alike_are_told_as_one() -> None:
    told = Told()
    for version, unreached in ((2, ()), (1, ()), (3, ("x",)), (4, ()), (5, ()), (4, ())):
        told.reports.put(told.one, Echo("a", (version,), unreached))
    told.reports.look(0.0)
    ((answers,),) = [told.answers]
    said = [Echo("a", (2, 1)), Echo("a", (3,), ("x",)), Echo("a", (4, 5, 4))]
    assert answers == {told.one: {"a": said}}


def test_an_answer_has_as_many_versions_as_a_neighbour_takes() -> None:
    told = Told()
    for version in range(PORTION_FACTS + 1):
        told.reports.put(told.one, Echo("a", (version,)))
    told.reports.look(0.0)
    ((answers,),) = [told.answers]
    assert [len(each.versions) for each in answers[told.one]["a"]] == [PORTION_FACTS, 1]


@pytest.mark.parametrize(("lost", "messages"), [(MAX_BROKERS // 2, 1), (MAX_BROKERS // 2 + 1, 2)])
def test_answers_go_in_messages_that_a_neighbour_takes(lost: int, messages: int) -> None:
    unreached = tuple(f"x{number}" for number in range(lost))
    assert len(list(bundled([Echo("a", (1,), unreached), Echo("b", (1,), unreached)]))) == messages
    many = [Echo(f"b{number}", (1,)) for number in range(PORTION_FACTS + 1)]
    assert [type(each) for each in bundled(many)] == [Echoed, Echo]
    full = Echo("a", tuple(range(PORTION_FACTS)))
    assert list(bundled([full, Echo("b", (1,))])) == [full, Echo("b", (1,))]


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
