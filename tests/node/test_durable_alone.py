"""What one broker does with durable events, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from palio.node.durable import UNREADY, DurableEvents
from palio.node.loss_markers import LossMarker
from palio.node.operations import (
    Action,
    Append,
    CaughtUp,
    Claim,
    ClaimStored,
    Impossible,
    Kept,
    NotKept,
    Open,
    Put,
    QueueReady,
    Renew,
    Transmit,
)
from palio.protocol.limits import MAX_SUBJECTS
from palio.protocol.messages import Carry, EntriesStored, Share
from tests.node.durable_world import Disk
from tests.node.events import parcel

EVENTS = parcel({"n": 1})
HERE = Claim("ann/d", 1, "b1", "ann/1", 1, since=1)


def broker(*claims: Claim) -> DurableEvents:
    """One that has its disk, and knows the log of b2."""
    disk = Disk()
    operations: list[Any] = [CaughtUp(1), Renew("b2", 1), *map(Open, claims)]
    return DurableEvents("b1", 1, operations, disk)


def done(events: DurableEvents, follows: list[Action]) -> list[Action]:
    """What follows once everything is stored."""
    found: list[Action] = []
    for each in follows:
        found += events.stored(0.0, each.ticket) if isinstance(each, Append) else [each]
    return found


def put_of(follows: list[Action]) -> Put:
    """What is written."""
    (write,) = follows
    assert isinstance(write, Append)
    (put,) = (each for each in write.operations if isinstance(each, Put))
    return put


def carry(offset: int, previous: int, *shares: Share) -> Carry:
    return Carry(EVENTS, "b2", 1, "b1", 1, offset, previous, shares)


def stored(offset: int, *, is_asking: bool = False) -> Transmit:
    return Transmit("b2", EntriesStored("b1", 1, "b2", 1, offset, is_asking))


SHARE = Share("ann/d", 1, None)


def test_a_publication_is_answered_once_it_is_stored() -> None:
    events = broker(HERE)
    follows = events.publish(0.0, 0, EVENTS, {"ann/d": None}, "ticket")
    assert events.delivery("ann/d", 0) is None
    assert done(events, follows) == [QueueReady("ann/d"), Kept("ticket")]
    delivery = events.delivery("ann/d", 0)
    assert delivery is not None
    assert delivery.parcel == EVENTS


def test_what_nobody_wants_is_answered_behind_what_is_under_way() -> None:
    events = broker(HERE)
    assert events.publish(0.0, 0, EVENTS, {}, "first") == [Kept("first")]
    first = events.publish(0.0, 0, EVENTS, {"ann/d": None}, "second")
    second = events.publish(0.0, 0, EVENTS, {"eve/d": None}, "third")
    assert done(events, [*first, *second])[-1] == Kept("third")


def test_what_waits_for_a_disk_that_refuses_is_answered() -> None:
    events = broker(HERE)
    (write,) = events.publish(0.0, 0, EVENTS, {"ann/d": None}, "first")
    assert isinstance(write, Append)
    assert events.refused(0.0, write.ticket, "full") == [NotKept("first", "full")]
    wanted = {"ann/d": None}
    assert events.publish(0.0, 0, EVENTS, wanted, "second") == [NotKept("second", "full")]
    events.writable(0.0)
    assert done(events, events.publish(0.0, 0, EVENTS, wanted, "third"))[-1] == Kept("third")


def test_a_broker_without_its_disk_takes_nothing_before_it_has_caught_up() -> None:
    events = DurableEvents("b1", 1, (), Disk())
    assert events.publish(0.0, 0, EVENTS, {}, "p") == [NotKept("p", UNREADY)]
    assert events.open(0.0, HERE, None, "o") == [NotKept("o", UNREADY)]
    assert events.carry(0.0, 0, carry(1, 0, SHARE)) == []
    assert events.learn(0.0, [HERE]) == []
    loss = LossMarker("b1 log 1", 0, "*", 0, 0, 0).parcel
    follows = done(events, events.catch_up(0.0, 0, (), 2, loss))
    assert ClaimStored(None, HERE) in follows
    assert QueueReady("ann/d") in follows
    assert (events.is_ready, events.streams.log_number) == (True, 2)


def test_a_home_takes_what_is_next_and_asks_once_for_what_it_misses() -> None:
    events = broker(HERE)
    follows = events.carry(0.0, 0, carry(5, 0, SHARE))
    assert events.carry(0.0, 0, carry(5, 0, SHARE)) == []
    assert done(events, follows) == [QueueReady("ann/d"), stored(5)]
    assert events.carry(0.0, 0, carry(5, 0, SHARE)) == [stored(5)]
    assert events.carry(0.0, 0, carry(9, 7, SHARE)) == [stored(5, is_asking=True)]
    assert events.carry(0.0, 0, carry(9, 7, SHARE)) == []
    assert isinstance(events.carry(0.0, 0, carry(9, 3, SHARE))[0], Impossible)
    assert done(events, events.carry(0.0, 0, carry(7, 5, SHARE)))[-1] == stored(7)


def test_a_former_log_and_another_home_are_not_heard() -> None:
    events = broker(HERE)
    done(events, events.carry(0.0, 0, replace(carry(5, 0, SHARE), log=2)))
    assert events.carry(0.0, 0, carry(7, 5, SHARE)) == []
    assert events.carry(0.0, 0, replace(carry(7, 5, SHARE), log=2, home_log=3)) == []


def test_what_comes_for_a_closed_queue_goes_to_the_newest_claim() -> None:
    moved = HERE._replace(number=2, home="b2")
    events = broker(HERE, moved)
    put = put_of(events.carry(0.0, 0, carry(5, 0, SHARE)))
    assert [(each.home, each.shares) for each in put.targets] == [
        ("b2", (Share("ann/d", 2, None),))
    ]


def test_what_was_for_one_that_is_over_is_for_nobody() -> None:
    over = HERE._replace(home="")
    anew = HERE._replace(number=2, since=2)
    for claims in ((HERE, over), (over, anew)):
        events = broker(*claims)
        follows = events.carry(0.0, 0, carry(5, 0, SHARE))
        assert done(events, follows) == [stored(5)]
        assert not events.queues.entries


def test_a_home_learns_from_an_entry_that_it_is_one() -> None:
    events = broker()
    follows = done(events, events.carry(0.0, 0, carry(5, 0, SHARE)))
    assert QueueReady("ann/d") in follows
    assert events.claims.stored("ann/d") == Claim("ann/d", 1, "b1")
    real = done(events, events.learn(0.0, [HERE]))
    assert real == [ClaimStored(Claim("ann/d", 1, "b1"), HERE)]


@pytest.mark.parametrize("subjects", [MAX_SUBJECTS - 1, MAX_SUBJECTS, MAX_SUBJECTS + 1])
def test_an_entry_is_for_so_many_at_a_home(subjects: int) -> None:
    claims = [Claim(f"o{number}/d", 1, "b2") for number in range(subjects)]
    wanted = {claim.subject: None for claim in claims}
    put = put_of(broker(*claims).publish(0.0, 0, EVENTS, wanted, "ticket"))
    sizes = [len(each.shares) for each in put.targets]
    assert sum(sizes) == subjects
    assert max(sizes) <= MAX_SUBJECTS
    assert len(sizes) == 1 + (subjects > MAX_SUBJECTS)
    assert len({each.offset for each in put.targets}) == len(sizes)


def test_an_acknowledgement_of_what_nothing_has_does_nothing() -> None:
    events = broker(HERE)
    done(events, events.publish(0.0, 0, EVENTS, {"ann/d": None}, "ticket"))
    assert events.was_assigned(1)
    assert not events.was_assigned(2)
    assert events.acknowledge(0.0, "ann/d", 1, (), b"") == []
    assert events.acknowledge(0.0, "eve/d", 9, (), b"") == []
    assert events.wake_at > 0.0
    done(events, events.tick(events.wake_at))
    assert not events.queues.entries


def test_an_entry_that_cannot_be_read_is_delivered_as_a_loss() -> None:
    events = broker(HERE)
    put = Put(1, None, 0, put_of(events.publish(0.0, 0, EVENTS, {"ann/d": None}, "x")).targets)
    damaged = DurableEvents("b1", 1, [CaughtUp(1), Open(HERE), put], Disk())
    delivery = damaged.delivery("ann/d", 0)
    assert delivery is not None
    assert delivery.is_damaged
    assert LossMarker.of(delivery.parcel) is not None


def test_a_claim_of_another_that_the_disk_refuses_counts_when_it_takes_writes() -> None:
    events = broker(HERE)
    elsewhere = HERE._replace(number=2, home="b2")
    (write,) = events.learn(0.0, [elsewhere])
    assert isinstance(write, Append)
    assert events.refused(0.0, write.ticket, "full") == []
    assert events.claims.stored("ann/d") == HERE
    follows = done(events, events.writable(0.0))
    assert follows == [ClaimStored(HERE, elsewhere)]
