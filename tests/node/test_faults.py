"""Disks that fail, and neighbours and clients that lie: what one node makes of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from palio.model.events import SEQ, TIME, TIMESTAMP
from palio.node.effects import Assign, PutEntry
from palio.node.notices import Notice
from palio.node.operations import PutSubscription
from palio.protocol.limits import MAX_NUMBER
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Carry,
    Deliver,
    Fact,
    Facts,
    Forward,
    Gap,
    Gaps,
    Message,
    Parcel,
    Probe,
    Publish,
    Subscribe,
    Took,
    Unsubscribe,
)
from palio.simulation.disks import Disk
from palio.simulation.randomness import Randomness
from tests.node.alone import Alone, event, parcel, subscribed


def test_what_could_not_be_written_is_tried_again() -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1, 2), 1, ("b1",)))
    alone.sync(fails=True)
    assert not alone.heard(Took)
    alone.tick()
    alone.sync()
    assert 2 not in alone.closed
    assert alone.heard(Took) == [Took((1,))]
    (delivered,) = alone.heard(Deliver)
    assert isinstance(delivered, Deliver)
    assert delivered.parcel.batch.column(SEQ).to_pylist() == [1, 2]


def test_nothing_is_taken_after_what_could_not_be_written() -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync(fails=True)
    alone.tell(2, Carry(parcel(2), 2, ("b1",)))
    alone.sync()
    assert not alone.heard(Took)


def test_events_are_never_on_the_disk_without_the_subscription_that_they_wait_for() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.crash(refused=0)
    stored = alone.disk.load()
    assert not stored.subscriptions
    assert not stored.waiting
    assert not stored.pending


def test_what_waits_for_a_subscription_that_a_disk_refused_comes_again_where_that_lives() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync(fails=True, steps=1)
    alone.sync()
    assert not alone.heard(Took), "it was refused with its subscription"
    alone.tell(1, Subscribe(2, 1, "x = 1", durable="d"))
    alone.tick()
    alone.sync()
    assert alone.heard(Took) == [Took((1,))]
    assert len(alone.disk.load().waiting["alice/d"]) == 1


def test_events_of_a_subscription_that_ended_as_its_broker_stopped_are_nobodys() -> None:
    alone = subscribed()
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.crash()
    assert alone.disk.load().waiting
    again = Alone(alone.disk)
    assert again.node.status()["custody_entries"] == 0
    assert not again.disk.load().waiting
    assert not again.disk.held()


@pytest.mark.parametrize("fails", [False, True])
def test_a_copy_is_taken_when_the_first_is_on_the_disk_and_not_before(fails: bool) -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(2, Carry(parcel(1), 2, ("b1",)))
    assert not alone.heard(Took)
    alone.sync(fails=fails)
    assert alone.heard(Took) == ([] if fails else [Took((1,)), Took((2,))])


def test_a_publication_that_comes_again_is_accepted_with_the_first() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.greet(3, "client", "alice")
    alone.tell(3, Publish(event(), 1, durable=True))
    assert not alone.heard(Accepted)
    alone.sync()
    assert alone.heard(Accepted) == [Accepted(1, "durable"), Accepted(1, "durable")]


def test_a_subscription_may_be_forgotten_before_it_turns_out_that_it_was_never_written() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync(fails=True)
    assert alone.node.status()["durable_subscriptions"] == 0


def test_what_waited_for_a_forgotten_subscription_leaves_the_disk() -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.sync()
    assert alone.disk.held()
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync()
    assert not alone.disk.held()


def test_what_was_on_its_way_to_the_disk_is_none_of_a_successor() -> None:
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.tell(1, Subscribe(3, 2, "x = 7", durable="d"))
    alone.sync()
    alone.tick()
    alone.sync()
    assert not alone.heard(Deliver)
    assert not alone.disk.held()


def test_for_a_damaged_entry_on_its_way_a_notice_goes_on() -> None:
    alone = Alone()
    facts = (
        Fact("b3", 1, "links", ("b2",)),
        Fact("b3", 2, "far/d", (), "x = 1", 1),
    )
    alone.tell(2, Facts(facts))
    alone.tell(1, Publish(event(), 1, durable=True))  # there is no way to b3 yet
    alone.sync()
    (entry,) = alone.disk.held()
    alone.disk.flip(entry.entry)
    again = Alone(alone.disk)
    again.tell(2, Facts((Fact("b2", 9, "links", ("b1", "b3")),)))
    again.sync()
    (carry,) = (each for each in again.heard(Carry) if isinstance(each, Carry))
    assert Notice.of(carry.parcel) == Notice("b1 1000000", 1, "*", 0, 0, 0)
    assert [each.details for each in again.reports if each.event == "entry_lost"] == [
        {
            "entry": entry.entry,
            "publisher": entry.parcel.publisher,
            "first_seq": 1,
            "last_seq": 1,
            "homes": ["b3"],
        }
    ]
    again.tell(2, Took((carry.flight,)))
    again.tick()
    again.sync()
    assert not again.disk.held()
    assert again.node.status()["custody_entries"] == 0


def test_of_a_damaged_batch_a_subscription_is_told_how_many_were_its_own() -> None:
    alone = subscribed()
    rows = pa.RecordBatch.from_pydict(
        {
            "x": [1, 2, 1, 2, 2, 1],
            SEQ: list(range(10, 16)),
            TIME: pa.array([1_000_000] * 6, TIMESTAMP),
        }
    )
    alone.tell(1, Unsubscribe(3, 1))  # its owner is away
    alone.tell(2, Carry(Parcel("far/p", rows), 1, ("b1",)))
    alone.sync()
    (entry,) = alone.disk.held()
    alone.disk.flip(entry.entry)
    again = Alone(alone.disk)
    again.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    again.sync()
    assert [each.gaps for each in again.heard(Gaps) if isinstance(each, Gaps)] == [
        (Gap("far/p", 10, 15, 3, 1),)
    ]
    (nothing,) = (each for each in again.heard(Deliver) if isinstance(each, Deliver))
    assert (len(nothing.parcel), nothing.entry) == (0, entry.entry)
    assert again.node.status()["custody_entries"] == 1
    again.tell(1, Acknowledge(1, nothing.entry))
    again.tick()
    again.sync()
    assert again.node.status()["custody_entries"] == 0, "who was told of it has dealt with it"
    assert [each.details for each in again.reports if each.event == "entry_lost"] == [
        {
            "entry": entry.entry,
            "publisher": "far/p",
            "first_seq": 10,
            "last_seq": 15,
            "subscription": "alice/d",
        }
    ]


def test_what_is_not_even_in_the_journal_is_a_gap_of_anybody() -> None:
    """A journal that lost entries assigns one that it has not."""
    store = Disk(Randomness(0))
    store.write((PutSubscription("alice/d", "alice", "x = 1", b"\x80", 60.0),))
    store.write((Assign("alice/d", 7, None),))
    store.sync()
    store.sync()
    alone = Alone(store)
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.sync()
    assert [each.gaps for each in alone.heard(Gaps) if isinstance(each, Gaps)] == [
        (Gap("*", 0, 0, 0, 1),)
    ]
    assert [each.details for each in alone.reports if each.event == "entry_lost"] == [
        {"entry": 7, "subscription": "alice/d"}
    ]


def test_what_has_no_way_costs_nothing_until_ways_change(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone()
    alone.tell(2, Facts((Fact("b3", 1, "far/d", (), "x = 1", 1),)))
    for number in range(1, 20):
        alone.tell(1, Publish(event(), number, durable=True))
    alone.sync()
    asked: list[str] = []
    registry = alone.node._core.durability.registry
    right = registry.next_hop

    def counted(home: str) -> str | None:
        asked.append(home)
        return right(home)

    monkeypatch.setattr(registry, "next_hop", counted)
    alone.tick()
    assert not asked
    alone.tell(2, Facts((Fact("b3", 2, "links", ("b2",)), Fact("b2", 9, "links", ("b1", "b3")))))
    assert len(asked) >= 19
    assert len(alone.heard(Carry)) == 19


BAD_PARCELS = {
    "without numbers": Parcel("p", pa.RecordBatch.from_pydict({"x": [1]})),
    "without a number": Parcel(
        "p",
        pa.RecordBatch.from_pydict(
            {SEQ: pa.array([None], pa.int64()), TIME: pa.array([0], TIMESTAMP)}
        ),
    ),
    "numbers that are none": Parcel(
        "p", pa.RecordBatch.from_pydict({SEQ: ["a"], TIME: pa.array([0], TIMESTAMP)})
    ),
    "without a time": Parcel("p", pa.RecordBatch.from_pydict({SEQ: [1]})),
    "falling numbers": parcel(2, 1),
    "doubled numbers": parcel(1, 1),
    "numbers below 0": parcel(-1),
    "no events": parcel(),
}

CARRIERS: dict[str, Callable[[Parcel], Message]] = {
    "Forward": Forward,
    "Carry": lambda each: Carry(each, 1, ("b1",)),
    "Probe": lambda each: Probe(1, each, ("b2",)),
}


@pytest.mark.parametrize("carrier", list(CARRIERS))
@pytest.mark.parametrize("what", list(BAD_PARCELS))
def test_a_neighbour_that_brings_what_nobody_numbered_is_hung_up_on(
    what: str, carrier: str
) -> None:
    alone = subscribed()
    alone.tell(2, CARRIERS[carrier](BAD_PARCELS[what]))
    assert 2 in alone.closed
    assert not any(isinstance(each, PutEntry) for put in alone.open for each in put.operations)


def test_a_fact_with_a_parameter_is_better_too_much() -> None:
    alone = Alone()
    alone.tell(2, Facts((Fact("b2", 1, "far/d", (), "x > :p", 1),)))
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    assert alone.disk.held()


def test_the_largest_number_can_be_published() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), MAX_NUMBER, durable=True))
    alone.sync()
    (delivered,) = alone.heard(Deliver)
    assert isinstance(delivered, Deliver)
    assert delivered.parcel.batch.column(SEQ).to_numpy() == np.array([MAX_NUMBER])
