"""A stream: counted, kept until seen, sent again after a break."""

from __future__ import annotations

import pytest

from palio.errors import IllegalMessage
from palio.protocol.limits import ACK_EVERY_BYTES, ACK_EVERY_ROUTES, WINDOW_BYTES
from palio.protocol.messages import (
    Deliver,
    Done,
    Parcel,
    Ping,
    Route,
    StreamAck,
    Subscribe,
    SubscribeAll,
)
from palio.protocol.streams import Stream, size_of
from palio.routing.messages import Batch
from tests.node.events import parcel


def big(count: int) -> Deliver:
    return Deliver(parcel(*({"x": number} for number in range(count))))


def test_only_counted_messages_count() -> None:
    stream = Stream()
    stream.arrive(Ping())
    stream.arrive(Done(1))
    assert stream.received == 1


def test_what_was_seen_is_not_sent_again() -> None:
    stream = Stream()
    for number in range(5):
        stream.send(Done(number))
    stream.seen(2)
    assert stream.resume(3) == [Done(3), Done(4)]
    assert stream.resume(5) == []


@pytest.mark.parametrize("count", [-1, 1, 4])
def test_nobody_has_seen_less_than_before_or_more_than_was_sent(count: int) -> None:
    stream = Stream()
    for number in range(3):
        stream.send(Done(number))
    stream.seen(2)
    assert not stream.knows(count)
    with pytest.raises(IllegalMessage, match=f"it acks {count} messages, 3 were sent"):
        stream.seen(count)


def test_the_window_closes_and_opens_by_bytes() -> None:
    message = big(100)
    stream = Stream(window=size_of(message) + 1)
    rooms = [stream.has_room]
    for _ in range(2):
        stream.send(message)
        rooms.append(stream.has_room)
    assert rooms == [True, True, False]
    stream.seen(1)
    rooms.append(stream.has_room)
    assert rooms[-1]
    assert stream.unseen_bytes == size_of(message)


def test_the_other_end_is_to_be_told_once_when_much_arrived() -> None:
    stream = Stream()
    assert stream.ack() is None
    assert not stream.arrive(Done(1))
    assert stream.ack() == StreamAck(1)
    assert stream.ack() is None
    message = big(1000)
    needed = -(-ACK_EVERY_BYTES // size_of(message))
    are_due = [stream.arrive(message) for _ in range(needed)]
    assert are_due == [False] * (needed - 1) + [True]
    assert stream.ack() == StreamAck(1 + needed)
    assert not stream.arrive(Done(1))


@pytest.mark.parametrize("window", [1, 3_000, ACK_EVERY_BYTES, WINDOW_BYTES])
def test_an_ack_is_due_before_a_window_is_full(window: int) -> None:
    one, other = Stream(window), Stream(window)
    for _ in range(WINDOW_BYTES // 20_000):
        assert one.has_room
        one.send(big(100))
        if other.arrive(big(100)):
            ack = other.ack()
            assert ack is not None
            one.seen(ack.count)


@pytest.mark.parametrize(("more", "is_said"), [(-1, False), (0, True), (1, True)])
def test_it_is_to_be_told_after_so_many_messages_of_a_router(more: int, is_said: bool) -> None:
    stream = Stream()
    are_due = [
        stream.arrive(message)
        for _ in range(ACK_EVERY_ROUTES + more)
        for message in (Done(1), Route(Batch(())))
    ]
    assert are_due[-1] == is_said


def test_messages_of_a_router_are_counted_until_they_are_seen() -> None:
    stream = Stream()
    counts = []
    for message in (Route(Batch(())), Done(1), Route(Batch(()))):
        stream.send(message)
        counts.append(stream.unseen_routes)
    stream.seen(2)
    assert [*counts, stream.unseen_routes] == [1, 1, 2, 1]


def test_a_resumed_stream_owes_no_word() -> None:
    stream = Stream()
    stream.arrive(Done(1))
    stream.resume(0)
    assert stream.ack() is None


def test_events_weigh_what_their_encoded_form_does_and_what_arrow_takes_for_columns() -> None:
    message = big(10)
    assert isinstance(message.parcel, Parcel)
    columns = len(message.parcel.shape.names)
    nbytes = message.parcel.nbytes
    assert abs(message.parcel.payload.size - nbytes) < 256
    assert size_of(message) == nbytes + 500 * columns


def test_what_is_said_together_weighs_as_much_as_one_by_one() -> None:
    request = Subscribe(1, 1, "x = 1")
    assert size_of(SubscribeAll((request, request))) == 2 * size_of(request)
    assert size_of(Done(1, others=(2, 3))) > size_of(Done(1, others=(2,))) > size_of(Done(1))


def test_what_was_begun_of_a_message_counts_until_it_has_arrived() -> None:
    stream = Stream()
    assert (stream.rows_begun, stream.begun("m")) == (0, 0)
    stream.arrive(Done(1))
    stream.begin("m", 64)
    stream.begin("m", 128)
    assert (stream.rows_begun, stream.begun("m")) == (128, 128)
    assert stream.begun("what comes in its stead") == 0
    stream.arrive(big(200))
    assert (stream.rows_begun, stream.begun("m")) == (0, 0)
