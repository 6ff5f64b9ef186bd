"""Subscriptions that end where nobody offers what they want."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from palio.errors import Closed, InvalidInput, NotSupported, SubscriptionEnded, Unsettled
from palio.routing.algorithms import ALGORITHMS
from palio.testing import Network
from tests.client.virtual import in_virtual_time

ADVERTISED = [name for name, each in ALGORITHMS.items() if each.takes_advertisements]
OTHERS = [name for name in ALGORITHMS if name not in ADVERTISED]


@pytest.mark.parametrize("routing", ADVERTISED)
@in_virtual_time
async def test_who_offers_in_time_is_waited_for(routing: str) -> None:
    async with Network("line:4", routing=routing) as net:
        alice, bob = await net.connect("b3"), await net.connect("b4")
        heard = await bob.subscribe("x > :low", {"low": 0}, offer_timeout=5)
        await asyncio.sleep(4)
        await alice.advertise("x > 1")
        await alice.settled()
        await asyncio.sleep(2)
        await alice.publish({"x": 2})
        assert (await heard.receive())["x"] == 2


@pytest.mark.parametrize("routing", ADVERTISED)
@in_virtual_time
async def test_after_its_time_it_ends_and_says_so(routing: str) -> None:
    async with Network("line:4", routing=routing) as net:
        alice, bob = await net.connect("b3"), await net.connect("b4")
        await alice.advertise("x > 1")
        await alice.settled()
        heard = await bob.subscribe("x > :low", {"low": 0}, offer_timeout=5)
        other = await bob.subscribe("x < 0", offer_timeout=5)
        await asyncio.sleep(4)
        assert not other.is_closed
        await asyncio.sleep(2)
        assert not heard.is_closed
        with pytest.raises(SubscriptionEnded, match="nobody advertises what x < 0 wants"):
            await other.receive()
        await bob.settled()
        assert net.node("b4").status()["subscriptions"] == 1


@pytest.mark.parametrize("routing", ADVERTISED)
@in_virtual_time
async def test_without_time_it_is_refused_at_once(routing: str) -> None:
    async with Network("line:4", routing=routing) as net:
        alice, bob = await net.connect("b1"), await net.connect("b4")
        await bob.settled()  # before that it may be open who is above
        with pytest.raises(SubscriptionEnded):
            await bob.subscribe("x > 0", offer_timeout=0)
        await bob.settled()
        assert net.node("b4").status()["subscriptions"] == 0
        await alice.advertise("x > 1")
        await alice.settled()
        await bob.subscribe("x > 0", offer_timeout=0)


@in_virtual_time
async def test_a_wish_survives_the_loss_of_the_root_and_ends_no_later() -> None:
    async with Network("ring:4", routing="proxies") as net:
        bob = await net.connect("b3")
        await bob.settled()
        began = asyncio.get_running_loop().time()
        heard = await bob.subscribe("x > 0", offer_timeout=60)
        other = await bob.subscribe("x < 0", offer_timeout=60)
        assert (await bob.admin.topology())["root"] == "b2"
        net.kill("b2")
        await asyncio.sleep(30)
        assert (await bob.admin.topology())["root"] != "b2"
        alice = await net.connect("b1")
        await alice.advertise("x > 0")
        with pytest.raises(Unsettled, match="beyond b2"):
            await alice.settled()
        await alice.publish({"x": 1})
        assert (await heard.receive(timeout=5))["x"] == 1
        with pytest.raises(SubscriptionEnded):
            await other.receive(timeout=60)
        assert 60 <= asyncio.get_running_loop().time() - began < 61
        assert not heard.is_closed


@in_virtual_time
async def test_values_of_then_count() -> None:
    async with Network("line:2", routing="proxies") as net:
        alice, bob = await net.connect("b1"), await net.connect("b2")
        await alice.advertise("x > 10")
        await alice.settled()
        heard = await bob.subscribe("x < :high", {"high": 5}, offer_timeout=5)
        await heard.update(high=20)
        await asyncio.sleep(6)
        assert not heard.is_closed


@pytest.mark.parametrize("leave", ["unsubscribe", "close"])
@in_virtual_time
async def test_who_has_left_is_asked_nothing(leave: str) -> None:
    async with Network("line:2", routing="proxies") as net:
        bob = await net.connect("b2")
        heard = await bob.subscribe("x > 0", offer_timeout=5)
        await (heard.unsubscribe() if leave == "unsubscribe" else bob.close())
        await asyncio.sleep(6)
        with pytest.raises(Closed):
            await heard.receive()


@in_virtual_time
async def test_what_its_broker_cannot_answer_is_asked_again() -> None:
    async with Network("line:2", routing="proxies") as net:
        bob = await net.connect("b2", timeout=3.0)
        heard = await bob.subscribe("x > 0", offer_timeout=5)
        net.kill("b2")
        await asyncio.sleep(20)
        assert not heard.is_closed
        net.restart("b2")
        with pytest.raises(SubscriptionEnded):
            await heard.receive()


@pytest.mark.parametrize("routing", OTHERS)
@in_virtual_time
async def test_where_nobody_advertises_nobody_knows(routing: str) -> None:
    async with Network("line:1", routing=routing) as net:
        bob = await net.connect("b1")
        with pytest.raises(NotSupported, match="cannot find sources"):
            await bob.subscribe("x > 0", offer_timeout=5)
        await bob.settled()
        assert net.node("b1").status()["subscriptions"] == 0


@pytest.mark.parametrize(
    ("filter", "given", "told"),
    [
        ("x > 0", {"offer_timeout": -1}, "offer_timeout is -1"),
        ("x > 0", {"offer_timeout": math.nan}, "offer_timeout is nan"),
        ("x > 0", {"offer_timeout": "5"}, "offer_timeout is '5'"),
        ("x > 0", {"offer_timeout": 5, "durable_name": "d"}, "not durable"),
        ("x > 0 THEN x > 1", {"offer_timeout": 5}, "a filter"),
    ],
)
@in_virtual_time
async def test_what_is_no_lifetime_is_refused(filter: str, given: Any, told: str) -> None:
    async with Network("line:1", routing="proxies") as net:
        bob = await net.connect("b1")
        with pytest.raises(InvalidInput, match=told):
            await bob.subscribe(filter, **given)
        assert net.node("b1").status()["subscriptions"] == 0
