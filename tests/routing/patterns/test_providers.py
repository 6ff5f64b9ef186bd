"""Who is given a pattern, and how many of them."""

from __future__ import annotations

import pytest

from palio.language.parsing import parse_advertisement, parse_pattern
from palio.model.patterns import Pattern
from palio.routing.messages import Advertise, Batch
from palio.routing.patterns import providers
from palio.routing.patterns.messages import SubscribePattern
from palio.routing.patterns.router import Patterned
from palio.routing.patterns.subscriptions import MAX_DELEGATED_CHARS, AssemblyPlace
from tests.routing.helpers import ALICE, BOB, ONE

ALL = parse_advertisement("a IS NOT NULL AND b IS NOT NULL")
AB = parse_pattern("a = 1 THEN b = 2")


def broker() -> Patterned:
    """One with two clients and a neighbour that advertises everything."""
    found = Patterned("s0")
    for peer in (ALICE, BOB, ONE):
        found.attach(peer)
    found.receive(ONE, Batch((Advertise(0, ALL),), fresh=True))
    return found


def places(router: Patterned) -> list[AssemblyPlace]:
    return [each.stage for each in router.subscriptions]


def test_a_neighbour_is_given_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "MAX_DELEGATED", 2)
    router = broker()
    for key in range(2):
        router.receive(ALICE, SubscribePattern(key, AB))
    router.receive(BOB, SubscribePattern(0, AB))
    assert places(router) == [AssemblyPlace.THERE, AssemblyPlace.THERE, AssemblyPlace.HERE]
    router.receive(ALICE, SubscribePattern(1, AB))  # one that is over makes room for another
    assert places(router) == [AssemblyPlace.THERE, AssemblyPlace.HERE, AssemblyPlace.THERE]
    router.detach(ONE)
    assert places(router) == [AssemblyPlace.IDLE, AssemblyPlace.HERE, AssemblyPlace.IDLE]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_pattern_that_is_too_long_for_a_message_is_assembled_here(over: int) -> None:
    def of(chars: int) -> Pattern:
        return parse_pattern(f"a = '{'x' * chars}' THEN b = 2")

    router = broker()
    bare = len(str(of(0)))
    router.receive(ALICE, SubscribePattern(0, of(MAX_DELEGATED_CHARS - bare + over)))
    assert places(router) == [AssemblyPlace.HERE if over > 0 else AssemblyPlace.THERE]
