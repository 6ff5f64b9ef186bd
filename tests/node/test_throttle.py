"""What is told of the network is told less often where there is no time for it."""

from __future__ import annotations

import pytest

from palio.node.limits import BEHIND_S, MANY_BROKERS, ON_TIME_S
from palio.node.settings import Settings
from palio.node.throttle import HALF_S, Lag, Throttle
from palio.routing.algorithms import find_algorithm
from palio.simulation.world import World

EVERY_S, LONGEST_S, AT_ONCE = 0.1, 3.0, 4


def late_s(share: float) -> float:
    """How late a broker is that is so far behind."""
    return ON_TIME_S + share * (BEHIND_S - ON_TIME_S)


def told(throttle: Throttle, since: float, until: float) -> list[float]:
    """When something is told of which there is always more."""
    times = []
    now = since
    while now <= until:
        if throttle.due_at <= now:
            throttle.record(now)
            times.append(now)
        now += 0.01
    return times


def behind(late_s: float, now: float) -> Lag:
    lag = Lag()
    lag.note(late_s, now)
    return lag


def test_a_few_times_at_once_and_then_once_in_a_while() -> None:
    times = told(Throttle(EVERY_S, LONGEST_S, AT_ONCE, Lag()), 7.0, 9.0)
    assert times[:2] == pytest.approx([7.0, 7.01])
    assert len(times) == pytest.approx(AT_ONCE + 2.0 / EVERY_S, abs=2)
    assert times[-1] - times[-2] == pytest.approx(EVERY_S, abs=0.011)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_farther_behind_the_longer(share: float) -> None:
    throttle = Throttle(EVERY_S, LONGEST_S, AT_ONCE, behind(late_s(share), 5.0))
    assert throttle.pause_s == pytest.approx(EVERY_S + share * (LONGEST_S - EVERY_S))


def test_who_falls_behind_waits_no_longer_than_the_longest() -> None:
    """What it told while that was cheap is not held against it, and it has not saved for it."""
    lag = Lag()
    throttle = Throttle(EVERY_S, LONGEST_S, AT_ONCE, lag)
    told(throttle, 0.0, 5.0)
    for now in (5.1, 5.1 + LONGEST_S, 5.1 + 2 * LONGEST_S):
        lag.note(BEHIND_S, now)
        throttle.record(now)
        assert throttle.due_at == pytest.approx(now + LONGEST_S)


def test_who_catches_up_waits_no_longer() -> None:
    lag = behind(BEHIND_S, 5.0)
    throttle = Throttle(EVERY_S, LONGEST_S, 1, lag)
    throttle.record(5.0)
    assert throttle.due_at == pytest.approx(5.0 + LONGEST_S)
    lag.note(0.0, 5.0 + 2 * HALF_S)
    assert throttle.due_at == pytest.approx(5.0 + EVERY_S + (LONGEST_S - EVERY_S) / 4)


def test_a_turn_of_the_loop_is_no_delay() -> None:
    assert behind(ON_TIME_S, 5.0).share == 0.0


def test_a_broker_that_was_alone_is_not_behind_with_its_first_neighbour() -> None:
    """Nobody looks at neighbours while there are none."""
    world = World(settings=Settings(routing="general", discovery=True))
    for name in ("b1", "b2"):
        world.add_broker(name, find_algorithm("general").new)
    world.run(20.0)
    world.connect("b1", "b2")
    for _ in range(300):
        world.run(0.01)
        assert all(node._core.lag.share == 0.0 for node in world.nodes.values())
    assert all(node._core.neighbours for node in world.nodes.values())


def test_where_brokers_are_few_there_is_less_to_tell() -> None:
    lag = Lag()
    lag.note(BEHIND_S, 5.0, brokers=MANY_BROKERS // 10)
    assert lag.share == pytest.approx(0.1)


def test_a_delay_fades_and_a_longer_one_counts() -> None:
    lag = behind(BEHIND_S, 5.0)
    lag.note(0.0, 5.0 + HALF_S)
    assert lag.share == pytest.approx(0.5)
    lag.note(late_s(0.1), 5.0 + HALF_S)
    assert lag.share == pytest.approx(0.5), "the longer one still counts"
    lag.note(late_s(0.75), 5.0 + HALF_S)
    assert lag.share == pytest.approx(0.75)
    lag.note(0.0, 5.0 + 20 * HALF_S)
    assert lag.share < 1e-5
