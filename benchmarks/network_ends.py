"""The ends of the network benchmark: broker processes, a raw echo, and a client of bare frames."""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from palio.model.masks import unpack_mask
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Deliver,
    Done,
    Failed,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Refused,
    Settle,
    StreamAck,
    Subscribe,
    Welcome,
)
from palio.protocol.streams import Stream
from palio.protocol.wire import Decoder, Encoder

_COMMAND: Final = "from palio.cli.main import run; run()"

_ECHO: Final = """
import asyncio
try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop
from benchmarks.network_ends import Echo

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main())
"""

_LENGTH: Final = struct.Struct("<I")

PATIENCE_S: Final = 90.0
"""More than anything that is waited for here takes."""


class BrokerProcess(NamedTuple):
    """A broker at work."""

    url: str
    process: int

    @property
    def cpu_s(self) -> float:
        """The CPU time it has taken; NaN where the system does not say."""
        try:
            text = Path(f"/proc/{self.process}/stat").read_text(encoding="ascii")
        except OSError:
            return math.nan
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[str, int]]:
    """A Python process for the time of the block: the first line it prints, and its number."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline(), process.pid
    finally:
        process.kill()
        process.communicate()


def warm() -> None:
    """Have kernels compiled, as an installation has them."""
    command = [sys.executable, "-c", _COMMAND, "warm"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def broker(name: str, *arguments: str) -> Iterator[BrokerProcess]:
    """A broker of its own."""
    listen = ("--name", name, "--listen", "127.0.0.1:0", "--json")
    with _process("-c", _COMMAND, "serve", *listen, *arguments) as (line, process):
        yield BrokerProcess(json.loads(line)["listening"]["palio"], process)


@contextmanager
def echo() -> Iterator[int]:
    """A process that sends back every frame; its port."""
    with echo_process() as (port, _):
        yield port


@contextmanager
def echo_process() -> Iterator[tuple[int, int]]:
    """The same, with the number of the process."""
    with _process("-c", _ECHO) as (line, process):
        yield int(line), process


class Frames(asyncio.Protocol):
    """`u32 length | body`, as little work as possible around it."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        rest = self._rest
        rest += data
        start = 0
        while len(rest) - start >= _LENGTH.size:
            end = start + _LENGTH.size + _LENGTH.unpack_from(rest, start)[0]
            if len(rest) < end:
                break
            self.frame(bytes(memoryview(rest)[start:end]))
            start = end
        del rest[:start]

    def frame(self, data: bytes) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class Echo(Frames):
    """Sends every frame back."""

    def frame(self, data: bytes) -> None:
        self.write(data)


class EchoClient(Frames):
    """Counts the frames that come back, and keeps so many on their way."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0
        self._unsent = 0
        self._data = b""
        self._done: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, port: int) -> EchoClient:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(cls, "127.0.0.1", port)
        return client

    async def exchange(self, size: int, frames: int, *, window: int) -> None:
        """Send so many frames of a size and wait until all are back."""
        self._data = _LENGTH.pack(size) + bytes(size)
        self._left, self._unsent = frames, frames - min(window, frames)
        self._done = asyncio.get_running_loop().create_future()
        self.write(self._data * min(window, frames))
        await self._done

    def frame(self, data: bytes) -> None:  # noqa: ARG002  # it is the one that was sent
        self._left -= 1
        if self._unsent:
            self._unsent -= 1
            self.write(self._data)
        if self._left == 0 and self._done is not None:
            self._done.set_result(None)


class Wire(asyncio.Protocol):
    """A client of bare frames: it costs next to nothing beside the broker that is measured."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._encoder = Encoder()
        self._decoder = Decoder("the broker")
        self._stream = Stream()
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.is_welcome = False
        self.answers = 0
        self.accepted = -1
        self.events = 0
        """Events that came and are wanted."""
        self.problems: list[Message] = []

    @classmethod
    async def connect(cls, url: str, name: str) -> Wire:
        host, _, port = url.removeprefix("palio://").rpartition(":")
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: cls(name), host, int(port))
        wire.send(Hello("client", name, PROTOCOL_VERSION))
        await wire.until(lambda: wire.is_welcome)
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(exc or ConnectionError(f"{self._name}: the broker hung up"))

    def send(self, message: Message) -> None:
        assert self._transport is not None
        self._transport.writelines(self._encoder.encode(message))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when something that came has made a condition true; not later than `PATIENCE_S`,
        and not when the broker has hung up: a benchmark that waits for ever measures nothing.
        """
        if not condition():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, future))
            async with asyncio.timeout(PATIENCE_S):
                await future

    async def subscribe(self, filters: Sequence[str], durable: str = "") -> None:
        """Subscribe them all, and wait until they are in force everywhere."""
        before = self.answers
        for key, text in enumerate(filters):
            self.send(Subscribe(key + 1, key, text, durable=durable))
        self.send(Settle(len(filters) + 1))
        await self.until(lambda: self.answers == before + len(filters) + 1)
        if self.problems:
            raise RuntimeError(f"the broker refused: {self.problems[0]}")

    def publish(self, batch: pa.RecordBatch, first_seq: int, *, durable: bool = False) -> None:
        self.send(Publish(Parcel("", batch), first_seq, durable=durable))

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            self._stream.arrive(message)
            self._hear(message)
        ack = self._stream.ack()
        if ack is not None:
            self.send(StreamAck(ack.count))
        for waiting in list(self._waiting):
            condition, future = waiting
            if future.done():  # given up
                self._waiting.remove(waiting)
            elif condition():
                self._waiting.remove(waiting)
                future.set_result(None)

    def _hear(self, message: Message) -> None:
        match message:
            case Deliver(parcel, rows, key, entry):
                self.events += int(unpack_mask(rows, len(parcel)).sum())
                if entry:
                    self.send(Acknowledge(key, entry))
            case Accepted(seq):
                self.accepted = seq
            case Ping():
                self.send(Pong())
            case Welcome():
                self.is_welcome = True
            case Done():
                self.answers += 1
            case Failed() | Refused():
                self.answers += 1
                self.problems.append(message)
