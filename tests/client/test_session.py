"""What one end cannot take, however often it comes: the session goes on without it."""

from __future__ import annotations

import asyncio

import pytest

import palio
from palio.client.session import CLOSE_S
from palio.client.transport import Receiver, Wire
from palio.errors import IllegalMessage
from palio.matching.reference import Reference
from palio.node.settings import Settings
from palio.protocol.messages import (
    Acknowledge,
    Advertise,
    Answer,
    Deliver,
    Message,
    Ping,
    Publish,
    Subscribe,
    Update,
)
from palio.testing import Network
from tests.client.virtual import in_virtual_time

QUIET_S = 60.0
"""Virtual seconds in which all that is under way arrives."""


def spoil(network: Network, *kinds: type) -> list[Message]:
    """Let what is of some kinds and bears 666 arrive as bytes that nobody can read."""
    tries: list[Message] = []

    def spoils(_sender: str, message: Message) -> bool:
        if isinstance(message, kinds) and _is_bad(message):
            tries.append(message)
            return True
        return False

    network.spoils = spoils
    return tries


def _is_bad(message: Message) -> bool:
    match message:
        case Publish(parcel) | Deliver(parcel):
            return 666 in parcel.batch.to_pydict().get("x", [])
        case Subscribe(filter=text) | Advertise(filter=text):
            return "666" in text
        case Update(values=values):
            return 666 in values.values()
    return True


@pytest.mark.parametrize("kind", [Deliver, Answer])
@in_virtual_time
async def test_what_a_client_cannot_read_ends_it(kind: type) -> None:
    """All that it waits for fails with the reason, and its broker goes on."""
    async with Network("line:1") as net:
        client, publisher = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x > 0")
        spoil(net, kind)
        if kind is Answer:
            with pytest.raises(IllegalMessage, match="cannot be read"):
                await client.admin.query("status")
        await publisher.publish({"x": 666})
        with pytest.raises(IllegalMessage, match="cannot be read"):
            await heard.receive()
        assert not client.is_connected
        assert (await publisher.publish({"x": 1})).level == "memory"


@in_virtual_time
async def test_what_no_broker_may_say_ends_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not illegal to read, but to be taken."""
    async with Network("line:1") as net:
        client, publisher = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x > 0")

        def refuses(*_: object) -> None:
            raise IllegalMessage("the broker", "no")

        monkeypatch.setattr(client._upstream, "deliver_named", refuses)
        await publisher.publish({"x": 666})
        with pytest.raises(IllegalMessage, match="the broker sent an illegal message: no"):
            await heard.receive()


@pytest.mark.parametrize("kind", [Subscribe, Publish, Acknowledge, Ping])
@in_virtual_time
async def test_a_client_that_its_broker_cannot_read_is_told_and_ends(kind: type) -> None:
    async with Network("line:1", settings=Settings(heartbeat_s=1.0)) as net:
        client, other = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x > 0", durable_name="d")
        spoil(net, kind)
        waiting = [
            asyncio.ensure_future(each)
            for each in (client.subscribe("y = 666"), client.publish({"x": 666}, durable=True))
        ]

        async def consume() -> None:
            while True:
                await heard.receive()
                heard.ack()

        with pytest.raises(IllegalMessage, match="cannot be read"):
            await consume()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        if kind in (Subscribe, Publish):
            assert any(isinstance(each, IllegalMessage) for each in outcomes)
        assert not client.is_connected
        assert other.is_connected or kind is Ping  # its own were spoilt as well


@in_virtual_time
async def test_who_is_cancelled_as_the_broker_answers_leaves_the_connection_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Network() as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > 0")
        await client.suspend()
        opening = [asyncio.ensure_future(client.open()) for _ in range(2)]
        right = client._upstream.flow

        def flow() -> None:  # called in the turn in which the broker's welcome came
            right()
            opening[0].cancel()

        monkeypatch.setattr(client._upstream, "flow", flow)
        with pytest.raises(asyncio.CancelledError):
            await opening[0]
        await opening[1]
        assert client.is_connected
        await client.publish({"x": 1})
        assert dict(await heard.receive()) == {"x": 1}


@in_virtual_time
async def test_who_is_cancelled_before_the_block_begins_leaves_no_session_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Network() as net:
        client = palio.connect("palio://b1", name="a", dial=net.dial("a"), matcher=Reference())

        async def enter() -> None:
            async with client:
                pytest.fail("it was cancelled before")

        entering = asyncio.create_task(enter())
        right = client._upstream.flow

        def flow() -> None:  # called in the turn in which the broker's welcome came
            right()
            entering.cancel()

        monkeypatch.setattr(client._upstream, "flow", flow)
        with pytest.raises(asyncio.CancelledError):
            await entering
        await asyncio.sleep(QUIET_S)
        assert not client.is_connected
        assert net.node("b1").status()["sessions"] == 0


@in_virtual_time
async def test_a_connection_that_does_not_close_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Network() as net:
        dial, loop = net.dial("a"), asyncio.get_running_loop()

        async def stuck(url: str, ear: Receiver) -> Wire:
            wire = await dial(url, ear)
            monkeypatch.setattr(wire, "wait_closed", loop.create_future)  # which nobody ends
            return wire

        client = palio.connect("palio://b1", name="a", dial=stuck, matcher=Reference())
        await client.open()
        began = loop.time()
        await client.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        assert loop.time() - began < CLOSE_S
