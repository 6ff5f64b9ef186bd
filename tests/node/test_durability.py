"""Where durable events go: the homes that want them, each number once, and after a move."""

from __future__ import annotations

import numpy as np
import pytest

from palio.language.parsing import parse_filter
from palio.node.effects import Moment
from palio.protocol.limits import MAX_SUBJECTS
from palio.protocol.messages import NO_VISIT, Fact
from tests.node.events import parcel
from tests.node.place import Place

EVENTS = ({"x": 1}, {"x": 5})


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
