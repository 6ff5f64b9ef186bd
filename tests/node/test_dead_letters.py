"""Dead letters: what fails too often goes to those who ask for it, and holds up nobody."""

from __future__ import annotations

from typing import Any

import pytest

from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import InvalidInput
from palio.testing import Network
from tests.client.helpers import drain
from tests.client.virtual import in_virtual_time
from tests.node.test_consumers import kept, put, take


async def worker(net: Network, broker: str = "b1", **options: Any) -> tuple[Client, Subscription]:
    """Bob, who has two attempts."""
    bob = await net.connect(broker, name="bob")
    given: dict[str, Any] = {"ack": "manual", "max_attempts": 2} | options
    return bob, await bob.subscribe("EXISTS x", durable_name="orders", **given)


async def letters(
    net: Network, broker: str = "b1", text: str = "EXISTS dead_letter"
) -> Subscription:
    """Eve, who looks after what fails."""
    eve = await net.connect(broker, name="eve")
    found = await eve.subscribe(text, durable_name="failed")
    await found.settled()
    return found


async def fail(orders: Subscription, x: int, reason: str = "no stock") -> None:
    for attempt in (1, 2):
        event = await orders.receive(60.0)
        assert (event["x"], event.attempt) == (x, attempt)
        event.nack(reason=reason)


@pytest.mark.parametrize("place", ["b1", "b2"])
@in_virtual_time
async def test_after_the_last_attempt_an_event_is_a_dead_letter(place: str) -> None:
    async with Network("line:2") as net:
        ann = await net.connect("b1")
        failed = await letters(net, place, "dead_letter = 'bob/orders' AND x < 5")
        every = await (await net.connect("b1", name="all")).subscribe("x > 0", durable_name="all")
        live = await ann.subscribe("EXISTS dead_letter")
        _, orders = await worker(net)
        await ann.settled()
        await put(ann, 1)
        await fail(orders, 1)
        await put(ann, 2)
        assert await take(orders, 1) == [(2, 1)], "others go on"
        letter = await failed.receive(60.0)
        assert dict(letter) == {
            "x": 1,
            "dead_letter": "bob/orders",
            "dead_letter_reason": "no stock",
            "dead_letter_attempts": 2,
        }
        assert await take(every, 2) == [(1, 1), (2, 1)], "it has had the event itself"
        assert not await drain(every)
        assert not await drain(live)
        orders.ack()
        assert await kept(net, "b1", "bob/orders") == 0


@in_virtual_time
async def test_a_kill_neither_loses_nor_doubles_a_dead_letter() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        failed = await letters(net)
        _, orders = await worker(net)
        await put(ann, 1)
        await fail(orders, 1)
        assert (await failed.receive(60.0))["x"] == 1  # so it is on the disk
        net.kill("b1")
        net.restart("b1")
        assert not await drain(orders)
        assert not await drain(failed)
        await put(ann, 2)
        assert await take(orders, 1) == [(2, 1)]


@in_virtual_time
async def test_a_deadline_and_a_lost_session_are_attempts() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        failed = await letters(net)
        bob, orders = await worker(net, ack_timeout=5.0)
        await put(ann, 1, 2)
        assert await take(orders, 3) == [(1, 1), (2, 1), (1, 2)]
        await bob.close()  # the second event is its oldest now
        bob, orders = await worker(net, ack_timeout=5.0)
        assert await take(orders, 2) == [(1, 2), (2, 2)]
        letter = await failed.receive(60.0)
        assert (letter["x"], letter["dead_letter_reason"]) == (1, "not acknowledged within 5 s")


@in_virtual_time
async def test_of_a_list_only_what_fails_is_a_dead_letter() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        failed = await letters(net)
        _, orders = await worker(net)
        await ann.publish([{"x": x, "tags": ["a"]} for x in range(3)], durable=True)
        for _ in range(3):
            event = await orders.receive()
            if event["x"] == 1:
                event.nack(reason="first")
            else:
                event.ack()
        (await orders.receive()).nack(reason="second")
        letter = await failed.receive(60.0)
        assert (letter["x"], letter["dead_letter_reason"]) == (1, "second")
        assert letter.payload["tags"] == ["a"]
        assert await kept(net, "b1", "bob/orders") == 0


@in_virtual_time
async def test_nothing_is_kept_of_an_entry_whose_last_event_becomes_a_dead_letter() -> None:
    async with Network() as net:
        ann = await net.connect("b1")
        failed = await letters(net)
        _, orders = await worker(net, max_attempts=1)
        await ann.publish([{"x": 1}, {"x": 2}], durable=True)
        first, second = [await orders.receive(60.0) for _ in range(2)]
        first.nack()
        second.ack()  # while the letter is on its way to the disk
        assert (await failed.receive(60.0))["x"] == 1
        assert await kept(net, "b1", "bob/orders") == 0


@in_virtual_time
async def test_who_fails_at_dead_letters_gets_no_letter_about_its_own() -> None:
    async with Network() as net:
        eve = await net.connect("b1", name="eve")
        mine = await eve.subscribe(
            "EXISTS dead_letter OR EXISTS x", durable_name="mine", max_attempts=1, ack="manual"
        )
        other = await letters(net)
        await put(eve, 1)
        (await mine.receive()).nack()
        letter = await other.receive(60.0)
        assert (letter["dead_letter"], letter["dead_letter_reason"]) == ("eve/mine", "")
        assert not await drain(mine)
        assert net.node("b1").status()["dead_letters"] == 1


@pytest.mark.parametrize("count", [-1, 1.5, True, "2", None])
@in_virtual_time
async def test_what_is_no_number_of_attempts_is_refused(count: Any) -> None:
    async with Network() as net:
        with pytest.raises(InvalidInput, match="max_attempts is a whole number"):
            await worker(net, max_attempts=count)


@in_virtual_time
async def test_attempts_are_for_what_is_durable() -> None:
    async with Network() as net:
        bob = await net.connect("b1", name="bob")
        with pytest.raises(InvalidInput, match="max_attempts= is for durable subscriptions"):
            await bob.subscribe("EXISTS x", max_attempts=2)
