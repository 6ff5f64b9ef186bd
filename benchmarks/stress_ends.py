"""The other ends of the stress benchmark: clients that sit idle, stop reading, or never greet."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, cast

from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Done, Hello, Message, Ping, Pong, Subscribe, Welcome
from palio.protocol.streams import Stream
from palio.protocol.wire import Decoder, Encoder

End = TypeVar("End", bound="Stranger")

GROUPS: Final = 50
"""The crowd in parts: each bulk is for one, so that no single one keeps the broker for long."""

BULK_ROWS: Final = 400
WANTED_ROWS: Final = 100
"""Of each bulk, for each of its group: so few that they are copied, and nothing is shared."""

RECEIVE_BYTES: Final = 1 << 16

_PONG: Final = b"".join(Encoder().encode(Pong()))
_PING: Final = b"".join(Encoder().encode(Ping()))


def _frames(*messages: Message) -> bytes:
    return b"".join(bytes(each) for message in messages for each in Encoder().encode(message))


def resident_bytes(pid: int) -> int:
    """What a process has in memory now."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [each for each in status.splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def connect(url: str, protocol: Callable[[], End]) -> End:
    """Connect to a broker. What the system keeps for a receiver is small, so that one that does not
    read is felt soon.
    """
    host, _, port = url.removeprefix("palio://").rpartition(":")
    loop = asyncio.get_running_loop()
    there = socket.socket()
    there.setblocking(False)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    await loop.sock_connect(there, (host, int(port)))
    _, found = await loop.create_connection(protocol, sock=there)
    return found


class Stranger(asyncio.Protocol):
    """Connects and says nothing."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        """When the broker hung up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the interface
        """See `asyncio.Protocol`."""
        if not self.ended.done():
            self.ended.set_result(asyncio.get_running_loop().time())


class Idle(Stranger):
    """Greets, and then answers when it is asked whether it is there."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.transport.write(_frames(Hello("client", self._name, PROTOCOL_VERSION)))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if not self.greeted.done():
            (message,) = Decoder("the broker").feed(data)
            assert isinstance(message, Welcome)
            self.greeted.set_result(None)
        elif _PING in data:
            self.transport.write(_PONG)


class Crowded(Stranger):
    """One of a crowd: subscribes to a share of the bulk, and reads it or, if `stalls`, nothing.

    One that stalls goes on to send, so that its broker does not take it for dead, and when it is
    thrown out it comes again as somebody new, as a program that is restarted and stalls again.
    """

    def __init__(self, url: str, number: int, *, stalls: bool) -> None:
        super().__init__()
        self._url = url
        self._number = number
        self._stalls = stalls
        self._decoder = Decoder("the broker")
        self._stream = Stream()
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        group, first = self._number % GROUPS, self._number // GROUPS
        share = f"group = {group} AND bulk BETWEEN {first} AND {first + WANTED_ROWS - 1}"
        hello = Hello("client", f"crowd {self._number}", PROTOCOL_VERSION)
        self.transport.write(_frames(hello, Subscribe(1, 1, share)))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        for message in self._decoder.feed(data):
            self._stream.arrive(message)
            if isinstance(message, Done) and not self.subscribed.done():
                self.subscribed.set_result(None)
                if self._stalls:
                    self.transport.pause_reading()
                    self._ping()
            elif isinstance(message, Ping):
                self.transport.write(_PONG)
        ack = self._stream.ack()
        if ack is not None:
            self.transport.write(_frames(ack))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        _again(self._url, self._number, stalls=self._stalls)

    def _ping(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_PING)
            asyncio.get_running_loop().call_later(1.0, self._ping)


_coming: set[asyncio.Task[Crowded]] = set()


def _again(url: str, number: int, *, stalls: bool) -> None:
    task = asyncio.ensure_future(connect(url, lambda: Crowded(url, number, stalls=stalls)))
    _coming.add(task)
    task.add_done_callback(_coming.discard)


async def _crowd(url: str, count: int, *, stalls: bool) -> None:
    crowd = [
        await connect(url, lambda: Crowded(url, number, stalls=stalls))  # noqa: B023  # called here
        for number in range(count)
    ]
    await asyncio.gather(*(each.subscribed for each in crowd))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_crowd(sys.argv[1], int(sys.argv[2]), stalls=sys.argv[3] == "stalled"))
