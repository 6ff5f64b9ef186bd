"""What strangers, and one token without a grant, do to the memory of a broker."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from palio.client.connection import connect
from palio.protocol.limits import MAX_FRAME_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import Hello
from palio.protocol.wire import CONTROL, HEAD
from palio.server.http.access import MAX_BODY_BYTES
from palio.server.keyfiles import create_key, load_private_key
from palio.server.tokens import Claims, sign
from tests.server.worst import UPGRADE, Target, frames, target

MORE_BYTES: Final = 256 << 20
"""By how much all of them together may raise it."""

SENDING_S: Final = 20.0
"""After so long an attacker has sent what the broker takes; a frame that stalls is cut after 15."""

POST: Final = (
    b"POST /events?access_token=%s HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
FRAGMENT: Final = b"\x01\xff" + MAX_BODY_BYTES.to_bytes(8, "big") + bytes(4)


async def send(host: str, port: int, *parts: bytes) -> None:
    """Send as much as is taken, and keep the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(SENDING_S):
            for part in parts:
                writer.write(part)
                await writer.drain()
                if part is parts[0] and b"upgrade" in part:
                    await reader.readuntil(b"\r\n\r\n")
            await reader.read()
    writer.transport.abort()


async def attack(broker: Target, token: str) -> None:
    """Everything at once: frames, bodies and fragments without an end, with the token and none."""
    hello = frames([Hello("client", "eve", PROTOCOL_VERSION, token=token)])
    size = MAX_FRAME_BYTES - 100_000
    frame = HEAD.pack(MAX_FRAME_BYTES, CONTROL, 0) + bytes(size)
    body = bytes(MAX_BODY_BYTES - 1)
    known = POST % (token.encode(), MAX_BODY_BYTES)
    stranger = (POST % (b"none", MAX_BODY_BYTES)).replace(b"localhost", b"evil.example")
    upgrade = UPGRADE % (b"TRUE&access_token=" + token.encode())
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(send(broker.host, broker.port, hello, frame))
            group.create_task(send(broker.host, broker.port, frame[:16_000]))
        for _ in range(150):
            group.create_task(send(broker.host, broker.http, known, body))
            group.create_task(send(broker.host, broker.http, stranger, body))
            group.create_task(send(broker.host, broker.http, upgrade, FRAGMENT, body))
            group.create_task(send(broker.host, broker.http, UPGRADE % b"TRUE", FRAGMENT, body))


@pytest.mark.nightly
async def test_unfinished_input_takes_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    create_key(keys / "own")
    key = load_private_key(keys / "own")
    now = int(time.time())
    eve = sign(Claims("eve", "1", iat=now, exp=now + 600), key)
    ann = sign(
        Claims("ann", "2", iat=now, exp=now + 600, allow_publish="TRUE", allow_subscribe="TRUE"),
        key,
    )
    monkeypatch.setenv("PALIO__AUTH__KEYS", str(keys))
    async with target(tmp_path) as broker, connect(broker.url, name="ann", token=ann) as honest:
        peace = await honest.subscribe("EXISTS peace")
        await honest.publish({"peace": 0})
        await peace.receive()
        before = most = broker.resident_bytes()
        attacking = asyncio.create_task(attack(broker, eve))
        served = 0
        while not attacking.done():
            await honest.publish({"peace": served})
            await peace.receive()
            served += 1
            most = max(most, broker.resident_bytes())
        await attacking
    figures = f"{before >> 20} MiB, then {most >> 20} MiB; {served} events served\n"
    sys.stderr.write(figures)
    assert served > 10
    assert most - before < MORE_BYTES
