"""Two real brokers, of which one cannot read what the other sends: everybody else goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import palio
from palio.errors import Unsettled
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.messages import Message, Route
from palio.protocol.wire import UNREADABLE, Encoder
from palio.routing.general import General
from palio.routing.messages import Batch
from palio.server.journal.journal import Journal
from palio.server.server import Server
from tests.server.helpers import PATIENCE_S


@asynccontextmanager
async def two_brokers(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """Two linked brokers on loopback, `b1` and `b2`, of which the first dials; their URLs."""
    servers: list[Server] = []
    urls: list[str] = []
    for name in ("b2", "b1"):
        journal = Journal(directory / name, name)
        node = Node(name, General(name), journal, settings=Settings(peers=tuple(urls)))
        server = Server(node, journal)
        server.start()
        host, port = await server.listen("127.0.0.1", 0)
        servers.append(server)
        urls.append(f"palio://{host}:{port}")
    servers[1].dial(urls[0])
    try:
        yield urls[1], urls[0]
    finally:
        for server in servers:
            await server.close(patience_s=1.0)


async def test_other_clients_go_on_when_a_neighbour_cannot_read_a_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = Encoder.encode

    def spoilt(self: Encoder, message: Message) -> list[Any]:
        if isinstance(message, Route) and isinstance(message.control, Batch):
            for each in message.control.requests:
                if "666" in str(getattr(each, "filter", "")):
                    return [UNREADABLE]
        return right(self, message)

    monkeypatch.setattr(Encoder, "encode", spoilt)
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        two_brokers(tmp_path) as (near, far),
        palio.connect(near) as bad,
        palio.connect(near) as good,
        palio.connect(far) as publisher,
    ):
        first = await good.subscribe("x > 0")
        await first.settled(patience=PATIENCE_S)
        with caplog.at_level(logging.ERROR, "palio.node"):
            await bad.subscribe("y = 666")
            with pytest.raises(Unsettled, match="b2"):
                await bad.settled(patience=0.0)
            second = await good.subscribe("z > 0")
            await good.settled(patience=0.0)
            await publisher.publish([{"x": 1}, {"z": 1}])
            assert dict(await first.receive()) == {"x": 1}
            assert dict(await second.receive()) == {"z": 1}
    told = [record.message for record in caplog.records]
    assert "cannot_take" in told
    assert "message_refused" in told
