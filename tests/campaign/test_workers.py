"""Workers of a group, and what they did, spoilt in each way: it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from palio.node.deliveries import Deliveries, Flight
from palio.simulation.world import World
from tests.campaign.judgement import play
from tests.campaign.scripts import Script, Step
from tests.campaign.workers import ATTEMPTS, Crew, Letter, Try, job

ONE, TWO = ("p/1", 1), ("p/1", 2)
OWED = {ONE: -1, TWO: -2}


def tried(
    key: tuple[str, int], begun_s: float, end: str = "done", *, poison: bool = False, **other: Any
) -> Try:
    row = job(key[1] - 1, 0, is_poison=poison)
    return replace(Try("worker0", key, row, 1, begun_s, begun_s + 0.1, end), **other)


def faults(crew: Crew) -> list[str]:
    return list(crew.faults_of(OWED, is_calm=True))


def crew_with(*tries: Try) -> Crew:
    world = World(1)
    world.add_broker("b1")
    crew = Crew(world, "b1", is_ordered=True)
    crew.tries += tries
    return crew


def test_jobs_that_are_done_and_one_that_was_rejected_are_nothing_wrong() -> None:
    again = tried(ONE, 6.0, attempt=2)
    assert faults(crew_with(tried(ONE, 5.0, "rejected"), again, tried(TWO, 7.0))) == []


@pytest.mark.parametrize(
    ("tries", "fault"),
    [
        ([tried(ONE, 5.0)], "neither done nor"),
        ([tried(ONE, 5.0), tried(TWO, 6.0, "rejected")], "neither done nor"),
        ([tried(ONE, 5.0), tried(TWO, 6.0, poison=True)], "neither done nor"),
        ([tried(ONE, 5.0), tried(ONE, 6.0), tried(TWO, 7.0)], "without a reason"),
        ([tried(ONE, 5.0, attempt=2), tried(TWO, 6.0)], "too many attempts"),
        ([tried(ONE, 5.0, "rejected"), tried(ONE, 6.0), tried(TWO, 7.0)], "not counted"),
        ([tried(ONE, 5.0), tried(TWO, 5.05)], "begun before"),
        ([tried(ONE, 5.0, attempt=ATTEMPTS + 1), tried(TWO, 7.0)], "no attempt"),
    ],
)
def test_what_was_not_done_as_it_must_be_is_named(tries: list[Try], fault: str) -> None:
    assert any(fault in each for each in faults(crew_with(*tries)))


def test_what_a_dead_worker_had_may_be_begun_again() -> None:
    crew = crew_with(tried(ONE, 5.0, "gone"), tried(ONE, 8.0, attempt=2), tried(TWO, 9.0))
    assert any("without a reason" in each for each in faults(crew))
    crew.disturbed_s.append((5.1, "worker0"))
    assert faults(crew) == []


def test_a_dead_letter_is_for_what_failed_often_enough_and_once() -> None:
    crew = crew_with(*(tried(ONE, 5.0 + n, "rejected", attempt=1 + n) for n in range(ATTEMPTS)))
    crew.tries.append(tried(TWO, 20.0))
    crew.collector.letters.append(Letter(-1, ATTEMPTS, "no"))
    assert faults(crew) == []
    crew.collector.letters.append(Letter(-2, ATTEMPTS, "no"))
    assert any("too few failures" in each for each in faults(crew))
    crew.collector.letters[1:] = [Letter(-1, ATTEMPTS, "no")]
    assert any("2 dead letters" in each for each in faults(crew))


SCRIPT = Script(
    1,
    "acyclic",
    ("b1", "b2"),
    (("b1", "b2"),),
    (
        Step(0.0, "join", ("publisher0", "b2")),
        Step(0.1, "crew", ("worker0", "b1", True)),
        Step(0.2, "hire", ("worker1",)),
        Step(4.0, "jobs", ("publisher0", 20, 3)),
        Step(4.1, "fire", ("worker0", 0.5, False)),
        Step(6.0, "late", ("worker1", 0.5)),
        *(Step(6.0 + 0.1 * number, "jobs", ("publisher0", 3, 3)) for number in range(6)),
        Step(12.0, "fire", ("worker1", 0.5, True)),
        Step(18.0, "jobs", ("publisher0", 9, 3)),
    ),
)


def test_a_group_does_its_work() -> None:
    assert play(SCRIPT).breaches == ()


def _never_again(_right: Callable[..., Any]) -> Callable[..., Any]:
    """What was returned is not sent again."""
    return lambda _self, _flight, _due: None


def _uncounted(right: Callable[..., Any]) -> Callable[..., Any]:
    """A failed attempt does not count."""

    def wrong(self: Deliveries, now: float, flight: Flight, due: float, reason: str) -> Any:
        over = right(self, now, flight, due, reason)
        flight.attempt = 1
        return over

    return wrong


def _all_at_once(right: Callable[..., Any]) -> Callable[..., Any]:
    """Nothing is held for an earlier event of its key."""

    def wrong(self: Deliveries, offset: int, *_: Any) -> Any:
        return right(self, offset)

    return wrong


@pytest.mark.parametrize(
    ("name", "bug"), [("retry", _never_again), ("_fail", _uncounted), ("begin", _all_at_once)]
)
def test_a_bug_of_a_home_is_found(name: str, bug: Callable[..., Any]) -> None:
    with patch.object(Deliveries, name, bug(getattr(Deliveries, name))):
        assert play(SCRIPT).breaches
