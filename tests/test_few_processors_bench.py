"""Work waits for a processor, takes its time, and is done in turns; late brokers come to rest."""

from __future__ import annotations

import pytest

from benchmarks.few_processors import ROUTINGS, TURN, Processors, Shared
from benchmarks.healing_network import hierarchy
from palio.routing.algorithms import find_algorithm
from palio.simulation.agenda import Agenda
from palio.simulation.topologies import line
from palio.simulation.world import World


@pytest.mark.nightly
@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_network_without_time_settles(routing: str) -> None:
    """Where brokers tell of the network as often as ever, 26,000 messages later it has not."""
    up_s = 40.0
    network = Shared(hierarchy(40), routing, processors=2, action_s=0.002)
    network.kill()
    found = network.start(up_s)
    assert found.rest_s < up_s, found
    assert found.late_until_s < up_s, found
    assert found.messages < 12_000, found


def worked(count: int, work: dict[str, int]) -> list[tuple[int, str]]:
    """When so many actions of each computer are done, all of which come at once."""
    agenda = Agenda()
    processors = Processors(agenda, count, 10)
    done: list[tuple[int, str]] = []
    for name, actions in work.items():
        for _ in range(actions):
            processors.do(name, lambda name=name: done.append((agenda.now_us, name)))  # type: ignore[misc]
    agenda.run()
    assert processors.busy_us == 10 * sum(work.values())
    return done


def test_all_is_done_and_what_one_computer_does_in_order() -> None:
    agenda = Agenda()
    processors = Processors(agenda, 2, 10)
    done: list[int] = []
    for number in range(50):
        processors.do("b1", lambda number=number: done.append(number))  # type: ignore[misc]
    agenda.run()
    assert done == [*range(50)]
    assert agenda.now_us == 500, "one computer is at one processor at a time"


@pytest.mark.parametrize(("count", "end"), [(1, 240), (2, 120), (3, 120)])
def test_as_many_work_at_a_time_as_there_are_processors(count: int, end: int) -> None:
    assert worked(count, {"b1": 12, "b2": 12})[-1][0] == end


def test_who_has_much_to_do_lets_others_have_their_turn() -> None:
    order = [name for _, name in worked(1, {"b1": 20, "b2": 1})]
    assert order.index("b2") <= 2 * TURN


def test_what_comes_while_a_computer_is_at_work_is_done_after_that() -> None:
    agenda = Agenda()
    processors = Processors(agenda, 1, 10)
    done: list[str] = []

    def first() -> None:
        done.append("first")
        processors.do("b1", lambda: done.append("third"))

    processors.do("b1", first)
    processors.do("b1", lambda: done.append("second"))
    agenda.run()
    assert done == ["first", "second", "third"]


def test_a_computer_that_has_stopped_waits_for_no_turn() -> None:
    agenda = Agenda()
    processors = Processors(agenda, 1, 10)
    done: list[str] = []
    for _ in range(3 * TURN):
        processors.do("b1", lambda: done.append("b1"))
    processors.do("b2", lambda: done.append("b2"))
    processors.forget("b1")
    processors.forget("b3")
    agenda.run()
    assert done == ["b1", "b2"], "the first turn began with what there was"


def test_a_broker_that_was_killed_does_nothing_more() -> None:
    world = World.of(line(2), find_algorithm("acyclic").new)
    world.run(1.0)
    alice, bob = world.client("alice", "b1"), world.client("bob", "b2")
    world.share(Processors(world.agenda, 1, 20_000))
    alice.subscribe("x > 1")
    world.run(0.03)
    world.kill("b1")
    world.run(1.0)
    assert not alice.answers
    world.start("b1")
    world.run(20.0)
    bob.publish({"x": 2})
    world.run(5.0)
    assert [row["x"] for _, _, row in alice.heard] == [2]
