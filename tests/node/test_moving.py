"""Durable subscriptions that move: what waits for them goes after them, whatever the disk does."""

from __future__ import annotations

from typing import Any, Final

import pytest

from palio.model.events import SEQ
from palio.node import moving
from palio.node.notices import Notice
from palio.protocol.messages import Carry, Fact, Facts, Failed, Subscribe
from tests.node.alone import Alone, parcel, subscribed

MOVED: Final = Facts(
    (Fact("b2", 5, "alice/d", (), "x = 1", 9_000_000), Fact("b2", 6, "links", ("b1",)))
)


def carried(alone: Alone) -> list[list[Any]]:
    """The numbers that the neighbour was handed."""
    return [
        each.parcel.batch.column(SEQ).to_pylist()
        for each in alone.heard(Carry)
        if isinstance(each, Carry)
    ]


@pytest.mark.parametrize("is_back", [False, True])
def test_what_waits_for_a_subscription_that_moves_is_on_the_disk_until_it_is_handed_over(
    is_back: bool,
) -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    (entry,) = alone.disk.held()
    alone.tell(2, MOVED)
    alone.sync(fails=True)
    assert alone.disk.held() == [entry]
    assert alone.disk.load().waiting == {"alice/d": [entry.entry]}
    if is_back:
        alone.tell(1, Subscribe(2, 2, "x = 1", durable="d"))
    alone.tick()
    assert carried(alone) == []
    alone.sync()
    assert carried(alone) == [[1]]
    (handed_over,) = alone.disk.held()
    assert handed_over.homes == ("b2",)
    assert [each.subscription for each in alone.disk.load().subscriptions] == (
        ["alice/d"] if is_back else []
    )


def test_of_many_that_have_moved_so_many_are_tried_again_in_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "CARRIED_AT_ONCE", 2)
    alone = Alone()
    for key in range(3):
        alone.tell(1, Subscribe(key, key, "x = 1", durable=f"d{key}"))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    moves = tuple(Fact("b2", 5 + key, f"alice/d{key}", (), "x = 1", 9_000_000) for key in range(3))
    alone.tell(2, Facts((*moves, Fact("b2", 9, "links", ("b1",)))))
    alone.sync(fails=True)
    for waiting in (1, 0):
        alone.tick()
        alone.sync()
        assert len(alone.disk.load().subscriptions) == waiting
    assert carried(alone) == [[1]] * 3


def test_what_comes_to_the_disk_after_a_subscription_has_moved_stays_until_it_can_follow() -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(2, MOVED)
    alone.sync(steps=1)
    (entry,) = alone.disk.held()
    alone.sync(fails=True)
    for _ in range(3):
        alone.tick()
        alone.sync(fails=True)
    assert alone.disk.held() == [entry]
    alone.tick()
    alone.sync()
    assert carried(alone) == [[1]]
    alone.tick()
    alone.sync()
    (follower,) = alone.disk.held()
    assert follower.homes == ("b2",)


def test_a_damaged_entry_goes_after_a_subscription_that_moves_as_a_notice() -> None:
    alone = subscribed()
    for number in (1, 2):
        alone.tell(2, Carry(parcel(number), number, ("b1",)))
    alone.sync()
    first, _ = alone.disk.held()
    alone.disk.flip(first.entry)
    alone.tell(2, MOVED)
    alone.sync()
    assert carried(alone) == [[1], [2]]
    lost, _ = (each.parcel for each in alone.heard(Carry) if isinstance(each, Carry))
    assert Notice.of(lost) == Notice("b1 1000000", 1, "p/1", 1, 1, 1)
    assert [each.event for each in alone.reports if each.level == "error"] == ["entry_lost"]


def test_what_a_full_disk_refuses_lives_where_it_did() -> None:
    """Also in what is told: else its home would give it away to a broker that has it not."""
    alone = Alone()
    home = Fact("b2", 5, "alice/d", (), "x = 1", 500)
    alone.tell(2, Facts((home, Fact("b2", 6, "links", ("b1",)))))
    alone.sync()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.sync(fails=True)
    assert [each.id for each in alone.heard(Failed) if isinstance(each, Failed)] == [1]
    for _ in range(3):
        alone.tick()
        alone.sync()
    told = [
        fact
        for each in alone.heard(Facts)
        if isinstance(each, Facts)
        for fact in each.facts
        if fact.subject == "alice/d" and fact.origin == "b1"
    ]
    assert told
    assert all(fact.links == ("b2",) for fact in told)
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    assert carried(alone) == [[1]], "whoever carried it here did not know"


def test_a_broker_that_stops_as_a_subscription_moves_knows_that_it_has_moved() -> None:
    alone = subscribed()
    alone.tell(2, MOVED)
    alone.sync(steps=2)  # what it learned, and the end of what it had; not what it says of that
    again = Alone(alone.disk)
    assert not alone.disk.load().subscriptions
    again.tell(2, Facts((Fact("b2", 6, "links", ("b1",)),)))
    again.tell(2, Carry(parcel(1), 1, ("b1",)))
    again.sync()
    assert carried(again) == [[1]]
