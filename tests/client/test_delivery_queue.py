from __future__ import annotations

import asyncio
from typing import Any

import pytest

import palio
from palio.client.delivery_queue import (
    DEFAULT_QUEUE_SIZE,
    MAX_QUEUE_SIZE,
    DeliveryQueue,
    check_queue_size,
)
from palio.client.events import Event, Gap, LateGap
from palio.client.subscription import Subscription
from palio.errors import HandlerFailed, InvalidFilter, InvalidInput, LimitExceeded
from tests.client.helpers import drain, seqs, turns


async def lossy(bus: palio.Bus, queue_size: int, filter: str = "x >= 0") -> Subscription:
    return await bus.subscribe(filter, queue_size=queue_size, on_gap=lambda gap: None)


@pytest.mark.parametrize("queue_size", [1, 2, MAX_QUEUE_SIZE - 1, MAX_QUEUE_SIZE])
def test_a_capacity_within_the_limits(queue_size: int) -> None:
    assert DeliveryQueue(queue_size).queue_size == queue_size


def test_a_capacity_over_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="MAX_QUEUE_SIZE"):
        check_queue_size(MAX_QUEUE_SIZE + 1)
    with pytest.raises(LimitExceeded, match="MAX_QUEUE_SIZE"):
        DeliveryQueue(MAX_QUEUE_SIZE + 1)


@pytest.mark.parametrize("queue_size", [0, -1])
def test_a_capacity_of_nothing(queue_size: int) -> None:
    with pytest.raises(InvalidInput, match="at least 1"):
        DeliveryQueue(queue_size)


@pytest.mark.parametrize("queue_size", [1.5, float("nan"), float("inf"), "5", None, True])
def test_a_capacity_is_a_whole_number(queue_size: Any) -> None:
    with pytest.raises(InvalidInput, match="a whole number of events"):
        DeliveryQueue(queue_size)


async def test_the_capacity_is_what_subscribe_says() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1")
        assert sub.queue_size == DEFAULT_QUEUE_SIZE
        with pytest.raises(InvalidInput, match="at least 1"):
            await bus.subscribe("x = 1", queue_size=0)
        assert repr(bus) == "<Bus with 1 subscriptions>"


@pytest.mark.parametrize(("count", "lost"), [(2, 0), (3, 0), (4, 1)])
@pytest.mark.parametrize("at_once", [True, False])
async def test_events_beyond_the_capacity_push_out_the_oldest(
    count: int, lost: int, at_once: bool
) -> None:
    async with palio.Bus() as bus:
        sub = await lossy(bus, 3)
        events = [{"x": n} for n in range(count)]
        for each in [events] if at_once else [[event] for event in events]:
            await bus.publish(each)
        assert sub.pending == min(count, 3)
        assert seqs(await drain(sub)) == list(range(1 + lost, count + 1))
        assert sub.dropped == lost
        assert list(sub.gaps) == [Gap("bus", 1, lost, lost)] * bool(lost)


async def test_a_gap_counts_matching_events_within_its_range() -> None:
    async with palio.Bus() as bus:
        sub = await lossy(bus, 2, "x > 0")
        await bus.publish([{"x": x} for x in (0, 1, 0, 1, 0, 1, 1, 0)])  # 2, 4, 6 and 7 match
        assert seqs(await drain(sub)) == [6, 7]
        assert list(sub.gaps) == [Gap("bus", 2, 4, 2)]


async def test_gaps_of_one_publisher_merge_until_they_are_told() -> None:
    async with palio.Bus() as bus:
        sub = await lossy(bus, 1)
        for x in range(5):
            await bus.publish({"x": x})
        assert (await sub.receive()).seq == 5
        assert list(sub.gaps) == [Gap("bus", 1, 4, 4)]
        for x in range(3):
            await bus.publish({"x": x})
        assert (await sub.receive()).seq == 8
        assert list(sub.gaps) == [Gap("bus", 1, 4, 4), Gap("bus", 6, 7, 2)]
        assert sub.dropped == 6


async def test_publishers_have_gaps_of_their_own_however_they_interleave() -> None:
    async with palio.Bus() as bus:
        sub = await lossy(bus, 2)
        for x in range(50):
            await bus.publish({"x": x}, publisher="a")
            await bus.publish({"x": x}, publisher="b")
        assert len(sub._queue._gaps) == 2  # however long the consumer sleeps
        received = await drain(sub)
        assert [(event.publisher, event.seq) for event in received] == [("a", 50), ("b", 50)]
        assert list(sub.gaps) == [Gap("a", 1, 49, 49), Gap("b", 1, 49, 49)]


async def test_a_gap_is_told_before_the_next_event() -> None:
    told: list[object] = []
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0", queue_size=1, on_gap=told.append)
        await bus.publish([{"x": 0}, {"x": 1}])
        assert told == []
        told.append((await sub.receive()).seq)
        assert told == [Gap("bus", 1, 1, 1), 2]


async def test_a_gap_is_told_even_if_nothing_that_waits_matches_any_more() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= :low", {"low": 0}, queue_size=1, on_gap=lambda gap: None)
        await bus.publish([{"x": 0}, {"x": 1}])
        await sub.update(low=9)
        assert await drain(sub) == []
        assert (sub.dropped, sub.stale) == (1, 1)


async def test_a_gap_at_the_end_is_told_before_the_end() -> None:
    bus = palio.Bus()
    sub = await lossy(bus, 1)
    await bus.publish([{"x": 0}, {"x": 1}])
    await bus.close()
    assert seqs([event async for event in sub]) == [2]
    assert sub.dropped == 1


async def test_half_taken_batches_drop_from_where_they_are() -> None:
    async with palio.Bus() as bus:
        sub = await lossy(bus, 4)
        await bus.publish([{"x": x} for x in range(4)])
        assert (await sub.receive()).seq == 1
        await bus.publish(
            [{"x": x} for x in range(3)]
        )  # 2, 3, 4 wait; one of them has to go, and 3
        assert sub.pending == 4
        assert seqs(await drain(sub)) == [4, 5, 6, 7]
        assert list(sub.gaps) == [Gap("bus", 2, 3, 2)]


async def test_late_events_are_told_together_and_apart_from_dropped_ones() -> None:
    """They may come in any order, as after a move to another broker."""
    async with palio.Bus() as bus:
        sub = await lossy(bus, 1)
        for late in (LateGap("bus", 8, 9, 2), LateGap("bus", 5, 5, 1), LateGap("p", 1, 1, 1)):
            sub._queue.note(sub._registration, late)
        await bus.publish([{"x": 0}, {"x": 1}])
        await drain(sub)
        assert list(sub.gaps) == [
            LateGap("bus", 5, 9, 3),
            LateGap("p", 1, 1, 1),
            Gap("bus", 1, 1, 1),
        ]
        assert sub.dropped == 5


async def test_without_on_gap_a_gap_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0", queue_size=1)
        await bus.publish([{"x": 0}, {"x": 1}])
        await drain(sub)
    assert caplog.messages == ["subscription x >= 0: lost 1 event of 'bus', number 1"]


async def test_an_on_gap_that_raises_costs_no_event_and_no_other_gap() -> None:
    def refuse(gap: Gap) -> None:
        raise ValueError(gap.publisher)

    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= 0", queue_size=1, on_gap=refuse)
        await bus.publish({"x": 0}, publisher="a")
        await bus.publish([{"x": 0}, {"x": 1}], publisher="b")
        for publisher in "ab":
            with pytest.raises(HandlerFailed, match=f"on_gap raised ValueError: {publisher}"):
                await sub.receive()
        assert (await sub.receive()).publisher == "b"
        assert sub.dropped == 2


async def test_on_gap_may_publish() -> None:
    async with palio.Bus() as bus:
        alarms = await bus.subscribe("EXISTS lost")
        pending: list[asyncio.Task[object]] = []

        def alarm(gap: Gap) -> None:
            pending.append(asyncio.ensure_future(bus.publish({"lost": gap.count})))

        sub = await bus.subscribe("x >= 0", queue_size=1, on_gap=alarm)
        await bus.publish([{"x": 0}, {"x": 1}])
        await sub.receive()
        await asyncio.gather(*pending)
        assert (await alarms.receive())["lost"] == 1


async def test_a_consumer_that_times_out_or_is_cancelled_loses_nothing() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sub.receive(), 0.001)
        # The event arrives in the same turn of the loop in which the consumer is cancelled, before
        # it, after it, and when its task was already woken.
        for woken_for in range(4):
            task = asyncio.ensure_future(sub.receive())
            await turns()
            await bus.publish({"x": 1})
            await turns(woken_for)
            was_done = task.done()
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if was_done:
                assert isinstance(outcome, Event)
            else:
                assert isinstance(outcome, asyncio.CancelledError)
                assert seqs(await drain(sub)) == [woken_for + 1]
        assert sub.pending == 0


async def test_a_sequence_is_no_batch_and_still_waits() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x >= :low THEN x = 9", {"low": 0})
        await bus.publish([{"x": x} for x in (1, 9, 2, 9, 5, 9)])
        await sub.update(low=5)
        for _ in range(2):
            with pytest.raises(InvalidFilter, match="iterate over the subscription itself"):
                await sub.receive_batch()
            assert (sub.pending, sub.stale) == (1, 2)
        assert [seqs(event.parts) for event in await drain(sub)] == [[5, 6]]


async def test_sequences_that_nothing_wants_any_more_hold_up_no_batch() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x = 1 THEN x = 9")
        await bus.publish([{"x": 1}, {"x": 9}])
        await sub.replace("x > 0")
        await bus.publish({"x": 2})
        assert (await sub.receive_batch()).num_rows == 1
        assert (sub.pending, sub.stale) == (0, 1)


async def test_an_event_by_itself_is_a_batch_of_one_while_it_matches() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > :low", {"low": 0})
        for x in (1, 5, 9):
            await bus.publish({"x": x, "s": "a"})
        assert (await sub.receive_batch()).drop_columns(["$time"]).to_pylist() == [
            {"x": 1, "s": "a", "$seq": 1}
        ]
        await sub.update(low=7)
        assert (await sub.receive_batch()).column("x").to_pylist() == [9]
        assert (sub.pending, sub.stale) == (0, 1)


async def test_subscriptions_share_what_waits_and_change_nothing_of_it() -> None:
    async with palio.Bus() as bus:
        one, other = await bus.subscribe("x > 0"), await bus.subscribe("x > 0")
        await bus.publish({"x": 1})
        event = await one.receive()
        assert isinstance(event, Event)
        assert (dict(event), event.seq) == ({"x": 1}, 1)
        assert dict(await other.receive()) == {"x": 1}
