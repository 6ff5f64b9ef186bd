"""The gate: nothing reaches gRPC that would make it grow, and nothing stands there for ever."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as pf
import pytest
import uvloop

from palio.protocol.limits import MAX_FRAME_BYTES
from palio.server.flight import gate as gate_module
from palio.server.flight.frames import PREFACE
from palio.server.flight.gate import Gate
from palio.server.places import Places
from tests.server.certificates import self_signed
from tests.server.flight.test_access import bearing, people
from tests.server.flight.test_frames import DATA, GREETING, HEADERS, frame, message
from tests.server.flight.test_frames import put as put_frames
from tests.server.flight.test_service import COLUMNS, QUOTES, apart, first, flying, put, ticket
from tests.server.fronts import broker
from tests.server.helpers import until

PATIENCE_S = 20.0
LIMITS = {"limits": {"greeting_s": 0.3}}


def called(*sent: bytes, method: str = "DoPut") -> bytes:
    """A conversation with one call, with headers that gRPC understands."""

    def said(text: str) -> bytes:
        return bytes((len(text),)) + text.encode()

    head = b"\x83\x86\x04" + said(f"/arrow.flight.protocol.FlightService/{method}")
    head += b"\x01" + said("localhost") + b"\0" + said("te") + said("trailers")
    head += b"\0" + said("content-type") + said("application/grpc")
    data = GREETING + frame(HEADERS, head, flags=4, stream=1)
    return data + b"".join(frame(DATA, each, stream=1) for each in sent)


async def opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition("//")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other end hangs up."""
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while data := await reader.read(1 << 16):
                found += data
        except ConnectionError:
            pass
    return found


async def serves(address: str) -> None:
    """An ordinary client is served."""

    def work() -> None:
        with pf.connect(address) as client:
            reader = client.do_get(ticket("TRUE", columns=COLUMNS))
            assert len(reader.schema) == 6
            put(client, QUOTES)
            assert first(reader)["symbol"] == ["IBM", "MSFT", "IBM"]
            reader.cancel()

    await apart(work)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
async def test_a_compressed_batch_is_refused_before_it_is_inflated(codec: Any) -> None:
    batch = pa.record_batch({"s": ["a" * 1_000_000] * 8})
    options = pf.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec))

    def work(address: str) -> None:
        with pf.connect(address) as client:
            for _ in range(2):  # the connection that ends is made anew
                with pytest.raises(pa.ArrowInvalid, match="must not be compressed"):
                    put(client, batch, options=options)

    async with broker() as server, flying(server) as address:
        await apart(work, address)
        await serves(address)


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 100, 40_000_000])
async def test_a_message_beyond_all_measure_is_refused_before_it_comes(size: int) -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            with pytest.raises(pa.ArrowInvalid, match="MAX_FRAME_BYTES"):
                client.do_get(pf.Ticket(b"x" * size)).read_chunk()
            with pytest.raises(pa.ArrowInvalid, match="MAX_FRAME_BYTES"):
                put(client, pa.record_batch({"s": ["a" * size]}), options=bearing("alice"))

    async with broker(authority=people()) as server, flying(server) as address:
        await apart(work, address)


async def test_half_open_connections_do_not_stay() -> None:
    half = (b"", PREFACE[:5], PREFACE, PREFACE + frame(4)[:3], b"GET / HTTP/1.1\r\n\r\n")
    async with broker() as server, flying(server, **LIMITS) as address:
        readers = []
        for number in range(50):
            reader, writer = await opened(address)
            writer.write(half[number % len(half)])
            readers.append((reader, writer))
        for reader, writer in readers:
            await ended(reader)
            writer.close()
        await serves(address)


async def test_a_connection_without_a_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "IDLE_S", 0.3)
    async with broker() as server, flying(server) as address:
        reader, writer = await opened(address)
        writer.write(GREETING)
        assert b"no call came" in await ended(reader)
        writer.close()
        with await apart(pf.connect, address) as client:  # and one with a call stays
            asked = ticket("TRUE", columns=COLUMNS)
            heard = await apart(client.do_get, asked)
            reader, writer = await opened(address)
            writer.write(GREETING)
            assert b"no call came" in await ended(reader)  # of one that came later than the call
            writer.close()
            await serves(address)
            assert (await apart(first, heard))["symbol"] == ["IBM", "MSFT", "IBM"]
            heard.cancel()


async def test_a_message_that_never_ends_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_module, "MESSAGE_S", 0.3)
    monkeypatch.setattr(gate_module, "CLOSE_S", 0.3)
    async with broker() as server, flying(server) as address:
        reader, writer = await opened(address)
        writer.write(called(message(bytes(1_000))[:500]))
        assert b"a message took longer" in await ended(reader)
        writer.close()


async def test_unfinished_messages_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "MAX_UNFINISHED_BYTES", 20_000)
    monkeypatch.setattr(gate_module, "CLOSE_S", 0.3)
    async with broker() as server, flying(server) as address:
        readers = []
        for _ in range(3):
            reader, writer = await opened(address)
            writer.write(called(message(b"\x0a\xff\x7f" + bytes(12_000))[:9_000]))
            readers.append((reader, writer))
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(ended(reader)) for reader, _ in readers],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert b"MAX_UNFINISHED_BYTES" in done.pop().result()
        for _, writer in readers:
            writer.close()
        await serves(address)


async def test_connections_have_a_limit() -> None:
    async with broker() as server, flying(server) as address:
        server.places.most = 3
        ends = [await opened(address) for _ in range(3)]
        for _, writer in ends:
            writer.write(GREETING)
        assert all([await reader.read(1) for reader, _ in ends])
        reader, writer = await opened(address)
        assert await ended(reader) == b""
        writer.close()
        for held, each in ends:
            each.close()
            await ended(held)
        await until(lambda: not server.connections)
        await serves(address)


Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def inside(talk: Talk, path: Path) -> AsyncIterator[None]:
    """What stands for gRPC behind a gate; nothing of it is left afterwards."""
    talks: list[asyncio.Task[None]] = []

    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.create_task(held(reader, writer)))

    server = await asyncio.start_unix_server(begin, path)
    try:
        yield
    finally:
        server.close()
        for each in talks:
            each.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await asyncio.sleep(0)  # in which the loop lets go of the connections


async def test_a_client_that_takes_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gate_module, "STALL_S", 0.3)

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What gRPC would be if it had much to say."""
        with suppress(ConnectionError):
            while True:
                writer.write(frame(6, bytes(8)) * 4_000)
                await writer.drain()

    async with inside(talk, tmp_path / "s"):
        gate = Gate(str(tmp_path / "s"), Places(9), greeting_s=9.0)
        port = await gate.listen("127.0.0.1", 0, None)
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(GREETING)
            await until(lambda: gate.connections == 1)
            await until(lambda: gate.connections == 0)
        gate.stop()


async def test_a_client_that_is_told_to_go_and_takes_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the middle of a frame it is told nothing, and then keeps its place no longer either."""
    monkeypatch.setattr(gate_module, "IDLE_S", 0.2)
    monkeypatch.setattr(gate_module, "CLOSE_S", 0.2)

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(frame(6, bytes((1 << 24) - 1)))
            await writer.drain()

    async with inside(talk, tmp_path / "s"):
        places = Places(9)
        gate = Gate(str(tmp_path / "s"), places, greeting_s=9.0)
        port = await gate.listen("127.0.0.1", 0, None)
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(GREETING)
            await until(lambda: gate.connections == 1)
            await until(lambda: gate.connections == 0)
            assert places.taken == 0
        gate.stop()


async def test_who_does_not_close_is_cut_when_the_gate_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gate_module, "CLOSE_S", 0.2)

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    async with inside(talk, tmp_path / "s"):
        places = Places(9)
        gate = Gate(str(tmp_path / "s"), places, greeting_s=9.0)
        port = await gate.listen("127.0.0.1", 0, None)
        with socket.create_connection(("127.0.0.1", port)) as calling:
            calling.sendall(GREETING + frame(HEADERS, b"\x82", stream=1))
            await until(lambda: gate.connections == 1)
            gate.stop()
            await gate.gone()
            assert (gate.connections, places.taken) == (0, 0)


async def test_noise_harms_nobody(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(seed)
    script = called(*put_frames(None)[:1])
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with broker() as server, flying(server, **LIMITS) as address:
        for _ in range(40):
            data = bytearray(script)
            for _ in range(draw.choice((0, 1, 3, 20))):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            reader, writer = await opened(address)
            writer.write(bytes(data[: draw.randrange(len(data))]))
            writer.write_eof()
            await ended(reader)
            writer.close()
        await serves(address)
        await until(lambda: not server.node.status()["sessions"])
    assert failures == []
    assert [each for each in caplog.records if each.exc_info] == []


def test_it_is_the_same_on_the_loop_that_brokers_run_on() -> None:
    """uvloop reads, pauses and closes in its own way."""

    async def work() -> None:
        await test_half_open_connections_do_not_stay()
        await test_connections_have_a_limit()
        await test_a_compressed_batch_is_refused_before_it_is_inflated("zstd")
        await test_a_message_beyond_all_measure_is_refused_before_it_comes(40_000_000)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


async def test_tls_comes_before_anything(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}

    def work(address: str) -> None:
        with pf.connect(address, tls_root_certs=certificate) as client:
            with pytest.raises(pf.FlightUnauthenticatedError):
                client.do_get(ticket("TRUE")).read_chunk()
            assert put(client, QUOTES, options=bearing("alice"))[0]["level"] == "memory"

    async with (
        broker(authority=people()) as server,
        flying(server, tls=tls, **LIMITS) as address,
    ):
        for sent in (b"", GREETING, b"\x16\x03\x01"):
            reader, writer = await opened(address)
            writer.write(sent)
            await ended(reader)
            writer.close()
        await apart(work, address)
