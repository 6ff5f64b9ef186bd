"""Durable subscriptions that moved away, were back, and perhaps have gone again: nothing that is
called safe is lost, and nothing is given twice.
"""

from __future__ import annotations

from itertools import chain

import pytest

from palio.node.effects import DropSubscription, PutEntry
from palio.protocol.messages import (
    Acknowledge,
    Carry,
    Deliver,
    Fact,
    Facts,
    Failed,
    Known,
    Subscribe,
    Took,
    Unsubscribe,
)
from tests.node.alone import Alone, parcel, subscribed
from tests.node.moves import (
    LINKS_OF_B2,
    MOVED,
    back_as_what_is_kept_is_written,
    carried,
    claimed,
    delivered,
    wait,
)


def told(alone: Alone) -> list[int]:
    """What whoever carried it has heard to be safe."""
    return sorted(chain(*(each.flights for each in alone.heard(Took) if isinstance(each, Took))))


def carried_again_in_a_new_session(alone: Alone) -> None:
    """The session with whoever carried event 1 was over before it heard that it is safe."""
    alone.do(alone.node.lost(2, alone.at))
    alone.greet(2, "broker", "b2")
    alone.tell(2, Known({}))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))


def goes_on(alone: Alone, *news: Facts) -> bool:
    """Whether event 1 goes on if the broker stops here, and starts again."""
    again = Alone(alone.disk)
    for each in news:
        again.tell(2, each)
    again.tell(2, Facts((LINKS_OF_B2,)))
    again.sync()
    return carried(again) == [[1]]


@pytest.mark.parametrize("steps", range(6))
def test_nobody_hears_that_it_is_safe_before_it_goes_after_one_that_has_gone_again(
    steps: int,
) -> None:
    """Wherever the broker stops, whoever carried the event has it still, or it goes on."""
    alone = back_as_what_is_kept_is_written()
    gone = Facts((Fact("b2", 7, "alice/d", (), "x = 1", 99_000_000),))
    alone.tell(2, gone)
    for _ in range(steps):
        alone.sync(steps=1)
    assert goes_on(alone, gone) or not told(alone)
    alone.sync()
    wait(alone)
    assert told(alone) == [1]
    assert carried(alone) == [[1]]
    (follower,) = alone.disk.held()
    assert follower.homes == ("b2",)


@pytest.mark.parametrize("steps", range(6))
def test_who_carries_it_once_more_hears_no_sooner_that_it_is_safe(steps: int) -> None:
    """Its link broke, and its session was over; what it says again is known, and not on the disk
    for where the subscription lives.
    """
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    carried_again_in_a_new_session(alone)
    alone.tell(2, MOVED)
    for _ in range(steps):
        alone.sync(steps=1)
    assert goes_on(alone, MOVED) or not told(alone)
    alone.sync()
    assert told(alone) == [1]


def test_what_is_kept_and_carried_once_more_is_given_once() -> None:
    alone = back_as_what_is_kept_is_written()
    alone.sync()
    alone.tell(2, Carry(parcel(1), 2, ("b1",)))
    alone.sync()
    assert delivered(alone) == [[1]]
    assert told(alone) == [1, 2]


def test_what_is_carried_once_more_before_it_is_kept_is_given_once() -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(2, MOVED)
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d"))
    alone.tell(2, Carry(parcel(1), 2, ("b1",)))
    alone.sync()
    assert delivered(alone) == [[1]]
    assert told(alone) == [1, 2]
    assert len(alone.disk.load().waiting["alice/d"]) == 1


def test_what_came_once_more_and_was_refused_is_kept_all_the_same() -> None:
    """The disk refuses the second write of it, and takes the first, which nobody is here for."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(2, MOVED)
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d"))
    alone.tell(2, Carry(parcel(1), 2, ("b1",)))
    alone.sync(steps=1)
    while not any(isinstance(each, PutEntry) for each in alone.open[0].operations):
        alone.sync(steps=1)
    alone.sync(fails=True, steps=1)
    alone.sync()
    wait(alone)
    assert delivered(alone) == [[1]]
    assert len(alone.disk.load().waiting["alice/d"]) == 1
    assert told(alone) == [1, 2]


@pytest.mark.parametrize("is_known", [False, True])
def test_it_is_back_from_wherever_it_has_gone(is_known: bool) -> None:
    """Also from a broker that has not spoken for itself yet."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(2, Facts((claimed("b2", 5, 2), LINKS_OF_B2)))
    if is_known:
        alone.tell(2, Facts((claimed("b5", 5, 3, claimed_us=9_500_000),)))
    alone.tell(2, Facts((Fact("b2", 7, "alice/d", ("b5",), "x = 1", 9_000_000),)))
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d", visit=4))
    alone.sync()
    wait(alone)
    assert told(alone) == [1]
    assert delivered(alone) == [[1]]


@pytest.mark.parametrize("refused", [1, 2])
@pytest.mark.parametrize("stops", [False, True])
def test_what_was_not_handed_over_goes_as_it_moves_once_more(refused: int, stops: bool) -> None:
    """It is back, and gone again, before that is tried again: both are refused, or the first."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    gone = Facts((claimed("b2", 7, 4, claimed_us=99_000_000),))
    alone.tell(2, Facts((claimed("b2", 5, 2), LINKS_OF_B2)))
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d", visit=3))
    alone.tell(2, gone)
    assert told(alone)
    while alone.open:
        ends = any(isinstance(each, DropSubscription) for each in alone.open[0].operations)
        refused -= ends
        alone.sync(steps=1, fails=ends and refused >= 0)
    if stops:
        assert goes_on(alone, gone)
        return
    wait(alone)
    assert carried(alone) == [[1]]
    (follower,) = (each for each in alone.disk.held() if each.homes)
    assert follower.homes == ("b2",)
    assert not alone.disk.load().waiting


def test_what_is_handed_over_is_on_the_disk_before_its_owner_deals_with_newer_events() -> None:
    alone = subscribed()
    alone.tell(1, Unsubscribe(9, 1))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    assert told(alone) == [1]
    gone = Facts((claimed("b2", 5, 2), LINKS_OF_B2))
    alone.tell(2, gone)
    while alone.open:
        ends = any(isinstance(each, DropSubscription) for each in alone.open[0].operations)
        alone.sync(steps=1, fails=ends)
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d", visit=3))
    alone.sync()
    alone.tell(2, Carry(parcel(2), 2, ("b1",)))
    alone.sync()
    (newer,) = (each for each in alone.heard(Deliver) if isinstance(each, Deliver))
    alone.tell(1, Acknowledge(2, newer.entry))
    alone.now += 0.6
    alone.tell(2, Carry(parcel(3), 3, ("b1",)))
    alone.sync()
    again = Alone(alone.disk)
    again.tell(2, gone)
    again.sync()
    wait(again)
    assert [1] in carried(again)


@pytest.mark.parametrize("is_refused", [False, True])
def test_it_is_back_only_with_what_was_handed_over(is_refused: bool) -> None:
    """While the disk refuses that, it lives where it did."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    alone.tell(2, Facts((claimed("b2", 5, 2), LINKS_OF_B2)))
    alone.sync(fails=True)
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d", visit=3))
    alone.sync(fails=is_refused, steps=1)
    alone.sync()
    assert bool(alone.heard(Failed)) == is_refused
    assert alone.node.status()["durable_subscriptions"] == (not is_refused)
    wait(alone)
    assert carried(alone) == [[1]]


def goes_and_comes(alone: Alone, visit: int) -> None:
    """It moves to b2, and is back in the next visit."""
    us = 9_000_000 + 1_000_000 * visit
    alone.tell(2, Facts((claimed("b2", 5 + visit, visit, claimed_us=us),)))
    alone.tell(1, Subscribe(visit, visit, "x = 1", durable="d", visit=visit + 1))


@pytest.mark.parametrize("steps", range(20))
def test_what_came_again_and_follows_is_not_safe_before_what_it_came_after(steps: int) -> None:
    """Two of the same follow; the first has to follow once more."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    goes_and_comes(alone, 2)
    carried_again_in_a_new_session(alone)
    goes_and_comes(alone, 4)
    for step in range(20):
        alone.sync(steps=1)
        if step == steps:
            goes_and_comes(alone, 6)
        if told(alone):
            stored = alone.disk.load()
            assert stored.waiting.get("alice/d") or any(each.homes for each in alone.disk.held())
    alone.sync()
    assert told(alone) == [1]


def test_what_is_carried_again_waits_for_no_event_that_came_after_it() -> None:
    """Both follow: the first is told to be safe as soon as it is on the disk for where it goes."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    carried_again_in_a_new_session(alone)
    alone.tell(2, Carry(parcel(2), 2, ("b1",)))
    alone.tell(2, MOVED)
    while not told(alone):
        assert alone.open
        alone.sync(steps=1)
    assert told(alone) == [1]
    assert len(alone.disk.held()) == 3
    alone.sync()
    assert told(alone) == [1, 2]
