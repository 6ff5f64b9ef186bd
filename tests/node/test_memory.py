"""A journal in memory is what was written to it, and nothing else."""

from __future__ import annotations

from palio.node.effects import Heading
from palio.node.memory import MemoryStore
from palio.node.operations import (
    Ack,
    Discard,
    DropSubscription,
    Put,
    PutFacts,
    PutSubscription,
    PutTime,
    Target,
)
from palio.protocol.messages import Fact, Share
from tests.node.events import parcel

EVENTS = parcel({"x": 1}, {"x": 2}, first_seq=5)
OF_ALICE = PutSubscription("alice/d", "alice", "TRUE", b"\x80", 60.0)


def put(entry: int) -> Put:
    return Put(entry, EVENTS, 9, (Target("b1", entry, (Share("alice/d", 1, None),)),))


def test_an_empty_journal_knows_nothing_but_how_often_it_was_opened() -> None:
    store = MemoryStore()
    assert [store.load().epoch, store.load().epoch] == [1, 2]
    loaded = store.load()
    assert (loaded.last_offset, loaded.time_us) == (0, 0)
    assert not any((loaded.operations, loaded.subscriptions, loaded.facts))


def test_entries_are_there_until_they_are_dropped() -> None:
    store = MemoryStore()
    store.write([put(2), put(1)])
    assert [each.entry for each in store.held()] == [1, 2]
    assert [each.parcel for each in store.entries([2, 7])] == [EVENTS]
    assert store.heading(1) == Heading("p", 5, 6, 9)
    store.write([Discard((2, 7))])
    assert store.entries([2]) == []
    assert store.heading(2) is None
    loaded = store.load()
    assert loaded.last_offset == 2, "numbers are not used again"
    assert [*loaded.operations] == [
        put(2)._replace(parcel=None),
        put(1)._replace(parcel=None),
        Discard((2, 7)),
    ]


def test_a_bookmark_goes_with_its_subscription() -> None:
    store = MemoryStore()
    store.write([OF_ALICE, Ack("alice/d", 0, (), b"here"), Ack("alice/d", 3)])
    assert store.load().bookmarks == {"alice/d": b"here"}
    store.write([DropSubscription("alice/d")])
    assert not store.load().bookmarks
    assert not store.load().subscriptions


def test_the_newest_of_each_counts() -> None:
    store = MemoryStore()
    changed = OF_ALICE._replace(filter="x > 1")
    old, new, other = Fact("b1", 1, "links"), Fact("b1", 2, "links"), Fact("b2", 1, "links")
    store.write([OF_ALICE, changed, PutTime(1)])
    store.write([PutFacts((old, other)), PutFacts((new,)), PutTime(7)])
    loaded = store.load()
    assert loaded.subscriptions == [changed]
    assert {*loaded.facts} == {new, other}
    assert loaded.time_us == 7
