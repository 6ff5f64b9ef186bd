"""Every door of a broker process under bytes that mean it harm, and a client that goes on beside.

A stranger, a token without grants and one that may do a little send what is mangled at random. The
broker lives, the client is served, and memory is not filled. A night gives each door minutes.
"""

from __future__ import annotations

import asyncio
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
import msgspec
import pytest

from palio import connect
from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Hello
from palio.protocol.wire import CONTROL, HEAD, framed
from tests.conftest import NIGHTLY
from tests.node.signing import Keyring
from tests.server.test_hostile import FROM_BROKERS, FROM_CLIENTS, frames, mutated, twisted
from tests.server.test_http_fuzz import REQUESTS, UPGRADE, Fuzz
from tests.server.worst import Target, target
from tests.timing import slowness

SECONDS: Final = 240.0 if NIGHTLY else 1.5
ATTACKERS: Final = 4
SILENCE_S: Final = 0.05
"""What has not been answered for so long is waited for no longer."""

WAIT_S: Final = 0.5
"""The longest that the client may wait for an event of its own, where `slowness` is 1."""

CODE_BYTES: Final = 160 << 20
"""The compiled engine, which is loaded once there has been some work."""

GROWTH_BYTES: Final = CODE_BYTES + (256 << 20)
ASK_S: Final = 0.02
PATIENCE_S: Final = 60.0
READ_BYTES: Final = 1 << 16

Mangle = Callable[[random.Random, str], bytes]
"""What one connection sends, drawn for a token (or none)."""


def native(draw: random.Random, token: str) -> bytes:
    """A conversation with messages that say something else, or with bytes that were altered."""
    role = draw.choice(("client", "client", "broker"))
    greeting = Hello(role, "mallory", PROTOCOL_VERSION, token=token, incarnation="1")
    parts = frames(*(FROM_CLIENTS if role == "client" else FROM_BROKERS))
    if draw.random() < 0.5:
        return frames(greeting)[0] + mutated(draw, parts)
    at = draw.choice([at for at, part in enumerate(parts) if part[4] == CONTROL])
    said = msgspec.msgpack.decode(parts[at][HEAD.size :])
    parts[at] = framed(CONTROL, msgspec.msgpack.encode(twisted(draw, said)))
    return b"".join((*frames(greeting), *parts))


def http(draw: random.Random, token: str) -> bytes:
    """A request, drawn or known, with or without something wrong in its bytes."""
    fuzz = Fuzz(draw.randrange(1 << 32))
    if draw.random() < 0.3:
        request = draw.choice(REQUESTS)
    else:
        asked = fuzz.question(["none"])
        headers = b"".join(b"%b: %b\r\n" % each for each in asked["headers"])
        length = b"content-length: %d\r\n" % len(asked["body"])
        path = asked["raw_path"] + b"?access_token=%b&" % token.encode() + asked["query_string"]
        head = b"%b %b HTTP/1.1\r\n" % (asked["method"].encode(), path)
        request = head + headers + length + b"\r\n" + asked["body"]
    return fuzz.mangled(request) if draw.random() < 0.5 else request


def websocket(draw: random.Random, token: str) -> bytes:
    """A handshake, and frames of any kind and of lengths that may lie; some are tiny and many."""
    data = b"GET /events?filter=x%%20%%3E%%201&access_token=%b HTTP/1.1\r\n" % token.encode()
    data += UPGRADE
    if draw.random() < 0.1:
        return data + bytes.fromhex(draw.choice(("898000000000", "008000000000"))) * 20_000
    for _ in range(draw.randrange(12)):
        payload = draw.choice((b'{"update": {"x": 1}}', b"[" * 500, b"\xff\xfe", b"", b"\x03\xe8"))
        length = draw.choice((len(payload), len(payload), 125, 126, 127, draw.randrange(128)))
        head = bytes((draw.choice((0x81, 0x01, 0x80, 0x89, 0x8A, draw.randrange(256))),))
        head += bytes((draw.choice((0x80, 0x80, 0x80, 0)) | length & 127,))
        if length == 126:
            head += struct.pack(">H", draw.choice((len(payload), 65_535)))
        elif length == 127:
            head += struct.pack(">Q", draw.choice((len(payload), 1 << 20, (1 << 63) - 1)))
        data += head + bytes(4) + payload
    return data


DOORS: Final[dict[str, Mangle]] = {"native": native, "http": http, "websocket": websocket}


class Served:
    """A client that publishes for itself, and how long it waited at most for what it published."""

    def __init__(self, client: Client, heard: Subscription) -> None:
        self._client = client
        self._heard = heard
        self.count = 0
        self.waited_s = 0.0

    async def once(self) -> None:
        begun = time.perf_counter()
        async with asyncio.timeout(PATIENCE_S):
            await self._client.publish({"peace": self.count})
            assert (await self._heard.receive())["peace"] == self.count
        self.count += 1
        self.waited_s = max(self.waited_s, time.perf_counter() - begun)

    async def until(self, end: float) -> None:
        while time.monotonic() < end:
            await self.once()
            await asyncio.sleep(ASK_S)


async def attack(address: tuple[str, int], draw: random.Random, mangle: Mangle, token: str) -> None:
    """One connection: send, and read what comes until nothing does."""
    with suppress(ConnectionError):
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(mangle(draw, token))
            with suppress(TimeoutError):
                while await asyncio.wait_for(reader.read(READ_BYTES), SILENCE_S):
                    pass
        finally:
            writer.transport.abort()


async def besiege(broker: Target, door: str, tokens: list[str], seed: int, end: float) -> int:
    """Attack a door until a time; how many connections that were."""
    address = broker.host, broker.port if door == "native" else broker.http
    count = 0

    async def one(number: int) -> None:
        nonlocal count
        draw = random.Random(seed + number)
        while time.monotonic() < end:
            await attack(address, draw, DOORS[door], draw.choice(tokens))
            count += 1

    await asyncio.gather(*(one(number) for number in range(ATTACKERS)))
    return count


@pytest.mark.parametrize("door", DOORS)
async def test_whatever_comes_in_by_a_door_the_broker_lives_and_serves(
    door: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Keyring(tmp_path)
    tokens = [
        "",
        ring.token("nobody"),
        ring.token("little", allow_publish="x > 0", allow_subscribe="x > 0"),
    ]
    monkeypatch.setenv("PALIO__AUTH__KEYS", str(ring.public))
    log = (tmp_path / "log").open("wb")
    async with target(tmp_path, stderr=log) as broker:
        async with connect(broker.url, name="honest", token=ring.free("honest")) as client:
            served = Served(client, await client.subscribe("EXISTS peace"))
            for _ in range(50):  # code is loaded when it is first needed
                await served.once()
            served.waited_s, resident = 0.0, broker.resident_bytes()
            end = time.monotonic() + SECONDS
            count, _ = await asyncio.gather(
                besiege(broker, door, tokens, seed, end), served.until(end)
            )
            growth = broker.resident_bytes() - resident
        assert broker.process.returncode is None
        address = f"http://{broker.host}:{broker.http}/healthz"
        async with httpx.AsyncClient(timeout=PATIENCE_S) as asking:
            assert (await asking.get(address)).json() == {"status": "ok"}
    log.close()
    told = (tmp_path / "log").read_text(encoding="utf-8")
    figures = f"{count} connections, waited {served.waited_s:.3f} s, grew {growth >> 20} MiB"
    sys.stderr.write(f"{door}: {figures} (seed {seed})\n")
    assert "Traceback" not in told, told[-5_000:]
    assert count >= ATTACKERS
    assert growth < GROWTH_BYTES
    assert served.waited_s < WAIT_S * slowness() or not NIGHTLY
