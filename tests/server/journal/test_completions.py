from __future__ import annotations

import pytest

from palio.server.scheduler import Completion, CompletionQueue, FairScheduler
from tests.server.test_scheduler import Clock


def test_answers_are_told_in_slices_and_in_their_order() -> None:
    clock, told = Clock(), list[Completion]()
    scheduler = FairScheduler(clock, turn_s=6.0, slice_s=2.5)

    def tell(ticket: int, reason: str | None) -> None:
        clock.now += 1.0
        told.append((ticket, reason))

    answers = CompletionQueue(scheduler, tell)
    wanted: list[Completion] = [(number, None) for number in range(10)]
    answers.add(wanted)
    assert len(told) == 3
    late: list[Completion] = [(10, "the disk is full"), (11, None)]
    answers.add(late)
    assert len(told) == 3
    while not answers.is_empty:
        assert not scheduler.is_idle
        before = len(told)
        scheduler.serve(scheduler.begin())
        assert len(told) <= before + 3
    assert told == [*wanted, *late]
    assert scheduler.is_idle


def test_an_answer_that_leads_to_a_fault_keeps_nobody_from_the_others() -> None:
    told: list[int] = []
    scheduler = FairScheduler(Clock(), turn_s=6.0, slice_s=2.5)

    def tell(ticket: int, _: str | None) -> None:
        told.append(ticket)
        if ticket == 1:
            raise ValueError("a bug")

    answers = CompletionQueue(scheduler, tell)
    with pytest.raises(ValueError, match="a bug"):
        answers.add([(number, None) for number in range(4)])
    assert not scheduler.is_idle
    scheduler.serve(scheduler.begin())
    assert told == [0, 1, 2, 3]
    assert answers.is_empty
