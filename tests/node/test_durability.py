"""Where durable events go: the homes that want them, each number once, and after a move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.node.authority import OpenAuthority, Principal
from palio.node.durability import NOWHERE, Durability
from palio.node.effects import Moment, Operation, PutFacts
from palio.node.identity import NOBODY
from palio.node.memory import MemoryStore
from palio.node.sessions import Budget, Durable, Session
from palio.node.settings import Settings
from palio.node.vouching import Vouching
from palio.protocol.limits import MAX_SUBJECTS, WINDOW_BYTES
from palio.protocol.messages import NO_VISIT, Done, Fact, Facts, Parcel, Visit
from palio.protocol.streams import Stream
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Peer
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.events import parcel

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


class Place:
    """Durability over a journal that writes at once."""

    def __init__(self, store: MemoryStore | None = None, name: str = "b1") -> None:
        self.store = store or MemoryStore()
        self.durability = Durability(
            name, self.store, Index, Vouching(name, NOBODY, OpenAuthority())
        )
        self.learn()

    def write(self, operations: list[Operation]) -> None:
        self.store.write(operations)

    def learn(self) -> list[tuple[str, str]]:
        """Take up what the registry has heard, as a node does after each input."""
        registry = self.durability.registry
        moved: list[tuple[str, str]] = []
        while registry.news:
            news, registry.news = registry.news, []
            operations, gone = self.durability.learn(news)
            self.write([PutFacts(tuple(news)), *operations])
            moved += gone
        return moved

    def put(
        self, subject: str, text: str, wall_us: int = 1, visit: Visit = NO_VISIT, **values: Any
    ) -> Durable:
        durable, operations = self.durability.put(
            subject, parse_filter(text), values, 60.0, wall_us, visit
        )
        self.write(operations)
        self.learn()
        return durable

    def hear(self, fact: Fact) -> list[tuple[str, str]]:
        """A neighbour tells something: what has moved."""
        self.durability.registry.receive("b2", Facts((fact,)), Moment(0.0, 1_000))
        return self.learn()

    def drop(self, subject: str, *, moved_to: str = "") -> None:
        self.write(self.durability.drop(subject, moved_to=moved_to))
        self.learn()

    def homes(self, events: Parcel) -> dict[str, list[bool]]:
        return {
            home: mask.tolist() for home, mask in self.durability.addressees(events).homes.items()
        }

    def take(self, events: Parcel) -> tuple[int, tuple[str, ...]]:
        taken = self.durability.take(events, ("b1",), 0)
        self.write(taken.writes)
        self.durability.custody.release(taken.entry, taken.assigned)
        return taken.entry, taken.assigned


EVENTS = ({"x": 1}, {"x": 5})


def test_events_go_home_to_what_matches_them() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    assert place.homes(parcel(*EVENTS)) == {"b1": [False, True]}
    place.put("alice/d", "x > :low", low=0)
    assert place.homes(parcel(*EVENTS)) == {"b1": [True, True]}
    place.drop("alice/d")
    assert place.homes(parcel(*EVENTS)) == {}
    assert place.durability.was_here("alice/d")
    assert not place.durability.was_here("bob/d")


def test_a_number_comes_to_a_subscription_once() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    place.put("bob/d", "x > 0")
    assert place.take(parcel(*EVENTS))[1] == ("alice/d", "bob/d")
    assert place.take(parcel(*EVENTS)) == (0, ())
    place.put("carol/d", "x > 0")
    assert place.take(parcel(*EVENTS))[1] == ("carol/d",)
    assert place.take(parcel(*EVENTS, publisher="q"))[1] == ("alice/d", "bob/d", "carol/d")


@pytest.mark.parametrize("xs", [(5,), (0, 1, 3, 5), (0, 4), (4,)])
def test_one_look_finds_homes_and_subscriptions_here(xs: tuple[int, ...]) -> None:
    """What a second look, at the subscriptions of this broker alone, finds too."""
    places = Place(), Place()
    for place in places:
        place.durability.registry.join("b2", Moment(0.0, 1))
        place.put("alice/d", "x > 3")
        place.put("bob/d", "x IN (1, 5)")
        place.put("carol/d", "x > :low", low=2)
        place.put("dan/d", "x = 5")
        place.drop("dan/d", moved_to="b2")
        place.hear(Fact("b2", 1, "eve/d", (), "x = 4", 1))
    events = parcel(*({"x": x} for x in xs))
    addressees = places[0].durability.addressees(events)
    rows = np.logical_or.reduce(list(addressees.homes.values()))
    chosen, homes = events.select(rows), tuple(addressees.homes)
    found = [place.durability.take(chosen, homes, 0) for place in places[1:]]
    assert [places[0].durability.take(chosen, homes, 0, addressees.of(rows))] == found
    assert set(found[0][1]) == {
        *(["alice/d"] if max(xs) > 3 else []),
        *(["bob/d"] if {1, 5} & {*xs} else []),
        *(["carol/d"] if max(xs) > 2 else []),
    }


def test_what_could_not_be_written_may_come_again() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    events = parcel(*EVENTS)
    place.durability.take_back(place.durability.take(events, ("b1",), 0))
    assert place.take(events)[1] == ("alice/d",)


def test_what_came_after_a_failure_says_nothing_of_what_failed() -> None:
    """Both are under way when the first one fails, and the broker stops before the second has."""
    place = Place()
    place.put("alice/d", "x > 0")
    first = place.durability.take(parcel(*EVENTS), ("b1",), 0)
    second = place.durability.take(parcel(*EVENTS, {"x": 9}), ("b1",), 0)
    assert (first.has_known, second.has_known) == (False, True)
    place.durability.take_back(first)
    place.write(second.writes)
    after = Place(place.store)
    assert after.take(parcel(*EVENTS, {"x": 9}))[1] == ("alice/d",)
    assert after.take(parcel(*EVENTS, {"x": 9})) == (0, ())


def test_all_is_there_again_after_a_restart() -> None:
    before = Place()
    before.put("alice/d", "x > :low", low=3)
    entry, _ = before.take(parcel(*EVENTS))
    after = Place(before.store)
    assert after.durability.epoch == before.durability.epoch + 1
    durable = after.durability.here["alice/d"]
    assert (durable.owner, str(durable.bound)) == ("alice", "x > 3")
    assert after.durability.custody.lined_up("alice/d", entry) == [entry]
    assert after.take(parcel(*EVENTS)) == (0, ())  # these numbers came before


def test_a_change_counts_though_the_disk_had_only_what_others_were_told() -> None:
    """The disk was full when the filter came, and had room when the fact was written again."""
    before = Place()
    before.put("alice/d", "x > 3")
    before.durability.put("alice/d", parse_filter("x < 3"), {}, 60.0, 1, NO_VISIT)
    before.learn()
    after = Place(before.store)
    assert after.homes(parcel(*EVENTS)) == {"b1": [False, True]}
    after.put("alice/d", "x < 3")
    assert after.homes(parcel(*EVENTS)) == {"b1": [True, False]}


def test_a_subscription_that_begins_anew_hears_of_numbers_anew() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    place.take(parcel(*EVENTS))
    place.drop("alice/d")
    place.put("alice/d", "x > 3")
    assert place.take(parcel(*EVENTS))[1] == ("alice/d",)


def test_events_follow_a_subscription_that_has_moved() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    place.drop("alice/d", moved_to="b2")
    assert place.durability.home_of("alice/d") == "b2"
    assert place.homes(parcel(*EVENTS)) == {"b2": [False, True]}
    taken = place.durability.take(parcel(*EVENTS), ("b1",), 0)
    assert taken.assigned == ()
    assert taken.entry == 0
    (follower,) = taken.followers
    assert place.durability.custody.is_needed(follower)
    place.write(taken.writes)
    (held,) = place.store.held()
    assert (held.entry, held.homes, held.subjects) == (follower, ("b2",), ("alice/d",))
    again = place.durability.take(parcel(*EVENTS), ("b1",), 0)
    assert not again.followers, "they have gone after it"


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_so_many_are_followed_by_one_entry(more: int) -> None:
    place = Place()
    subjects = [f"alice/d{number:03}" for number in range(MAX_SUBJECTS + more)]
    for subject in subjects:
        place.put(subject, "x > 3")
        place.drop(subject, moved_to="b2")
    taken = place.durability.take(parcel(*EVENTS), ("b1", "b3"), 0)
    assert len(taken.followers) == (2 if more > 0 else 1)
    place.write(taken.writes)
    after = [each for each in place.store.held() if each.entry != taken.entry]
    assert [subject for each in after for subject in each.subjects] == subjects
    place.durability.take_back(taken)
    assert not place.durability.custody.awaits("b2")
    assert not place.durability.custody.awaits("b3")


def test_what_goes_where_a_subscription_has_moved_anyway_goes_once() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    place.drop("alice/d", moved_to="b2")
    taken = place.durability.take(parcel(*EVENTS), ("b1", "b2"), 0)
    assert (taken.entry, list(taken.followers)) == (1, [])


def test_what_is_for_some_alone_is_nobody_elses() -> None:
    place = Place()
    for subject in ("alice/d", "bob/d"):
        place.put(subject, "x > 3")
    taken = place.durability.take(parcel(*EVENTS), ("b1",), 0, None, ("bob/d", "carl/d"))
    assert taken.assigned == ("bob/d",)
    taken = place.durability.take(parcel(*EVENTS), ("b1",), 0)
    assert taken.assigned == ("alice/d",), "bob has them"


def test_what_waits_is_handed_over_to_the_new_home() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    old, _ = place.take(parcel(*EVENTS))
    entries, operations = place.durability.hand_over("alice/d", "b2", 0)
    place.write(operations)
    (entry,) = entries
    assert not place.durability.custody.is_needed(old)
    (held,) = place.store.held()
    assert (held.entry, held.homes, held.subjects) == (entry, ("b2",), ("alice/d",))
    assert held.parcel.batch.column("x").to_pylist() == [5]  # what it did not match stays behind


def test_what_a_retired_broker_was_to_have_is_given_up() -> None:
    place = Place()
    place.put("alice/d", "x > 3")
    _, operations = place.durability.hand_over("alice/d", "b2", 0)
    place.take(parcel(*EVENTS))
    place.write(operations)
    place.durability.registry.retire("b2", 2)
    place.learn()
    assert place.homes(parcel(*EVENTS)) == {}
    assert not place.durability.custody.awaits("b2")


def session() -> Session:
    """Of the owner of a subscription, who is here."""
    peer, stream = Peer.session("s1"), Stream(WINDOW_BYTES)
    return Session(
        "s1", peer, Principal("p"), 1, stream, Budget(1 << 20), owner="alice", publisher="alice/1"
    )


@pytest.mark.parametrize(
    ("claimed_us", "visit", "is_over"),
    [
        (4, Visit("alice/1", 1), False),
        (6, Visit("alice/1", 1), False),
        (4, Visit("alice/1", 3), True),
        (6, Visit("alice/1", 3), True),
        (4, Visit("alice/1", 2), False),
        (5, Visit("alice/1", 2), True),
        (4, Visit("alice/2", 9), False),
        (6, Visit("alice/2", 1), True),
        (6, Visit("alice/1", 0), True),
        (4, NO_VISIT, False),
        (6, NO_VISIT, True),
    ],
)
def test_of_two_homes_that_of_the_later_visit_counts_or_else_of_the_later_time(
    claimed_us: int, visit: Visit, *, is_over: bool
) -> None:
    place = Place()
    place.durability.registry.join("b2", Moment(0.0, 1))
    durable = place.put("alice/d", "x > 3", 1, Visit("alice/1", 1))
    durable.session = session()
    place.put("alice/d", "x > 3", 5, Visit("alice/1", 2))
    claim = Fact("b2", 1, "alice/d", (), "x > 3", claimed_us, visit)
    assert place.hear(claim) == ([("alice/d", "b2")] if is_over else [])
    mine = place.durability.registry.fact("b1", "alice/d")
    assert mine is not None
    assert (mine.claimed_us > claimed_us, mine.visit.number == 2) == (not is_over,) * 2


@pytest.mark.parametrize(
    ("claimed_us", "visit", "is_over"),
    [
        (4, Visit("alice/1", 2), True),
        (4, Visit("alice/1", 1), False),
        (6, Visit("alice/1", 1), True),
        (6, Visit("alice/1", 0), True),
        (4, Visit("bob/1", 7), False),
        (6, Visit("bob/1", 1), True),
        (6, NO_VISIT, False),
    ],
    ids=["later visit", "same visit, before", "adopted", "not counted", "before", "after", "lost"],
)
def test_what_was_ended_elsewhere_is_over_if_that_was_later(
    claimed_us: int, visit: Visit, *, is_over: bool
) -> None:
    """A broker that has lost its disk says that nothing lives there, and ends nothing."""
    first = Place()
    first.put("alice/d", "x > 3", 5, Visit("alice/1", 1))
    for place in (first, Place(first.store)):  # also after a restart
        place.durability.registry.join("b2", Moment(0.0, 1))
        end = Fact("b2", 1, "alice/d", claimed_us=claimed_us, visit=visit)
        assert place.hear(end) == ([("alice/d", NOWHERE)] if is_over else [])
        assert place.durability.moved(["alice/d"]) == ([("alice/d", NOWHERE)] if is_over else [])


def test_an_owner_that_came_back_after_an_end_elsewhere_keeps_what_it_asked_for() -> None:
    """The broker did not know of that end, and claims again: it would believe it after a restart,
    for which visit the owner came last is in its claim alone.
    """
    place = Place()
    place.durability.registry.join("b2", Moment(0.0, 1))
    place.put("alice/d", "x > 3", 1, Visit("alice/1", 1))
    place.put("alice/d", "x > 3", 2, Visit("alice/1", 3))
    end = Fact("b2", 1, "alice/d", claimed_us=9, visit=Visit("alice/1", 2))
    assert place.hear(end) == []
    mine = place.durability.registry.fact("b1", "alice/d")
    assert mine is not None
    assert (mine.visit.number, mine.claimed_us) == (3, 10)
    assert Place(place.store).durability.moved(["alice/d"]) == []


@pytest.mark.parametrize("is_away", [False, True], ids=["unconnected", "home away"])
def test_what_its_owner_has_ended_at_another_broker_is_over_where_it_was(*, is_away: bool) -> None:
    """Its owner has left that broker, which was away then; or has no connection as it ends it, and
    goes elsewhere after that.
    """
    world = World.of(line(2), Acyclic, settings=QUICK)
    owner, publisher = world.client("ann", "b1"), world.client("p", "b2")
    key = owner.subscribe("x > 0", durable="d")
    world.run(2.0)
    if is_away:
        world.kill("b1")
        owner.move("b2")
        world.run(4.0)
    else:
        owner.vanish()
    asked = owner.unsubscribe(key, forget=True)
    owner.move("b2")
    world.run(2.0)
    assert owner.answers[asked] == Done(asked)
    if is_away:
        world.start("b1")
    world.run(6.0)
    publisher.publish({"x": 1}, durable=True)
    world.run(2.0)
    assert [node.status()["durable_subscriptions"] for node in world.nodes.values()] == [0, 0]
    assert [node.status()["custody_entries"] for node in world.nodes.values()] == [0, 0]
    assert not world.disks["b1"].load().subscriptions


def test_an_end_says_by_which_visit_the_subscription_was_there() -> None:
    first = Place()
    first.put("alice/d", "x > 3", 5, Visit("alice/1", 4))
    place = Place(first.store)
    place.write(place.durability.end("alice/d"))
    place.learn()
    said = place.durability.registry.fact("b1", "alice/d")
    assert said is not None
    assert (said.filter, said.visit, said.claimed_us) == ("", Visit("alice/1", 4), 5)
