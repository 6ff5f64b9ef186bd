"""What is told of the network is told less often where there is no time for it."""

from __future__ import annotations

import pytest

from palio.node.limits import BEHIND_S
from palio.node.throttle import HALF_S, Lag, Throttle

EVERY_S, LONGEST_S, AT_ONCE = 0.1, 3.0, 4


def told(throttle: Throttle, since: float, until: float) -> list[float]:
    """When something is told of which there is always more."""
    times = []
    now = since
    while now <= until:
        if throttle.due_at <= now:
            throttle.tell(now)
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


def test_so_many_again_at_once_after_a_rest_and_no_more() -> None:
    throttle = Throttle(EVERY_S, LONGEST_S, AT_ONCE, Lag())
    told(throttle, 0.0, 1.0)
    assert len(told(throttle, 100.0, 100.05)) == AT_ONCE


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_farther_behind_the_longer(share: float) -> None:
    throttle = Throttle(EVERY_S, LONGEST_S, AT_ONCE, behind(share * BEHIND_S, 5.0))
    assert throttle.pause_s == pytest.approx(EVERY_S + share * (LONGEST_S - EVERY_S))


def test_who_falls_behind_has_not_saved_for_it() -> None:
    """What was not told while that was cheap is not told at once when it is dear."""
    lag = Lag()
    throttle = Throttle(EVERY_S, LONGEST_S, AT_ONCE, lag)
    told(throttle, 0.0, 5.0)
    lag.note(BEHIND_S, 5.0)
    throttle.tell(5.0)
    assert throttle.due_at > 5.0 + 0.9 * LONGEST_S


def test_more_than_matters_counts_as_that() -> None:
    assert behind(60.0, 100.0).share == behind(BEHIND_S, 100.0).share == 1.0


def test_a_delay_fades_and_a_longer_one_counts() -> None:
    lag = behind(BEHIND_S, 5.0)
    lag.note(0.0, 5.0 + HALF_S)
    assert lag.share == pytest.approx(0.5)
    lag.note(0.1 * BEHIND_S, 5.0 + HALF_S)
    assert lag.share == pytest.approx(0.5), "the longer one still counts"
    lag.note(0.75 * BEHIND_S, 5.0 + HALF_S)
    assert lag.share == pytest.approx(0.75)
    lag.note(0.0, 5.0 + 20 * HALF_S)
    assert lag.share < 1e-5


def test_who_is_early_is_not_behind() -> None:
    """A clock may ring too early by a step of its own."""
    assert behind(-0.001, 5.0).share == 0.0
