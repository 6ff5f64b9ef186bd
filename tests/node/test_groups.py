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
