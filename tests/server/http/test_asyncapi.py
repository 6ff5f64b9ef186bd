from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import WebSocketRoute
from websockets.asyncio.client import connect

from palio.node.authority import OpenAuthority
from palio.server.http import openapi
from palio.server.http.access import Access
from palio.server.http.app import application
from palio.server.http.asyncapi import document
from palio.server.http.subscribers import HttpSubscribers
from palio.server.http.subscriptions import Directory
from palio.server.http.websocket import SUBPROTOCOL
from tests.server.fronts import WAIT_S, asked, broker, event, listening, publish
from tests.server.http.test_openapi import references


async def test_the_channels_are_the_websockets_that_there_are() -> None:
    async with broker() as server:
        access = Access(OpenAuthority(), server.moment)
        delivery = HttpSubscribers(server.connect_local, access, Directory(server.host.keep, {}))
        routes = application(server.connect_local, access, delivery).routes
    there = {route.path for route in routes if isinstance(route, WebSocketRoute)}
    assert {channel["address"] for channel in document()["channels"].values()} == there - {
        "/{path:path}"
    }


def test_references_lead_somewhere() -> None:
    whole = document()
    for reference in references(whole):
        part: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]


def test_the_query_is_that_of_the_route_without_the_columns_of_arrow() -> None:
    query = document()["channels"]["events"]["bindings"]["ws"]["query"]
    assert {*query["properties"]} == {"filter", "cursor"}
    assert query["required"] == ["filter"]
    assert [*query["patternProperties"]] == [r"^param\."]


async def test_messages_are_as_described() -> None:
    payloads = {name: of["payload"] for name, of in document()["components"]["messages"].items()}
    taken = openapi.document()["components"]["schemas"]["Taken"]
    commands = {
        "update": {"least": 2},
        "replace": {"filter": "x > :least", "parameters": {"least": 1}},
        "acknowledge": "d.1.0",
    }
    assert [{"required": [name]} for name in commands] == payloads["command"]["oneOf"]
    assert commands.keys() | {"id"} == payloads["command"]["properties"].keys()
    async with broker() as server, listening(server) as client, asyncio.timeout(WAIT_S):
        url = str(client.base_url).replace("http://", "ws://").rstrip("/")
        address = f"{url}/events?filter=x%20%3E%20:least&param.least=0"
        async with connect(address, subprotocols=[SUBPROTOCOL]) as socket:  # type: ignore[list-item]  # a NewType of str
            for name, content in commands.items():
                await socket.send(json.dumps({"id": 7, name: content}))
                answer = json.loads(await socket.recv())
                assert answer.keys() <= payloads["answer"]["properties"].keys()
                assert ("done" in answer) != ("error" in answer)
                assert answer["id"] == 7
            await publish(client, event(3))
            came = json.loads(await socket.recv())
            assert {*taken["required"]} <= came.keys() <= taken["properties"].keys()


async def test_it_is_at_its_address() -> None:
    async with broker() as server, asked(server) as client:
        assert (await client.get("/asyncapi.json")).json() == document()


PARSE = """
const { Parser } = require("@asyncapi/parser");
new Parser().parse(require("fs").readFileSync(0, "utf8")).then(({ diagnostics }) => {
  console.log(JSON.stringify(diagnostics.filter((found) => found.severity === 0)));
});
"""


async def test_the_parser_of_asyncapi_finds_no_error(tmp_path: Path) -> None:
    """It is looked for where NODE_PATH says."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    program = tmp_path / "parse.cjs"
    program.write_text(PARSE, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        node, str(program), stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    found, failure = await process.communicate(json.dumps(document()).encode())
    if b"Cannot find module" in failure:
        pytest.skip("needs the package @asyncapi/parser of npm in NODE_PATH")
    assert json.loads(found) == [], failure.decode()
