"""What brokers found, spoilt in each way: it is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from palio.language.parsing import parse_filter
from palio.model.patterns import Occurrence
from tests.campaign.quests import EVERY_EVENT, FoundSequence, Quest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def occurrence(seq: int, **event: Any) -> Occurrence:
    return Occurrence(NOON + timedelta(seconds=seq), "bob/1", seq, event)


ONE, TWO = occurrence(1, kind=0, x=1), occurrence(2, kind=1, x=2)
LATE = occurrence(9, kind=1, x=2)
PUBLISHED = {(each.publisher, each.seq): each.event for each in (ONE, TWO, LATE)}


def quest_with(*found: FoundSequence) -> Quest:
    quest = Quest("pair", 1, "kind = 0 THEN x >= 2 WITHIN 4s", 0.5)
    quest.found += found
    return quest


def test_an_occurrence_is_nothing_wrong() -> None:
    quest = quest_with(FoundSequence(3.0, (ONE, TWO)))
    assert list(quest.faults_of(PUBLISHED, [])) == []
    assert quest.expected([TWO, ONE, LATE]) == [(ONE, TWO)]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda one, two: (one, occurrence(7, kind=1, x=2)), "nobody published"),
        (lambda one, two: (occurrence(1, kind=0, x=3), two), "nobody published"),
        (lambda one, two: (one,), "does not match"),
        (lambda one, two: (two, one), "does not match"),
        (lambda one, two: (one, replace(two, time=NOON)), "not in order"),
        (lambda one, two: (one, LATE), "too long"),
    ],
)
def test_what_is_no_occurrence_is_named(spoil: Any, fault: str) -> None:
    quest = quest_with(FoundSequence(3.0, spoil(ONE, TWO)))
    assert [fault in each for each in quest.faults_of(PUBLISHED, [])] == [True]


def test_one_begins_after_the_last_has_ended_unless_a_gap_was_told() -> None:
    quest = quest_with(*(FoundSequence(at_s, (ONE, TWO)) for at_s in (3.0, 4.0)))
    assert len(list(quest.faults_of(PUBLISHED, [5.0]))) == 1
    assert list(quest.faults_of(PUBLISHED, [3.5])) == []


def test_who_is_at_two_brokers_hears_what_both_find_however_long_that_takes() -> None:
    quest = quest_with(*(FoundSequence(at_s, (ONE, TWO)) for at_s in (9.0, 9.5)))
    assert len(list(quest.faults_of(PUBLISHED, [], [5.0], [(5.0, 8.5)]))) == 1
    assert list(quest.faults_of(PUBLISHED, [], [5.0], [(5.0, 9.2)])) == []


def test_an_example_completes_it_if_that_is_admitted() -> None:
    quest = quest_with()
    assert [step.matches(row) for step, row in zip(quest.steps, quest.example(), strict=True)]
    assert quest.example(parse_filter("x < 2")) == []
    assert len(EVERY_EVENT) == 3 * 6 * 4
