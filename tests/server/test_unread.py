"""Real brokers in a line, of which one asks what the next cannot read: nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import palio
from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol import wire
from palio.routing.general import General
from palio.server.journal.journal import Journal
from palio.server.server import Server
from tests.server.helpers import PATIENCE_S


@asynccontextmanager
async def three_brokers(directory: Path) -> AsyncIterator[tuple[list[Node], list[str]]]:
    """`b1`, `b2` and `b3` in a line on loopback."""
    servers: list[Server] = []
    nodes: list[Node] = []
    urls: list[str] = []
    for name in ("b1", "b2", "b3"):
        journal = Journal(directory / name, name)
        node = Node(name, General(name), journal, settings=Settings(peers=tuple(urls[-1:])))
        server = Server(node, journal)
        server.start()
        host, port = await server.listen("127.0.0.1", 0)
        for url in urls[-1:]:
            server.dial(url)
        servers.append(server)
        nodes.append(node)
        urls.append(f"palio://{host}:{port}")
    try:
        yield nodes, urls
    finally:
        for server in servers:
            await server.close(patience_s=1.0)


def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker can read an operator that another one names."""

    def parse(text: str) -> Any:
        if "LIKE" in text:
            raise InvalidInput("what is LIKE?")
        return parse_filter(text)

    monkeypatch.setattr(wire, "parse_filter", parse)


async def test_nothing_is_lost_where_a_broker_cannot_read_a_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    older(monkeypatch)
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        three_brokers(tmp_path) as (nodes, urls),
        palio.connect(urls[0]) as client,
        palio.connect(urls[2]) as publisher,
    ):
        plain = await client.subscribe("x > 0")
        newer = await client.subscribe("name LIKE 'a%z'")
        with caplog.at_level(logging.WARNING, "palio.node"):
            await client.settled(timeout=PATIENCE_S)
        await publisher.publish([{"x": 1}, {"name": "abcz"}, {"name": "no"}, {"y": 7}])
        assert dict(await plain.receive()) == {"x": 1}
        assert dict(await newer.receive()) == {"name": "abcz"}

        def routed() -> int:
            return int(nodes[1].status()["routed"])

        assert routed() == 4, "the middle one was sent all"
        await newer.replace("name = 'b'")
        await client.settled(timeout=PATIENCE_S)
        await publisher.publish([{"name": "abcz"}, {"y": 7}, {"name": "b"}])
        assert dict(await newer.receive()) == {"name": "b"}
        assert routed() == 5
        await newer.unsubscribe()
        await client.settled(timeout=PATIENCE_S)
        await publisher.publish([{"name": "b"}, {"x": 2}])
        assert dict(await plain.receive()) == {"x": 2}
        assert routed() == 6
        told = [record.message for record in caplog.records]
        assert "filter_unreadable" in told
        assert "peer_down" not in told
