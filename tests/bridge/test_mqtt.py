"""The adapter at a real mosquitto."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt import client as paho

from palio.bridge.links import Message
from palio.bridge.mqtt import connect
from palio.errors import Unreachable
from tests.bridge import servers

pytestmark = pytest.mark.xdist_group("mosquitto")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.mqtt(tmp_path_factory.mktemp("mosquitto")) as server:
        yield f"mqtt://127.0.0.1:{server.port}"


async def test_a_session_keeps_messages_and_what_is_not_acknowledged_comes_again(url: str) -> None:
    async with connect(url, "keeps", "a/+"):
        pass
    async with connect(url, "b", "") as link:
        assert await link.send([Message(f"a/{n}", b"%d" % n, f"p/{n}") for n in range(40)]) == (
            [""] * 40
        )
    for is_acked in (False, True):
        taken = list[Message]()
        async with connect(url, "keeps", "a/+") as link:
            while len(taken) < 40:
                messages = await link.take()
                taken += messages
                if is_acked:
                    await link.ack(messages)
        assert [(each.id, each.body) for each in taken] == [
            (f"p/{n}", b"%d" % n) for n in range(40)
        ]


class Narrow:
    """A broker that takes two messages at once, and acknowledges once it has both."""

    def __init__(self) -> None:
        self.most_at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data, unacked = b"", list[bytes]()
        while read := await reader.read(1 << 16):
            data += read
            while len(data) > 1 and len(data) >= 2 + data[1]:  # all packets here are short
                kind, body, data = data[0] >> 4, data[2 : 2 + data[1]], data[2 + data[1] :]
                if kind == 1:  # CONNECT, answered by CONNACK with Receive Maximum 2
                    writer.write(b"\x20\x06\0\0\x03\x21\0\x02")
                elif kind == 3:  # PUBLISH
                    topic = int.from_bytes(body[:2], "big")
                    unacked.append(body[2 + topic : 4 + topic])
            self.most_at_once = max(self.most_at_once, len(unacked))
            if len(unacked) >= 2:
                writer.write(b"".join(b"\x40\x02" + number for number in unacked))
                unacked.clear()
        writer.close()


async def test_no_more_is_under_way_than_the_broker_allows() -> None:
    narrow = Narrow()
    async with await asyncio.start_server(narrow.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"mqtt://127.0.0.1:{port}", "b", "") as link:
            assert await link.send([Message("a", b"", str(n)) for n in range(10)]) == [""] * 10
    assert narrow.most_at_once == 2


async def test_a_topic_with_a_wildcard_is_refused(url: str) -> None:
    async with connect(url, "b", "") as link:
        assert await link.send([Message("a/#", b""), Message("a/1", b"")]) == [
            "Publish topic cannot contain wildcards.",
            "",
        ]


async def test_a_subscription_that_was_not_sent_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unsent = (paho.MQTT_ERR_NO_CONN, None)
    monkeypatch.setattr(paho.Client, "subscribe", lambda *_, **__: unsent)
    async with await asyncio.start_server(Narrow().serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match="not currently connected"):
            async with connect(f"mqtt://127.0.0.1:{port}", "unsent", "a"):
                pass


async def test_a_server_that_is_away_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        async with connect("mqtt://127.0.0.1:1", "b", ""):
            pass


async def test_a_server_that_is_killed_is_unreachable(tmp_path: Path) -> None:
    with servers.mqtt(tmp_path) as server:
        async with (
            connect(f"mqtt://127.0.0.1:{server.port}", "b", "") as sender,
            connect(f"mqtt://127.0.0.1:{server.port}", "b", "a") as reader,
        ):
            server.kill()
            with pytest.raises(Unreachable):
                await reader.take()
            with pytest.raises(Unreachable):
                await sender.send([Message("a", b"x")])
        server.start()
