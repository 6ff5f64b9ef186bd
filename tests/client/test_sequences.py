"""What patterns hold back, let go and miss: by itself, in any order, and over real brokers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.client.connection import Client, connect
from palio.client.events import Event, Gap, LateGap
from palio.client.reordering import REORDER_S
from palio.client.sequences import Sequences
from palio.client.subscription import Subscription
from palio.errors import Closed, InvalidInput
from palio.language.parsing import parse_pattern
from palio.model import patterns
from palio.model.patterns import Monitor, Occurrence
from palio.testing import Network
from tests import strategies as our
from tests.client.helpers import NOON, drain
from tests.client.virtual import in_virtual_time
from tests.model.test_patterns import SHAPES

TWO = parse_pattern("n = 1 THEN n = 2")


def row(second: float, n: int, seq: int = 1) -> dict[str, Any]:
    """`n`, published at a second."""
    return {"n": n, "$seq": seq, "$time": NOON + timedelta(seconds=second)}


def parts(events: Sequence[Event]) -> list[list[tuple[str, int]]]:
    return [[(part.publisher, part.seq) for part in event.parts] for event in events]


# --- the room, to which time is an argument ---


@our.examples(200)
@given(SHAPES, st.lists(st.integers(1, 3), max_size=20), our.SEEDS)
def test_events_that_overtake_each_other_within_the_window_are_put_in_order(
    shape: patterns.Pattern, values: list[int], seed: int
) -> None:
    """In whatever order they come, and whatever the clock here says, it is as if in order."""
    rng = random.Random(seed)
    window, clock = rng.choice((0.5, 2.0, 4.0)), rng.uniform(0, 1e6)
    whole = [
        Occurrence(NOON + timedelta(seconds=at), "p", at, {"n": n}) for at, n in enumerate(values)
    ]
    arrivals = sorted((at + rng.uniform(0, window), at) for at in range(len(values)))
    sequences, found = Sequences(shape, {}, window), []
    for came, at in arrivals:
        now = clock + came
        while sequences.wake is not None and sequences.wake <= now:
            found += sequences.advance(sequences.wake)
        due, late = sequences.push([row(at, values[at], at)], "p", now)
        assert late is None
        found += due
    while (wake := sequences.wake) is not None:
        assert clock < wake <= clock + arrivals[-1][0] + window
        found += sequences.advance(wake)
    monitor = Monitor(shape)
    expected = [[("p", each.seq) for each in one] for each in whole for one in monitor.push([each])]
    assert parts(found) == expected
    assert sequences.flush() == []


def test_an_event_published_a_window_later_ends_the_wait() -> None:
    sequences = Sequences(TWO, {}, 0.5)
    sequences.push([row(0, 1), row(0.1, 2, 2)], "p", 10.0)
    due, late = sequences.push([row(0.6, 9, 3)], "p", 10.0)
    assert (parts(due), late) == ([[("p", 1), ("p", 2)]], None)


def test_one_that_was_overtaken_goes_with_what_overtook_it() -> None:
    """In the order of publication nothing after it may be let go before it."""
    sequences = Sequences(TWO, {}, 0.5)
    sequences.push([row(0.1, 2, 7)], "near", 10.0)
    sequences.push([row(0, 1, 8)], "far", 10.4)
    assert sequences.wake == 10.5
    assert parts(sequences.advance(10.5)) == [[("far", 8), ("near", 7)]]
    assert sequences.wake is None


def test_what_comes_too_late_takes_no_part_and_is_named() -> None:
    sequences = Sequences(TWO, {}, 0.5)
    sequences.push([row(5, 9, 4)], "near", 10.0)
    sequences.advance(10.5)
    due, late = sequences.push([row(1, 1, 3), row(6, 1, 4), row(2, 1, 5)], "far", 11.0)
    assert (due, late) == ([], LateGap("far", 3, 5, 2))
    sequences.push([row(7, 2, 5)], "near", 11.0)
    assert parts(sequences.flush()) == [[("far", 4), ("near", 5)]]


def test_a_window_of_zero_waits_for_nothing() -> None:
    sequences = Sequences(TWO, {}, 0.0)
    due, late = sequences.push([row(0, 1), row(1, 2, 2)], "p", 0.0)
    assert (parts(due), late, sequences.wake) == ([[("p", 1), ("p", 2)]], None, None)
    assert sequences.push([row(0.5, 1, 3)], "q", 0.0) == ([], LateGap("q", 3, 3, 1))
    assert sequences.push([], "q", 0.0) == ([], None)


def test_what_is_held_back_may_wait_anew() -> None:
    sequences = Sequences(TWO, {}, 0.5)
    sequences.restart_wait(9.0)
    sequences.push([row(0, 1)], "p", 10.0)
    sequences.push([row(0.1, 2, 2)], "p", 10.3)
    sequences.restart_wait(20.0)
    assert sequences.advance(20.4) == []
    assert sequences.wake == 20.5
    assert len(sequences.advance(20.5)) == 1
    assert sequences.wake is None


@pytest.mark.parametrize("over", [0, 1])
def test_so_many_are_held_back_and_no_more(monkeypatch: pytest.MonkeyPatch, over: int) -> None:
    monkeypatch.setattr(patterns, "MAX_PATTERN_PENDING", 50)
    sequences = Sequences(TWO, {}, 0.5)
    for seq in range(50 + over):
        sequences.push([row(seq / 1000, 9, seq)], "p", 10.0)
    assert sequences.push([row(-1, 9, 99)], "q", 10.0) == (
        [],
        LateGap("q", 99, 99, 1) if over else None,
    )


def test_when_events_came_is_kept_for_those_held_back_only() -> None:
    """A busy stream moves on by its own times; nothing is kept of what has taken its part."""
    sequences = Sequences(TWO, {}, 0.5)
    for seq in range(2_000):
        sequences.push([row(seq / 10, 9, seq)], "p", 10.0)
    assert sequences.wake is not None
    assert len(sequences._arrivals) <= 6


@our.examples(100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1_000)), min_size=1, max_size=20))
def test_an_event_is_overtaken_as_long_as_a_window_must_be_to_keep_its_place(
    sent: list[tuple[int, int]],
) -> None:
    """Since the first came that was published later, and by the newest of all."""
    sequences, before, longest_s = Sequences(TWO, {}, None), list[tuple[float, float]](), 0.0
    for came, published in sorted(((at * 400 + delay) / 1e3, at * 0.4) for at, delay in sent):
        while sequences.wake is not None and sequences.wake <= came:
            sequences.advance(sequences.wake)
        _, late = sequences.push([row(published, 9)], f"p{len(before)}", came)
        assert late is None
        for other_came, other_published in before:
            if other_published > published:
                longest_s = max(longest_s, came - other_came, other_published - published)
        before.append((came, published))
        assert sequences.reorder_s == pytest.approx(max(REORDER_S, 2 * longest_s), abs=1e-5)


def test_what_comes_too_late_makes_the_window_longer() -> None:
    sequences = Sequences(TWO, {}, None)
    sequences.push([row(5, 9)], "near", 10.0)
    sequences.advance(11.0)
    sequences.push([row(2, 9)], "far", 11.0)
    assert sequences.reorder_s == 6.0  # twice the 3 s between them
    assert sequences.push([row(6, 1, 2), row(7, 2, 3)], "near", 12.0) == ([], None)
    assert sequences.push([row(11.9, 9, 4)], "near", 17.9) == ([], None)
    assert sequences.wake == 18.0
    assert parts(sequences.advance(18.0)) == [[("near", 2), ("near", 3)]]


# --- what may be given ---


@in_virtual_time
async def test_a_reorder_window_is_checked_where_it_is_given() -> None:
    with pytest.raises(InvalidInput, match="reorder_timeout is -1"):
        _ = connect("palio://localhost:1", reorder_timeout=-1)
    async with Network() as net:
        client = await net.connect("b1", reorder_timeout=0.25)
        with pytest.raises(InvalidInput, match="reorder_timeout is nan"):
            await client.subscribe("n = 1 THEN n = 2", reorder_timeout=float("nan"))
        with pytest.raises(InvalidInput, match="reorder_timeout= is for patterns"):
            await client.subscribe("n = 1", reorder_timeout=1)
        durable = await client.subscribe("n = 1 THEN n = 2", durable_name="d", reorder_timeout=1)
        assert (durable.reorder_timeout, durable.durable_name) == (1.0, "d")
        assert (await client.subscribe("n = 1 THEN n = 2")).reorder_timeout == 0.25
        assert (
            await client.subscribe("n = 1 THEN n = 2", reorder_timeout=0)
        ).reorder_timeout == 0.0
        other = await net.connect("b1")
        assert (await other.subscribe("n = 1 THEN n = 2")).reorder_timeout == REORDER_S == 1.0


async def test_a_bus_needs_no_reorder_window() -> None:
    async with palio.Bus() as bus:
        both = await bus.subscribe("n = 1 THEN n = 2")
        await bus.publish([{"n": 1}, {"n": 2}])
        assert (both.reorder_timeout, both.late, len(await drain(both))) == (0.0, 0, 1)


# --- over brokers ---


async def publish_at_both_ends(net: Network, heard: Subscription | Client, count: int) -> None:
    """A first step at b1 and 10 ms later the second at b5, so many times: 80 ms by four links."""
    far, near = await net.connect("b1", name="far"), await net.connect("b5", name="near")
    await heard.settled()
    for _ in range(count):
        receipts = [far.publish_nowait({"x": 1})]
        await asyncio.sleep(0.01)
        receipts.append(near.publish_nowait({"y": 1}))
        await asyncio.gather(*receipts)
        await asyncio.sleep(0.3)


@in_virtual_time
async def test_steps_at_both_ends_of_a_line_are_put_in_order() -> None:
    async with Network("line:5", delay_s=0.02) as net:
        client = await net.connect("b5")
        heard = await client.subscribe("x = 1 THEN y = 1")
        quick = await client.subscribe("x = 1 THEN y = 1 WITHIN 100ms", reorder_timeout=0.2)
        await publish_at_both_ends(net, heard, 50)
        for subscription in (heard, quick):
            events = [await subscription.receive(timeout=5) for _ in range(50)]
            assert [[part.seq for part in event.parts] for event in events] == [
                [seq, seq] for seq in range(1, 51)
            ]
            assert [part.publisher.partition("/")[0] for part in events[0].parts] == ["far", "near"]
            assert (subscription.late, subscription.dropped, list(subscription.gaps)) == (0, 0, [])


@in_virtual_time
async def test_a_sequence_is_told_when_its_last_event_has_waited() -> None:
    """By a timer: nothing else has to come."""
    async with Network("line:2", delay_s=0.02) as net:
        loop = asyncio.get_running_loop()
        client, other = await net.connect("b2", reorder_timeout=0.5), await net.connect("b1")
        heard = await client.subscribe("x = 1 THEN x = 2")
        await heard.settled()
        await other.publish([{"x": 1}])
        await other.publish([{"x": 2}])
        published = loop.time()
        await heard.receive(timeout=5)
        assert 0.5 <= loop.time() - published <= 0.6


@in_virtual_time
async def test_events_that_come_too_late_are_counted_and_told() -> None:
    async with Network("line:5", delay_s=0.02) as net:
        client = await net.connect("b5", reorder_timeout=0.02)
        told: list[Gap] = []
        heard = await client.subscribe("x = 1 THEN y = 1", on_gap=told.append)
        waiting = asyncio.ensure_future(heard.receive())  # one who waits is woken to be told
        await publish_at_both_ends(net, heard, 3)
        assert heard.late == 3
        assert [(type(gap), gap.first_seq, gap.last_seq, gap.count) for gap in told] == [
            (LateGap, seq, seq, 1) for seq in (1, 2, 3)
        ]
        assert {gap.publisher.partition("/")[0] for gap in told} == {"far"}
        assert str(told[0]).startswith("too late for the pattern: 1 event of 'far/")
        assert (heard.dropped, list(heard.gaps), waiting.done()) == (3, told, False)
        waiting.cancel()


@in_virtual_time
async def test_nobody_who_asks_for_no_gaps_is_flooded(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged; what nobody has taken yet is told together."""
    async with Network("line:5", delay_s=0.02) as net:
        client = await net.connect("b5")
        with caplog.at_level(logging.WARNING, "palio"):
            heard = await client.subscribe("x = 1 THEN y = 1", reorder_timeout=0)
            await publish_at_both_ends(net, heard, 3)
            assert (heard.late, heard.dropped) == (3, 0)
            await drain(heard)
            await publish_at_both_ends(net, heard, 1)
            await drain(heard)
        assert [gap.count for gap in heard.gaps] == [3, 1]
        (said,) = [each.getMessage() for each in caplog.records if "too late" in each.getMessage()]
        assert "3 events of 'far/" in said
        assert "numbers 1 to 3" in said
        assert "`late` counts further ones" in said


@in_virtual_time
async def test_what_is_complete_is_heard_when_the_client_closes() -> None:
    async with Network() as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x = 1 THEN x = 2")
        left = await client.subscribe("x = 1 THEN x = 2")
        await other.publish([{"x": 1}, {"x": 2}])
        await asyncio.sleep(0.1)
        assert (heard.pending, left.pending) == (0, 0)
        await left.unsubscribe()
        await client.close()
        assert [len(event.parts) async for event in heard] == [2]
        assert [event async for event in left] == []
        with pytest.raises(Closed):
            await heard.receive()


@in_virtual_time
async def test_what_is_held_back_follows_updates_and_goes_with_a_replaced_pattern() -> None:
    async with Network() as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x = :first THEN x = 9", {"first": 1}, reorder_timeout=0.5)
        await other.publish([{"x": 1}, {"x": 9}])
        await asyncio.sleep(0.1)
        await heard.update(first=2)
        await other.publish([{"x": 2}, {"x": 9}])
        event = await heard.receive(timeout=5)
        assert [part["x"] for part in event.parts] == [2, 9]
        await other.publish([{"x": 2}, {"x": 9}])
        await asyncio.sleep(0.1)
        await heard.replace("x > 5")
        await heard.replace("x = 3 THEN x = 9")
        assert heard.reorder_timeout == 0.5
        await other.publish([{"x": 3}, {"x": 9}])
        event = await heard.receive(timeout=5)
        assert [part["x"] for part in event.parts] == [3, 9]
        await asyncio.sleep(2)
        assert (heard.pending, heard.late, heard.stale) == (0, 0, 0)


@in_virtual_time
async def test_sequences_of_several_publishers_that_are_dropped_are_gaps_of_each() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        ann, bob = await net.connect("b1", name="ann"), await net.connect("b1", name="bob")
        heard = await client.subscribe("x = 1 THEN x = 2", queue_size=1)
        for publisher in (ann, bob, ann):
            await publisher.publish({"x": 1})
            await publisher.publish({"x": 2})
        await asyncio.sleep(2)
        event = await heard.receive(timeout=5)
        assert (event.publisher, event.seq) == (ann.publisher, 4)
        assert [(gap.publisher, gap.first_seq, gap.count) for gap in heard.gaps] == [
            (ann.publisher, 2, 1),
            (bob.publisher, 2, 1),
        ]
        assert (heard.late, heard.dropped) == (0, 2)


async def leave_with_one_under_way(net: Network, heard: Subscription) -> None:
    """The second of two events has come to b5's client, and the first is still on its way."""
    far, near = await net.connect("b1", name="far"), await net.connect("b5", name="near")
    await heard.settled()
    _ = far.publish_nowait({"x": 1})
    await asyncio.sleep(0.01)
    _ = near.publish_nowait({"y": 1})
    await asyncio.sleep(0.055)


@pytest.mark.parametrize("is_suspended", [False, True])
@in_virtual_time
async def test_while_a_client_is_away_nothing_is_let_go(is_suspended: bool) -> None:
    async with Network("line:5", delay_s=0.02) as net:
        client = await net.connect("b5", name="ann")
        heard = await client.subscribe("x = 1 THEN y = 1")
        await leave_with_one_under_way(net, heard)
        await client.suspend() if is_suspended else net.cut("ann", "b5")
        await asyncio.sleep(3)
        assert not client.is_connected
        assert not await drain(heard)
        await client.resume() if is_suspended else net.heal("ann", "b5")
        event = await heard.receive(timeout=10)
        assert [part.publisher.partition("/")[0] for part in event.parts] == ["far", "near"]
        assert (heard.late, heard.dropped) == (0, 0)


@in_virtual_time
async def test_what_is_complete_is_heard_when_no_broker_takes_the_client_back() -> None:
    async with Network() as net:
        client, other = await net.connect("b1", name="ann"), await net.connect("b1")
        heard = await client.subscribe("x = 1 THEN x = 2")
        await other.publish([{"x": 1}, {"x": 2}])
        await asyncio.sleep(0.1)
        net.cut("ann", "b1")
        await asyncio.sleep(3)
        assert heard.pending == 0
        await client.close()
        assert [len(event.parts) async for event in heard] == [2]
