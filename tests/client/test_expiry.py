"""Time to live: events whose time has run out are delivered from no queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import palio
from palio.client import delivery_queue
from palio.errors import InvalidInput
from palio.protocol.limits import MAX_SECONDS
from palio.testing import Network
from tests.client.helpers import drain, plain
from tests.client.virtual import in_virtual_time

Later = Callable[[float], None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Let so many seconds pass on the clock of consumers."""

    def passed(seconds: float) -> None:
        then = datetime.now(UTC) + timedelta(seconds=seconds)
        monkeypatch.setattr(delivery_queue, "now", lambda: then)

    return passed


@pytest.mark.parametrize(
    "events", [{"x": 1}, [{"x": 1}, {"x": 2}], pa.record_batch({"x": [1, 2]})], ids=type
)
async def test_what_waits_too_long_is_left_out_and_counted(events: Any, later: Later) -> None:
    async with palio.Bus() as bus:
        sub, batches = await bus.subscribe("x > 0"), await bus.subscribe("x > 0")
        receipt = await bus.publish(events, ttl=60)
        count = receipt.last_seq
        assert (await sub.receive()).expires is not None
        later(61)
        await bus.publish({"x": 3})
        assert plain(await drain(sub)) == [{"x": 3}]
        assert (await batches.receive_batch()).column("x").to_pylist() == [3]
        assert (sub.expired, batches.expired) == (count - 1, count)


async def test_what_is_in_time_is_delivered_also_as_a_batch(later: Later) -> None:
    async with palio.Bus() as bus:
        sub = await bus.subscribe("x > 0")
        await bus.publish([{"x": 1}, {"x": 2}], ttl=60)
        later(30)
        assert (await sub.receive_batch()).column("x").to_pylist() == [1, 2]
        assert sub.expired == 0
        event = {"x": 1}
        await bus.publish(event, ttl=60)
        assert await sub.receive() == event


@in_virtual_time
async def test_a_durable_event_expires_in_the_queue_of_its_home(later: Later) -> None:
    async with Network("line:2") as net:
        ann, bob = await net.connect("b1"), await net.connect("b2", name="bob")
        kept = await bob.subscribe("EXISTS x", durable_name="kept", ack="manual")
        await kept.settled()
        await bob.close()
        await ann.publish({"x": 1}, durable=True, ttl=60)
        await ann.publish({"x": 2}, durable=True)
        later(61)
        bob = await net.connect("b2", name="bob")
        kept = await bob.subscribe("EXISTS x", durable_name="kept", ack="manual")
        assert (await kept.receive())["x"] == 2
        kept.ack()
        assert kept.expired == 1
        await bob.close()
        later(0)
        bob = await net.connect("b2", name="bob")
        again = await bob.subscribe("EXISTS x", durable_name="kept")
        assert await drain(again) == [], "it counts as acknowledged"


@pytest.mark.parametrize("ttl", [0, -1, MAX_SECONDS * 2, "60", True])
async def test_what_is_no_time_to_live_is_refused(ttl: Any) -> None:
    async with palio.Bus() as bus:
        with pytest.raises(InvalidInput, match="ttl"):
            await bus.publish({"x": 1}, ttl=ttl)
