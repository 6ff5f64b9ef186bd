"""Which durable subscriptions there are, which of them live here, and which claims count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from palio.matching.reference import Reference
from palio.model.filters import FALSE
from palio.model.masks import pack_mask
from palio.node import durability as room
from palio.node.durability import Bookmarks, Durability, packed
from palio.node.fact_verifier import FactVerifier
from palio.node.memory import MemoryStore
from palio.node.operations import (
    Action,
    Append,
    CaughtUp,
    Claim,
    ClaimStored,
    Open,
    PutSubscription,
)
from palio.protocol.messages import (
    NO_SESSION_EPOCH,
    Carry,
    ClaimNumbers,
    Deliver,
    Done,
    Ended,
    Fact,
    Facts,
    Failed,
    Publish,
    RemoveBroker,
    SessionEpoch,
    Subscribe,
    Unsubscribe,
)
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.alone import Alone, event, far, lives, parcel, subscribed
from tests.node.events import heard
from tests.node.events import parcel as events_of
from tests.node.test_grants import QUICK

RECORD = PutSubscription("ann/d", "ann", "x > :low", msgspec.msgpack.encode({"low": 3}), 60.0)
CLAIM = Claim("ann/d", 1, "b1", "ann/1", 1, since=1, claimed_us=5, filter="x > 3")


class Place:
    """The durable subscriptions that one broker knows, on a disk that writes at once."""

    def __init__(self, *operations: Any, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.store.write([CaughtUp(1), *operations] if store is None else operations)
        self.durability = Durability("b1", self.store, Reference, FactVerifier("b1"))
        self.durability.cluster_state.begin(1)

    def done(self, follows: Sequence[Action]) -> list[Action]:
        """What follows once everything is on the disk."""
        found: list[Action] = []
        for each in follows:
            if isinstance(each, Append):
                self.store.write((*each.released, *each.operations))
                found += self.durability.events.stored(0.0, each.ticket)
            else:
                found.append(each)
        return found

    def said(self, subject: str = "ann/d") -> Fact | None:
        """What this broker has told the network of a durable subscription."""
        return self.durability.cluster_state.fact("b1", subject)


def fact(home: str, number: int, filter: str = "x > 3", claimed_us: int = 9) -> Fact:
    return Fact(
        home, 10 + number, "ann/d", (), filter, claimed_us, NO_SESSION_EPOCH, ClaimNumbers(number)
    )


# --- what the disk has ---


def test_what_lives_here_is_as_the_disk_has_it() -> None:
    durable = Place(Open(CLAIM), RECORD).durability.stored(CLAIM, 9.0)
    assert (durable.owner, str(durable.bound), durable.lease_s) == ("ann", "x > 3", 60.0)
    assert durable.claim == CLAIM


def test_of_what_the_disk_has_lost_the_claim_tells_what_it_hears() -> None:
    place = Place(Open(CLAIM))
    durable = place.durability.stored(CLAIM, 9.0)
    assert (durable.owner, str(durable.bound), durable.lease_s) == ("ann", "x > 3", 9.0)
    heard_of = CLAIM._replace(filter="")  # by an entry for it alone
    assert place.durability.stored(heard_of, 9.0).filter is FALSE


@pytest.mark.parametrize("is_here", [True, False])
def test_what_could_not_be_written_is_as_it_was(is_here: bool) -> None:
    durability = Place(*((Open(CLAIM), RECORD) if is_here else ())).durability
    durability.enter(durability.stored(CLAIM._replace(filter="x > 7"), 9.0))
    durability.restore("ann/d", 9.0, 4.0)
    assert list(durability.here) == (["ann/d"] if is_here else [])
    assert dict(durability.owned) == ({"ann": 1} if is_here else {})
    if is_here:
        restored = durability.here["ann/d"]
        assert (restored.disconnected_at, restored.claim) == (4.0, CLAIM)


# --- claims of others ---


@pytest.mark.parametrize("filter", ["x > 3", ""])
def test_a_claim_of_another_counts_once_it_is_on_the_disk(filter: str) -> None:
    place = Place(Open(CLAIM), RECORD)
    follows, refused = place.durability.learn(0.0, [fact("b2", 2, filter)])
    assert not refused
    assert not place.durability.lives_here("ann/d"), "by what is under way"
    assert place.durability.homes(["ann/d"]) == {"ann/d": "b1"}
    (counts,) = place.done(follows)
    assert isinstance(counts, ClaimStored)
    assert (counts.before, counts.claim.home) == (CLAIM, "b2" if filter else "")
    assert place.durability.homes(["ann/d"]) == ({"ann/d": "b2"} if filter else {})


def test_a_claim_that_is_no_news_changes_nothing() -> None:
    place = Place(Open(CLAIM._replace(number=3)), RECORD)
    for number in (1, 2):
        assert place.durability.learn(0.0, [fact("b2", number)]) == ([], [])
    links = Fact("b2", 30, "links", ("b1",))
    assert place.durability.learn(0.0, [links]) == ([], [])


def deaf(place: Place, monkeypatch: pytest.MonkeyPatch, hears: str) -> None:
    """All but one other broker may not hear everything."""
    cluster_state = place.durability.cluster_state
    monkeypatch.setattr(cluster_state, "may_receive", lambda origin, _filter: origin == hears)


def test_a_broker_that_may_not_hear_all_takes_nothing_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its home claims that above it: others may have believed it."""
    place = Place(Open(CLAIM), RECORD)
    deaf(place, monkeypatch, hears="b3")
    stranger = fact("b2", 7)
    follows, refused = place.durability.learn(0.0, [stranger])
    assert refused == [stranger]
    (counts,) = place.done(follows)
    assert isinstance(counts, ClaimStored)
    assert (counts.claim.number, counts.claim.home) == (8, "b1")
    assert (counts.claim.filter, counts.claim.since) == (CLAIM.filter, CLAIM.since)
    place.durability.announce(counts.claim)
    said = place.said()
    assert said is not None
    assert said.claim.number == 8
    follows, refused = place.durability.learn(0.0, [fact("b3", 9)])
    assert not refused
    assert len(place.done(follows)) == 1


def test_elsewhere_such_a_claim_is_refused_and_left_to_its_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(Open(CLAIM._replace(home="b3")))
    deaf(place, monkeypatch, hears="b3")
    stranger = fact("b2", 7)
    assert place.durability.learn(0.0, [stranger]) == ([], [stranger])
    assert place.durability.learn(0.0, [fact("b2", 1)]) == ([], []), "that is no news"
    follows, _ = place.durability.learn(0.0, [fact("b3", 2, "")])
    assert place.done(follows)
    follows, refused = place.durability.learn(0.0, [stranger])
    assert not refused, "it is over: it takes nothing from anybody"
    assert place.done(follows)


# --- what this broker says ---


def test_what_lives_here_is_told_once_and_as_it_is() -> None:
    place = Place(Open(CLAIM), RECORD)
    place.durability.announce(CLAIM)
    said = place.said()
    assert said is not None
    assert (said.filter, said.claimed_us, said.session_epoch) == (
        "x > 3",
        5,
        SessionEpoch("ann/1", 1),
    )
    assert said.claim == ClaimNumbers(1, 0, 1)
    place.durability.announce(CLAIM)
    assert place.said() is said
    changed = CLAIM._replace(filter="x > 7", revision=1)
    place.durability.announce(changed)
    said = place.said()
    assert said is not None
    assert (said.filter, said.claim) == ("x > 7", ClaimNumbers(1, 1, 1))
    place.durability.announce(changed._replace(home=""))
    said = place.said()
    assert said is not None
    assert said.filter == ""


def test_nothing_is_said_of_what_lives_elsewhere_or_was_only_heard_of() -> None:
    place = Place()
    place.durability.announce(CLAIM._replace(home="b2"))
    place.durability.announce(CLAIM._replace(filter=""))
    assert place.said() is None


# --- who gets which events ---


EVENTS = events_of({"x": 1}, {"x": 4}, {"x": 9})


@pytest.mark.parametrize(
    ("masks", "xs", "rows"),
    [
        ({}, [1, 4, 9], {}),
        ({"a": [0, 1, 0]}, [4], {"a": [1]}),
        ({"a": [0, 1, 0], "b": [0, 1, 1]}, [4, 9], {"a": [1, 0], "b": [1, 1]}),
        ({"a": [1, 1, 1]}, [1, 4, 9], {"a": [1, 1, 1]}),
    ],
)
def test_of_several_events_those_are_kept_that_somebody_wants(
    masks: dict[str, list[int]], xs: list[int], rows: dict[str, list[int]]
) -> None:
    wanted = {subject: np.array(mask, np.bool_) for subject, mask in masks.items()}
    kept, shares = packed(EVENTS, wanted)
    assert [row["x"] for row in kept.rows] == xs
    assert shares == {each: pack_mask(np.array(mask, np.bool_)) for each, mask in rows.items()}


def test_of_one_event_nobody_gets_a_part() -> None:
    one = events_of({"x": 1})
    assert packed(one, {"a": np.array([True])}) == (one, {"a": None})


def test_as_it_starts_a_broker_knows_what_claims_ask_for() -> None:
    far_away = CLAIM._replace(subject="bob/d", home="b2", filter="x > 7")
    over = CLAIM._replace(subject="eve/d", number=2, home="")
    interests = Place(Open(CLAIM), RECORD, Open(far_away), Open(over)).durability.interests
    found = {each: mask.tolist() for each, mask in interests.wanted(EVENTS).items()}
    assert found == {"ann/d": [False, True, True], "bob/d": [False, False, True]}


# --- moves, at one broker ---


def carried(alone: Alone) -> list[tuple[str, tuple[int, ...]]]:
    """What goes to which home: the numbers of events."""
    return [(each.home, tuple(each.parcel.seqs)) for each in alone.heard(Carry)]


def waiting_for_alice() -> Alone:
    """One with a durable subscription whose owner is away, and an event of b2 that waits."""
    alone = subscribed()
    alone.tell(2, far())
    alone.tell(1, Unsubscribe(2, 1))
    alone.carry(parcel(1), 5)
    alone.sync()
    return alone


def test_what_waits_for_one_that_moves_follows_it_once_that_is_on_the_disk() -> None:
    alone = waiting_for_alice()
    alone.tell(2, lives("b3", 3, 2, claimed_us=9_000_000))
    assert not carried(alone)
    alone.sync()
    assert carried(alone) == [("b3", (1,))]
    assert alone.told("durable_moved") == [{"subscription": "alice/d", "to": "b3"}]
    assert alone.node.status()["durable_subscriptions"] == 0
    (carry,) = alone.heard(Carry)
    assert carry.shares[0].number == 2, "for its newest claim"
    alone.has_stored(carry)
    alone.rest()
    assert not alone.disk.held()


def test_what_the_disk_refuses_of_a_move_stays_and_follows_once_it_takes_writes() -> None:
    alone = waiting_for_alice()
    alone.tell(2, lives("b3", 3, 2, claimed_us=9_000_000))
    alone.sync(fails=True)
    alone.tick()
    assert not carried(alone)
    assert [each.subject for each in alone.disk.load().subscriptions] == ["alice/d"]
    alone.recover()
    alone.sync()
    assert carried(alone) == [("b3", (1,))]


def test_what_comes_for_one_that_has_moved_on_follows_it() -> None:
    """Its origin had not heard of the move."""
    alone = waiting_for_alice()
    alone.tell(2, lives("b3", 3, 2, claimed_us=9_000_000))
    alone.sync()
    alone.carry(parcel(2), 7, 5)
    alone.sync()
    assert carried(alone) == [("b3", (1,)), ("b3", (2,))]


def test_what_may_have_been_sent_stays_for_that_home_though_its_owner_is_back() -> None:
    """Else it came twice: that broker hands it on, when it has heard of the claim."""
    alone = waiting_for_alice()
    alone.tell(2, lives("b3", 3, 2, claimed_us=1))
    alone.sync()
    assert carried(alone) == [("b3", (1,))]
    alone.tell(1, Subscribe(3, 1, "x = 1", durable="d"))
    alone.sync()
    assert Done(3) in alone.heard(Done)
    assert not alone.heard(Deliver)
    alone.carry(parcel(1), 7, 5, number=3)
    alone.sync()
    assert [tuple(each.parcel.seqs) for each in alone.heard(Deliver)] == [(1,)]


def test_what_was_not_sent_is_there_for_an_owner_that_is_back() -> None:
    alone = waiting_for_alice()
    alone.tell(2, lives("b2", 99, 2, claimed_us=1))  # whose log nobody knows
    alone.sync()
    assert not carried(alone)
    alone.tell(1, Subscribe(3, 1, "x = 1", durable="d"))
    alone.sync()
    assert [tuple(each.parcel.seqs) for each in alone.heard(Deliver)] == [(1,)]


def test_whoever_hears_a_durable_subscription_is_told_that_it_has_gone() -> None:
    alone = subscribed()
    alone.tell(2, far())
    alone.tell(2, lives("b3", 3, 2, claimed_us=9_000_000))
    assert not alone.heard(Ended)
    alone.sync()
    (ended,) = alone.heard(Ended)
    assert (ended.keys, ended.failure.kind) == ((1,), "SubscriptionEnded")


@pytest.mark.parametrize("owner", ["is here", "is away"])
def test_a_claim_from_before_its_owner_came_here_is_outdone(owner: str) -> None:
    """It is heard only now, and has a greater number as its broker knew of another one."""
    alone = Alone()
    alone.tell(2, far())
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", session_epoch=5))
    alone.sync()
    if owner == "is away":
        alone.tell(1, Unsubscribe(2, 1))
    alone.tell(2, lives("b3", 3, 4, session_epoch=SessionEpoch("alice/1", 4), claimed_us=9_000_000))
    alone.sync()
    assert not alone.heard(Ended)
    assert not alone.told("durable_moved")
    said = [
        each
        for message in alone.heard(Facts)
        for each in message.facts
        if (each.origin, each.subject) == ("b1", "alice/d")
    ]
    assert (said[-1].claim.number, said[-1].session_epoch.number) == (5, 5)
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    assert not carried(alone)
    assert len(alone.disk.held()) == 1


def test_so_is_one_that_is_heard_after_its_owner_was_refused_here_again() -> None:
    alone = Alone()
    alone.tell(2, far())
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", session_epoch=5))
    alone.sync()
    alone.tell(1, Unsubscribe(2, 1))
    alone.tell(1, Subscribe(3, 1, "x = 1", durable="d", session_epoch=6))
    alone.sync(fails=True)
    assert [each.id for each in alone.heard(Failed)] == [3]
    alone.recover()
    alone.tell(2, lives("b3", 3, 4, session_epoch=SessionEpoch("alice/1", 4), claimed_us=9_000_000))
    alone.sync()
    assert not alone.told("durable_moved")
    assert alone.node.status()["durable_subscriptions"] == 1


@pytest.mark.parametrize(
    ("session_epoch", "is_over"),
    [
        (SessionEpoch("alice/1", 6), True),
        (SessionEpoch("alice/1", 4), False),
        (NO_SESSION_EPOCH, True),
    ],
    ids=["later", "before its owner came back", "lapsed"],
)
def test_what_was_ended_elsewhere_is_over_here_unless_its_owner_came_back(
    session_epoch: SessionEpoch, *, is_over: bool
) -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", session_epoch=5))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    alone.tell(2, lives("b2", 3, 1, filter="", session_epoch=session_epoch))
    alone.rest()
    assert len(alone.heard(Ended)) == is_over
    assert len(alone.told("durable_ended")) == is_over
    assert alone.node.status()["durable_subscriptions"] == (not is_over)
    assert len(alone.disk.held()) == (not is_over)
    assert bool(alone.disk.load().subscriptions) is not is_over
    again = Alone(alone.disk)
    assert again.node.status()["durable_subscriptions"] == (not is_over)


def test_an_end_is_told_as_the_word_of_its_owner() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d", session_epoch=5))
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync()
    (said,) = (each for each in alone.disk.load().facts if each.subject == "alice/d")
    assert (said.filter, said.session_epoch, said.claim.number) == (
        "",
        SessionEpoch("alice/1", 5),
        1,
    )


# --- moves, on a network ---


def test_a_subscription_that_moves_again_and_again_gets_all_once() -> None:
    world = World.of(line(3), settings=QUICK)
    owner, publisher = world.client("owner", "b1"), world.client("p", "b2")
    owner.subscribe("x > 0", durable="d")
    world.run(3.0)
    number = 0
    for broker in ("b3", "b2", "b1", "b3"):
        for _ in range(5):
            number += 1
            publisher.publish({"x": number}, durable=True)
        owner.move(broker)
        for _ in range(5):
            number += 1
            publisher.publish({"x": number}, durable=True)
        world.run(1.0)
    world.run(10.0)
    assert publisher.accepted_durable == number
    assert sorted(heard(owner)) == list(range(1, number + 1))
    assert {each.status()["custody_entries"] for each in world.nodes.values()} == {0}


def test_what_a_retired_broker_was_to_have_goes_where_its_subscription_lives() -> None:
    world = World.of(line(3), settings=QUICK)
    owner, publisher = world.client("owner", "b3"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="d")
    world.run(3.0)
    world.kill("b3")
    publisher.publish({"x": 1}, durable=True)
    world.run(5.0)
    owner.move("b2")
    world.run(5.0)
    publisher.publish({"x": 2}, durable=True)
    world.run(3.0)
    assert heard(owner) == [2], "b3 may have the first one"
    asked = publisher.ask(lambda id: RemoveBroker(id, "b3"))
    world.run(5.0)
    assert publisher.answers[asked] == Done(asked)
    assert heard(owner) == [2, 1]
    assert [gap.publisher for gap in owner.gaps] == ["*"], "what it had accepted is lost with it"
    assert {each.status()["custody_entries"] for each in world.nodes.values()} == {0}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_OWN_BOOKMARKS_BYTES", 100)
    monkeypatch.setattr(room, "MAX_BOOKMARKS_BYTES", 250)


def test_one_owner_has_room_for_so_much() -> None:
    kept = Bookmarks({"ann/a": bytes(60)})
    assert kept.keep("ann/b", bytes(40))
    assert not kept.keep("ann/b", bytes(41))
    assert not kept.keep("ann/c", bytes(1))
    assert kept.get("ann/b") == bytes(40)
    assert kept.keep("ann/a", bytes(50)), "less than before"
    assert kept.keep("ann/b", bytes(50))
    kept.drop("ann/a")
    assert kept.get("ann/a") == b""
    assert kept.keep("ann/c", bytes(50))


def test_all_owners_have_room_for_so_much_together() -> None:
    kept = Bookmarks({})
    assert kept.keep("ann/a", bytes(100))
    assert kept.keep("bob/a", bytes(100))
    assert not kept.keep("cid/a", bytes(51))
    assert kept.keep("cid/a", bytes(50))
    kept.drop("cid/a")
    kept.drop("nobody/a")
    assert kept.keep("dan/a", bytes(50))


def test_what_was_stored_is_kept_and_counts() -> None:
    kept = Bookmarks({"ann/a": bytes(99), "bob/a": bytes(99)})
    assert not kept.keep("ann/b", bytes(2))
    assert kept.keep("ann/b", bytes(1))
    assert not kept.keep("cid/a", bytes(52))
