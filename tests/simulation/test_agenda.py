from __future__ import annotations

import pytest

from palio.simulation.agenda import FAULT, MESSAGE, TIMER, Agenda


def test_order_is_time_then_priority_then_sequence() -> None:
    agenda, seen = Agenda(), list[str]()
    for time_us, priority, name in [
        (5, TIMER, "e"),
        (5, MESSAGE, "c"),
        (5, MESSAGE, "d"),
        (5, FAULT, "b"),
        (1, TIMER, "a"),
    ]:
        agenda.at(time_us, priority, lambda name=name: seen.append(name))
    assert agenda.run() == 5
    assert seen == ["a", "b", "c", "d", "e"]


def test_run_until_stops_there_and_the_time_is_then() -> None:
    agenda, seen = Agenda(), list[int]()
    agenda.at(10, TIMER, lambda: seen.append(10))
    agenda.at(30, TIMER, lambda: seen.append(30))
    agenda.run(until_us=20)
    assert (seen, agenda.now_us, len(agenda)) == ([10], 20, 1)


def test_an_action_is_given_what_was_planned_with_it() -> None:
    agenda, seen = Agenda(), list[tuple[int, str]]()
    agenda.at(10, TIMER, lambda *given: seen.append(given), 1, "a")
    agenda.run()
    assert seen == [(1, "a")]


def test_the_past_cannot_be_planned() -> None:
    agenda = Agenda()
    agenda.run(until_us=100)
    with pytest.raises(ValueError, match="is past"):
        agenda.at(99, TIMER, lambda: None)


def test_what_never_rests_is_given_up() -> None:
    agenda = Agenda()
    agenda.limit = 100

    def again() -> None:
        agenda.at(agenda.now_us + 1, TIMER, again)

    again()
    with pytest.raises(RuntimeError, match="not at rest after 100 actions"):
        agenda.run()
