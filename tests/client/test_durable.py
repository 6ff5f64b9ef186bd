"""Durable subscriptions: what waits, and what an acknowledgement is."""

from __future__ import annotations

import asyncio
import math
from contextlib import nullcontext
from typing import Any

import pytest

from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.errors import InvalidFilter, InvalidInput, SubscriptionEnded
from palio.node import publishing
from palio.node.settings import Settings
from palio.testing import Network
from tests.client.helpers import drain
from tests.client.virtual import in_virtual_time


async def put(client: Client, *numbers: int) -> None:
    for x in numbers:
        await client.publish({"x": x}, durable=True)


async def xs(subscription: Subscription, count: int) -> list[int]:
    return [(await subscription.receive())["x"] for _ in range(count)]


async def waits(net: Network, broker: str, subscription: str) -> int:
    """Entries that a broker keeps for a durable subscription."""
    await asyncio.sleep(1)
    waiting: int = net.node(broker).status()["custody_waiting"][subscription]
    return waiting


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"durable_name": name}
            for name in (True, 5, "a/b", "..", "a\nb", " a", "n" * 201, "\ud800")
        ),
        {"durable_name": "d", "max_events": 3},
        *(
            {"durable_name": "d", "retention": s}
            for s in (-1, math.nan, math.inf, 1e308, "7", True)
        ),
    ],
    ids=ascii,
)
@in_virtual_time
async def test_what_is_no_name_or_no_lease_is_refused_and_the_client_goes_on(
    given: dict[str, Any],
) -> None:
    async with Network("line:1") as net:
        alice = await net.connect("b1", name="alice")
        other = await alice.subscribe("x = 1")
        with pytest.raises(
            InvalidInput, match=r"a name has|MAX_NAME_BYTES|retention is|max_events="
        ):
            await alice.subscribe("x < 1", **given)
        await put(alice, 1)
        assert await xs(other, 1) == [1]
        assert net.node("b1").status()["subscriptions"] == 1


@pytest.mark.parametrize("name", ["a/b", "..", " a", "n" * 201])
@in_virtual_time
async def test_a_client_has_a_name_or_none(name: str) -> None:
    async with Network("line:1") as net:
        with pytest.raises(InvalidInput, match=r"a name has|MAX_NAME_BYTES"):
            _ = net.client("b1", name=name)


@pytest.mark.parametrize("patience", [math.nan, math.inf, -1.0])
@in_virtual_time
async def test_patience_has_an_end(patience: float) -> None:
    async with Network("line:1") as net:
        alice = await net.connect("b1")
        with pytest.raises(InvalidInput, match="timeout"):
            await alice.settled(patience)


@in_virtual_time
async def test_events_wait_for_their_owner() -> None:
    async with Network("line:2") as net:
        alice = await net.connect("b1")
        bob = await net.connect("b2", name="bob")
        await bob.subscribe("x < 10", durable_name="low")
        await bob.settled()
        await bob.close()
        await put(alice, 1, 20, 2)
        net.kill("b2")
        await put(alice, 3)
        net.restart("b2")
        bob = await net.connect("b2", name="bob")
        low = await bob.subscribe("x < 10", durable_name="low")
        assert await xs(low, 3) == [1, 2, 3]


@in_virtual_time
async def test_automatically_an_event_is_acknowledged_when_the_next_is_asked_for() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("EXISTS x", durable_name="mine")
        await put(client, 1, 2, 3)
        assert await waits(net, "b1", "bob/mine") == 3
        await mine.receive()
        assert await waits(net, "b1", "bob/mine") == 3
        await mine.receive()
        assert await waits(net, "b1", "bob/mine") == 2
        asking = asyncio.ensure_future(xs(mine, 2))
        assert await waits(net, "b1", "bob/mine") == 0
        asking.cancel()


@in_virtual_time
async def test_explicitly_an_event_is_acknowledged_by_itself() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("EXISTS x", durable_name="mine", ack="manual")
        await put(client, 1, 2, 3)
        one, two, _ = [await mine.receive() for _ in range(3)]
        two.ack()
        assert await waits(net, "b1", "bob/mine") == 2
        mine.ack(one)
        assert await waits(net, "b1", "bob/mine") == 1
        mine.ack()
        assert await waits(net, "b1", "bob/mine") == 0


@in_virtual_time
async def test_batches_are_acknowledged_whole() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("x < 3", durable_name="mine")
        await client.publish([{"x": x} for x in range(5)], durable=True)
        batches = aiter(mine.batches())
        assert (await anext(batches)).column("x").to_pylist() == [0, 1, 2]
        assert await waits(net, "b1", "bob/mine") == 1
        following = asyncio.ensure_future(anext(batches))
        assert await waits(net, "b1", "bob/mine") == 0
        following.cancel()


@pytest.mark.parametrize("fails", [False, True])
@in_virtual_time
async def test_leaving_without_an_error_acknowledges(fails: bool) -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        with pytest.raises(ZeroDivisionError) if fails else nullcontext():
            async with await client.subscribe("EXISTS x", durable_name="mine") as mine:
                await put(client, 1)
                await mine.receive()
                if fails:
                    raise ZeroDivisionError
        assert await waits(net, "b1", "bob/mine") == fails


@in_virtual_time
async def test_what_matches_no_longer_is_dropped_and_acknowledged() -> None:
    async with Network() as net:
        client, other = await net.connect("b1", name="bob"), await net.connect("b1")
        mine = await client.subscribe("x < :limit", {"limit": 10}, durable_name="mine")
        await client.suspend()
        await put(other, 1, 5, 8)  # assigned under the old limit
        client_comes_back = asyncio.ensure_future(client.resume())
        await mine.update(limit=3)
        await client_comes_back
        assert await xs(mine, 1) == [1]
        assert not await drain(mine)
        assert mine.stale == 2
        assert await waits(net, "b1", "bob/mine") == 0


@in_virtual_time
async def test_a_queue_never_drops_what_came_out_of_custody() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("EXISTS x", durable_name="mine", queue_size=2)
        for x in range(10):
            await client.publish({"x": x}, durable=x % 2 == 0)
        await asyncio.sleep(1)
        assert [x for x in [event["x"] for event in await drain(mine)] if x % 2 == 0] == [
            0,
            2,
            4,
            6,
            8,
        ]
        assert mine.dropped == 5


@in_virtual_time
async def test_a_lost_session_brings_nothing_twice() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("EXISTS x", durable_name="mine", ack="manual")
        await put(client, *range(8))
        taken = [await mine.receive() for _ in range(4)]
        taken[0].ack()
        net.kill("b1")
        taken[1].ack()  # nobody hears it
        net.restart("b1")
        await asyncio.sleep(10)
        taken[2].ack()  # in progress when the session was lost
        assert await xs(mine, 4) == [4, 5, 6, 7]
        assert not await drain(mine)
        assert await waits(net, "b1", "bob/mine") == 5
        mine.ack()
        assert await waits(net, "b1", "bob/mine") == 0


@in_virtual_time
async def test_taking_up_and_forgetting() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("EXISTS x", durable_name="mine")
        await mine.unsubscribe()
        await put(client, 1)
        again = await client.subscribe("EXISTS x", durable_name="mine")
        assert await xs(again, 1) == [1]
        await again.delete()
        await put(client, 2)
        anew = await client.subscribe("EXISTS x", durable_name="mine")
        await put(client, 3)
        assert await xs(anew, 1) == [3]


@in_virtual_time
async def test_of_two_clients_under_one_name_the_later_hears_wherever_the_other_has_been() -> None:
    async with Network("line:2") as net:
        publisher, former = await net.connect("b1"), await net.connect("b1", name="ann")
        before = await former.subscribe("EXISTS x", durable_name="d")
        for place in ("b2", "b1"):
            await former.move(place)
        later = await net.connect("b2", name="ann")
        now = await later.subscribe("EXISTS x", durable_name="d")
        await now.settled()
        await publisher.publish({"x": 1}, durable=True)
        assert (await now.receive(5.0))["x"] == 1
        with pytest.raises(SubscriptionEnded, match="ann/d was taken over by another session"):
            await before.receive(5.0)
        await before.delete()
        assert net.node("b2").status()["durable_subscriptions"] == 1, "it is the other's"
        await now.delete()
        assert net.node("b2").status()["durable_subscriptions"] == 0


@in_virtual_time
async def test_a_refusal_that_comes_when_nobody_waits_any_longer_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Network() as net:
        former = await net.connect("b1", name="ann")
        before = await former.subscribe("EXISTS x", durable_name="d")
        later = await net.connect("b1", name="ann")
        net.delay("ann", "b1", 0.5)
        taking = asyncio.create_task(later.subscribe("EXISTS x", durable_name="d"))
        await asyncio.sleep(0.6)  # the broker has taken it away, and that is not known here yet
        leaving = asyncio.create_task(before.delete())
        await asyncio.sleep(0.7)  # it has come to the broker, whose answer is lost
        net.drop("ann", "b1")
        await leaving
        await taking
        await asyncio.sleep(5.0)
        assert "a change was not confirmed: this subscription has ended already" in caplog.text


@in_virtual_time
async def test_forgetting_while_the_broker_is_away() -> None:
    async with Network() as net:
        client = await net.connect("b1", name="bob")
        mine = await client.subscribe("EXISTS x", durable_name="mine")
        net.kill("b1")
        await asyncio.sleep(1)
        await mine.delete()  # which waits for nobody
        net.restart("b1")
        await client.settled()
        assert net.node("b1").status()["durable_subscriptions"] == 0


@pytest.mark.parametrize(
    ("filter", "options", "error", "match"),
    [
        ("x = 1", {"ack": "perhaps"}, InvalidInput, "perhaps"),
        ("x = 1", {"durable_name": "", "retention": 5}, InvalidInput, "retention= is for durable"),
        (
            *("x = 1", {"durable_name": "", "ack": "manual"}),
            *(InvalidInput, "ack= is for durable"),
        ),
        ("x = 1", {"durable_name": False}, InvalidInput, "a text, not by bool"),
    ],
)
@in_virtual_time
async def test_what_cannot_be_durable(
    filter: str, options: dict[str, Any], error: type[InvalidInput], match: str
) -> None:
    async with Network() as net:
        client = await net.connect("b1")
        with pytest.raises(error, match=match):
            await client.subscribe(filter, **{"durable_name": "mine", **options})
        mine = await client.subscribe("x = 1", durable_name="mine")
        with pytest.raises(InvalidFilter, match="pattern"):
            await mine.replace("x = 1 THEN x = 2")


@in_virtual_time
async def test_a_client_hears_a_durable_subscription_once() -> None:
    async with Network() as net:
        client = await net.connect("b1")
        first = await client.subscribe("x = 1", durable_name="mine")
        with pytest.raises(InvalidInput, match="the durable name 'mine' already"):
            await client.subscribe("x = 2", durable_name="mine")
        await client.publish({"x": 1}, durable=True)
        assert await first.receive() == {"x": 1}
        await first.unsubscribe()
        again = await client.subscribe("x = 2", durable_name="mine")
        await client.publish({"x": 2}, durable=True)
        assert await again.receive() == {"x": 2}


# --- events that are stored at their homes, too ---


@in_virtual_time
async def test_a_publisher_may_wait_until_all_homes_have_its_events() -> None:
    async with Network("line:3", settings=Settings(discovery=False)) as net:
        ann = await net.connect("b3", name="ann")
        orders = await ann.subscribe("x > 0", durable_name="orders")
        await orders.settled()
        publisher = await net.connect("b1")
        at_once = await publisher.publish({"x": 1}, durable="home")
        assert (at_once.first_seq, at_once.level) == (1, "home")
        net.cut("b1", "b2")
        stored = publisher.publish_nowait([{"x": 2}, {"x": 3}], durable="home")
        other = await net.connect("b1")
        for_nobody = await other.publish({"x": -1}, durable="home")
        here = await publisher.publish({"x": 4}, durable=True)
        await asyncio.sleep(60)
        assert (for_nobody.level, here.level, stored.done()) == ("home", "durable", False)
        net.heal("b1", "b2")
        assert (await stored).level == "home"
        assert await xs(orders, 4) == [1, 2, 3, 4]


@in_virtual_time
async def test_so_many_publications_of_a_session_wait_for_their_homes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "MAX_PENDING_RECEIPTS", 2)
    async with Network("line:2") as net:
        ann = await net.connect("b2", name="ann")
        await (await ann.subscribe("x > 0", durable_name="orders")).settled()
        publisher = await net.connect("b1")
        net.cut("b1", "b2")
        receipts = []
        for x in range(1, 6):
            receipts.append(publisher.publish_nowait({"x": x}, durable="home"))
            await asyncio.sleep(0.1)
        (session,) = [
            each for each in net.node("b1")._core.sessions.values() if each.pending_receipts["home"]
        ]
        assert len(session.pending_receipts["home"]) == 3, "those that are refused need one place"
        net.heal("b1", "b2")
        found = await asyncio.gather(*receipts, return_exceptions=True)
        assert [type(each).__name__ for each in found] == ["PublishReceipt"] * 2 + [
            "LimitExceeded"
        ] * 3


@in_virtual_time
async def test_what_all_homes_have_outlives_the_disk_of_its_origin() -> None:
    async with Network("line:2") as net:
        ann = await net.connect("b2", name="ann")
        orders = await ann.subscribe("x > 0", durable_name="orders")
        await orders.settled()
        await ann.close()
        publisher = await net.connect("b1")
        await publisher.publish({"x": 1}, durable="home")
        net.kill("b1")
        again = await (await net.connect("b2", name="ann")).subscribe(
            "x > 0", durable_name="orders"
        )
        assert await xs(again, 1) == [1]


@in_virtual_time
async def test_a_publisher_waits_for_the_home_to_which_a_subscription_goes() -> None:
    async with Network("line:3") as net:
        ann = await net.connect("b3", name="ann")
        await (await ann.subscribe("x > 0", durable_name="orders")).settled()
        publisher = await net.connect("b1")
        net.kill("b3")
        await asyncio.sleep(60)  # nothing is sent there any longer: that would be b3's to hand on
        stored = publisher.publish_nowait({"x": 1}, durable="home")
        await asyncio.sleep(60)
        assert not stored.done()
        moved = await (await net.connect("b2", name="ann")).subscribe(
            "x > 0", durable_name="orders"
        )
        assert await xs(moved, 1) == [1]
        assert (await stored).level == "home"


@pytest.mark.parametrize("given", ["orders", 1, None, "homes"])
@in_virtual_time
async def test_where_events_are_stored_is_one_of_three(given: Any) -> None:
    async with Network("line:1") as net:
        client = await net.connect("b1")
        with pytest.raises(InvalidInput, match="a name is for subscribe"):
            await client.publish({"x": 1}, durable=given)
