"""What is published again under an id of the application's own is not published again."""

from __future__ import annotations

from typing import Any

import pytest

import palio
from palio.client.events import PublishReceipt
from palio.errors import InvalidInput, NotStored
from palio.node.settings import Settings
from palio.testing import Network
from tests.client.helpers import drain, plain
from tests.client.virtual import in_virtual_time


async def test_a_bus_publishes_an_id_once_for_each_publisher() -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("EXISTS x")
        assert await bus.publish({"x": 1}, dedup_id="a") == PublishReceipt(1, 1, 1)
        assert await bus.publish({"x": 2}, dedup_id="a") == PublishReceipt(2, 1, 0)
        await bus.publish({"x": 3}, dedup_id="b")
        await bus.publish({"x": 4}, dedup_id="a", publisher="other")
        await bus.publish({"x": 5})
        assert plain(await drain(sub)) == [{"x": 1}, {"x": 3}, {"x": 4}, {"x": 5}]


@pytest.mark.parametrize("durable", [False, True])
@in_virtual_time
async def test_a_program_that_comes_again_publishes_an_id_once(durable: bool) -> None:
    async with Network("line:2") as net:
        bob = await net.connect("b2", name="bob")
        kept = await bob.subscribe("EXISTS x", durable_name="kept" if durable else "")
        await kept.settled()
        for number in range(3):
            ann = await net.connect("b1", name="ann")
            receipts = [
                ann.publish_nowait({"x": number, "of": of}, durable=durable, dedup_id=of)
                for of in ("a", "b", "a")
            ]
            levels = {(await receipt).level for receipt in receipts}
            assert levels == {"durable" if durable else "memory"}
            await ann.close()
        eve = await net.connect("b1", name="eve")
        await eve.publish({"x": 9, "of": "a"}, durable=durable, dedup_id="a")
        found = [(await kept.receive(timeout=60))["of"] for _ in range(3)]
        assert sorted(found) == ["a", "a", "b"]
        assert await drain(kept) == []


@in_virtual_time
async def test_an_event_that_was_refused_may_be_published_again() -> None:
    async with Network(settings=Settings(has_disk=False)) as net:
        ann = await net.connect("b1", name="ann")
        sub = await ann.subscribe("x = 2")
        with pytest.raises(NotStored):
            await ann.publish({"x": 1}, durable=True, dedup_id="a")
        await ann.publish({"x": 2}, dedup_id="a")
        assert (await sub.receive(timeout=60))["x"] == 2


@pytest.mark.parametrize(
    ("events", "dedup_id", "problem"),
    [
        ([{"x": 1}, {"x": 2}], "a", "the id of one event, not of 2"),
        ([], "a", "the id of one event, not of 0"),
        ({"x": 1}, "", "a text that is not empty"),
        ({"x": 1}, 5, "a text that is not empty, not 5"),
    ],
)
async def test_an_id_is_a_text_for_one_event(events: Any, dedup_id: Any, problem: str) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match=problem):
            await bus.publish(events, dedup_id=dedup_id)
