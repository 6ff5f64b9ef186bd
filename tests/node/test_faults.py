"""Disks that fail, and neighbours and clients that lie: what one node makes of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from palio.model.events import SEQ, TIME, TIMESTAMP
from palio.node.effects import Entry, Moment, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.notices import Notice
from palio.node.operations import Put
from palio.node.settings import Settings
from palio.protocol.limits import MAX_NUMBER, PROTOCOL_VERSION
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Carry,
    ClaimNumbers,
    Deliver,
    EntriesStored,
    Fact,
    Facts,
    Failed,
    Forward,
    Gap,
    Gaps,
    Hello,
    Message,
    Parcel,
    Probe,
    Publish,
    Refused,
    Share,
    Subscribe,
    Unsubscribe,
    Visit,
    pack_mask,
)
from palio.routing.acyclic import Acyclic
from tests.node.alone import B1_LOG, B2_LOG, Alone, carry, event, parcel, stored, subscribed
from tests.node.events import begin


def delivered(alone: Alone) -> list[int]:
    """The numbers of all that the client was given."""
    messages = (each for each in alone.heard(Deliver) if isinstance(each, Deliver))
    return [seq for each in messages if len(each.parcel) for seq in each.parcel.seqs]


def test_what_a_disk_refused_is_asked_for_once_it_takes_writes() -> None:
    alone = subscribed()
    alone.tell(2, carry(parcel(1, 2)))
    alone.sync(fails=True)
    alone.tell(2, carry(parcel(3), 2, 1))
    assert not alone.heard(EntriesStored)
    alone.recover()
    asked = EntriesStored("b1", B1_LOG, "b2", B2_LOG, 0, is_asking=True)
    assert alone.heard(EntriesStored) == [asked]
    for offset, events in enumerate((parcel(1, 2), parcel(3)), 1):
        alone.tell(2, carry(events, offset, offset - 1))
    alone.sync()
    assert alone.heard(EntriesStored)[1:] == [stored(1), stored(2)]
    assert delivered(alone) == [1, 2, 3]


def test_a_durable_publication_is_refused_until_the_disk_takes_writes() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync(fails=True)
    alone.tell(1, Publish(event(), 2, durable=True))
    alone.tell(1, Publish(event(), 3))
    refused = [each for each in alone.heard(Refused) if isinstance(each, Refused)]
    assert [(each.first_seq, each.failure.kind) for each in refused] == [
        (1, "NotStored"),
        (2, "NotStored"),
    ]
    assert Accepted(3, "memory") in alone.heard(Accepted), "live events go on"
    alone.recover()
    alone.tell(1, Publish(event(), 4, durable=True))
    alone.sync()
    assert alone.heard(Accepted)[-1] == Accepted(4, "durable")
    assert delivered(alone) == [3, 4]


def test_what_was_acknowledged_leaves_a_disk_that_refuses() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    (first,) = (each for each in alone.heard(Deliver) if isinstance(each, Deliver))
    alone.disk.is_full = True
    alone.tell(1, Publish(event(), 2, durable=True))
    alone.sync()
    alone.tell(1, Acknowledge(1, first.entry))
    for _ in range(2):
        alone.tick()
        alone.sync()
    assert not alone.disk.held()


def test_claims_that_a_disk_refused_count_before_anything_is_published() -> None:
    alone = Alone()
    alone.disk.is_full = True
    claim = Fact("b2", 9, "far/d", (), "x = 1", 5, Visit("far/1", 1), ClaimNumbers(1, 0, 1))
    alone.tell(2, Facts((claim,)))
    alone.sync()
    alone.disk.is_full = False
    alone.recover()
    alone.tell(1, Publish(event(), 1, durable=True))
    assert [each.last_seq for each in alone.heard(Refused) if isinstance(each, Refused)] == [1]
    alone.sync()
    alone.tell(1, Publish(event(), 2, durable=True))
    alone.sync()
    (sent,) = (each for each in alone.heard(Carry) if isinstance(each, Carry))
    assert (sent.home, sent.shares) == ("b2", (Share("far/d", 1, None),))


def test_a_broker_without_a_disk_refuses_what_is_durable() -> None:
    node = Node("b1", Acyclic("b1"), MemoryStore(), settings=Settings(has_disk=False))
    at = Moment(0.0, 1_000_000)
    begin(node, at)
    node.accept(1, at)
    node.receive(1, Hello("client", "alice", PROTOCOL_VERSION, incarnation="1"), at)
    said = [
        each.message
        for message in (Subscribe(1, 1, "x = 1", durable="d"), Publish(event(), 1, durable=True))
        for each in node.receive(1, message, at)
        if isinstance(each, Send)
    ]
    failed = [each.failure for each in said if isinstance(each, Failed | Refused)]
    assert [each.kind for each in failed] == ["NotStored", "NotStored"]
    assert all("set broker.data_dir" in each.message for each in failed)


def test_events_are_never_on_the_disk_without_the_subscription_that_they_wait_for() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.tell(2, carry(parcel(1)))
    alone.crash(refused=0)
    assert not alone.disk.load().subscriptions
    assert not alone.disk.held()


def test_a_publication_that_comes_again_is_accepted_with_the_first_and_kept_once() -> None:
    alone = subscribed()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.greet(3, "client", "alice")
    alone.tell(3, Publish(event(), 1, durable=True))
    assert not alone.heard(Accepted)
    alone.sync()
    assert alone.heard(Accepted) == [Accepted(1, "durable"), Accepted(1, "durable")]
    assert len(alone.disk.held()) == 1


def test_a_subscription_may_be_forgotten_before_it_turns_out_that_it_was_never_written() -> None:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync(fails=True)
    assert alone.node.status()["durable_subscriptions"] == 0


def test_what_waited_for_a_forgotten_subscription_leaves_the_disk() -> None:
    alone = subscribed()
    alone.tell(2, carry(parcel(1)))
    alone.sync()
    assert alone.disk.held()
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.sync()
    alone.tick()
    alone.sync()
    assert not alone.disk.held()


def test_what_was_on_its_way_to_the_disk_is_none_of_a_successor() -> None:
    alone = subscribed()
    alone.tell(2, carry(parcel(1)))
    alone.tell(1, Unsubscribe(2, 1, forget=True))
    alone.tell(1, Subscribe(3, 2, "x = 7", durable="d"))
    alone.sync()
    alone.tick()
    alone.sync()
    assert not alone.heard(Deliver)
    assert not alone.disk.held()


@pytest.mark.parametrize("back_us", [0, 600_000_000], ids=["on", "back"])
def test_a_lost_disk_is_told_once_and_another_log_begun(back_us: int) -> None:
    alone = Alone()
    others = Fact("b2", 9, "far/d", (), "x = 1", 5, Visit("far/1", 1), ClaimNumbers(1, 0, 1))
    alone.tell(2, Facts((others,)))
    log = alone.node._core.durability.registry.fact("b1", "/log")
    assert log is not None
    again = Alone(wall_us=1_000_000 + (1_000_000 - back_us if not back_us else -back_us))
    again.tell(2, Facts((others,)))
    again.sync()
    for _ in range(3):
        again.tell(2, Facts((log,)))
        again.sync()
    told = [each.details for each in again.reports if each.event == "log_lost"]
    assert told == [{"broker": "b1"}]
    events = again.node._core.durability.events
    assert events.streams.log_number > log.claimed_us
    (sent, *_) = (each for each in again.heard(Carry) if isinstance(each, Carry))
    assert Notice.of(sent.parcel) is not None
    assert sent.shares == (Share("far/d", 1, None),)


def far() -> tuple[Alone, Entry]:
    """A broker that has an event for a durable subscription at b3, to which there is no way."""
    alone = Alone()
    alone.tell(2, Facts(OF_B3))
    alone.sync()
    alone.tell(1, Publish(event(), 1, durable=True))
    alone.sync()
    (entry,) = alone.disk.held()
    return alone, entry


OF_B3 = (
    Fact("b3", 1, "links", ("b2",)),
    Fact("b3", 2, "/log", claimed_us=3),
    Fact("b3", 3, "far/d", (), "x = 1", 1, Visit("far/1", 1), ClaimNumbers(1, 0, 1)),
)

WAY_TO_B3 = Facts((Fact("b2", 19, "links", ("b1", "b3")),))


def test_for_a_damaged_entry_on_its_way_a_notice_goes_on() -> None:
    alone, entry = far()
    alone.disk.flip(entry.entry)
    again = Alone(alone.disk)
    again.tell(2, WAY_TO_B3)
    again.sync()
    (sent,) = (each for each in again.heard(Carry) if isinstance(each, Carry))
    assert Notice.of(sent.parcel) == Notice("b1 1000000", entry.entry, "alice/1", 1, 1, 1)
    lost = {"publisher": entry.parcel.publisher, "first_seq": 1, "last_seq": 1}
    assert [each.details for each in again.reports if each.event == "entry_lost"] == [
        {"entry": entry.entry, **lost, "home": "b3"}
    ]
    again.tell(2, EntriesStored("b3", 3, "b1", B1_LOG, sent.offset))
    for _ in range(2):
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
    some = Share("alice/d", 1, pack_mask(np.array([True, False, True, False, False, True])))
    whole = carry(Parcel("far/p", rows))
    alone.tell(2, replace(whole, shares=(some,)))
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
    lost = {"publisher": "far/p", "first_seq": 10, "last_seq": 15}
    assert [each.details for each in again.reports if each.event == "entry_lost"] == [
        {"entry": entry.entry, **lost, "subscription": "alice/d"}
    ]


def test_what_has_no_way_costs_nothing_until_ways_change(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, _ = far()
    for number in range(2, 20):
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
    alone.tell(2, WAY_TO_B3)
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
    "Carry": carry,
    "Probe": lambda each: Probe(1, each, ("b2",)),
}


@pytest.mark.parametrize("carrier", list(CARRIERS))
@pytest.mark.parametrize("what", list(BAD_PARCELS))
def test_a_neighbour_that_brings_what_nobody_numbered_is_hung_up_on(
    what: str, carrier: str
) -> None:
    alone = subscribed()
    alone.tell(2, CARRIERS[carrier](BAD_PARCELS[what]))
    is_legal = (what, carrier) == ("no events", "Carry")  # a broker between was not to bring them
    assert (2 in alone.closed) is not is_legal
    assert not any(isinstance(each, Put) for put in alone.open for each in put.operations)


def test_a_fact_with_a_parameter_is_better_too_much() -> None:
    alone = Alone()
    claim = ClaimNumbers(1, 0, 1)
    alone.tell(2, Facts((Fact("b2", 9, "far/d", (), "x > :p", 1, Visit("far/1", 1), claim),)))
    alone.sync()
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
