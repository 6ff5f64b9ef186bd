from __future__ import annotations

import pytest

from palio.node.effects import Close, Send
from palio.protocol.messages import Bye, Done, Message, Ping, Pong, Settle, Welcome
from palio.server.journal.journal import Diskless
from palio.server.server import Server
from tests.server.helpers import Front, Peer, Scripted, hello, pong, serving


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


async def test_a_front_is_told_that_the_server_has_stopped() -> None:
    server = Server(Scripted(), Diskless())
    server.start()
    front, gone = Front(), Front()
    server.connect_local(front.on_message, front.on_close)
    server.connect_local(gone.on_message, gone.on_close).close()
    await server.stop()
    await front.until(lambda: bool(front.ends))
    assert (front.ends, gone.ends) == (["the server is stopping"], [])
