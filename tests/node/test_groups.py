"""Groups: several consumers of one durable subscription, each event for one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, NotSupported, SubscriptionEnded
from palio.node.limits import GROUP_PREFETCH
from palio.testing import Network
from tests.client.helpers import drain
from tests.client.virtual import in_virtual_time
from tests.node.test_consumers import kept, put, take


async def worker(net: Network, broker: str = "b1", **options: Any) -> tuple[Client, Subscription]:
    """A process of bob's."""
    bob = await net.connect(broker, name="bob")
    given: dict[str, Any] = {"ack": "manual", "group": True} | options
    return bob, await bob.subscribe("EXISTS x", durable_name="orders", **given)


async def work(subscription: Subscription, done: list[int]) -> None:
    async for event in subscription:
        done.append(event["x"])
        event.ack()


@in_virtual_time
async def test_each_event_goes_to_one_and_all_get_some() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        workers = [await worker(net) for _ in range(3)]
        done: list[list[int]] = [[], [], []]
        tasks = [
            asyncio.ensure_future(work(sub, mine))
            for (_, sub), mine in zip(workers, done, strict=True)
        ]
        await put(ann, *range(100))
        assert await kept(net, "b1", "bob/orders") == 0
        assert sorted(x for mine in done for x in mine) == list(range(100))
        assert all(len(mine) > 10 for mine in done)
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize("how", ["leaves", "dies", "is late"])
@in_virtual_time
async def test_what_a_consumer_had_goes_to_the_others(how: str) -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        timeout = 20.0 if how == "is late" else 0.0
        first, slow = await worker(net, ack_timeout=timeout)
        _, other = await worker(net, ack_timeout=timeout)
        await put(ann, *range(8))
        mine = [x for x, _ in await take(slow, 4)]
        assert [attempt for _, attempt in await take(other, 4)] == [1] * 4
        other.ack()
        if how == "leaves":
            await slow.unsubscribe()
        elif how == "dies":
            await first.close()
        again = await take(other, 4)
        assert sorted(x for x, _ in again) == mine
        assert [attempt for _, attempt in sorted(again)] == [2, 1, 1, 1]
        other.ack()
        assert await kept(net, "b1", "bob/orders") == 0
        slow.ack()
        assert not await drain(other)


@in_virtual_time
async def test_a_slow_consumer_keeps_few_and_a_late_one_gets_none_while_others_can() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        _, slow = await worker(net, ack_timeout=20.0)
        _, other = await worker(net, ack_timeout=20.0)
        done: list[int] = []
        task = asyncio.ensure_future(work(other, done))
        await put(ann, *range(100))
        await asyncio.sleep(1.0)
        assert len(done) >= 100 - GROUP_PREFETCH
        await asyncio.sleep(25.0)
        assert sorted(done) == list(range(100))
        await put(ann, *range(100, 110))
        await asyncio.sleep(1.0)
        assert sorted(done) == list(range(110))
        assert slow.pending <= GROUP_PREFETCH
        task.cancel()


@in_virtual_time
async def test_a_poison_event_is_set_aside_while_others_go_on() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        failed = await ann.subscribe("EXISTS dead_letter", durable_name="failed")
        workers = [await worker(net, max_attempts=3) for _ in range(2)]
        done: Counter[int] = Counter()

        async def careful(subscription: Subscription) -> None:
            async for event in subscription:
                done[event["x"]] += 1
                if event["x"] == 7:
                    event.nack(reason="poison")
                else:
                    event.ack()

        tasks = [asyncio.ensure_future(careful(sub)) for _, sub in workers]
        await put(ann, *range(20))
        letter = await failed.receive(60.0)
        assert (letter["x"], letter["dead_letter_attempts"]) == (7, 3)
        assert await kept(net, "b1", "bob/orders") == 0
        assert done == {x: 3 if x == 7 else 1 for x in range(20)}
        for task in tasks:
            task.cancel()


@in_virtual_time
async def test_a_consumer_at_another_broker_moves_to_the_home() -> None:
    async with Network("line:2") as net:
        ann = await net.connect("b2")
        _, one = await worker(net, "b1")
        await one.settled()
        other_client, other = await worker(net, "b2")
        assert other_client.broker == "b1"
        await put(ann, *range(4))
        assert sorted([*await take(one, 2), *await take(other, 2)]) == [(x, 1) for x in range(4)]


@in_virtual_time
async def test_the_group_follows_its_consumers_when_its_home_is_down() -> None:
    async with Network("line:2") as net:
        bob, one = await worker(net, "b1")
        await one.settled()
        ann = await net.connect("b2")
        await put(ann, 1)
        await take(one, 1)
        await bob.close()
        net.kill("b1")
        await asyncio.sleep(30.0)
        there, other = await worker(net, "b2")
        assert there.broker == "b2"
        await put(ann, 2)
        assert await take(other, 1) == [(2, 1)]


@in_virtual_time
async def test_a_group_has_one_filter() -> None:
    async with Network() as net:
        _, one = await worker(net)
        bob = await net.connect("b1", name="bob")
        with pytest.raises(InvalidInput, match="share one filter"):
            await bob.subscribe("x > 1", durable_name="orders", group=True)
        other = await bob.subscribe("EXISTS x", durable_name="orders", group=True)
        with pytest.raises(NotSupported, match="change it while there is one"):
            await one.replace("x > 1")
        await other.unsubscribe()
        await one.replace("x > 1")


@in_virtual_time
async def test_who_does_not_share_takes_it_from_all() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        _, one = await worker(net)
        _, other = await worker(net)
        _, alone = await worker(net, group=False)
        for each in (one, other):
            with pytest.raises(SubscriptionEnded, match="taken over by another session"):
                await each.receive(5.0)
        await put(ann, 1)
        assert await take(alone, 1) == [(1, 1)]


@in_virtual_time
async def test_live_events_go_to_one_consumer_and_then_to_another() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        _, one = await worker(net)
        _, other = await worker(net)
        await ann.publish({"x": 1})
        assert (await one.receive(5.0))["x"] == 1
        assert not await drain(other)
        await one.unsubscribe()
        await ann.publish({"x": 2})
        assert (await other.receive(5.0))["x"] == 2


# --- order within a key ---


async def ordered(net: Network, **options: Any) -> tuple[Client, Subscription]:
    return await worker(net, order_by="key", **options)


async def put_keyed(client: Client, *events: tuple[str, int]) -> None:
    await client.publish([{"key": key, "x": x} for key, x in events], durable=True)


@pytest.mark.parametrize("together", [1, 5, 20])
@in_virtual_time
async def test_events_of_one_key_are_handled_one_by_one_in_order(together: int) -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        failed = await ann.subscribe("EXISTS dead_letter", durable_name="failed")
        workers = [await ordered(net, max_attempts=3) for _ in range(3)]
        busy: set[str] = set()
        ended: list[tuple[str, int]] = []
        consumers: Counter[int] = Counter()

        async def careful(number: int, subscription: Subscription) -> None:
            async for event in subscription:
                key, x = event["key"], event["x"]
                assert key not in busy, f"{key} is with two consumers"
                busy.add(key)
                await asyncio.sleep(0.01 * (x % 3))
                busy.remove(key)
                consumers[number] += 1
                if x % 7 == 0 and (event.attempt < 3 or x == 14):
                    event.nack(delay=0.1, reason="busy")
                    if event.attempt < 3:
                        continue
                else:
                    event.ack()
                ended.append((key, x))

        tasks = [asyncio.ensure_future(careful(*each)) for each in enumerate(s for _, s in workers)]
        events = [("abc"[x % 3], x) for x in range(100)]
        for first in range(0, 100, together):
            await put_keyed(ann, *events[first : first + together])
        await asyncio.sleep(20.0)
        assert await kept(net, "b1", "bob/orders") == 0
        for key in "abc":
            assert [each for each in ended if each[0] == key] == [e for e in events if e[0] == key]
        assert (await failed.receive(5.0))["x"] == 14
        assert len(consumers) == 3
        for task in tasks:
            task.cancel()


@in_virtual_time
async def test_a_rejected_event_holds_its_key_and_no_other() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        _, one = await ordered(net)
        _, other = await ordered(net)
        await put_keyed(ann, ("a", 1), ("a", 2), ("b", 3), ("a", 4))
        await ann.publish({"x": 5}, durable=True)
        first, second = await one.receive(5.0), await one.receive(5.0)
        assert [first["x"], second["x"]] == [1, 3]
        first.nack(delay=30.0)
        assert (await other.receive(5.0))["x"] == 5, "an event without the attribute has no order"
        assert not await drain(one)
        assert not await drain(other)
        await asyncio.sleep(31.0)
        (again,) = [*await drain(one), *await drain(other)]
        assert (again["x"], again.attempt) == (1, 2)
        again.ack()
        await asyncio.sleep(1.0)
        (later,) = [*await drain(one), *await drain(other)]
        assert (later["x"], later.attempt) == (2, 1)


@in_virtual_time
async def test_a_consumer_that_leaves_gives_its_keys_back() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        _, one = await ordered(net)
        await put_keyed(ann, ("a", 1), ("a", 2))
        assert await take(one, 1) == [(1, 1)]
        _, other = await ordered(net)
        await one.unsubscribe()
        assert await take(other, 1) == [(1, 2)]
        other.ack()
        assert await take(other, 1) == [(2, 1)]


@in_virtual_time
async def test_the_events_that_wait_for_their_keys_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("palio.node.consumers.MAX_HELD_EVENTS", 3)
    async with Network() as net:
        ann = await net.connect("b1")
        _, one = await ordered(net)
        for x in range(3):
            await put_keyed(ann, ("a", x))
        await put_keyed(ann, ("b", 3))
        assert await take(one, 2) == [(0, 1), (3, 1)], "two are held"
        await put_keyed(ann, ("a", 4))
        await put_keyed(ann, ("c", 5))
        assert not await drain(one), "three are held"
        one.ack()
        assert await take(one, 2) == [(1, 1), (5, 1)]


@in_virtual_time
async def test_a_group_has_one_order() -> None:
    async with Network() as net:
        await ordered(net)
        with pytest.raises(InvalidInput, match="share one order_by=, 'key'"):
            await worker(net)
        bob = await net.connect("b1", name="bob")
        for options, problem in (
            ({"durable_name": "mine", "order_by": "x"}, "give group=True"),
            ({"durable_name": "mine", "group": True, "order_by": 7}, "no attribute name"),
            ({"order_by": "x"}, "order_by= is for durable subscriptions"),
        ):
            with pytest.raises(InvalidInput, match=problem):
                await bob.subscribe("EXISTS x", **options)


@in_virtual_time
async def test_a_dead_letter_lets_the_next_event_of_its_key_go() -> None:
    """Nothing else happens afterwards that would send it."""
    async with Network() as net:
        ann = await net.connect("b1")
        _, sub = await ordered(net, max_attempts=1)
        await ann.publish({"x": 1, "key": "k"}, durable=True)
        await ann.publish({"x": 2, "key": "k"}, durable=True)
        first = await sub.receive()
        assert first["x"] == 1
        first.nack(reason="poison")
        second = await sub.receive(timeout=30.0)
        assert second["x"] == 2
