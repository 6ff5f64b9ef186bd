"""ActiveMQ among the systems of `benchmarks.peers`: a broker of its own, and STOMP 1.2 by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.peer_systems.system import (
    Client,
    Hear,
    Move,
    Running,
    System,
    Wanted,
    child,
    decoded,
    encoded,
    free_port,
)

JAR: Final = Path("/usr/share/activemq/bin/activemq.jar")

HOME: Final = JAR.parents[1]

CONFIGURATION: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
  http://activemq.apache.org/schema/core
  http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="localhost"
      dataDirectory="{directory}/data">
    <persistenceAdapter><kahaDB directory="{directory}/data/kahadb"/></persistenceAdapter>
    <transportConnectors>
      <transportConnector name="stomp" uri="{uri}"/>
    </transportConnectors>
  </broker>
</beans>
"""
"""As Debian's, which has no STOMP."""

STOMP: Final = "stomp://127.0.0.1:{port}?transport.tcpNoDelay=true"

EVENTS: Final = "/topic/events"
KEPT: Final = "/queue/kept"


class _Stomp(asyncio.Protocol):
    """Frames of STOMP 1.2, as little work as possible around them."""

    def __init__(self) -> None:
        self.welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hears: dict[bytes, Hear] = {}
        """By the subscription's number."""
        self.acknowledges = False
        self._transport: Any = None
        self._rest = b""
        self._receipts: dict[bytes, asyncio.Future[None]] = {}
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.write(b"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n\n\0")

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self.welcome, *self._receipts.values()):
            if not each.done():
                each.set_exception(exc or ConnectionError("the broker hung up"))

    def write(self, frame: bytes) -> None:
        self._transport.write(frame)

    async def receipt(self, head: str, body: bytes = b"") -> None:
        """Send a frame, and wait until the broker has done what it says."""
        self._asked += 1
        future = asyncio.get_running_loop().create_future()
        self._receipts[str(self._asked).encode()] = future
        self.write(f"{head}\nreceipt:{self._asked}\n\n".encode() + body + b"\0")
        await future

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        rest, start = self._rest + data, 0
        while True:
            while rest[start : start + 1] == b"\n":  # between frames
                start += 1
            end = rest.find(b"\n\n", start)
            if end < 0:
                break
            command, *lines = rest[start:end].split(b"\n")
            heads = dict(line.split(b":", 1) for line in lines)
            body = end + 2
            size = heads.get(b"content-length")
            after = rest.find(b"\0", body) if size is None else body + int(size)
            if after < 0 or after >= len(rest):
                break
            self._frame(command, heads, rest[body:after])
            start = after + 1
        self._rest = rest[start:]

    def _frame(self, command: bytes, heads: Mapping[bytes, bytes], body: bytes) -> None:
        if command == b"MESSAGE":
            hear = self.hears.get(heads[b"subscription"])
            if hear is not None:
                hear(decoded(body))
            if self.acknowledges:
                self.write(b"ACK\nid:" + heads[b"ack"] + b"\n\n\0")
        elif command == b"RECEIPT":
            self._receipts.pop(heads[b"receipt-id"]).set_result(None)
        elif command == b"CONNECTED":
            self.welcome.set_result(None)
        else:
            raise RuntimeError(f"{command!r}: {heads!r} {body[:500]!r}")


class StompClient(Client):
    """Each filter is a subscription with a selector."""

    def __init__(self, stomp: _Stomp) -> None:
        self._stomp = stomp
        self._last = 0

    def _subscribe(self, wanted: Wanted, hear: Hear) -> str:
        self._last += 1
        self._stomp.hears[str(self._last).encode()] = hear
        where = f"id:{self._last}\ndestination:{EVENTS}"
        # Properties are texts in STOMP, and equalities of texts need no conversion.
        selector = f"a = '{wanted.a}' AND b = '{wanted.b}' AND c < {wanted.x}"
        return f"SUBSCRIBE\n{where}\nack:auto\nselector:{selector}"

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        *others, last = (self._subscribe(each, hear) for each in wanted)
        for each in others:
            self._stomp.write(f"{each}\n\n\0".encode())
        await self._stomp.receipt(last)

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        await self.subscribe([wanted], hear)

        async def move(now: Wanted) -> None:
            before = self._last
            frame = self._subscribe(now, hear)
            self._stomp.write(f"UNSUBSCRIBE\nid:{before}\n\n\0".encode())
            await self._stomp.receipt(frame)
            del self._stomp.hears[str(before).encode()]

        return move

    async def send(self, event: dict[str, Any]) -> None:
        body = encoded(event)
        head = (
            f"SEND\ndestination:{EVENTS}\na:{event['a']}\nb:{event['b']}\nc:{event['c']}\n"
            f"content-length:{len(body)}\n\n"
        )
        self._stomp.write(head.encode() + body + b"\0")

    async def keep(self, hear: Hear) -> None:
        self._stomp.hears[b"kept"] = hear
        self._stomp.acknowledges = True
        await self._stomp.receipt(f"SUBSCRIBE\nid:kept\ndestination:{KEPT}\nack:client-individual")

    async def send_durable(self, event: dict[str, Any]) -> None:
        body = encoded(event)
        head = f"SEND\ndestination:{KEPT}\npersistent:true\ncontent-length:{len(body)}"
        await self._stomp.receipt(head, body)

    async def close(self) -> None:
        await self._stomp.receipt("DISCONNECT")
        self._stomp.close()


class ActiveMQ(System):
    name = "ActiveMQ"
    package = "activemq"
    program = "java"
    notes = (
        "Each filter is a selector (SQL), which the broker tests: `a`, `b` and `c` are properties "
        "beside the event as JSON. The client is plain STOMP frames. The broker has `tcpNoDelay`, "
        "as the others have it anyway. Durable: persistent messages of a queue, each synced "
        "(KahaDB); the broker takes those of a connection one after another"
    )

    @classmethod
    def missing(cls) -> str:
        return super().missing() or ("" if JAR.exists() else "activemq is not installed")

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:  # noqa: ARG002  # it always has a store
        port = free_port()
        configuration = directory / "activemq.xml"
        configuration.write_text(
            CONFIGURATION.format(directory=directory, uri=STOMP.format(port=port))
        )
        places = {"home": HOME, "base": directory, "conf": directory, "data": directory / "data"}
        command = (
            "java",
            *("-Xms512M", "-Xmx512M", "-Dorg.apache.activemq.UseDedicatedTaskRunner=true"),
            *(f"-Dactivemq.{name}={place}" for name, place in places.items()),
            *("-jar", str(JAR), "start", f"xbean:file:{configuration}"),
        )
        with child(command, port, directory) as running:
            yield running

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, stomp = await loop.create_connection(_Stomp, host, int(port))
        await stomp.welcome
        return StompClient(stomp)
