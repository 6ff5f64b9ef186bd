"""Clients whose broker is about to go."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from palio.client.roaming import MOST_KNOWN, elsewhere
from palio.errors import InvalidInput
from palio.node.settings import Settings
from palio.testing import Network
from tests.client.helpers import drain, seqs
from tests.client.virtual import in_virtual_time

FINDING: Final = Settings(discovery=True)


@pytest.mark.parametrize("count", [MOST_KNOWN - 3, MOST_KNOWN - 2, MOST_KNOWN - 1])
def test_so_many_addresses_are_known_in_all(count: int) -> None:
    told = [f"palio://b{number}" for number in range(count)]
    found = elsewhere(["palio://here", "palio://there"], told, random.Random(1))
    assert found == ["palio://there", *told[: MOST_KNOWN - 2]]


def test_what_an_application_has_given_comes_first_and_all_of_it() -> None:
    given = [f"palio://b{number}" for number in range(2 * MOST_KNOWN)]
    found = elsewhere(given, ["palio://told"], random.Random(1))
    assert sorted(found) == sorted(given[1:])
    assert found != given[1:], "or all clients of one broker go to one other"


@in_virtual_time
async def test_a_client_goes_to_another_broker_and_misses_nothing() -> None:
    async with Network("ring:4", settings=FINDING) as net:
        bob, alice = await net.connect("b1", name="bob"), await net.connect("b3", name="alice")
        live = await bob.subscribe("x >= 0")
        kept = await bob.subscribe("x >= 0", durable_name="kept")
        await live.settled()
        for number in range(30):
            if number == 5:
                net.leave("b1")
            await alice.publish({"x": number}, durable=number % 2 == 0)
            await bob.publish({"y": number})
            await asyncio.sleep(0.01)
        assert bob.broker in {"b2", "b4"}
        net.kill("b1")
        await alice.publish({"x": 30}, durable=True)
        await asyncio.sleep(5.0)
        assert seqs(await drain(live)) == [*range(1, 32)]
        assert set(range(1, 32, 2)) <= set(seqs(await drain(kept)))


@in_virtual_time
async def test_a_client_with_nowhere_to_go_stays() -> None:
    async with Network(
        "line:2", settings=Settings(discovery=False)
    ) as net:  # nobody tells addresses
        bob = await net.connect("b1", name="bob")
        subscription = await bob.subscribe("x = 1")
        net.leave("b1")
        await asyncio.sleep(3.0)
        await bob.publish({"x": 1})
        assert (await subscription.receive())["x"] == 1
        assert bob.broker == "b1"


@in_virtual_time
async def test_of_several_addresses_another_is_taken() -> None:
    async with Network("line:3", settings=Settings(discovery=False)) as net:
        bob = await net.connect("b1", "b3", name="bob")
        net.leave("b1")
        await asyncio.sleep(1.0)
        assert bob.broker == "b3"
        net.kill("b3")
        await asyncio.sleep(10.0)
        assert bob.broker == "b1", "it is known still"


@in_virtual_time
async def test_who_has_a_broker_drained_stays_with_it() -> None:
    async with Network("line:2", settings=FINDING) as net:
        admin, bob = await net.connect("b1"), await net.connect("b1", name="bob")
        await bob.subscribe("x = 1", durable_name="kept")
        remains = await admin.admin.drain()
        assert (remains["clients"], remains["durable_subscriptions"]) == (1, 1)
        while not remains["done"]:
            await asyncio.sleep(0.1)
            remains = await admin.admin.drain()
        assert (admin.broker, bob.broker) == ("b1", "b2")
        net.kill("b1")
        await admin.resume("palio://b2")
        with pytest.raises(InvalidInput, match="this is the broker 'b2', not 'b1'"):
            await admin.admin.drain()
