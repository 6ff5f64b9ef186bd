"""What one end cannot take, however often it comes: the session goes on without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

import pytest

import palio
from palio.client.events import Gap
from palio.client.session import CLOSE_S
from palio.client.subscription import Subscription
from palio.client.transport import Ear, Wire
from palio.errors import IllegalMessage
from palio.matching.reference import Reference
from palio.node.settings import Settings
from palio.protocol.limits import FRAME_TRIES
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


@in_virtual_time
async def test_what_a_client_cannot_read_is_a_gap_and_all_else_comes() -> None:
    async with Network("line:1") as net:
        client, publisher = await net.connect("b1"), await net.connect("b1")
        live, durable = (
            await client.subscribe("x > 0"),
            await client.subscribe("x > 0", durable="d"),
        )
        tries = spoil(net, Deliver)
        await publisher.publish({"x": 666}, durable=True)
        await publisher.publish({"x": 1}, durable=True)
        async with asyncio.timeout(60):
            for each in (live, durable):
                assert dict(await each.receive()) == {"x": 1}
        assert len(tries) <= 3 * FRAME_TRIES, "with the first the second goes too"
        for each in (live, durable):
            assert list(each.gaps) == [Gap(publisher.publisher, 1, 1, 1)]


@in_virtual_time
async def test_what_no_broker_may_say_is_told_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not illegal to read, but to be taken: it does not count as arrived either."""
    async with Network("line:1") as net:
        client, publisher = await net.connect("b1"), await net.connect("b1")
        heard = await client.subscribe("x > 0")
        right = client._upstream.deliver_named

        def refuses(message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]) -> None:
            if _is_bad(message):
                raise IllegalMessage("the broker", "no")
            right(message, keys, unconfirmed)

        monkeypatch.setattr(client._upstream, "deliver_named", refuses)
        await publisher.publish({"x": 666})
        await publisher.publish({"x": 1})
        assert dict(await heard.receive()) == {"x": 1}
        assert list(heard.gaps) == [Gap(publisher.publisher, 1, 1, 1)]


@in_virtual_time
async def test_an_answer_that_a_client_cannot_read_is_an_error() -> None:
    async with Network("line:1") as net:
        client = await net.connect("b1")
        spoil(net, Answer)
        with pytest.raises(IllegalMessage):
            await client.ask("status")
        assert client.is_connected


@in_virtual_time
async def test_a_request_that_the_broker_cannot_read_fails_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Network("line:1") as net:
        client = await net.connect("b1")
        good = await client.subscribe("x > :low", low=0)
        tries = spoil(net, Subscribe, Advertise, Update)
        with caplog.at_level(logging.ERROR, "palio"), pytest.raises(IllegalMessage, match="read"):
            await client.subscribe("y = 666")
        assert "Subscribe" in caplog.text
        with pytest.raises(IllegalMessage):
            await client.advertise("y = 666")
        with pytest.raises(IllegalMessage):
            await good.update(low=666)
        assert len(tries) == 3 * FRAME_TRIES
        await client.publish({"x": 700})
        assert dict(await good.receive()) == {"x": 700}


@pytest.mark.parametrize("durable", [False, True])
@in_virtual_time
async def test_events_that_the_broker_cannot_read_fail_alone(durable: bool) -> None:
    async with Network("line:1") as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > 0")
        spoil(net, Publish)
        bad = client.publish_nowait({"x": 666}, durable=durable)
        await asyncio.sleep(0)
        good = client.publish_nowait([{"x": 1}, {"x": 2}], durable=durable)
        with pytest.raises(IllegalMessage):
            await bad
        assert (await good).last_seq == 3
        assert [dict(await heard.receive()) for _ in range(2)] == [{"x": 1}, {"x": 2}]


@in_virtual_time
async def test_an_acknowledgement_that_the_broker_cannot_read_is_made_good_by_the_next() -> None:
    async with Network("line:1") as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > 0", durable="d")
        tries = spoil(net, Acknowledge)
        for x in (1, 2):
            await client.publish({"x": x}, durable=True)
        await heard.receive()
        await heard.receive()
        await asyncio.sleep(QUIET_S)
        assert len(tries) == FRAME_TRIES
        net.spoils = lambda _sender, _message: False
        await client.publish({"x": 3}, durable=True)
        await heard.receive()
        await heard.ack()
        await asyncio.sleep(QUIET_S)
        assert net.node("b1").status()["custody_entries"] == 0


@in_virtual_time
async def test_a_client_whose_every_word_is_refused_ends() -> None:
    """Pings are not counted: there is nothing to leave out."""
    async with Network("line:1", settings=Settings(heartbeat_s=1.0)) as net:
        client = await net.connect("b1")
        heard: Subscription = await client.subscribe("x > 0")
        spoil(net, Ping)
        with pytest.raises(IllegalMessage, match="cannot be read"):
            await heard.receive()
        assert not client.is_connected


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

        async def stuck(url: str, ear: Ear) -> Wire:
            wire = await dial(url, ear)
            monkeypatch.setattr(wire, "wait_closed", loop.create_future)  # which nobody ends
            return wire

        client = palio.connect("palio://b1", name="a", dial=stuck, matcher=Reference())
        await client.open()
        began = loop.time()
        await client.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        assert loop.time() - began < CLOSE_S
