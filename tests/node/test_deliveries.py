"""`Deliveries`: which consumer has which entry, and when another one gets it."""

from __future__ import annotations

from math import inf
from typing import Final

from palio.node.deliveries import LEFT, ConsumerState, Deliveries, Flight, Policy

NO_POLICY: Final = Policy()


def begun(
    policy: Policy = NO_POLICY, *, consumers: int = 1
) -> tuple[Deliveries, list[ConsumerState]]:
    deliveries = Deliveries()
    deliveries.policy = policy
    who = [ConsumerState() for _ in range(consumers)]
    for each in who:
        deliveries.join(each)
    return deliveries, who


def send(deliveries: Deliveries, consumer: ConsumerState, *offsets: int, now: float = 0.0) -> None:
    for offset in offsets:
        flight = deliveries.begin(offset)
        assert flight is not None
        deliveries.send(now, consumer, flight, 100)


def resend(deliveries: Deliveries, consumer: ConsumerState, now: float = 0.0) -> Flight:
    flight = deliveries.next_returned(now)
    assert flight is not None
    deliveries.send(now, consumer, flight, 100)
    return flight


def test_the_floor_is_below_all_that_is_open() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 3, 5, 9)
    assert deliveries.floor == 2
    assert deliveries.acknowledge(0.0, one, 0, (5,)) == [5]
    assert deliveries.floor == 2
    assert deliveries.acknowledge(0.0, one, 3) == [3]
    assert deliveries.floor == 8
    assert deliveries.acknowledge(0.0, one, 9) == [9]
    assert deliveries.floor == 9
    assert one.in_flight == 0
    assert not deliveries.is_open(9)
    assert deliveries.is_open(10)


def test_what_is_rejected_comes_again_after_its_delay_and_before_what_is_new() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 1, 2, 3)
    assert deliveries.reject(10.0, one, 2, delay_s=5.0, reason="busy") == []
    assert deliveries.next_returned(14.9) is None
    assert deliveries.wake_at(10.0) == 15.0
    flight = resend(deliveries, one, 15.0)
    assert (flight.offset, flight.attempt, flight.reason) == (2, 2, "busy")
    assert deliveries.wake_at(15.0) == inf
    assert deliveries.acknowledge(15.0, one, 3) == [1, 3], "not what was sent behind them"
    assert deliveries.floor == 1
    assert deliveries.acknowledge(15.0, one, 0, (2,)) == [2]
    assert deliveries.floor == 3


def test_what_was_rejected_is_not_acknowledged_with_those_after_it() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 1, 2)
    deliveries.reject(0.0, one, 1)
    assert deliveries.acknowledge(0.0, one, 2) == [2]
    assert deliveries.acknowledge(0.0, one, 0, (1,)) == []
    assert deliveries.is_open(1)


def test_only_the_oldest_has_a_deadline_and_those_behind_it_get_theirs() -> None:
    deliveries, (one,) = begun(Policy(ack_timeout_s=10.0))
    send(deliveries, one, 1, 2)
    assert deliveries.wake_at(0.0) == 10.0
    deliveries.expire(9.9)
    assert deliveries.next_returned(9.9) is None
    deliveries.acknowledge(8.0, one, 1)
    assert deliveries.wake_at(8.0) == 18.0
    deliveries.expire(18.0)
    flight = resend(deliveries, one, 18.0)
    assert (flight.offset, flight.attempt) == (2, 2)
    assert flight.reason == "not acknowledged within 10 s"


def test_a_late_acknowledgement_counts_until_it_is_sent_again_and_after() -> None:
    deliveries, (one, two) = begun(Policy(10.0, is_group=True), consumers=2)
    send(deliveries, one, 1, 2)
    deliveries.expire(10.0)
    assert deliveries.acknowledge(10.0, one, 0, (1,)) == [1]
    deliveries.expire(20.0)
    resend(deliveries, two, 20.0)
    assert deliveries.acknowledge(20.0, one, 0, (2,)) == [2]
    assert not two.flights
    assert deliveries.acknowledge(20.0, two, 0, (2,)) == []


def test_who_leaves_returns_what_it_had_and_only_the_oldest_counts_an_attempt() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 1, 2, 3)
    assert deliveries.leave(0.0, one) == []
    two = ConsumerState()
    deliveries.join(two)
    again = [resend(deliveries, two) for _ in range(3)]
    assert [(each.offset, each.attempt) for each in again] == [(1, 2), (2, 1), (3, 1)]
    assert again[0].reason == LEFT
    assert all(each.in_order for each in again), "to a new session all is new"
    assert deliveries.acknowledge(0.0, two, 3) == [1, 2, 3]


def test_a_client_need_not_get_what_it_had_in_an_earlier_session() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 1, 2, 3)
    deliveries.leave(0.0, one)
    two = ConsumerState()
    deliveries.join(two)
    assert deliveries.acknowledge(0.0, two, 2) == [1, 2]
    assert resend(deliveries, two).offset == 3
    assert deliveries.acknowledge(0.0, two, 7) == [3]
    assert deliveries.sent == deliveries.floor == 7, "it had these before the broker was restarted"


def test_of_a_group_nobody_acknowledges_what_others_had() -> None:
    deliveries, (one, two) = begun(Policy(is_group=True), consumers=2)
    send(deliveries, one, 1)
    send(deliveries, two, 2)
    deliveries.leave(0.0, one)
    assert deliveries.acknowledge(0.0, two, 9) == [2]
    assert (deliveries.floor, deliveries.sent) == (0, 2)


def test_after_its_last_attempt_an_entry_is_not_sent_again() -> None:
    deliveries, (one,) = begun(Policy(max_attempts=2))
    send(deliveries, one, 1, 2)
    assert deliveries.reject(0.0, one, 1) == []
    flight = resend(deliveries, one)
    (over,) = deliveries.reject(0.0, one, 1, reason="no")
    assert over is flight
    assert (over.attempt, over.reason) == (2, "no")
    assert deliveries.next_returned(1e9) is None
    assert deliveries.acknowledge(0.0, one, 2, (1,)) == [2], "it is on its way to the disk"
    deliveries.retry(over, 5.0)  # which refused it
    assert deliveries.next_returned(5.0) is over
    assert deliveries.forget(5.0, over)
    assert deliveries.next_returned(5.0) is None
    assert deliveries.floor == 2


def test_events_of_an_entry_are_settled_and_rejected_one_by_one() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 4)
    deliveries.narrow(4, [7, 8, 9])
    assert deliveries.reject(0.0, one, 4, (8,)) == []
    assert deliveries.acknowledge(0.0, one, 0, (4,), (7,)) == []
    part = resend(deliveries, one)
    assert (part.seqs, part.attempt, part.in_order) == (frozenset({8}), 2, False)
    assert deliveries.reject(0.0, one, 4, (8,)) == []
    assert resend(deliveries, one).attempt == 3
    assert deliveries.acknowledge(0.0, one, 0, (4,), (8,)) == []
    assert deliveries.acknowledge(0.0, one, 4) == [4], "the ninth"
    assert not one.flights


def test_who_acknowledges_the_rest_of_an_entry_does_not_mean_what_is_here_again() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 4)
    deliveries.narrow(4, [7, 8])
    deliveries.reject(0.0, one, 4, (8,))
    resend(deliveries, one)
    assert deliveries.acknowledge(0.0, one, 4) == []
    assert deliveries.acknowledge(0.0, one, 0, (4,)) == [], "it does not say which part"
    assert deliveries.acknowledge(0.0, one, 0, (4,), (8,)) == [4]


def test_what_is_held_frees_the_window() -> None:
    deliveries, (one,) = begun()
    send(deliveries, one, 1, 2, 3)
    one.held(2)
    assert one.in_flight == 100
    deliveries.acknowledge(0.0, one, 1)
    one.held(9)
    assert one.in_flight == 0


def test_of_an_entry_the_first_events_of_all_keys_travel_together_and_then_the_second() -> None:
    deliveries, (one,) = begun(Policy(is_group=True, order_by="key"))
    first = deliveries.begin(4, {1: "a", 2: "b", 3: "a", 4: None, 5: "b", 6: "a"})
    assert first is not None
    assert deliveries.begin(5, {7: "a"}) is None
    deliveries.send(0.0, one, first, 100)
    assert (first.seqs, deliveries.held) == (frozenset({1, 2, 4}), 4)
    assert deliveries.acknowledge(0.0, one, 4) == []
    second = resend(deliveries, one)
    assert (second.seqs, second.is_part, deliveries.held) == (frozenset({3, 5}), True, 2)
    assert deliveries.next_returned(0.0) is None
    deliveries.reject(0.0, one, 4, (3,))
    assert deliveries.acknowledge(0.0, one, 0, (4,), (5,)) == []
    again = resend(deliveries, one)
    assert (again.seqs, again.attempt) == (frozenset({3}), 2)
    assert deliveries.next_returned(0.0) is None, "the sixth waits for the third"
    assert deliveries.acknowledge(0.0, one, 0, (4,), (3,)) == []
    assert resend(deliveries, one).seqs == frozenset({6})
    assert deliveries.acknowledge(0.0, one, 0, (4,), (6,)) == [4]
    last = resend(deliveries, one)
    assert (last.offset, last.seqs) == (5, None)
    assert deliveries.acknowledge(0.0, one, 0, (5,)) == [5]
    assert (deliveries.floor, deliveries.held) == (5, 0)
