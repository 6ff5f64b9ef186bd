from __future__ import annotations

from itertools import pairwise
from math import inf
from struct import pack

import pytest

from palio.model.parcels import Parcel
from palio.multicast import inflows
from palio.multicast.datagrams import COUNT_BITS, Datagram
from palio.multicast.inflows import Inflows, number_near
from palio.multicast.limits import (
    ACK_EVENTS,
    ACK_S,
    LACK_S,
    MAX_HELD_BYTES,
    MAX_RANGES,
    MAX_TOGETHER,
)
from tests.multicast.flows import event


class Receiver:
    """A receiver with one flow, from `s`."""

    def __init__(self, gone: int = 0, share: float = 1.0) -> None:
        self.came: list[int] = []
        self.flows = Inflows("r", self._arrived, share)
        self.flows.state("s", 1, stage=2, number=gone, gone=gone, now=0.0)
        self.flows.outgoing.clear()

    def _arrived(self, parcel: Parcel, durable: bool) -> None:
        del durable
        assert parcel.event is not None
        self.came.append(parcel.event["x"])

    def hear(self, *numbers: int, now: float = 0.0) -> None:
        for number in numbers:
            self.flows.event("s", 1, number, event(number), durable=False, now=now)


def test_events_come_in_order_and_once() -> None:
    receiver = Receiver()
    receiver.hear(2, 4, 2, 1, 1, 3, 4)
    assert receiver.came == [1, 2, 3, 4]
    assert receiver.flows.duplicates == 3


def test_what_is_lacking_is_asked_for_and_more_seldom_each_time() -> None:
    receiver = Receiver()
    receiver.hear(2, 5)
    assert receiver.flows.wake_at >= LACK_S or receiver.flows.wake_at == ACK_S
    asked: list[float] = []
    now = 0.0
    while len(asked) < 4:
        now += 0.001
        receiver.flows.tick(now)
        said = [each for each in receiver.flows.outgoing if each.lacking]
        if said:
            assert said[0].lacking == ((1, 1), (3, 4))
            asked.append(now)
            receiver.flows.outgoing.clear()
    waits = [later - earlier for earlier, later in pairwise(asked)]
    assert waits == sorted(waits)
    receiver.hear(1, 3, 4)
    receiver.flows.tick(now + 10)
    assert not any(each.lacking for each in receiver.flows.outgoing)
    assert receiver.flows.wake_at == inf


def test_no_more_ranges_are_asked_for_at_once() -> None:
    receiver = Receiver()
    receiver.hear(*range(2, 2 * MAX_RANGES + 4, 2))
    receiver.flows.tick(1.0)
    assert len(receiver.flows.outgoing[-1].lacking) == MAX_RANGES


def test_a_sender_is_told_after_some_events_or_a_little_time() -> None:
    receiver = Receiver()
    receiver.hear(*range(1, ACK_EVENTS))
    assert receiver.flows.outgoing == []
    receiver.hear(ACK_EVENTS)
    assert [each.number for each in receiver.flows.outgoing] == [ACK_EVENTS]
    receiver.hear(ACK_EVENTS + 1, now=1.0)
    receiver.flows.tick(1.0 + ACK_S)
    assert receiver.flows.outgoing[-1].number == ACK_EVENTS + 1


def test_a_sender_that_asks_is_answered_at_once() -> None:
    receiver = Receiver()
    for parcel, answers in ((event(1), []), (None, [1])):
        sent = Datagram("s", 1, 7, 0, 1, pack("<I", 1 << 1 | (parcel is not None)), parcel)
        receiver.flows.datagram(sent, 0, 0.0)
        assert [each.number for each in receiver.flows.outgoing] == answers


def test_numbers_that_are_gone_are_passed_over_and_counted() -> None:
    receiver = Receiver()
    receiver.hear(1, 3, 6)
    receiver.flows.state("s", 1, stage=2, number=6, gone=4, now=0.0)
    assert receiver.came == [1, 3]
    assert receiver.flows.lost == 2
    receiver.hear(5)
    assert receiver.came == [1, 3, 5, 6]


def test_not_too_much_of_what_was_held_comes_at_once() -> None:
    receiver = Receiver()
    count = 2 * MAX_TOGETHER + 2
    receiver.hear(*range(2, count + 1))
    receiver.hear(1)
    assert len(receiver.came) == 1 + MAX_TOGETHER
    assert receiver.flows.wake_at == 0.0
    receiver.hear(count + 1, len(receiver.came) + 1)  # new, and held already
    receiver.flows.tick(0.0)
    assert len(receiver.came) == 1 + 2 * MAX_TOGETHER
    receiver.flows.tick(0.0)
    assert receiver.came == list(range(1, count + 2))
    assert receiver.flows.wake_at > 0.0
    assert receiver.flows.duplicates == 1


def test_what_was_held_and_has_its_turn_comes_before_a_later_life() -> None:
    receiver = Receiver()
    receiver.hear(*range(2, 2 * MAX_TOGETHER + 1), 1)
    receiver.flows.state("s", 2, stage=1, number=0, gone=0, now=0.0)
    assert receiver.came == list(range(1, 2 * MAX_TOGETHER + 1))


def test_a_later_life_of_a_sender_begins_anew_and_an_earlier_one_counts_for_nothing() -> None:
    receiver = Receiver()
    receiver.hear(1)
    receiver.flows.state("s", 2, stage=1, number=0, gone=0, now=0.0)
    receiver.hear(2)
    assert receiver.came == [1]
    receiver.flows.state("s", 1, stage=2, number=9, gone=9, now=0.0)
    receiver.flows.event("s", 2, 1, event(7), durable=False, now=0.0)
    assert receiver.came == [1, 7]
    assert receiver.flows.knows("s", 2)


def test_what_is_too_much_before_its_turn_is_dropped_and_asked_for() -> None:
    receiver = Receiver(share=2 * event(1).held_bytes / MAX_HELD_BYTES)
    receiver.hear(2, 3, 4, 5)
    assert receiver.flows.overflowed == 1
    receiver.flows.tick(1.0)
    assert receiver.flows.outgoing[-1].lacking == ((1, 1), (5, 5))
    receiver.hear(1, 5)
    assert receiver.came == [1, 2, 3, 4, 5]


def datagram(number: int, *counts: int, incarnation: int = 1) -> Datagram:
    packed = pack(f"<{len(counts)}I", *counts)
    return Datagram("s", incarnation, 7, 0, number, packed, event(number))


def test_a_datagram_says_to_each_member_whose_it_is() -> None:
    receiver = Receiver()
    receiver.flows.datagram(datagram(1, 9, 2 * 1), 1, 0.0)  # the flow has one event, not this one
    assert receiver.came == []
    receiver.flows.tick(1.0)
    assert receiver.flows.outgoing[-1].lacking == ((1, 1),)
    receiver.flows.datagram(datagram(2, 9, 2 * 1 + 1), 1, 1.0)
    receiver.flows.datagram(datagram(3, 9, 2 * 2 + 1)._replace(parcel=None), 1, 1.0)
    receiver.flows.datagram(datagram(3, 9, 2 * 2 + 1, incarnation=2), 1, 1.0)
    assert receiver.came == [2]


@pytest.mark.parametrize("known", [0, 5, (1 << COUNT_BITS) - 1, 1 << COUNT_BITS, 9 << COUNT_BITS])
@pytest.mark.parametrize("ahead", [0, 1, 100, 1_000_000])
def test_numbers_are_known_by_their_low_bits(known: int, ahead: int) -> None:
    low = (known + ahead) % (1 << COUNT_BITS)
    assert number_near(low, known) == known + ahead


def test_what_all_flows_hold_is_bounded_and_let_go_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inflows, "MAX_ALL_HELD_BYTES", 2 * event(1).held_bytes)
    receiver = Receiver()
    flows = receiver.flows
    flows.state("t", 1, stage=2, number=0, gone=0, now=0.0)
    receiver.hear(2, 3, 4)
    flows.event("t", 1, 2, event(2), durable=False, now=0.0)
    assert flows.overflowed == 1
    flows.state(
        "s", 2, stage=2, number=0, gone=0, now=0.0
    )  # it holds nothing of its earlier incarnation
    flows.event("t", 1, 2, event(2), durable=False, now=0.0)
    flows.event("t", 1, 1, event(1), durable=False, now=0.0)
    assert receiver.came == [1, 2]
    assert flows.overflowed == 1
