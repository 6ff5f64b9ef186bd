"""A broker in this process, for the tests of its fronts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.node.authority import Authority, OpenAuthority
from palio.node.node import Node
from palio.node.settings import Settings
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Router
from palio.server.credentials import load
from palio.server.http.access import Access
from palio.server.http.app import application, serve
from palio.server.http.subscribers import HttpSubscribers
from palio.server.http.subscriptions import Directory
from palio.server.journal.journal import Diskless, Journal
from palio.server.server import Server
from palio.server.settings import Configuration

WAIT_S: Final = 10.0
"""Longer than anything here takes on a busy machine."""

EVENT: Final[dict[str, Any]] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/test",
    "type": "test.done",
    "data": {"x": 5},
}


def event(x: int, **more: Any) -> dict[str, Any]:
    return EVENT | {"id": str(x), "data": {"x": x}} | more


@asynccontextmanager
async def broker(
    directory: Path | None = None,
    *,
    authority: Authority | None = None,
    settings: Settings | None = None,
    router: Callable[[str], Router] = Acyclic,
) -> AsyncIterator[Server]:
    """A broker, with a journal if there is a directory for it."""
    journal = Journal(directory, "b") if directory else Diskless()
    node = Node(
        "b", router("b"), journal, authority=authority or OpenAuthority(), settings=settings
    )
    server = Server(node, journal)
    server.start()
    try:
        async with asyncio.timeout(30):
            await server.flush()
            yield server
    finally:
        await server.stop()


@asynccontextmanager
async def asked(
    server: Server, authority: Authority | None = None, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the front without sockets: for requests that end."""
    access = Access(authority or OpenAuthority(), server.moment)
    delivery = HttpSubscribers(
        server.connect_local, access, Directory(server.host.keep, {}), **options
    )
    app = application(server.connect_local, access, delivery, readiness=server.readiness)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://palio") as client:
        yield client
    await delivery.stop()


@asynccontextmanager
async def listening(
    server: Server, data_dir: str = "", **sections: dict[str, Any]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the front behind a real port of loopback."""
    configuration = msgspec.convert(
        {
            "broker": {"name": "b", "data_dir": data_dir},
            "http": {"port": 0},
        }
        | sections,
        Configuration,
    )
    front = await serve(
        server, configuration, load(configuration).authority, lambda: b"palio_up 1\n"
    )
    try:
        async with httpx.AsyncClient(base_url=front.address, timeout=WAIT_S) as client:
            yield client
    finally:
        await front.stop()


async def publish(client: httpx.AsyncClient, *events: dict[str, Any], query: str = "") -> Any:
    """Publish in one batch; the answer's JSON."""
    response = await client.post(
        f"/events{query}", content=json.dumps(events), headers={"content-type": BATCH_TYPE}
    )
    assert response.status_code == 202, response.text
    return response.json()


async def publish_one(client: httpx.AsyncClient, content: Any, query: str = "") -> httpx.Response:
    return await client.post(
        f"/events{query}", content=json.dumps(content), headers={"content-type": JSON_TYPE}
    )


class Source:
    """A reader of event streams that does what a browser's EventSource does."""

    def __init__(self, client: httpx.AsyncClient, path: str) -> None:
        self.last_id = ""
        self.retry_ms = 0
        """When to return, if the broker said so."""
        self._client = client
        self._path = path

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """Connect (again); gives (type, data) of each event, once the stream has begun."""
        headers = {"accept": "text/event-stream"}
        if self.last_id:
            headers["last-event-id"] = self.last_id
        async with self._client.stream("GET", self._path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = response.aiter_lines()
            assert await anext(lines) == ":"
            yield self._events(lines)

    async def _events(self, lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
        kind, data, id = "message", "", self.last_id
        async for line in lines:
            field, _, value = line.partition(": ")
            match field:
                case "id":
                    id = value
                case "event":
                    kind = value
                case "data":
                    data += value
                case "retry":
                    self.retry_ms = int(value)
                case "":
                    if data:
                        self.last_id = id
                        yield kind, json.loads(data)
                    kind, data = "message", ""
                case _:
                    assert line == ":"


async def numbers(events: AsyncIterator[tuple[str, Any]], count: int) -> list[int]:
    """`data.x` of the next events."""
    found: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            kind, document = await anext(events)
            assert kind == "message", document
            found.append(document["data"]["x"])
    return found
