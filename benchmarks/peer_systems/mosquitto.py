"""mosquitto among the systems of `benchmarks.peers`: its broker, and MQTT 3.1.1 by hand."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
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

CONFIGURATION: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
"""

WHY_NOT_DURABLE: Final = (
    "it saves what it holds now and then, and syncs nothing that it acknowledges"
)

CONNECT: Final = 0x10
CONNACK: Final = 0x20
PUBLISH: Final = 0x30
SUBSCRIBE: Final = 0x82
SUBACK: Final = 0x90
UNSUBSCRIBE: Final = 0xA2
UNSUBACK: Final = 0xB0
DISCONNECT: Final = 0xE0


def _packet(kind: int, body: bytes) -> bytes:
    size, sizes = len(body), bytearray()
    while size > 127:
        sizes.append(size & 127 | 128)
        size >>= 7
    sizes.append(size)
    return bytes((kind, *sizes)) + body


def _string(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


class _Mqtt(asyncio.Protocol):
    """Packets of MQTT 3.1.1 without receipts (QoS 0), as little work as possible around them."""

    def __init__(self, name: str) -> None:
        self.welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bounds: defaultdict[bytes, list[tuple[int, Hear]]] = defaultdict(list)
        """By topic: what is to be tested here, and who hears it."""
        self._name = name.encode()
        self._transport: Any = None
        self._rest = b""
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        clean, forever = 2, 0
        head = _string(b"MQTT") + struct.pack(">BBH", 4, clean, forever)
        self.write(_packet(CONNECT, head + _string(self._name)))

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self.welcome, *self._answers.values()):
            if not each.done():
                each.set_exception(exc or ConnectionError("the broker hung up"))

    def write(self, packet: bytes) -> None:
        self._transport.write(packet)

    async def ask(self, kind: int, topics: Sequence[bytes]) -> None:
        """Subscribe or unsubscribe, and wait for the answer."""
        self._asked += 1
        self._answers[self._asked] = asyncio.get_running_loop().create_future()
        quality = b"\0" if kind == SUBSCRIBE else b""
        body = b"".join(_string(each) + quality for each in topics)
        self.write(_packet(kind, struct.pack(">H", self._asked) + body))
        await self._answers[self._asked]

    def close(self) -> None:
        self.write(_packet(DISCONNECT, b""))
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        rest, start = self._rest + data, 0
        while len(rest) - start >= 2:
            size, shift, at = 0, 0, start + 1
            while at < len(rest):
                size |= (rest[at] & 127) << shift
                shift += 7
                at += 1
                if rest[at - 1] < 128:
                    break
            else:
                break
            if len(rest) < at + size:
                break
            self._hear(rest[start], rest[at : at + size])
            start = at + size
        self._rest = rest[start:]

    def _hear(self, kind: int, body: bytes) -> None:
        if kind == PUBLISH:
            end = 2 + (body[0] << 8 | body[1])
            event = decoded(body[end:])
            for bound, hear in self.bounds.get(body[2:end], ()):
                if event["c"] < bound:
                    hear(event)
        elif kind == CONNACK:
            self.welcome.set_result(None)
        elif kind in (SUBACK, UNSUBACK):
            self._answers.pop(body[0] << 8 | body[1]).set_result(None)
        else:
            raise RuntimeError(f"a packet {kind:#x}: {body[:500]!r}")


def _topic(a: int, b: int) -> bytes:
    return f"e/{a}/{b}".encode()


class MqttClient(Client):
    """A topic for each pair of equalities; `c < x` is tested here."""

    def __init__(self, mqtt: _Mqtt) -> None:
        self._mqtt = mqtt

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        topics = {_topic(each.a, each.b) for each in wanted}
        for each in wanted:
            self._mqtt.bounds[_topic(each.a, each.b)].append((each.x, hear))
        await self._mqtt.ask(SUBSCRIBE, sorted(topics))

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        here = wanted
        await self.subscribe([wanted], hear)

        async def move(now: Wanted) -> None:
            nonlocal here
            before, here = _topic(here.a, here.b), now
            del self._mqtt.bounds[before]
            left = self._mqtt.ask(UNSUBSCRIBE, [before])
            await asyncio.gather(left, self.subscribe([now], hear))

        return move

    async def send(self, event: dict[str, Any]) -> None:
        body = _string(_topic(event["a"], event["b"])) + encoded(event)
        self._mqtt.write(_packet(PUBLISH, body))

    async def close(self) -> None:
        self._mqtt.close()


class Mosquitto(System):
    name = "mosquitto"
    package = "mosquitto"
    program = "mosquitto"
    cannot = dict.fromkeys(("durable", "durable-64", "groups"), WHY_NOT_DURABLE)
    notes = (
        "A topic for each pair of equalities, and `c < x` is tested by the client, which is plain "
        "MQTT packets without receipts (QoS 0). The broker has `set_tcp_nodelay`, as the others "
        "have it anyway, and no limit of messages that wait (it dropped some)"
    )

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:  # noqa: ARG002  # the interface
        port = free_port()
        configuration = directory / "mosquitto.conf"
        configuration.write_text(CONFIGURATION.format(port=port))
        directory.chmod(0o755)  # it becomes a user of its own where root starts it
        configuration.chmod(0o644)
        with child(("mosquitto", "-c", str(configuration)), port, directory) as running:
            yield running

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, mqtt = await loop.create_connection(lambda: _Mqtt(name), host, int(port))
        await mqtt.welcome
        return MqttClient(mqtt)
