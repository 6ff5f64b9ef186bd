"""What may be said about a pattern: how many there may be, and in which order."""

from __future__ import annotations

from typing import Final

import pytest

from palio.errors import LimitExceeded
from palio.language.parsing import parse_filter, parse_pattern
from palio.model.patterns import Pattern
from palio.routing.patterns import messages
from palio.routing.patterns.legal import FromProvider, bound, check_room, check_turn
from palio.routing.patterns.messages import AssemblyProgress, SubscribePattern
from palio.routing.patterns.providers import MAX_DELEGATED
from palio.routing.patterns.subscriptions import AssemblyPlace, PatternSubscription
from palio.routing.protocol import IllegalMessage
from tests.routing.helpers import ALICE, ONE, TWO

AB = parse_pattern("a = 1 THEN b = 2")

TURNS: Final[dict[FromProvider, set[AssemblyPlace]]] = {
    messages.Ready(0): {AssemblyPlace.MOVING},
    messages.Returned(0, AssemblyProgress()): {AssemblyPlace.RECALLED},
    messages.HeldBack(0, (), is_back=True): {AssemblyPlace.RECALLED},
    messages.Composite(0, ()): {AssemblyPlace.THERE, AssemblyPlace.RECALLED},
    messages.TooLate(0, "p", 1, 1, 1): {AssemblyPlace.THERE, AssemblyPlace.RECALLED},
}


@pytest.mark.parametrize("count", [0, MAX_DELEGATED - 1, MAX_DELEGATED, MAX_DELEGATED + 1])
def test_there_are_so_many_patterns_of_one_peer(count: int) -> None:
    if count < MAX_DELEGATED:
        check_room(ALICE, count)
        check_room(ONE, count)
        return
    with pytest.raises(LimitExceeded, match="MAX_DELEGATED"):
        check_room(ALICE, count)
    with pytest.raises(IllegalMessage, match="MAX_DELEGATED"):
        check_room(ONE, count)


@pytest.mark.parametrize("stage", AssemblyPlace)
def test_a_provider_says_each_thing_in_its_turn(stage: AssemblyPlace) -> None:
    subscription = PatternSubscription(ALICE, 0, AB, 0)
    subscription.provider, subscription.stage = ONE, stage
    for message, due in TURNS.items():
        with pytest.raises(IllegalMessage, match="out of turn"):
            check_turn(TWO, message, subscription)
        if stage in due:
            check_turn(ONE, message, subscription)
        else:
            with pytest.raises(IllegalMessage, match="out of turn"):
                check_turn(ONE, message, subscription)


def test_a_pattern_comes_with_the_values_of_its_parameters() -> None:
    open_one = Pattern((parse_filter("a = :x"), parse_filter("b = 2")))
    assert bound(ONE, SubscribePattern(0, open_one, {"x": 1})) == AB
    with pytest.raises(IllegalMessage, match="SubscribePattern"):
        bound(ONE, SubscribePattern(0, open_one))
