"""A client of frames, events to publish, and a node that says what its test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from palio.errors import IllegalMessage
from palio.model.events import stamped
from palio.multicast.datagrams import Datagram
from palio.node.authority import ANYONE, Principal
from palio.node.effects import Answered, Close, Effect, Moment, Send
from palio.node.operations import Append, Operation, Put, Record, Releasing, Target
from palio.node.readiness import Readiness
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Bye,
    Done,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Share,
    Subscribe,
    Welcome,
)
from palio.protocol.wire import Decoder, Encoder
from palio.server.journal.journal import Diskless
from palio.server.local_client import InternalClient, Receipt
from palio.server.server import Server

AnyMessage = TypeVar("AnyMessage")

PATIENCE_S: Final = 20.0
"""How long a test waits for what must come; none waits so long unless it fails."""


def batch(first: int = 1, rows: int = 3) -> pa.RecordBatch:
    """Events as a broker keeps them."""
    numbers = np.arange(first, first + rows)
    return stamped(pa.RecordBatch.from_pydict({"x": numbers}), first, 1_700_000_000_000_000)


def parcel(first: int = 1, rows: int = 3, publisher: str = "alice") -> Parcel:
    return Parcel(publisher, batch(first, rows))


def put(entry: int, home: str = "b2", subject: str = "bob/d", *, rows: int = 3) -> Put:
    """An entry that waits for one durable subscription."""
    target = Target(home, entry, (Share(subject, 1, None),))
    return Put(entry, parcel(entry * 100, rows), 1_000 + entry, (target,))


def publish(first: int, *values: int, durable: bool = False) -> Publish:
    return Publish(
        Parcel("", pa.RecordBatch.from_pydict({"x": list(values)})), first, durable=durable
    )


def large(rows: int) -> Publish:
    return publish(1, *range(rows))


class Peer:
    """The other end of a connection, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._encoder, self._decoder = Encoder(), Decoder("the broker")
        self._read: list[Message] = []

    @classmethod
    async def connect(cls, address: tuple[str, int], **options: Any) -> Peer:
        return cls(*await asyncio.open_connection(*address, **options))

    @classmethod
    async def client(cls, address: tuple[str, int], name: str = "alice", **options: Any) -> Peer:
        peer = await cls.connect(address, **options)
        peer.send(hello(name))
        await peer.next(Welcome)
        return peer

    def send(self, *messages: Message) -> None:
        for message in messages:
            self._writer.writelines(bytes(each) for each in self._encoder.encode(message))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def next(self, kind: type[AnyMessage]) -> AnyMessage:
        """The next message of a kind; others before it are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self._read:
                    message = self._read.pop(0)
                    if isinstance(message, kind):
                        return message
                data = await self._reader.read(1 << 16)
                if not data:
                    raise ConnectionError("the broker has closed the connection")
                self._read += self._decoder.feed(data)

    async def until_closed(self) -> list[Message]:
        """What comes before the connection ends."""
        async with asyncio.timeout(PATIENCE_S):
            while data := await self._reader.read(1 << 16):
                self._read += self._decoder.feed(data)
        self.close()
        return self._read

    async def subscribe(self, filter: str, key: int = 1, durable: str = "") -> None:
        self.send(Subscribe(key, key, filter, durable=durable))
        await self.next(Done)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """End at once, whatever is not yet written."""
        self._writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what nothing tells of, such as a counter of this process: look after every turn of
    the loop, for nothing else changes it.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # a turn, no time
            await asyncio.sleep(0)


async def publish_by(
    client: InternalClient, batch: pa.RecordBatch, *, durable: bool = False
) -> Receipt:
    """Publish a batch through a front's session."""
    (receipt,) = await client.publish_all([batch], durable=durable)
    return receipt


def hello(name: str = "alice", **fields: Any) -> Hello:
    return Hello("client", name, PROTOCOL_VERSION, **fields)


Rule = Callable[[int, Message], Sequence[Effect]]


class Scripted:
    """A node that welcomes everybody and otherwise does what its test says."""

    name = "scripted"

    def __init__(self, rule: Rule = lambda _, __: ()) -> None:
        self.rule = rule
        self.wake_at = inf
        self.principals: dict[int, str] = {}
        """Who is at the other end of links, where that matters."""
        self.calls: list[tuple[Any, ...]] = []
        self.changed = asyncio.Event()

    @property
    def taken(self) -> list[tuple[int, int | None]]:
        """What was handed in of publications: how many events each has, and up to where."""
        return [
            (len(call[2].parcel), call[3])
            for call in self.calls
            if call[0] == "receive" and isinstance(call[2], Publish)
        ]

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        self.changed.set()

    async def called(self, name: str, times: int = 1) -> list[tuple[Any, ...]]:
        """Wait until it was called so often; the calls."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = [call for call in self.calls if call[0] == name]
                if len(found) >= times:
                    return found
                self.changed.clear()
                await self.changed.wait()

    def start(self, at: Moment) -> Sequence[Effect]:
        self._note("start", at)
        return ()

    def accept(self, link: int, at: Moment, principal: str = "") -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("accept", link, principal)
        return ()

    def dial(
        self,
        link: int,
        at: Moment,  # noqa: ARG002  # the interface
        peer: str = "",
        url: str = "",  # noqa: ARG002  # the interface
    ) -> Sequence[Effect]:
        self._note("dial", link, peer)
        return [Send(link, Hello("broker", self.name, PROTOCOL_VERSION))]

    def unreachable(self, url: str, reason: str, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("unreachable", url, reason)
        return ()

    def reachable_at(self, url: str, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("reachable_at", url)
        return ()

    def receive(
        self,
        link: int,
        message: Message,
        at: Moment,  # noqa: ARG002  # the interface
        *,
        up_to: int | None = None,
    ) -> Sequence[Effect]:
        self._note("receive", link, message, up_to)
        if isinstance(message, Hello):
            return [Send(link, Welcome(self.name, f"s{link}", resumed=False, received=0))]
        return self.rule(link, message)

    def illegal(self, link: int, error: IllegalMessage, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("illegal", link, error)
        return [Send(link, Bye("IllegalMessage", error.reason)), Close(link, error.reason)]

    def lost(self, link: int, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("lost", link)
        return ()

    def receive_datagram(self, datagram: Datagram, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("receive_datagram", datagram)
        return ()

    def stored(self, ticket: int, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("stored", ticket)
        return ()

    def failed(self, ticket: int, reason: str, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("failed", ticket, reason)
        return ()

    def writable(self, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("writable")
        return ()

    def tick(self, at: Moment) -> Sequence[Effect]:
        self._note("tick", at)
        self.wake_at = inf
        return ()

    def principal(self, link: int) -> Principal:
        return Principal(self.principals.get(link, ANYONE))

    is_leaving = False
    is_free_to_go = True

    def keep(
        self,
        record: Record,
        answered: Answered,
        at: Moment,  # noqa: ARG002  # the interface
    ) -> Sequence[Effect]:
        self._note("keep", record)
        answered(None)
        return ()

    def leave(self, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        return ()

    def close(self, at: Moment) -> Sequence[Effect]:  # noqa: ARG002  # the interface
        self._note("close")
        return ()

    def status(self) -> dict[str, Any]:
        return {}

    def readiness(self) -> Readiness:
        return Readiness()


def pong(link: int, message: Message) -> Sequence[Effect]:
    return [Send(link, Pong())] if isinstance(message, Ping) else []


class Changing:
    """What others wait for: `changed` is set whenever something about it is new."""

    def __init__(self, patience_s: float | None = None) -> None:
        self.changed = asyncio.Event()
        self._patience_s = patience_s

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it is as it shall be."""
        async with asyncio.timeout(self._patience_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Front(Changing):
    """What a front heard on its link."""

    def __init__(self) -> None:
        super().__init__(PATIENCE_S)
        self.heard: list[Message] = []
        self.ends: list[str] = []

    def on_message(self, message: Message) -> None:
        self.heard.append(message)
        self.changed.set()

    def on_close(self, reason: str) -> None:
        self.ends.append(reason)
        self.changed.set()


@asynccontextmanager
async def serving(node: Scripted, **options: Any) -> AsyncIterator[tuple[Server, tuple[str, int]]]:
    """A scripted node behind a real socket."""
    server = Server(node, Diskless(), **options)
    server.start()
    address = await server.listen("127.0.0.1", 0)
    try:
        yield server, address
    finally:
        await server.stop()
        await asyncio.sleep(0)  # the ends that tests have closed close


def append(
    ticket: int, *operations: Operation, term: int = 0, released: tuple[Releasing, ...] = ()
) -> Append:
    return Append(ticket, term, operations, released)


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)
