"""What a broker answers for is kept until everybody has taken it, and no longer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from palio.errors import IllegalMessage, JournalDamaged
from palio.matching.protocol import RowMask
from palio.node import bookmarks
from palio.node.custody import Custody, Lost
from palio.node.effects import (
    Assign,
    DropSubscription,
    Entry,
    Forget,
    Operation,
    PutEntry,
)
from palio.node.memory import MemoryStore
from palio.node.notices import Notice
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Carry, Deliver, Gap, Parcel, pack_mask
from tests.node.events import parcel

ALL: Final = np.ones(1, np.bool_)


class Damaged(MemoryStore):
    """A journal of which some entries fail their checksum."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[int] = set()
        self.bad_rows: set[int] = set()
        self.is_away = False

    def entries(self, numbers: Iterable[int]) -> list[Entry]:
        numbers = list(numbers)
        if self.is_away:
            raise OSError("the disk does not answer")
        if self.bad.intersection(numbers):
            raise JournalDamaged("an entry fails its checksum")
        return super().entries(numbers)

    def assigned(self, subscription: str, numbers: Iterable[int]) -> list[bytes | None]:
        numbers = list(numbers)
        if self.bad_rows.intersection(numbers):
            raise JournalDamaged("what was assigned fails its checksum")
        return super().assigned(subscription, numbers)


class Shelf:
    """Custody over a journal that writes at once."""

    def __init__(self, store: Damaged | None = None) -> None:
        self.store = store or Damaged()
        self.custody = Custody("b1", self.store, self.store.load())

    def again(self) -> Shelf:
        """The same journal, opened after a crash."""
        return Shelf(self.store)

    def write(self, operations: Iterable[Operation]) -> None:
        self.store.write(operations)

    def take(
        self,
        events: Parcel,
        homes: tuple[str, ...] = (),
        assigned: dict[str, RowMask] | None = None,
    ) -> int:
        assigned = assigned or {}
        entry, operations = self.custody.take(events, homes, assigned, 0)
        self.write(operations)
        self.custody.release(entry, assigned)
        return entry

    def carried(self, neighbour: str) -> list[Carry]:
        return list(iter(lambda: self.custody.next_carry(neighbour), None))

    def delivered(self, subscription: str) -> list[Deliver | Lost]:
        return list(iter(lambda: self.custody.next_delivery(subscription, 7), None))


def xs(events: Parcel) -> list[int]:
    return [int(x) for x in events.batch.column("x").to_numpy()]


def numbers(deliveries: Iterable[Deliver | Lost]) -> list[int]:
    return [each.entry for each in deliveries]


# --- towards other homes ---


def test_a_neighbour_cannot_take_what_was_not_sent_to_it() -> None:
    shelf = Shelf()
    for x in range(2):
        shelf.custody.dispatch(shelf.take(parcel({"x": x}), ("b2",)), {"b2": "b2"}.get)
    sent = shelf.custody.next_carry("b2")
    assert sent is not None
    with pytest.raises(IllegalMessage, match="not sent"):
        shelf.custody.took("b2", (sent.flight, sent.flight + 1))
    assert shelf.custody.held == 2  # no change: the first is not taken either
    assert shelf.custody.took("b2", (sent.flight,))


def test_what_nobody_needs_when_a_broker_starts_is_named() -> None:
    store, events = MemoryStore(), parcel({"x": 1})
    store.write([PutEntry(number, events, (), 0) for number in (1, 2)])
    store.write(
        [PutEntry(3, events, ("b2",), 0), Assign("ended", 1, None), Assign("kept", 2, None)]
    )
    store.write([DropSubscription("ended")])
    assert Custody("b1", store, store.load()).left_over == (1,)


def test_for_a_damaged_entry_a_notice_is_carried_and_it_does_not_hold_up_the_next() -> None:
    before = Shelf()
    bad, good = (before.take(parcel({"x": x}), ("b2",)) for x in range(2))
    shelf = before.again()
    shelf.store.bad.add(bad)
    shelf.custody.reroute({"b2": "b2"}.get, ways=1)
    lost, carry = shelf.carried("b2")
    assert Notice.of(lost.parcel) == Notice("b1 0", bad, "*", 0, 0, 0)
    assert xs(carry.parcel) == [1]
    assert shelf.custody.damaged == [(bad, {"homes": ["b2"]})]
    assert shelf.custody.is_needed(bad)
    assert shelf.custody.took("b2", (lost.flight,)) == [bad]
    assert not shelf.custody.is_needed(bad)
    assert shelf.custody.is_needed(good)


def test_what_cannot_be_read_at_the_moment_is_carried_another_time() -> None:
    before = Shelf()
    for x in range(2):
        before.take(parcel({"x": x}), ("b2",))
    shelf = before.again()
    shelf.custody.reroute({"b2": "b2"}.get, ways=1)
    shelf.store.is_away = True
    with pytest.raises(OSError, match="does not answer"):
        shelf.carried("b2")
    shelf.store.is_away = False
    assert [xs(carry.parcel) for carry in shelf.carried("b2")] == [[0], [1]]


# --- durable subscriptions ---


def test_only_the_rows_of_a_subscription_are_delivered_to_it() -> None:
    shelf = Shelf()
    shelf.custody.open("s")
    mask = np.array([False, True])
    shelf.take(parcel({"x": 1}, {"x": 2}), ("b1",), {"s": mask})
    (delivery,) = shelf.delivered("s")
    assert isinstance(delivery, Deliver)
    assert delivery.rows == pack_mask(mask)
    (delivery,) = shelf.again().delivered("s")
    assert isinstance(delivery, Deliver)
    assert delivery.rows == pack_mask(mask)


def test_what_its_owner_holds_does_not_count_and_waits_all_the_same() -> None:
    shelf = Shelf()
    shelf.custody.open("s")
    half = parcel({"x": "x" * (WINDOW_BYTES // 2)})
    entries = [shelf.take(half, ("b1",), {"s": ALL}) for _ in range(6)]
    assert numbers(shelf.delivered("s")) == entries[:2]
    assert shelf.custody.acknowledge("s", 0, held=entries[0]) == []
    assert numbers(shelf.delivered("s")) == entries[2:3]
    shelf.custody.acknowledge("s", entries[0], held=entries[5])  # of what was not sent, nothing
    assert numbers(shelf.delivered("s")) == entries[3:5]
    assert (shelf.custody.line("s"), shelf.custody.sent("s")) == (5, 4)
    shelf.custody.rewind("s")
    assert numbers(shelf.delivered("s")) == entries[1:3]


def test_a_bookmark_is_there_for_whoever_comes_next() -> None:
    shelf = Shelf()
    shelf.custody.open("s")
    assert shelf.custody.bookmark("s") == b""
    entry = shelf.take(parcel({"x": 1}), ("b1",), {"s": ALL})
    shelf.write(shelf.custody.acknowledge("s", 0, bookmark=b"here") or [])
    assert shelf.custody.acknowledge("s", 0) == []
    assert shelf.custody.acknowledge("s", entry) == [Forget("s", entry)]
    assert shelf.custody.bookmark("s") == shelf.again().custody.bookmark("s") == b"here"
    shelf.custody.close("s")
    shelf.custody.open("s")
    assert shelf.custody.bookmark("s") == b""


def test_where_there_is_no_room_for_a_bookmark_nothing_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bookmarks, "MAX_OWN_BOOKMARKS_BYTES", 5)
    shelf = Shelf()
    shelf.custody.open("s")
    entry = shelf.take(parcel({"x": 1}), ("b1",), {"s": ALL})
    assert shelf.custody.acknowledge("s", entry, bookmark=b"too far") is None
    assert (shelf.custody.line("s"), shelf.custody.bookmark("s")) == (1, b"")
    assert shelf.custody.acknowledge("s", entry, bookmark=b"here") == [Forget("s", entry, b"here")]
    assert shelf.custody.line("s") == 0


@pytest.mark.parametrize("damaged", [("payload",), ("rows",), ("payload", "rows")])
def test_an_entry_that_cannot_be_read_is_a_gap_of_its_subscription(
    damaged: tuple[str, ...],
) -> None:
    before = Shelf()
    before.custody.open("s")
    bad = before.take(parcel({"x": 1}, {"x": 2}, first_seq=5), ("b1",), {"s": np.ones(2, np.bool_)})
    good = before.take(parcel({"x": 3}, first_seq=7), ("b1",), {"s": ALL})
    shelf = before.again()
    if "payload" in damaged:
        shelf.store.bad.add(bad)
    if "rows" in damaged:
        shelf.store.bad_rows.add(bad)
    lost, delivery = shelf.delivered("s")
    assert isinstance(lost, Lost)
    assert lost == Lost(bad, Gap("p", 5, 6, 2, 7))
    assert delivery.entry == good
    shelf.custody.acknowledge("s", bad)
    assert shelf.custody.line("s") == 1


def test_what_waits_and_is_damaged_is_reported_where_it_is_handed_over() -> None:
    before = Shelf()
    before.custody.open("s")
    entries = [before.take(parcel({"x": x}), ("b1",), {"s": ALL}) for x in range(3)]
    shelf = before.again()
    shelf.store.bad.add(entries[0])
    shelf.store.bad_rows.add(entries[1])
    waiting = shelf.custody.waiting("s")
    assert [each.entry for each in waiting] == entries
    lost = [Notice("b1 0", entry, "p", 1, 1, 1) for entry in entries[:2]]
    assert [Notice.of(each.parcel) for each in waiting] == [*lost, None]
    assert shelf.custody.damaged == [(entry, {"subscription": "s"}) for entry in entries[:2]]


# --- any sequence of them ---

HOMES: Final = ("b1", "b2", "b3")
SUBSCRIPTIONS: Final = ("s", "t")


class Anything(RuleBasedStateMachine):
    """Entries come, are taken, acknowledged, and outlive crashes, as a table of debts says."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.owed: dict[int, set[str]] = {}
        """By entry, the homes and the subscriptions that have not got it."""
        self.carried: list[tuple[str, Carry]] = []
        for subscription in SUBSCRIPTIONS:
            self.shelf.custody.open(subscription)

    @rule(
        homes=st.sets(st.sampled_from(HOMES[1:])),
        subscriptions=st.sets(st.sampled_from(SUBSCRIPTIONS)),
    )
    def take(self, homes: set[str], subscriptions: set[str]) -> None:
        if homes or subscriptions:
            entry = self.shelf.take(
                parcel({"x": 1}), tuple(sorted(homes)), dict.fromkeys(sorted(subscriptions), ALL)
            )
            self.owed[entry] = homes | subscriptions
            self.shelf.custody.dispatch(entry, {home: home for home in HOMES}.get)

    @rule(neighbour=st.sampled_from(HOMES[1:]))
    def send(self, neighbour: str) -> None:
        carry = self.shelf.custody.next_carry(neighbour)
        if carry is not None:
            self.carried.append((neighbour, carry))

    @precondition(lambda self: self.carried)
    @rule(data=st.data())
    def took(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.carried) - 1))
        neighbour, carry = self.carried.pop(place)
        for entry in self.shelf.custody.took(neighbour, (carry.flight,)):
            self.owed[entry].difference_update(carry.homes)
            self.shelf.write(self.shelf.custody.drop([entry]))

    @rule(neighbour=st.sampled_from(HOMES[1:]))
    def lose(self, neighbour: str) -> None:
        self.shelf.custody.detach(neighbour)
        self.carried = [each for each in self.carried if each[0] != neighbour]
        self.reroute()

    @rule(subscription=st.sampled_from(SUBSCRIPTIONS), count=st.integers(1, 3))
    def acknowledge(self, subscription: str, count: int) -> None:
        owed = [entry for entry, whom in sorted(self.owed.items()) if subscription in whom]
        for entry in owed[:count]:
            self.shelf.write(self.shelf.custody.acknowledge(subscription, entry) or [])
            self.owed[entry].discard(subscription)
            self.shelf.write(self.shelf.custody.drop([entry]))

    @rule()
    def crash(self) -> None:
        """What neighbours took was written off nowhere: homes are owed the whole entry again."""
        held = {entry.entry: entry.homes for entry in self.shelf.store.held()}
        for entry, whom in self.owed.items():
            whom.update(held.get(entry, ()))
        self.shelf = self.shelf.again()
        for subscription in SUBSCRIPTIONS:
            self.shelf.custody.open(subscription)
        self.carried.clear()
        self.reroute()

    def reroute(self) -> None:
        self.ways = getattr(self, "ways", 0) + 1
        self.shelf.custody.reroute({home: home for home in HOMES}.get, self.ways)

    @invariant()
    def exactly_what_is_owed_is_kept(self) -> None:
        owed = {entry for entry, whom in self.owed.items() if whom}
        assert {each.entry for each in self.shelf.store.held()} == owed
        assert self.shelf.custody.held == len(owed)
        for subscription in SUBSCRIPTIONS:
            line = [entry for entry in sorted(owed) if subscription in self.owed[entry]]
            assert self.shelf.custody.line(subscription) == len(line)
        for home in HOMES[1:]:
            assert self.shelf.custody.awaits(home) == any(
                home in whom for whom in self.owed.values()
            )


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=30, stateful_step_count=30)
