from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest

from palio.node.effects import Close, Effect, Report, Send
from palio.node.operations import PutFacts
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Fact, Hello, Message, Ping, Pong, Welcome
from palio.protocol.wire import CONTROL, HEAD
from palio.server.journal.journal import Diskless
from palio.server.server import Server
from tests.server.fronts import broker
from tests.server.helpers import (
    Front,
    Peer,
    Scripted,
    append,
    hello,
    pong,
    put,
    serving,
    until,
)

# --- the node's timer ---


async def test_the_node_is_woken_when_it_wants_to_be() -> None:
    node = Scripted()
    node.wake_at = asyncio.get_running_loop().time() + 0.03
    wanted = node.wake_at
    async with serving(node):
        ((_, at),) = await node.called("tick")
        assert at.now >= wanted
        assert at.wall_us > 1_700_000_000_000_000


async def test_an_earlier_wish_replaces_a_later_one() -> None:
    loop = asyncio.get_running_loop()
    node = Scripted()

    def sooner(link: int, message: Message) -> Sequence[Effect]:
        node.wake_at = loop.time() + 0.01
        return pong(link, message)

    node.rule = sooner
    node.wake_at = loop.time() + 60
    async with serving(node) as (server, _):
        server.connect_local(lambda _: None).send(Ping())
        await node.called("tick")


async def test_a_later_wish_is_waited_for() -> None:
    loop = asyncio.get_running_loop()
    node = Scripted()
    node.wake_at = loop.time() + 0.01

    async with serving(node):
        node.wake_at = later = loop.time() + 0.05
        ((_, at),) = await node.called("tick")
        assert at.now >= later


# --- effects ---


async def test_appends_are_answered_to_the_node() -> None:
    node = Scripted(
        lambda _, __: [append(7, PutFacts((Fact("b2", 1, "links"),))), append(8, put(1))]
    )
    async with serving(node) as (server, _):
        server.connect_local(lambda _: None).send(Ping())
        assert await node.called("stored") == [("stored", 7)]
        ((_, ticket, reason),) = await node.called("failed")
        assert ticket == 8
        assert "data_dir" in reason
        await node.called("writable")
        names = [call[0] for call in node.calls]
        assert names.index("writable") > names.index("failed")


async def test_a_flush_returns_when_the_node_has_been_told() -> None:
    node = Scripted(lambda _, __: [append(7, PutFacts((Fact("b2", 1, "links"),)))])
    async with serving(node) as (server, _):
        server.connect_local(lambda _: None).send(Ping())
        await server.flush()
        assert ("stored", 7) in node.calls


async def test_reports_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    node = Scripted(lambda _, __: [Report("warning", "peer_down", {"peer": "b2"})])
    with caplog.at_level(logging.INFO, "palio.node"):
        async with serving(node) as (server, _):
            server.connect_local(lambda _: None).send(Ping())
    (record,) = [each for each in caplog.records if each.name == "palio.node"]
    assert (record.levelname, record.getMessage()) == ("WARNING", "peer_down")
    assert record.__dict__["details"] == {"peer": "b2"}


async def test_effects_for_links_that_are_gone_are_nobodys() -> None:
    node = Scripted(lambda link, _: [Send(99, Pong()), Close(99, "?"), Send(link, Pong())])
    async with serving(node) as (server, _):
        front = Front()
        server.connect_local(front.on_message).send(Ping())
        await front.until(lambda: front.heard == [Pong()])


# --- connections ---


@pytest.mark.parametrize(("limit", "refused"), [(1, True), (2, False), (3, False)])
async def test_no_more_connections_than_the_limit(limit: int, refused: bool) -> None:
    node = Scripted(pong)
    async with serving(node, max_connections=limit) as (server, address):
        first = await Peer.client(address, "first")
        second = await Peer.connect(address)
        second.send(hello("second"))
        if refused:
            (said,) = await second.until_closed()
            assert isinstance(said, Bye)
            assert said.code == "LimitExceeded"
            assert "limits.max_connections" in said.reason
            assert server.traffic.refused == 1
        else:
            await second.next(Welcome)
        first.send(Ping())
        await first.next(Pong)
        first.close()
        second.close()


# --- stopping ---


class Saying(Scripted):
    """Says goodbye to every link it was told of."""

    def close(self, at: object) -> Sequence[Effect]:
        super().close(at)  # type: ignore[arg-type]  # it only notes that it was called
        links = [call[1] for call in self.calls if call[0] == "accept"]
        said = [(Send(link, Bye("closed")), Close(link, "closed")) for link in links]
        return [effect for pair in said for effect in pair]


async def test_closing_says_goodbye_and_takes_nobody_else() -> None:
    node = Saying(pong)
    server = Server(node, Diskless())
    server.start()
    address = await server.listen("127.0.0.1", 0)
    peer = await Peer.client(address)
    front = Front()
    server.connect_local(front.on_message, front.on_close)
    await server.close()
    assert await peer.until_closed() == [Bye("closed")]
    assert front.heard == [Bye("closed")]
    assert front.ends == ["closed"]
    with pytest.raises(OSError, match="Connect call failed"):
        await Peer.connect(address)
    late = Front()
    assert server.connect_local(late.on_message, late.on_close).closed
    await late.until(lambda: late.ends == ["the server is stopping"])


async def test_closing_does_not_wait_for_ever_for_those_who_take_nothing() -> None:
    node = Saying(pong)
    server = Server(node, Diskless())
    server.start()
    address = await server.listen("127.0.0.1", 0)
    peer = await Peer.client(address)
    (connection,) = server._open
    transport = connection._transport
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"x" * (64 << 20))  # more than the system takes
    await server.close(patience_s=0.05)
    peer.close()


@pytest.mark.parametrize("role", ["client", "broker"])
async def test_a_frame_that_trickles_is_no_sign_of_life(role: str) -> None:
    """Its room is free again after three heartbeats, and so are its connection and its place."""
    settings = Settings(heartbeat_s=0.05, peer_heartbeat_s=0.05)
    async with broker(settings=settings) as server:
        host, port = await server.listen("127.0.0.1", 0)
        peer = await Peer.connect((host, port))
        peer.send(Hello(role, "slow", PROTOCOL_VERSION))
        await peer.next(Welcome)
        peer.send_bytes(HEAD.pack(1 << 20, CONTROL, 0))
        await until(lambda: server.limiter.size == 1 << 20)
        closed = asyncio.create_task(peer.until_closed())
        while not closed.done():
            peer.send_bytes(b"x")
            await asyncio.sleep(0.01)
        with suppress(ConnectionError):
            await closed
        await until(lambda: server.connections == 0)
        assert server.limiter.size == 0


# --- turns ---


async def test_one_that_cannot_be_written_to_keeps_nobody_waiting() -> None:
    loop = asyncio.get_running_loop()
    faults: list[str] = []
    loop.set_exception_handler(lambda _, context: faults.append(str(context["exception"])))
    async with serving(Scripted(pong)) as (server, _):
        broken, front = Front(), Front()
        link = server.connect_local(broken.on_message, fails)
        other = server.connect_local(front.on_message)
        link.end.close("over")  # `fails` is told
        other.send(Ping())
        await front.until(lambda: front.heard == [Pong()])
    assert faults == ["a bug"]


def fails(_: str) -> None:
    raise ValueError("a bug")
