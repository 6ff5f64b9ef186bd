"""Redelivery, by clients of brokers: what is rejected, late or left comes again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import InvalidInput
from palio.node.limits import BLOCKED_S, GROUP_PREFETCH
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Acknowledge, Nack
from palio.testing import Network
from tests.client.helpers import drain
from tests.client.virtual import in_virtual_time


async def put(client: Client, *numbers: int) -> None:
    for x in numbers:
        await client.publish({"x": x}, durable=True)


async def take(subscription: Subscription, count: int) -> list[tuple[int, int]]:
    """The next events, each with its attempt."""
    events = [await subscription.receive(60.0) for _ in range(count)]
    return [(event["x"], event.attempt) for event in events]


async def kept(net: Network, broker: str, subscription: str) -> int:
    """Entries that a broker keeps for a durable subscription."""
    await asyncio.sleep(0.2)
    waiting: int = net.node(broker).status()["custody_waiting"][subscription]
    return waiting


@in_virtual_time
async def test_a_rejected_event_comes_again_after_its_delay_with_its_attempt() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
        await put(bob, 1, 2, 3)
        first = await mine.receive()
        assert first.attempt == 1
        first.nack(delay=30.0, reason="busy")
        assert await take(mine, 2) == [(2, 1), (3, 1)]
        mine.ack()
        assert await kept(net, "b1", "bob/mine") == 1
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await take(mine, 1) == [(1, 2)]
        assert 29.0 < loop.time() - begun < 31.0
        mine.ack()
        assert await kept(net, "b1", "bob/mine") == 0


@in_virtual_time
async def test_the_oldest_event_has_a_deadline_and_a_late_acknowledgement_counts() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual", ack_timeout=10)
        await put(bob, 1, 2)
        late, other = await mine.receive(), await mine.receive()
        again = await mine.receive(11.0)
        assert (again["x"], again.attempt) == (1, 2)
        late.ack()
        other.ack()
        assert await kept(net, "b1", "bob/mine") == 0
        assert not await drain(mine)


@in_virtual_time
async def test_events_published_together_are_acknowledged_one_by_one() -> None:
    async with Network() as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
        await ann.publish([{"x": x} for x in range(4)], durable=True)
        events = [await mine.receive() for _ in range(4)]
        events[0].ack()
        events[2].nack()
        assert await take(mine, 1) == [(2, 2)]
        events[3].ack()
        await mine.unsubscribe()
        await bob.close()
        bob = await net.connect("b1", name="bob")  # a new process
        mine = await bob.subscribe("EXISTS x", durable_name="mine")
        assert sorted(x for x, _ in await take(mine, 2)) == [1, 2]
        assert not await drain(mine)


@pytest.mark.parametrize("fails_at", [1, 2])
@in_virtual_time
async def test_who_fails_in_the_middle_of_a_list_gets_what_it_had_not_done(fails_at: int) -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        await bob.subscribe("EXISTS x", durable_name="mine")
        await bob.publish([{"x": x} for x in range(3)], durable=True)
        await bob.close()
        handled: list[tuple[int, int]] = []
        for _ in range(2):
            bob = await net.connect("b1", name="bob")
            try:
                async with await bob.subscribe("EXISTS x", durable_name="mine") as mine:
                    while len(handled) < 3:
                        event = await mine.receive()
                        if event["x"] == fails_at and event.attempt == 1:
                            raise ZeroDivisionError
                        handled.append((event["x"], event.attempt))
            except ZeroDivisionError:
                pass
            await bob.close()
        assert [x for x, _ in handled] == [0, 1, 2]
        assert handled[fails_at] == (fails_at, 2)


@in_virtual_time
async def test_an_event_counts_an_attempt_with_each_session_that_was_lost_at_it() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        for attempt in (1, 2, 3):
            bob = await net.connect("b1", name="bob")
            mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
            if attempt == 1:
                await put(ann, 1, 2)
            assert await take(mine, 2) == [(1, attempt), (2, 1)]
            await bob.close()
        net.kill("b1")
        net.restart("b1")
        await ann.settled()
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine")
        assert await take(mine, 2) == [(1, 1), (2, 1)], "attempts are counted since it started"


@pytest.mark.parametrize(("options", "durable"), [({}, True), ({"durable_name": "mine"}, False)])
@in_virtual_time
async def test_only_what_is_kept_can_be_rejected(options: dict[str, Any], durable: bool) -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", **options)
        await bob.publish({"x": 1}, durable=durable)
        event = await mine.receive()
        event.ack()
        with pytest.raises(InvalidInput, match="publish\\(durable=True\\)"):
            event.nack()
        assert event.attempt == 1


@in_virtual_time
async def test_what_was_rejected_stays_so_through_a_move() -> None:
    async with Network("line:2") as net:
        ann, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
        await mine.settled()
        await put(ann, 1, 2)
        (await mine.receive()).nack(delay=3600.0)
        (await mine.receive()).ack()
        await bob.move("b2")
        assert await take(mine, 1) == [(1, 1)], "its new home has counted none"
        mine.ack()
        assert await kept(net, "b2", "bob/mine") == 0
        assert not await drain(mine)


@pytest.mark.parametrize("delay", [-1.0, float("nan"), "1"])
@in_virtual_time
async def test_what_is_no_delay_is_refused_and_changes_nothing(delay: Any) -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
        await put(bob, 1)
        event = await mine.receive()
        with pytest.raises(InvalidInput, match="delay is"):
            event.nack(delay)
        event.nack()
        assert await take(mine, 1) == [(1, 2)]


@in_virtual_time
async def test_a_wild_acknowledgement_or_rejection_does_nothing() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
        table = bob._upstream.core.table
        for outcome in (
            Acknowledge(0, 1 << 50),
            Acknowledge(0, 0, others=(1 << 50,)),
            Acknowledge(0, 0, others=(3,), seqs=(4,)),
            Nack(0, 7),
            Nack(0, 7, seqs=(3,)),
        ):
            table.report(outcome)
        await put(bob, 1)
        assert await take(mine, 1) == [(1, 1)]


# --- a full window ---


def is_blocked(subscription: Subscription) -> bool:
    """Asked anew: mypy takes a property for a constant."""
    return subscription.is_blocked


@in_virtual_time
async def test_a_backlog_that_waits_for_acknowledgements_is_reported_until_one_comes() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual", group=True)
        await put(bob, *range(GROUP_PREFETCH))
        await take(mine, GROUP_PREFETCH)
        await asyncio.sleep(2 * BLOCKED_S)
        assert not is_blocked(mine), "nothing waits"
        await put(bob, 100)
        await asyncio.sleep(BLOCKED_S - 1.0)
        assert not is_blocked(mine), "not for long"
        await asyncio.sleep(2.0)
        assert is_blocked(mine)
        assert net.node("b1").status()["blocked"] == 1
        (report,) = [each for _, each in net.reports if each.event == "delivery_blocked"]
        assert report.details == {"subscription": "bob/mine", "waiting": 17, "consumers": 1}
        mine.ack()
        assert await take(mine, 1) == [(100, 1)]
        assert not is_blocked(mine)
        assert net.node("b1").status()["blocked"] == 0
        await put(bob, *range(GROUP_PREFETCH))
        await asyncio.sleep(BLOCKED_S + 1.0)
        levels = [each.level for _, each in net.reports if each.event == "delivery_blocked"]
        assert (is_blocked(mine), levels) == (True, ["warning", "debug"])


@in_virtual_time
async def test_who_joins_learns_that_all_wait_for_one_key_and_a_new_session_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("palio.node.consumers.MAX_HELD_EVENTS", 1)
    async with Network() as net:
        ann = await net.connect("b1")
        options: Any = {"durable_name": "mine", "group": True, "order_by": "key"}
        one, other = [await net.connect("b1", name="bob") for _ in range(2)]
        first = await one.subscribe("EXISTS key", **options)
        for _ in range(3):
            await ann.publish({"key": "a"}, durable=True)
        await first.receive()
        await asyncio.sleep(BLOCKED_S + 1.0)
        second = await other.subscribe("EXISTS key", **options)
        await asyncio.sleep(0.1)
        assert is_blocked(first)
        assert is_blocked(second)
        await one.close()
        await second.receive()
        assert not is_blocked(second)


@in_virtual_time
async def test_a_single_consumer_is_blocked_by_a_window_of_bytes() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        mine = await bob.subscribe("EXISTS x", durable_name="mine", ack="manual")
        for x in range(WINDOW_BYTES // 500_000 + 2):
            await bob.publish({"x": x, "text": "x" * 500_000}, durable=True)
        await asyncio.sleep(BLOCKED_S + 1.0)
        assert is_blocked(mine)
        while mine.pending:
            await mine.receive()
        mine.ack()
        await asyncio.sleep(1.0)
        assert not is_blocked(mine)
