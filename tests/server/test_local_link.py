from __future__ import annotations

from collections.abc import Sequence

import pytest

from palio.node.effects import Close, Effect, Send
from palio.protocol.messages import Bye, Done, Message, Ping, Pong, Publish, Settle, Welcome
from palio.server.journal.journal import Diskless
from palio.server.limits import FEW_ROWS
from palio.server.scheduler import LoopScheduler
from palio.server.server import Server
from tests.server.helpers import Front, Peer, Scripted, hello, large, pong, serving, until


async def test_a_front_is_a_client_without_a_socket() -> None:
    node = Scripted(pong)
    async with serving(node) as (server, _):
        front = Front()
        link = server.connect_local(front.on_message, front.on_close)
        link.send(hello())
        link.send(Ping())
        assert front.heard == []  # never while `send` runs
        await front.until(lambda: len(front.heard) == 2)
        assert isinstance(front.heard[0], Welcome)
        assert ("accept", link.number, "") in node.calls
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


# --- large messages ---

PARTS = 200


async def test_a_message_of_many_events_is_handed_over_in_parts_and_in_order() -> None:
    node = Scripted(pong)
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, _):
        front = Front()
        link = server.connect_local(front.on_message)
        rows = 2 * FEW_ROWS + 1
        link.send(large(rows))
        link.send(large(FEW_ROWS))
        link.send(large(rows))
        link.send(Ping())
        await front.until(lambda: len(front.heard) == 1)
        parts = [FEW_ROWS, 2 * FEW_ROWS, None]
        assert node.taken == [
            *((rows, part) for part in parts),
            (FEW_ROWS, None),
            *((rows, part) for part in parts),
        ]
        assert node.calls[-1][2] == Ping()
        assert server.traffic.events_in == 2 * rows + FEW_ROWS
        assert server.traffic.messages_in == 4


async def test_others_get_their_turn_between_two_parts_of_what_a_front_says() -> None:
    node = Scripted(pong)
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, _):
        server.scheduler = LoopScheduler(slice_s=0.0)
        front, other = Front(), Front()
        talker = server.connect_local(front.on_message)
        talker.send(large(PARTS * FEW_ROWS))
        talker.send(Ping())
        server.connect_local(other.on_message).send(Ping())
        await other.until(lambda: len(other.heard) == 1)
        assert len(node.taken) < PARTS
        await front.until(lambda: len(front.heard) == 1)
        assert [each for _, each in node.taken] == [
            *range(FEW_ROWS, PARTS * FEW_ROWS, FEW_ROWS),
            None,
        ]


async def test_nothing_more_is_handed_over_by_a_link_that_the_node_closed() -> None:
    def rule(link: int, message: Message) -> Sequence[Effect]:
        is_third = isinstance(message, Publish) and len(node.taken) == 3
        return [Close(link, "enough")] if is_third else ()

    node = Scripted(rule)
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, _):
        server.scheduler = LoopScheduler(slice_s=0.0)
        front = Front()
        link = server.connect_local(front.on_message, front.on_close)
        link.send(large(PARTS * FEW_ROWS))
        link.send(Ping())
        await front.until(lambda: bool(front.ends))
        await until(lambda: server.scheduler.is_idle)
        assert len(node.taken) == 3
        assert link.closed


async def test_what_a_front_said_before_it_left_is_handed_over_and_nothing_told() -> None:
    node = Scripted(pong)
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, _):
        server.scheduler = LoopScheduler(slice_s=0.0)
        front = Front()
        link = server.connect_local(front.on_message, front.on_close)
        link.send(large(PARTS * FEW_ROWS))
        link.send(Ping())
        link.send(Bye("closed"))
        link.close()
        link.send(Ping())
        assert link.closed
        await node.called("lost")
        assert [each for _, each in node.taken][-1] is None
        assert [type(call[2]) for call in node.calls[-3:-1]] == [Ping, Bye]
        assert (front.heard, front.ends) == ([], [])
        assert server.scheduler.is_idle


async def test_a_fault_of_the_node_keeps_nothing_of_what_waits() -> None:
    def rule(link: int, message: Message) -> Sequence[Effect]:
        if isinstance(message, Publish) and len(node.taken) == 3:
            raise RuntimeError("a fault of ours")
        return pong(link, message)

    node = Scripted(rule)
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, _):
        server.scheduler = LoopScheduler(slice_s=0.0)
        front = Front()
        link = server.connect_local(front.on_message)
        link.send(large(5 * FEW_ROWS))
        await until(lambda: len(node.taken) == 5)
        link.send(Ping())
        await front.until(lambda: len(front.heard) == 1)
