"""Durable subscriptions that move: what waits for them goes after them, whatever the disk does."""

from __future__ import annotations

from typing import Any

import pytest

from palio.model.events import SEQ
from palio.node import moving
from palio.node.vouching import RETIRED
from palio.protocol.messages import (
    Carry,
    Deliver,
    Done,
    Fact,
    Facts,
    Failed,
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
    alone.tick()
    alone.sync()
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


# --- a disk that refuses one write of several, and a broker that stops after that ---


def said_of(alone: Alone) -> Fact | None:
    """What the broker has on its disk that it says of alice's subscription."""
    facts = alone.disk.load().facts
    return next((each for each in facts if (each.origin, each.subject) == ("b1", "alice/d")), None)


@pytest.mark.parametrize("stops", [False, True])
def test_what_is_handed_over_late_for_one_that_is_back_comes_back_to_it(stops: bool) -> None:
    alone = Alone()
    alone.greet(3, "client", "bob")
    alone.tell(3, Subscribe(1, 1, "x = 1", durable="d"))  # keeps the entry on the disk
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", visit=1))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    alone.tell(2, Facts((claimed("b2", 5, 2), LINKS_OF_B2)))
    alone.sync(fails=True)
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d", visit=3))
    alone.sync()
    wait(alone)
    assert alone.disk.load().waiting.get("alice/d", []) == []
    (handed,) = (each for each in alone.heard(Carry) if isinstance(each, Carry))
    alone.tell(2, Took((handed.flight,)))
    wait(alone)
    alone = Alone(alone.disk) if stops else alone
    alone.tell(2, Facts((Fact("b2", 7, "alice/d", ("b1",), "x = 1", 9_000_000), LINKS_OF_B2)))
    before = len(delivered(alone))
    alone.tell(2, Carry(parcel(1), 2, ("b1",), ("alice/d",)))
    if stops:
        alone.tell(1, Subscribe(3, 3, "x = 1", durable="d", visit=4))
    alone.sync()
    assert delivered(alone)[before:] == [[1]]


@pytest.mark.parametrize("home", ["b2", ""])
def test_what_a_broker_claims_and_has_not_is_taken_back_as_it_starts(home: str) -> None:
    """Its disk refused the subscription, and took what is said of it; or its end was half done."""
    alone = Alone()
    if home:
        alone.tell(2, Facts((claimed(home, 5, 1, claimed_us=500_000), LINKS_OF_B2)))
        alone.sync()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", visit=2))
    alone.sync(fails=True, steps=1)
    alone.sync(steps=1)
    again = Alone(alone.disk)
    again.tell(2, Facts((LINKS_OF_B2,)))
    again.sync()
    said = said_of(again)
    assert said is not None
    assert said.links == ((home,) if home else ())
    assert bool(said.filter) == bool(home)
    again.tell(2, Carry(parcel(1), 1, ("b1",)))
    again.sync()
    assert carried(again) == ([[1]] if home else [])


# --- brokers between that are gone ---


def moved_on(how: Fact) -> Alone:
    """A subscription went over b4 to b5. One event waits for it at b4; then b4 is heard of."""
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    alone.tell(2, Facts((LINKS_OF_B2, Fact("b5", 4, "links", ("b2",)), claimed("b4", 5, 2))))
    alone.sync()
    alone.tell(2, Facts((claimed("b5", 5, 3, claimed_us=9_500_000),)))
    alone.tell(2, Facts((Fact("b4", 7, "alice/d", ("b5",), "x = 1", 9_000_000),)))
    alone.sync()
    alone.tell(2, Facts((how,)))
    alone.sync()
    wait(alone)
    return alone


def homes(alone: Alone) -> list[tuple[list[Any], tuple[str, ...]]]:
    return [
        (each.parcel.batch.column(SEQ).to_pylist(), each.homes)
        for each in alone.heard(Carry)
        if isinstance(each, Carry)
    ]


def test_what_a_retired_broker_was_to_have_goes_where_its_subscription_lives() -> None:
    alone = moved_on(Fact("b2", 9, f"{RETIRED}b4", claimed_us=20_000_000))
    assert homes(alone) == [([1], ("b5",))]
    alone.tell(2, Carry(parcel(2), 2, ("b1",)))
    alone.sync()
    assert homes(alone) == [([1], ("b5",)), ([2], ("b5",))]
    again = Alone(alone.disk)
    again.tell(2, Facts((LINKS_OF_B2,)))
    again.sync()
    assert sorted(homes(again)) == [([1], ("b5",)), ([2], ("b5",))], "also after a restart"


def back_while_the_disk_refuses_what_is_kept() -> Alone:
    """The same; it was refused."""
    alone = back_as_what_is_kept_is_written()
    alone.sync(fails=True, steps=1)
    alone.sync()
    assert Done(2) in alone.heard(Done)
    return alone


def test_what_is_kept_for_one_that_is_back_is_kept_once_the_disk_takes_it() -> None:
    alone = back_while_the_disk_refuses_what_is_kept()
    assert not alone.heard(Took)
    alone.tick()
    alone.sync()
    assert alone.heard(Took) == [Took((1,))]
    assert len(alone.heard(Deliver)) == 1
    assert len(alone.disk.load().waiting["alice/d"]) == 1


def test_what_is_tried_again_brings_nothing_back_that_has_ended_meanwhile() -> None:
    alone = back_while_the_disk_refuses_what_is_kept()
    alone.tell(1, Unsubscribe(3, 2, forget=True))
    alone.sync()
    for _ in range(2):
        alone.tick()
        alone.sync()
    stored = alone.disk.load()
    assert not stored.subscriptions
    assert not stored.waiting
    assert not alone.disk.held()
    assert alone.node.status()["custody_entries"] == 0
