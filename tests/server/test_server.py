from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from palio.node.effects import Append, Close, Effect, PutFacts, Report, Send
from palio.protocol.messages import Bye, Done, Fact, Message, Ping, Pong, Settle, Welcome
from palio.server.journal.journal import Diskless
from palio.server.server import Server
from tests.server.helpers import PATIENCE_S, Peer, Scripted, hello, put, serving


def pong(link: int, message: Message) -> Sequence[Effect]:
    return [Send(link, Pong())] if isinstance(message, Ping) else []


class Front:
    """What a front heard on its link."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.ends: list[str] = []
        self.changed = asyncio.Event()

    def on_message(self, message: Message) -> None:
        self.heard.append(message)
        self.changed.set()

    def on_close(self, reason: str) -> None:
        self.ends.append(reason)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


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
        lambda _, __: [Append(7, (PutFacts((Fact("b2", 1, "links"),)),)), Append(8, (put(1),))]
    )
    async with serving(node) as (server, _):
        server.connect_local(lambda _: None).send(Ping())
        assert await node.called("stored") == [("stored", 7)]
        ((_, ticket, reason),) = await node.called("failed")
        assert ticket == 8
        assert "data_dir" in reason


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


# --- fronts ---


async def test_a_front_is_a_client_without_a_socket() -> None:
    node = Scripted(pong)
    async with serving(node) as (server, _):
        front = Front()
        link = server.connect_local(front.on_message, front.on_close, principal="alice")
        link.send(hello())
        link.send(Ping())
        assert front.heard == []  # never while `send` runs
        await front.until(lambda: len(front.heard) == 2)
        assert isinstance(front.heard[0], Welcome)
        assert ("accept", link.number, "alice") in node.calls
        link.close()
        link.close()
        link.send(Ping())
        assert [call for call in node.calls if call[0] == "lost"] == [("lost", link.number)]
        assert front.ends == []
        assert link.closed


async def test_a_front_may_send_while_it_is_told_something() -> None:
    node = Scripted(pong)
    async with serving(node) as (server, _):
        front = Front()

        def again(message: Message) -> None:
            front.on_message(message)
            if len(front.heard) < 10:
                link.send(Ping())

        link = server.connect_local(again)
        link.send(Ping())
        await front.until(lambda: len(front.heard) == 10)


async def test_what_the_node_closes_ends_after_what_it_sent() -> None:
    node = Scripted(lambda link, _: [Send(link, Bye("expired")), Close(link, "expired")])
    async with serving(node) as (server, _):
        front = Front()
        link = server.connect_local(front.on_message, front.on_close)
        link.send(Ping())
        await front.until(lambda: bool(front.ends))
        assert (front.heard, front.ends) == ([Bye("expired")], ["expired"])
        assert link.closed
        assert link.number not in server.links
        assert not [call for call in node.calls if call[0] == "lost"]


async def test_a_front_that_fails_loses_its_link_and_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Scripted(pong)
    async with serving(node) as (server, address):
        front = Front()

        def fails(_: Message) -> None:
            raise ValueError("a bug")

        link = server.connect_local(fails, front.on_close)
        link.send(Ping())
        await front.until(lambda: bool(front.ends))
        assert front.ends == ["the front failed"]
        assert ("lost", link.number) in node.calls
        peer = await Peer.client(address)
        peer.send(Ping())
        await peer.next(Pong)
        peer.close()
    assert "a bug" in caplog.text


async def test_nothing_more_is_told_to_a_front_that_left() -> None:
    node = Scripted(lambda link, _: [Send(link, Done(1)), Send(link, Done(2))])
    async with serving(node) as (server, _):
        front = Front()

        def leaves(message: Message) -> None:
            front.on_message(message)
            link.close()

        link = server.connect_local(leaves, front.on_close)
        link.send(Settle(1))
        await front.until(lambda: bool(front.heard))
        assert front.heard == [Done(1)]
        assert front.ends == []


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
            assert "limits.connections" in said.reason
            assert server.traffic.refused == 1
        else:
            await second.next(Welcome)
        first.send(Ping())
        await first.next(Pong)
        first.close()
        second.close()


# --- draining ---


class Saying(Scripted):
    """Says goodbye to every link it was told of."""

    def drain(self, at: object) -> Sequence[Effect]:
        super().drain(at)  # type: ignore[arg-type]  # it only notes that it was called
        links = [call[1] for call in self.calls if call[0] == "accept"]
        said = [(Send(link, Bye("closed")), Close(link, "closed")) for link in links]
        return [effect for pair in said for effect in pair]


async def test_draining_says_goodbye_and_takes_nobody_else() -> None:
    node = Saying(pong)
    server = Server(node, Diskless())
    server.start()
    address = await server.listen("127.0.0.1", 0)
    peer = await Peer.client(address)
    front = Front()
    server.connect_local(front.on_message, front.on_close)
    await server.drain()
    assert await peer.until_closed() == [Bye("closed")]
    assert front.heard == [Bye("closed")]
    assert front.ends == ["closed"]
    with pytest.raises(OSError, match="Connect call failed"):
        await Peer.connect(address)
    late = Front()
    assert server.connect_local(late.on_message, late.on_close).closed
    await late.until(lambda: late.ends == ["the server is stopping"])


async def test_draining_does_not_wait_for_ever_for_those_who_take_nothing() -> None:
    node = Saying(pong)
    server = Server(node, Diskless())
    server.start()
    address = await server.listen("127.0.0.1", 0)
    peer = await Peer.client(address)
    (connection,) = server._open
    transport = connection._transport
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"x" * (64 << 20))  # more than the system takes
    await server.drain(patience_s=0.05)
    peer.close()
