"""Disks that fail, and neighbours and clients that lie: what one node makes of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from palio.model.events import SEQ, TIME, timestamp_type
from palio.model.masks import pack_mask
from palio.node.loss_markers import LossMarker
from palio.node.operations import CaughtUp, Claim, Open, Put, PutSubscription, Target
from palio.protocol.limits import MAX_NUMBER
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Carry,
    Deliver,
    Done,
    EntriesStored,
    Failed,
    Forward,
    Gap,
    Gaps,
    Message,
    Parcel,
    Probe,
    Publish,
    Refused,
    Settle,
    Share,
    Subscribe,
    Unsubscribe,
)
from palio.simulation.disks import Disk
from palio.simulation.randomness import Randomness
from tests.node.alone import Alone, event, far, lives, parcel, subscribed


def numbers(alone: Alone) -> list[int]:
    """Of all that was delivered."""
    return [seq for each in alone.heard(Deliver) for seq in each.parcel.seqs]


def cursors(alone: Alone) -> list[tuple[int, bool]]:
    """Up to where b1 says that it has what b2 carries there, and whether it asks for more."""
    return [(each.offset, each.is_asking) for each in alone.heard(EntriesStored)]


# --- a disk that refuses ---


def test_what_a_disk_refused_of_others_is_asked_for_once_it_takes_writes() -> None:
    alone = subscribed()
    alone.carry(parcel(1, 2), 5)
    alone.sync(fails=True)
    assert not alone.heard(EntriesStored)
    alone.recover()
    assert cursors(alone) == [(0, True)]
    alone.carry(parcel(1, 2), 5)
    alone.sync()
    assert cursors(alone)[1:] == [(5, False)]
    assert numbers(alone) == [1, 2]


@pytest.mark.parametrize("when", ["under way", "later"])
def test_nothing_is_taken_behind_what_was_refused(when: str) -> None:
    """The disk has room for the second; that it has the first is what its sender would believe."""
    alone = subscribed()
    alone.carry(parcel(1), 5)
    if when == "under way":
        alone.carry(parcel(2), 7, 5)
    alone.sync(fails=True, steps=1)
    if when == "later":
        alone.carry(parcel(2), 7, 5)
    alone.sync()
    assert not alone.heard(EntriesStored)
    assert not alone.disk.held()


def test_while_a_disk_refuses_what_is_durable_is_refused_and_live_events_go_on() -> None:
    alone = subscribed()
    alone.tell(1, Subscribe(2, 2, "x = 1"))
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync(fails=True)
    alone.tell(1, Publish(event(), 2, durable=True))
    alone.tell(1, Subscribe(3, 3, "x = 1", durable="e"))
    alone.tell(1, Unsubscribe(4, 1, forget=True))
    assert not alone.open, "nothing of it is tried before the disk is found to take writes"
    assert [(each.first_seq, each.failure.kind) for each in alone.heard(Refused)] == [
        (1, "NotStored"),
        (2, "NotStored"),
    ]
    failed = {each.id: each.failure.kind for each in alone.heard(Failed)}
    assert failed == {3: "NotStored", 4: "NotStored"}
    alone.tell(1, Publish(event(), 3))
    assert numbers(alone) == [1, 2, 3], "live"
    alone.recover()
    alone.tell(1, Publish(event(), 4, durable=True))
    alone.tell(1, Subscribe(5, 5, "x = 1", durable="e"))
    alone.sync()
    assert Accepted(4, "durable") in alone.heard(Accepted)
    assert Done(5) in alone.heard(Done)


def test_while_a_disk_refuses_acknowledgements_are_written() -> None:
    """A disk that is full has room for what makes room."""
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    (delivered,) = (each for each in alone.heard(Deliver) if each.entry)
    alone.tell(1, Publish(event(), 2, durable=True))
    alone.sync(fails=True)
    alone.disk.is_full = True
    alone.tell(1, Acknowledge(1, delivered.entry))
    alone.rest()
    assert not alone.disk.held()
    assert alone.node.status()["custody_entries"] == 0


def test_settled_is_answered_while_a_disk_refuses() -> None:
    """What could not be written was refused: nothing is waited for."""
    alone = subscribed()
    alone.disk.is_full = True
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="e"))
    alone.tell(1, Settle(3))
    alone.sync()
    assert [each.id for each in alone.heard(Failed)] == [2]
    alone.tell(1, Settle(4))
    assert not alone.open


def test_claims_of_others_count_before_anything_is_published_on_a_disk_that_recovers() -> None:
    """They were told that this broker knows them: what is published then is for them, too."""
    alone = Alone()
    alone.tell(2, far())
    alone.disk.is_full = True
    alone.tell(2, lives("b3", 3))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.disk.is_full = False
    alone.recover()
    alone.tell(1, Publish(event(), 2, durable=True))
    assert [each.first_seq for each in alone.heard(Refused)] == [1, 2], "it is not known yet"
    alone.sync()
    alone.tell(1, Publish(event(), 3, durable=True))
    alone.sync()
    (carry,) = alone.heard(Carry)
    assert (carry.home, list(carry.parcel.seqs)) == ("b3", [3])


# --- what is under way ---


def test_events_are_never_on_the_disk_without_the_subscription_that_they_wait_for() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.carry(parcel(1), 5)
    alone.crash(refused=0)
    assert not alone.disk.load().subscriptions
    assert not alone.disk.held()
    again = subscribed(alone.disk)
    again.carry(parcel(1), 5)
    again.sync()
    assert cursors(again) == [(5, False)]
    assert numbers(again) == [1]


@pytest.mark.parametrize("fails", [False, True])
def test_what_comes_twice_is_answered_when_the_first_is_on_the_disk_and_not_before(
    fails: bool,
) -> None:
    alone = subscribed()
    alone.carry(parcel(1), 5)
    alone.carry(parcel(1), 5)
    assert not alone.heard(EntriesStored)
    alone.sync(fails=fails)
    assert cursors(alone) == ([] if fails else [(5, False)])
    assert len(alone.disk.held()) == (not fails)


def test_a_publication_that_is_said_again_is_accepted_with_the_first_and_kept_once() -> None:
    """Its publisher lost its session before it heard that the first is on the disk."""
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.greet(3, "client", "alice")
    alone.tell(3, Publish(event(), 1, durable=True))
    assert not alone.heard(Accepted)
    alone.sync()
    assert alone.heard(Accepted) == [Accepted(1, "durable"), Accepted(1, "durable")]
    assert len(alone.disk.held()) == 1


def test_of_a_publication_that_is_said_again_with_more_the_rest_is_kept() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    again = Alone(alone.disk)
    more = Parcel("", pa.RecordBatch.from_pydict({"x": [1, 1, 2, 1]}))
    again.tell(1, Publish(more, 1, durable=True))
    again.sync()
    assert again.heard(Accepted) == [Accepted(4, "durable")]
    assert [list(each.parcel.seqs) for each in again.disk.held()] == [[1], [2, 4]]


def test_a_publication_that_was_refused_is_kept_when_it_is_said_again() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync(fails=True)
    alone.recover()
    alone.greet(3, "client", "alice")
    alone.tell(3, Publish(event(), 1, durable=True))
    alone.sync()
    assert alone.heard(Accepted) == [Accepted(1, "durable")] * 2, "the first as it was refused"
    assert len(alone.disk.held()) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_subscription_may_be_forgotten_before_it_turns_out_whether_it_was_written(
    fails: bool,
) -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync(fails=fails)
    assert alone.node.status()["durable_subscriptions"] == 0
    assert len(alone.heard(Failed if fails else Done)) == 2


def test_what_waited_for_a_forgotten_subscription_leaves_the_disk() -> None:
    alone = subscribed()
    alone.carry(parcel(1), 5)
    alone.sync()
    assert alone.disk.held()
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync()
    alone.rest()
    assert not alone.disk.held()


def test_what_was_on_its_way_to_the_disk_is_none_of_a_successor() -> None:
    alone = subscribed()
    alone.carry(parcel(1), 5)
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.tell(1, Subscribe(3, 2, "x = 1", durable="d"))
    alone.sync()
    alone.carry(parcel(2), 7, 5)  # its origin has not heard of the end
    alone.sync()
    assert not alone.heard(Deliver)
    alone.carry(parcel(3), 9, 7, number=2)
    alone.sync()
    assert numbers(alone) == [3]


def test_what_is_for_a_subscription_that_ended_as_its_broker_stopped_is_nobodys() -> None:
    alone = subscribed()
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.carry(parcel(1), 5)
    alone.crash()
    assert not alone.disk.load().subscriptions
    again = Alone(alone.disk)
    again.rest()
    assert not again.disk.held()
    assert again.node.status()["custody_entries"] == 0


# --- entries that cannot be read ---


def test_for_a_damaged_entry_on_its_way_a_notice_goes_on() -> None:
    alone = Alone()
    alone.tell(2, lives("b3", 3))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))  # there is no way to b3 yet
    alone.sync()
    (entry,) = alone.disk.held()
    alone.disk.flip(entry.entry)
    again = Alone(alone.disk)
    again.tell(2, far(4))
    again.sync()
    (carry,) = again.heard(Carry)
    assert LossMarker.of(carry.parcel) == LossMarker("b1 1000000", entry.entry, "alice/1", 1, 1, 1)
    assert again.told("entry_lost") == [
        {
            "entry": entry.entry,
            "publisher": entry.parcel.publisher,
            "first_seq": 1,
            "last_seq": 1,
            "home": "b3",
        }
    ]
    again.has_stored(carry)
    again.rest()
    assert not again.disk.held()
    assert again.node.status()["custody_entries"] == 0


def test_of_a_damaged_batch_a_subscription_is_told_how_many_were_its_own() -> None:
    alone = subscribed()
    rows = pa.RecordBatch.from_pydict(
        {
            "x": [1, 2, 1, 2, 2, 1],
            SEQ: list(range(10, 16)),
            TIME: pa.array([1_000_000] * 6, timestamp_type()),
        }
    )
    alone.tell(1, Unsubscribe(3, 1))  # its owner is away
    mine = pack_mask(np.array([1, 0, 1, 0, 0, 1], np.bool_))
    alone.carry(Parcel("far/p", rows), 5, rows=mine)
    alone.sync()
    (entry,) = alone.disk.held()
    alone.disk.flip(entry.entry)
    again = Alone(alone.disk)
    again.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    again.sync()
    assert [each.gaps for each in again.heard(Gaps)] == [(Gap("far/p", 10, 15, 3, 1),)]
    (nothing,) = again.heard(Deliver)
    assert len(nothing.parcel) == 0
    assert again.node.status()["custody_entries"] == 1
    again.tell(1, Acknowledge(1, nothing.entry))
    again.rest()
    assert again.node.status()["custody_entries"] == 0, "who was told of it has dealt with it"
    assert again.told("entry_lost") == [
        {
            "entry": entry.entry,
            "publisher": "far/p",
            "first_seq": 10,
            "last_seq": 15,
            "subscription": "alice/d",
        }
    ]


def test_what_is_not_even_in_the_journal_is_a_gap_of_anybody() -> None:
    """A journal has who needs an entry, and the entry is lost."""
    store = Disk(Randomness(0))
    claim = Claim("alice/d", 1, "b1", filter="x = 1", since=1)
    target = Target("b1", 7, (Share("alice/d", 1, None),))
    store.write(
        (
            CaughtUp(1),
            Open(claim),
            PutSubscription("alice/d", "alice", "x = 1", b"\x80", 60.0),
            Put(7, None, 0, (target,)),
        )
    )
    store.sync()
    alone = Alone(store)
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.sync()
    assert [each.gaps for each in alone.heard(Gaps)] == [(Gap("*", 0, 0, 0, 1),)]
    assert alone.told("entry_lost") == [{"entry": 7, "subscription": "alice/d"}]


def test_what_has_no_way_costs_nothing_until_ways_change(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone()
    alone.tell(2, lives("b3", 1))
    alone.sync()
    for number in range(1, 20):
        alone.tell(1, Publish(event(), number, durable=True))
    alone.sync()
    asked: list[str] = []
    cluster_state = alone.node._core.durability.cluster_state
    right = cluster_state.next_hop

    def counted(home: str) -> str | None:
        asked.append(home)
        return right(home)

    monkeypatch.setattr(cluster_state, "next_hop", counted)
    alone.tick()
    assert not asked
    alone.tell(2, far(2))
    alone.sync()
    assert len(alone.heard(Carry)) == 19


# --- what is no message of a sound broker or client ---


BAD_PARCELS = {
    "without numbers": Parcel("p", pa.RecordBatch.from_pydict({"x": [1]})),
    "without a number": Parcel(
        "p",
        pa.RecordBatch.from_pydict(
            {SEQ: pa.array([None], pa.int64()), TIME: pa.array([0], timestamp_type())}
        ),
    ),
    "numbers that are none": Parcel(
        "p", pa.RecordBatch.from_pydict({SEQ: ["a"], TIME: pa.array([0], timestamp_type())})
    ),
    "without a time": Parcel("p", pa.RecordBatch.from_pydict({SEQ: [1]})),
    "falling numbers": parcel(2, 1),
    "doubled numbers": parcel(1, 1),
    "numbers below 0": parcel(-1),
    "no events": parcel(),
}


def carried(events: Parcel, home: str = "b1") -> Carry:
    return Carry(events, "b2", 1, home, 1_000_000, 5, 0, (Share("alice/d", 1, None),))


CARRIERS: dict[str, Callable[[Parcel], Message]] = {
    "Forward": Forward,
    "Carry": carried,
    "Carry beyond": lambda events: carried(events, "b3"),
    "Probe": lambda events: Probe(1, events, ("b2",)),
}


@pytest.mark.parametrize("carrier", list(CARRIERS))
@pytest.mark.parametrize("what", list(BAD_PARCELS))
def test_a_neighbour_that_brings_what_nobody_numbered_is_hung_up_on(
    what: str, carrier: str
) -> None:
    alone = subscribed()
    alone.tell(2, far())
    alone.sync()
    alone.tell(2, CARRIERS[carrier](BAD_PARCELS[what]))
    if what == "no events" and carrier.startswith("Carry"):  # one that a hop has emptied
        assert 2 not in alone.closed
        return
    assert 2 in alone.closed
    assert not any(isinstance(each, Put) for put in alone.open for each in put.operations)


def test_an_emptied_entry_is_taken_and_nothing_of_it_delivered() -> None:
    alone = subscribed()
    alone.carry(parcel(), 5, subjects=())
    alone.carry(parcel(1), 7, 5)
    alone.sync()
    assert cursors(alone) == [(5, False), (7, False)]
    assert numbers(alone) == [1]


@pytest.mark.parametrize("what", ["acknowledges", "stored", "previous"])
def test_what_cannot_be_is_complained_of_and_changes_nothing(what: str) -> None:
    alone = subscribed()
    alone.tell(2, far())
    alone.carry(parcel(1), 5)
    alone.sync()
    if what == "acknowledges":
        alone.tell(1, Acknowledge(1, 1_000))
    elif what == "stored":
        alone.tell(2, lives("b3", 3, subject="far/d"))
        alone.sync()
        alone.tell(1, Publish(event(), 1, durable=True))
        alone.sync()
        alone.tell(2, EntriesStored("b3", 7, "b1", alone.log, 1_000))
    else:
        alone.carry(parcel(2), 9, 3)
    assert len(alone.told("ack_rejected")) == 1
    assert not alone.closed
    assert alone.node.status()["custody_entries"] == (2 if what == "stored" else 1)


def test_a_fact_with_a_parameter_is_better_too_much() -> None:
    alone = Alone()
    alone.tell(2, lives("b2", 1, filter="x > :p"))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    assert alone.disk.held()
    assert alone.told("filter_unreadable")


def test_the_largest_number_can_be_published() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), MAX_NUMBER, durable=True))
    alone.sync()
    (delivered,) = (each for each in alone.heard(Deliver) if each.entry)
    assert delivered.parcel.batch.column(SEQ).to_numpy() == np.array([MAX_NUMBER])
