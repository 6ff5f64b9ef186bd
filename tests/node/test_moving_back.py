"""Durable subscriptions that moved away, were back, and perhaps have gone again: nothing that is
called safe is lost, and nothing is given twice.
"""

from __future__ import annotations

from itertools import chain

import pytest

from palio.protocol.messages import (
    Carry,
    Fact,
    Facts,
    Failed,
    Known,
    Subscribe,
    Took,
)
from tests.node.alone import Alone, parcel, subscribed
from tests.node.moves import (
    LINKS_OF_B2,
    back_as_what_is_kept_is_written,
    carried,
    claimed,
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
