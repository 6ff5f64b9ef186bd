"""A journal in memory is what was written to it, and nothing else."""

from __future__ import annotations

from palio.node.effects import (
    AddNumbers,
    Assign,
    DropEntries,
    DropNumbers,
    Forget,
    ForgetNumbers,
    Heading,
    PutEntry,
)
from palio.node.operations import DropSubscription, PutFacts, PutSubscription, PutTime
from palio.node.memory import MemoryStore
from palio.protocol.messages import Fact
from tests.node.events import parcel

EVENTS = parcel({"x": 1}, {"x": 2}, first_seq=5)
OF_ALICE = PutSubscription("alice/d", "alice", "TRUE", b"\x80", 60.0)


def test_an_empty_journal_knows_nothing_but_how_often_it_was_opened() -> None:
    store = MemoryStore()
    assert [store.load().epoch, store.load().epoch] == [1, 2]
    loaded = store.load()
    assert (loaded.last_entry, loaded.time_us) == (0, 0)
    assert not any((loaded.pending, loaded.subscriptions, loaded.waiting, loaded.facts))


def test_entries_are_there_until_they_are_dropped() -> None:
    store = MemoryStore()
    store.write([PutEntry(2, EVENTS, ("b2",), 9), PutEntry(1, EVENTS, (), 9)])
    assert [each.entry for each in store.held()] == [1, 2]
    assert [each.homes for each in store.entries([2, 7])] == [("b2",)]
    assert store.heading(1) == Heading("p", 5, 6, 9)
    store.write([DropEntries((2, 7))])
    assert store.entries([2]) == []
    assert store.heading(2) is None
    loaded = store.load()
    assert (loaded.last_entry, loaded.pending) == (2, [(1, ())])  # numbers are not used again


def test_what_waits_is_forgotten_up_to_an_entry() -> None:
    store = MemoryStore()
    store.write([OF_ALICE, *(Assign("alice/d", entry, None) for entry in (3, 1, 2))])
    store.write([Assign("alice/d", 4, b"\x01")])
    assert store.load().waiting == {"alice/d": [1, 2, 3, 4]}
    assert store.assigned("alice/d", [4, 1]) == [b"\x01", None]
    store.write([Forget("alice/d", 2), Forget("bob/d", 9)])
    assert store.load().waiting["alice/d"] == [3, 4]
    store.write([Forget("alice/d", 0, b"here"), Forget("alice/d", 3)])
    assert (store.load().bookmarks, store.load().waiting["alice/d"]) == ({"alice/d": b"here"}, [4])
    store.write([DropSubscription("alice/d")])
    assert not store.load().waiting
    assert not store.load().bookmarks
    assert not store.load().subscriptions


def test_the_newest_of_each_counts() -> None:
    store = MemoryStore()
    changed = OF_ALICE._replace(filter="x > 1")
    old, new, other = Fact("b1", 1, "links"), Fact("b1", 2, "links"), Fact("b2", 1, "links")
    store.write([OF_ALICE, changed, AddNumbers("p", b"1"), AddNumbers("q", b"1"), PutTime(1)])
    store.write([PutFacts((old, other)), PutFacts((new,)), DropNumbers("p"), PutTime(7)])
    store.write([AddNumbers("a\np#0", b"1"), AddNumbers("a\nq#7", b"1"), ForgetNumbers("a\n")])
    loaded = store.load()
    assert loaded.subscriptions == [changed]
    assert loaded.windows == [AddNumbers("q", b"1")]
    assert {*loaded.facts} == {new, other}
    assert loaded.time_us == 7
