"""When assemblies have something to let go."""

from __future__ import annotations

from datetime import timedelta

from palio.language.parsing import parse_pattern
from palio.model.patterns import Occurrence
from palio.routing.patterns.assembly import Assembly
from palio.routing.patterns.reading import Timetable
from palio.routing.patterns.subscriptions import PatternSubscription
from tests.client.helpers import NOON
from tests.routing.helpers import ALICE

SECOND = timedelta(seconds=1)


def test_what_is_due_is_taken_out_in_the_order_of_time() -> None:
    table = Timetable()
    for number, second in ((1, 3), (2, 1), (3, 2), (2, 2)):
        table.note(number, NOON + second * SECOND)
    assert (len(table), table.first) == (3, NOON + SECOND)
    taken = []
    while table.is_due(NOON + 2 * SECOND):
        taken.append(table.take())
    assert taken == [2, 3], "of each the earliest time counts"
    assert (len(table), table.first) == (1, NOON + 3 * SECOND)
    assert not table.is_due(NOON)
    table.note(1, NOON + 4 * SECOND)
    table.note(1, NOON)
    assert (table.take(), len(table), table.first) == (1, 0, None)


def test_a_pattern_is_due_when_its_earliest_event_is() -> None:
    pattern = parse_pattern("n = 1 THEN n = 2")
    subscription, table = PatternSubscription(ALICE, 0, pattern, number=7), Timetable()
    table.schedule(subscription)
    subscription.assembly = Assembly(pattern)
    table.schedule(subscription)
    assert table.first is None
    subscription.assembly.push([Occurrence(NOON + at * SECOND, "p", at, {"n": 1}) for at in (2, 1)])
    subscription.assembly.is_waiting = True
    table.schedule(subscription)
    assert table.first is None
    subscription.assembly.is_waiting = False
    table.schedule(subscription)
    assert table.first == NOON + SECOND
