from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pytest

from palio.node.effects import Close, Effect, Send
from palio.protocol.limits import MAX_GREETING_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Bye,
    Deliver,
    Done,
    Failed,
    Failure,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Query,
    Welcome,
)
from palio.protocol.wire import HEAD, Decoder, Encoder, framed
from palio.server import connection_limiter
from palio.server import transport as transport_room
from palio.server.limits import FEW_ROWS, PLAIN_VALUES, WRITE_HIGH_BYTES
from palio.server.scheduler import LoopScheduler
from tests.client.helpers import turns
from tests.server.helpers import (
    PATIENCE_S,
    Peer,
    Scripted,
    hello,
    large,
    parcel,
    publish,
    serving,
    until,
)


def echo(link: int, message: Message) -> Sequence[Effect]:
    match message:
        case Ping():
            return [Send(link, Pong())]
        case Publish():
            return [Send(link, Deliver(message.parcel))]
        case Query(_, "batch", about):
            return [Send(link, Deliver(parcel(1, about)))]
        case Query(id, "many", about):
            return [Send(link, Done(number)) for number in range(about)] + [Send(link, Done(id))]
        case Query(_, "heavy", about):
            heavy = Failed(1, Failure("Weight", "x" * about))
            return [Send(link, heavy)]
        case Query(_, "close", _):
            return [Send(link, Done(1)), Send(link, Bye("closed")), Close(link, "enough")]
    return ()


async def test_frames_in_are_messages_and_messages_out_are_frames() -> None:
    async with serving(Scripted(echo)) as (server, address):
        peer = await Peer.client(address)
        peer.send(Ping(), publish(1, 7, 8))
        await peer.next(Pong)
        delivered = await peer.next(Deliver)
        assert delivered.parcel.batch.to_pydict() == {"x": [7, 8]}
        assert (server.traffic.messages_in, server.traffic.messages_out) == (3, 3)
        assert (server.traffic.events_in, server.traffic.events_out) == (2, 2)
        assert server.traffic.bytes_in > 100
        assert server.traffic.bytes_out > 100
        peer.close()


async def test_frames_may_come_in_any_pieces() -> None:
    async with serving(Scripted(echo)) as (_, address):
        peer = await Peer.connect(address)
        encoder = Encoder()
        data = b"".join(
            bytes(buffer)
            for message in (hello(), Ping(), publish(1, 5), Ping())
            for buffer in encoder.encode(message)
        )
        for place in range(0, len(data), 7):
            peer.send_bytes(data[place : place + 7])
            await asyncio.sleep(0)
        for kind in (Welcome, Pong, Deliver, Pong):
            await peer.next(kind)
        peer.close()


class Counting:
    """A transport that counts calls of the system."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.calls: list[int] = []
        self.close, self.abort = transport.close, transport.abort
        self.is_closing = transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self._write = transport.writelines

    def write(self, buffer: bytes) -> None:
        self.writelines([buffer])

    def writelines(self, buffers: list[bytes]) -> None:
        self.calls.append(len(buffers))
        self._write(buffers)


async def test_what_one_turn_sends_goes_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Scripted(echo)) as (server, address):
        peer = await Peer.client(address)
        (connection,) = server._open
        assert connection._transport is not None
        counting = Counting(connection._transport)
        monkeypatch.setattr(connection, "_transport", counting)
        peer.send(Query(1_000, "many", 500))
        while (await peer.next(Done)).id != 1_000:
            pass
        assert counting.calls == [501]
        peer.close()


# --- turns ---


async def test_what_one_read_brings_is_handed_over_in_its_order_however_short_the_slices() -> None:
    node = Scripted(echo)
    async with serving(node) as (server, address):
        server.scheduler = LoopScheduler(slice_s=0.0)
        talker, other = await Peer.client(address), await Peer.client(address, "bob")
        talker.send(*(Query(number, "many", 0) for number in range(1, 501)))
        other.send(*(Query(number, "many", 0) for number in range(1, 501)))
        for number in range(1, 501):
            assert (await talker.next(Done)).id == number
            assert (await other.next(Done)).id == number
        assert server.scheduler.is_idle
        talker.close()
        other.close()


async def test_one_who_asks_little_is_answered_before_one_who_asks_much() -> None:
    asked: list[int] = []

    def rule(link: int, message: Message) -> Sequence[Effect]:
        if isinstance(message, Query):
            asked.append(link)
        return echo(link, message)

    async with serving(Scripted(rule)) as (server, address):
        server.scheduler = LoopScheduler(slice_s=0.0)
        talker, other = await Peer.client(address), await Peer.client(address, "bob")
        talker.send(*(Query(number, "many", 0) for number in range(1, 2_001)))
        await until(lambda: len(asked) > 5)
        other.send(Query(1, "many", 0))
        await other.next(Done)
        assert len(asked) < 2_000
        while (await talker.next(Done)).id < 2_000:
            pass
        talker.close()
        other.close()


async def test_timers_that_are_due_go_before_the_next_turn() -> None:
    """However long the messages of one read take."""
    order: list[int | str] = []
    now = 100.0

    def rule(link: int, message: Message) -> Sequence[Effect]:
        nonlocal now
        if isinstance(message, Query):
            now += 1.0
            order.append(message.id)
            asyncio.get_running_loop().call_later(0, order.append, "timer")
        return echo(link, message)

    async with serving(Scripted(rule)) as (server, address):
        peer = await Peer.client(address)
        server.scheduler = LoopScheduler(lambda: now)
        peer.send(*(Query(number, "many", 0) for number in range(1, 6)))
        while (await peer.next(Done)).id < 5:
            pass
        assert order[:9] == [1, "timer", 2, "timer", 3, "timer", 4, "timer", 5]
        peer.close()


async def test_who_is_behind_is_not_read_from() -> None:
    async with serving(Scripted(echo)) as (server, address):
        turns = server.scheduler = LoopScheduler(turn_s=0.0)  # nobody's turn ever comes
        peer = await Peer.connect(address)
        peer.send(hello())
        await until(lambda: not turns.is_idle)
        (connection,) = server._open
        for _ in range(20):
            peer.send_bytes(b"x" * 1_000_000)
            await asyncio.sleep(0)
        assert connection._decoder.waiting < 2_000_000
        peer.abort()


async def test_a_connection_that_ends_while_it_is_behind_is_forgotten() -> None:
    node = Scripted(echo)
    async with serving(node) as (server, address):
        server.scheduler = LoopScheduler(slice_s=0.0)
        peer = await Peer.client(address)
        peer.send(*(Query(number, "many", 0) for number in range(1, 101)), Query(0, "close"))
        peer.send(*(Query(number, "many", 0) for number in range(1, 101)))
        with suppress(ConnectionError):  # what came too late was not read
            await peer.until_closed()
        peer.close()
        await until(lambda: server.connections == 0 and server.scheduler.is_idle)
        asked = [call for call in node.calls if call[0] == "receive" and isinstance(call[2], Query)]
        assert len(asked) == 101


class Raising:
    """A transport that raises when it is used after it was closed, as those of uvloop do."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._inner = transport
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True
        self._inner.close()

    def abort(self) -> None:
        self.is_closed = True
        self._inner.abort()

    def _refuse(self, *_: object) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")

    write = writelines = pause_reading = resume_reading = _refuse


async def test_a_transport_that_is_closing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be so before the connection is told: then the node still answers on it."""
    node = Scripted(echo)
    async with serving(node) as (server, address):
        peer = await Peer.client(address)
        (connection,) = server._open
        assert connection._transport is not None
        closing = Raising(connection._transport)
        monkeypatch.setattr(connection, "_transport", closing)
        closing.is_closed = True
        before = server.traffic.bytes_out
        for answer in (Done(1), Done(2)):
            connection.send(answer)
            connection.flush()
        connection.pause_writing()
        connection.resume_writing()
        connection.close(last=Bye("closed"))
        assert server.traffic.bytes_out == before
        peer.close()


# --- the greeting ---


def sized_hello(size: int) -> bytes:
    """A greeting whose frame has a body of so many bytes."""
    for token in range(size):
        message = hello(token="t" * (size - 300 + token))
        (frame,) = Encoder().encode(message)
        if len(frame) == HEAD.size + size:
            return bytes(frame)
    raise AssertionError


@pytest.mark.parametrize(
    ("size", "refused"),
    [
        (MAX_GREETING_BYTES - 1, False),
        (MAX_GREETING_BYTES, False),
        (MAX_GREETING_BYTES + 1, True),
    ],
)
async def test_a_stranger_may_not_say_much(size: int, refused: bool) -> None:
    node = Scripted(echo)
    async with serving(node) as (server, address):
        peer = await Peer.connect(address)
        peer.send_bytes(sized_hello(size))
        if refused:
            (said,) = await peer.until_closed()
            assert isinstance(said, Bye)
            assert "MAX_FRAME_BYTES" in said.reason
            assert server.traffic.illegal == 1
        else:
            await peer.next(Welcome)
        peer.close()


async def test_after_the_greeting_frames_may_be_large() -> None:
    async with serving(Scripted(echo)) as (_, address):
        peer = await Peer.client(address)
        peer.send(Publish(parcel(1, 10_000), 1))
        assert len((await peer.next(Deliver)).parcel) == 10_000
        peer.close()


async def test_whoever_does_not_greet_in_time_is_cut_off() -> None:
    node = Scripted(echo)
    async with serving(node, greeting_s=0.05) as (server, address):
        silent = await Peer.connect(address)
        assert await silent.until_closed() == [Bye("NotAuthenticated", "no greeting came in time")]
        await node.called("lost")
        assert server.traffic.late == 1
        greeted = await Peer.client(address)
        later = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.15, later.set_result, None)
        await later
        greeted.send(Ping())
        await greeted.next(Pong)
        greeted.close()


async def test_whoever_is_dialled_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palio.server.server.ANSWER_S", 0.2)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as dumb:  # it takes connections and says nothing
        async with serving(Scripted(), greeting_s=0.01) as (server, _):
            began = loop.time()
            server.dial(f"palio://127.0.0.1:{dumb.getsockname()[1]}")
            await until(lambda: server.traffic.late == 1)
            assert loop.time() - began > 0.19


# --- endings ---


async def test_bytes_that_are_no_message_end_the_connection_and_nothing_else() -> None:
    node = Scripted(echo)
    async with serving(node) as (server, address):
        other = await Peer.client(address, "other")
        peer = await Peer.client(address)
        peer.send(Ping())
        peer.send_bytes(framed(99, b"abc") + b"more")
        peer.send(Ping())
        said = await peer.until_closed()
        assert [type(each) for each in said] == [Pong, Bye]
        ((_, link, error),) = await node.called("illegal")
        assert "kind 99" in str(error)
        assert link not in server.links
        assert server.traffic.illegal == 1
        other.send(Ping())
        await other.next(Pong)
        other.close()


async def test_a_connection_for_which_a_message_cannot_be_written_is_cut() -> None:
    faults: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(str(context["exception"])))
    node = Scripted(lambda link, _: [Send(link, Answer(1, object())), Send(link, Done(2))])
    async with serving(node) as (server, address):
        peer = await Peer.client(address)
        peer.send(Ping())
        with suppress(ConnectionError):
            assert await peer.until_closed() == []
        await node.called("lost")
        assert not server.links
        peer.close()
    assert faults == ["object does not travel"]


@pytest.mark.parametrize("rows", [3, PLAIN_VALUES // 2])
async def test_a_client_without_arrow_gets_batches_as_values_and_in_order(rows: int) -> None:
    """A large batch is encoded in a thread; what is sent meanwhile waits for it."""
    async with serving(Scripted(echo)) as (_, address):
        peer = await Peer.connect(address)
        peer._decoder = Decoder("the broker", plain=True)
        peer.send(hello(plain=True))
        await peer.next(Welcome)
        peer.send(Query(1, "batch", rows), Ping(), Query(7, "many", 2), Query(1, "batch", 2))
        kinds: list[type[Message]] = [Deliver, Pong, Done, Done, Done, Deliver]
        got = [await peer.next(kind) for kind in kinds]  # passes over what is out of order
        assert [type(each) for each in got] == kinds
        first, *_, last = (each for each in got if isinstance(each, Deliver))
        assert list(first.parcel.rows) == list(parcel(1, rows).rows)
        assert len(last.parcel) == 2
        peer.close()


async def test_what_is_encoded_when_a_connection_ends_is_written_before_the_last_word() -> None:
    async with serving(Scripted(echo)) as (server, address):
        peer = await Peer.connect(address)
        peer._decoder = Decoder("the broker", plain=True)
        peer.send(hello(plain=True))
        await peer.next(Welcome)
        peer.send(Query(1, "batch", PLAIN_VALUES // 2), Query(1, "close"))
        delivered, *rest = await peer.until_closed()
        assert isinstance(delivered, Deliver)
        assert rest == [Done(1), Bye("closed")]
        assert not server.links


async def test_a_connection_that_the_node_closes_still_gets_what_was_sent() -> None:
    node = Scripted(echo)
    async with serving(node) as (server, address):
        peer = await Peer.client(address)
        peer.send(Query(1, "close"), Ping())
        assert await peer.until_closed() == [Done(1), Bye("closed")]
        assert not server.links
        assert not [call for call in node.calls if call[0] == "lost"]


async def test_the_last_word_is_read_whatever_the_other_end_still_says() -> None:
    """A socket that is closed with bytes unread is reset, and what was written is gone."""
    node = Scripted(echo)
    async with serving(node) as (server, address):
        for _ in range(10):
            peer = await Peer.client(address)
            peer.send(Query(1, "close"))
            peer.send_bytes(bytes(4 << 20))
            assert await peer.until_closed() == [Done(1), Bye("closed")]
            peer.close()
        await until(lambda: server.connections == 0)


async def test_who_does_not_close_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_room, "LINGER_S", 0.01)
    async with serving(Scripted(echo)) as (server, address):
        peer = await Peer.client(address)
        peer.send(Query(1, "close"))
        await until(lambda: server.connections == 0)
        peer.close()


async def test_the_node_is_told_of_a_connection_that_broke() -> None:
    node = Scripted(echo)
    async with serving(node) as (server, address):
        peer = await Peer.client(address)
        (link,) = server.links
        peer.close()
        assert await node.called("lost") == [("lost", link)]
        assert server.connections == 0


# --- backpressure ---


@pytest.mark.parametrize("role", ["client", "broker"])
async def test_a_client_that_takes_nothing_is_not_read_from_but_a_broker_is(role: str) -> None:
    node = Scripted(echo)
    async with serving(node) as (_, address):
        peer = await Peer.connect(address)
        peer.send(Hello(role, "slow", PROTOCOL_VERSION))
        await peer.next(Welcome)
        requests = 40
        for _ in range(requests):
            peer.send(Query(1, "heavy", WRITE_HIGH_BYTES))
            await turns(20)
        if role == "broker":
            await node.called("receive", requests + 1)
        else:
            assert len([call for call in node.calls if call[0] == "receive"]) < requests
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(requests):  # what it takes at last
                await peer.next(Failed)
        await node.called("receive", requests + 1)
        peer.close()


# --- room ---


def sized(size: int, rows: int = 1) -> bytes:
    """A publication whose frame has a little more than so many bytes, as it travels."""
    batch = pa.record_batch({"text": ["x" * (size // rows)] * rows})
    encoded = Encoder().encode(Publish(Parcel("", batch), 1))
    return b"".join(bytes(each) for each in encoded)


@pytest.mark.parametrize("role", ["client", "broker"])
async def test_beyond_the_share_of_a_principal_large_frames_wait_unread(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = sized(1 << 20)
    monkeypatch.setattr(connection_limiter, "SHARE_BYTES", 2 * len(frame))
    node = Scripted(echo)
    async with serving(node) as (server, address):
        peers = [await Peer.connect(address) for _ in range(3)]
        for peer in peers:
            node.principals |= dict.fromkeys(server.links, "ann")
            peer.send(Hello(role, "ann", PROTOCOL_VERSION))
            await peer.next(Welcome)
        holders = server.limiter.holders
        assert len(holders) == (1 if role == "client" else 3)
        connections = [*server._open]
        for peer in peers:
            peer.send_bytes(frame[:-1])
        whole = 2 if role == "client" else 3
        await until(lambda: sum(each._decoder.waiting > 1 << 20 for each in connections) == whole)
        await until(lambda: all(each._decoder.announced for each in connections))
        await turns(20)
        waiting = [each for each in connections if each._is_short]
        assert len(waiting) == (1 if role == "client" else 0)
        if role == "client":
            assert waiting[0]._decoder.waiting < len(frame) // 2
            assert len(holders["ann"].waiting) == 1
        for peer in peers:
            peer.send_bytes(frame[-1:])
        for peer in peers:
            await peer.next(Deliver)
        assert server.limiter.size == 0
        for peer in peers:
            peer.close()


async def test_a_frame_that_does_not_end_gives_its_room_back_with_its_connection() -> None:
    async with serving(Scripted(echo)) as (server, address):
        peer = await Peer.client(address)
        peer.send_bytes(sized(1 << 20)[:-1])
        await until(lambda: server.limiter.size > 0)
        peer.abort()
        await until(lambda: server.connections == 0)
        assert server.limiter.size == 0


async def test_a_frame_has_room_until_all_of_it_was_handed_over() -> None:
    node = Scripted()
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, address):
        server.scheduler = LoopScheduler(slice_s=0.0)
        peer = await Peer.client(address)
        peer.send_bytes(sized(1 << 20, PARTS * FEW_ROWS))
        await until(lambda: len(node.taken) > 2)
        assert server.limiter.size >= 1 << 20
        await until(lambda: node.taken[-1][1] is None)
        await until(lambda: server.limiter.size == 0)
        peer.close()


async def test_who_has_to_make_room_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = sized(1 << 20)
    monkeypatch.setattr(connection_limiter, "INTAKE_BYTES", len(frame))
    monkeypatch.setattr(connection_limiter, "YIELD_S", 0.0)
    node = Scripted(echo)
    async with serving(node) as (server, address):
        stalls = await Peer.client(address)
        stalls.send_bytes(frame[:-1])
        await until(lambda: server.limiter.size > 0)
        peer = await Peer.client(address, "bob")
        peer.send_bytes(frame)
        await peer.next(Deliver)
        (bye,) = await stalls.until_closed()
        assert isinstance(bye, Bye)
        assert (bye.code, "INTAKE_BYTES" in bye.reason) == ("LimitExceeded", True)
        assert server.traffic.refused == 1
        await node.called("lost")
        peer.close()


async def test_strangers_that_say_nothing_keep_nobody_out() -> None:
    async with serving(Scripted(echo), max_connections=30) as (server, address):
        known = [await Peer.client(address, f"known{number}") for number in range(3)]
        silent = [await Peer.connect(address) for _ in range(40)]
        for number in range(20):
            honest = await Peer.client(address, f"honest{number}")
            silent.append(await Peer.connect(address))
            honest.send(Ping())
            await honest.next(Pong)
            honest.close()
        assert server.connections <= 30
        assert server.traffic.refused > 30
        for peer in known:
            peer.send(Ping())
            await peer.next(Pong)
        for peer in (*silent, *known):
            peer.abort()


async def test_what_strangers_send_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "STRANGER_BYTES", 3 * MAX_GREETING_BYTES)
    async with serving(Scripted(echo)) as (server, address):
        strangers = [await Peer.connect(address) for _ in range(4)]
        for peer in strangers:
            peer.send_bytes(sized_hello(MAX_GREETING_BYTES)[:-1])
        await until(lambda: server.traffic.refused == 1)
        assert server.limiter.stranger_bytes == 3 * MAX_GREETING_BYTES
        for peer in strangers:
            peer.send_bytes(sized_hello(MAX_GREETING_BYTES)[-1:])
        welcomed = 0
        for peer in strangers:
            with suppress(ConnectionError):
                await peer.next(Welcome)
                welcomed += 1
            peer.close()
        assert (welcomed, server.limiter.stranger_bytes) == (3, 0)


# --- large messages ---

PARTS = 200


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (FEW_ROWS, [None]),
        (FEW_ROWS + 1, [FEW_ROWS, None]),
        (2 * FEW_ROWS, [FEW_ROWS, None]),
        (2 * FEW_ROWS + 1, [FEW_ROWS, 2 * FEW_ROWS, None]),
    ],
)
async def test_a_message_of_many_events_is_handed_over_in_parts(
    rows: int, parts: list[int | None]
) -> None:
    node = Scripted()
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, address):
        peer = await Peer.client(address)
        peer.send(large(rows), Query(1, "then"))
        await node.called("receive", 2 + len(parts))
        assert node.taken == [(rows, until) for until in parts]
        assert server.traffic.events_in == rows
        assert isinstance(node.calls[-1][2], Query)
        peer.close()


async def test_others_get_their_turn_between_two_parts() -> None:
    node = Scripted(lambda link, each: echo(link, each) if isinstance(each, Query) else ())
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, address):
        server.scheduler = LoopScheduler(slice_s=0.0)
        talker, other = await Peer.client(address), await Peer.client(address, "bob")
        talker.send(large(PARTS * FEW_ROWS), Query(7, "many", 0))
        await until(lambda: len(node.taken) > 2)
        other.send(Query(1, "many", 0))
        await other.next(Done)
        assert len(node.taken) < PARTS
        assert (await talker.next(Done)).id == 7
        assert [each for _, each in node.taken] == [
            *range(FEW_ROWS, PARTS * FEW_ROWS, FEW_ROWS),
            None,
        ]
        talker.close()
        other.close()


async def test_the_rest_of_a_message_is_dropped_when_its_connection_breaks() -> None:
    node = Scripted()
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (server, address):
        server.scheduler = LoopScheduler(slice_s=0.0)
        peer = await Peer.client(address)
        (connection,) = server._open
        peer.send(large(PARTS * FEW_ROWS))
        await until(lambda: len(node.taken) > 2)
        connection.connection_lost(None)
        await node.called("lost")
        await until(lambda: server.scheduler.is_idle)
        assert node.calls[-1][0] == "lost"
        assert 2 < len(node.taken) < PARTS
        connection.abort()
        peer.close()


async def test_nothing_more_is_handed_over_of_a_message_once_its_connection_is_closed() -> None:
    def refuse(link: int, message: Message) -> Sequence[Effect]:
        is_second = len(node.taken) == 2
        return [Close(link, "enough")] if isinstance(message, Publish) and is_second else ()

    node = Scripted(refuse)
    async with serving(node, rows_at_once=lambda: FEW_ROWS) as (_, address):
        peer = await Peer.client(address)
        peer.send(large(10 * FEW_ROWS))
        await peer.until_closed()
        assert [each for _, each in node.taken] == [FEW_ROWS, 2 * FEW_ROWS]
        peer.close()
