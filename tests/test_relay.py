from __future__ import annotations

import asyncio
import random
import socket
import sys
from pathlib import Path

import pytest

from benchmarks.namespaces import Namespace, why_not
from benchmarks.relay import CHUNK_BYTES, CHUNKS, Relay
from palio import connect
from palio.protocol.addresses import parse_address
from palio.server.settings import Limits, Peers
from tests.server.helpers import PATIENCE_S
from tests.server.test_run import broker, on_disk

DELAY_S = 0.01
EVENTS = 150


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends everything back."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def reach(relay: Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = parse_address(relay.url)
    return await asyncio.open_connection(address.host, address.port)


async def flood(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(bytes(1 << 20))
        await writer.drain()


async def test_bytes_take_their_time_in_both_directions_and_keep_their_order() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Relay(server.sockets[0].getsockname()[1], delay_s=DELAY_S) as relay:
        reader, writer = await reach(relay)
        sent = b"".join(number.to_bytes(4, "big") for number in range(100_000))
        started = asyncio.get_running_loop().time()
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        assert asyncio.get_running_loop().time() - started >= 2 * DELAY_S
        assert (relay.forth_bytes, relay.back_bytes) == (len(sent), len(sent))
        writer.close()


async def test_a_receiver_that_does_not_read_is_felt_by_the_sender() -> None:
    stop = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    async with server, Relay(server.sockets[0].getsockname()[1]) as relay:
        _, writer = await reach(relay)
        room = CHUNK_BYTES * CHUNKS
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flood(writer), 0.5)
        assert relay.forth_bytes < 2 * room
        writer.transport.abort()
        stop.set()


async def test_a_line_that_is_cut_is_broken_until_it_is_mended() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Relay(server.sockets[0].getsockname()[1]) as relay:
        reader, writer = await reach(relay)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        relay.cut()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()
        reader, writer = await reach(relay)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()
        relay.mend()
        reader, writer = await reach(relay)
        writer.write(b"y")
        assert await reader.readexactly(1) == b"y"
        writer.close()


async def test_a_line_that_is_hushed_tells_nothing_until_it_speaks() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Relay(server.sockets[0].getsockname()[1]) as relay:
        reader, writer = await reach(relay)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        relay.hush()
        writer.write(b"y")
        later_reader, later = await reach(relay)
        later.write(b"z")
        for each in (reader, later_reader):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(each.readexactly(1), 0.1)
        relay.speak()
        assert await reader.readexactly(1) == b"y"
        assert await later_reader.readexactly(1) == b"z"
        writer.close()
        later.close()


async def test_a_namespace_is_reached_by_a_relay_and_by_nothing_else(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(f"no namespaces here: {reason}")
    with Namespace() as one, Namespace() as other:
        with other.inside():
            listener = socket.create_server(("127.0.0.1", 0))
        server = await asyncio.start_server(answer, sock=listener)
        port = listener.getsockname()[1]
        async with server:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            async with Relay(port, far=other) as door, Relay(port, near=one, far=other) as way:
                reader, writer = await reach(door)
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
                writer.close()
                inside = tmp_path / "inside.py"
                inside.write_text(
                    "import socket, sys\n"
                    "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
                    "s.sendall(b'z')\nprint(s.recv(1).decode(), end='')\n"
                )
                address = parse_address(way.url)
                process = await asyncio.create_subprocess_exec(
                    *one.launcher,
                    sys.executable,
                    str(inside),
                    str(address.port),
                    stdout=asyncio.subprocess.PIPE,
                )
                said, _ = await process.communicate()
                assert said == b"z"


# --- bits that flip ---


class Flips:
    """Flips a bit after every so many bytes."""

    def __init__(self, draw: random.Random, every: int) -> None:
        self.flipped = 0
        self.is_on = False
        self._draw = draw
        self._every = every
        self._left = every

    def __call__(self, data: bytes) -> bytes:
        self._left -= len(data)
        if not self.is_on or not data or self._left > 0:
            return data
        self._left = self._draw.randrange(self._every, 2 * self._every)
        spoilt = bytearray(data)
        spoilt[self._draw.randrange(len(spoilt))] ^= 1 << self._draw.randrange(8)
        self.flipped += 1
        return bytes(spoilt)


async def test_bits_that_flip_on_the_way_alter_no_event_and_end_nobody(
    seed: int, tmp_path: Path
) -> None:
    """A client, a broker, a link and a broker, with damage on both ways between them."""
    flips = Flips(random.Random(seed), 3_000)
    limits = Limits(heartbeat_s=1.0)
    async with (
        broker("b1", broker=on_disk(tmp_path / "b1"), limits=limits) as (_, first),
        Relay(first[1], spoil=flips) as between,
        broker(
            "b2",
            broker=on_disk(tmp_path / "b2", "b2"),
            limits=limits,
            peers=Peers(urls=(between.url,)),
        ) as (_, second),
        Relay(second[1], spoil=flips) as at_home,
        connect(f"palio://127.0.0.1:{first[1]}", name="p") as publisher,
        connect(at_home.url, name="s") as subscriber,
    ):
        heard = await subscriber.subscribe("EXISTS number", durable_name="all")
        await heard.settled()
        flips.is_on = True
        for number in range(EVENTS):
            await publisher.publish({"number": number, "text": f"{number}" * 30}, durable=True)
        async with asyncio.timeout(PATIENCE_S):
            events = [await heard.receive() for _ in range(EVENTS)]
    assert [(each["number"], each["text"]) for each in events] == [
        (number, f"{number}" * 30) for number in range(EVENTS)
    ]
    assert flips.flipped >= 3  # a busy machine sends fewer, longer pieces
