from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode

from palio.language.http_events import CURSOR
from palio.server.http.websocket import REFUSED, SUBPROTOCOL
from palio.server.limits import MAX_COMMAND_BYTES
from tests.server.fronts import WAIT_S, broker, event, listening, publish


def address(client: httpx.AsyncClient, path: str) -> str:
    return str(client.base_url).rstrip("/").replace("http://", "ws://") + path


FILTERED = f"/events?filter={quote('x < :limit')}&param.limit=5"


@asynccontextmanager
async def talking(
    path: str = FILTERED, subprotocols: Any = None
) -> AsyncIterator[tuple[httpx.AsyncClient, ClientConnection]]:
    """A client of a broker, and its connection for events."""
    async with (
        broker() as server,
        listening(server) as client,
        connect(address(client, path), subprotocols=subprotocols) as socket,
    ):
        yield client, socket


async def said(socket: ClientConnection) -> Any:
    return json.loads(await asyncio.wait_for(socket.recv(), WAIT_S))


async def answer(socket: ClientConnection, **command: Any) -> Any:
    await socket.send(json.dumps(command))
    return await said(socket)


async def test_messages_are_cloud_events_with_cursors() -> None:
    async with talking(subprotocols=[SUBPROTOCOL]) as (client, socket):
        assert socket.subprotocol == SUBPROTOCOL
        await publish(client, event(1), event(9), event(2))
        first = await said(socket)
        assert first.pop(CURSOR).startswith("s.")
        assert first == event(1)
        assert (await said(socket))["data"] == {"x": 2}


async def test_parameters_change_while_events_come() -> None:
    async with talking() as (client, socket):
        assert (await answer(socket, update={"limit": 10}))["done"] == "update"
        refused = await answer(socket, update={"nothing": 1}, id="a")
        assert "no parameter :nothing" in refused["error"]["message"]
        assert refused["id"] == "a"
        await publish(client, event(9))
        assert (await said(socket))["data"] == {"x": 9}
        assert (await answer(socket, update={"limit": 1}, id=7))["id"] == 7
        await publish(client, event(5), event(0))
        assert (await said(socket))["data"] == {"x": 0}


@pytest.mark.parametrize(("value", "problem"), [("60", "is the text '60'"), (True, "is a boolean")])
async def test_values_that_would_silence_the_stream_are_refused(value: Any, problem: str) -> None:
    async with talking() as (client, socket):
        refused = await answer(socket, update={"limit": value})
        assert problem in refused["error"]["message"]
        await publish(client, event(4))
        assert (await said(socket))["data"] == {"x": 4}


async def test_a_value_in_quotes_is_a_text_in_a_query_too() -> None:
    async with broker() as server, listening(server) as client:
        answer = await client.get(f"/events?filter={quote('x < :limit')}&param.limit='5'")
        assert answer.status_code == 400
        assert "is the text '5'" in answer.text


async def test_the_filter_of_a_connection_is_replaced() -> None:
    async with talking() as (client, socket):
        other = {"filter": "x IN :some", "parameters": {"some": [7, 8]}}
        assert (await answer(socket, replace=other))["done"] == "replace"
        await publish(client, event(1), event(8))
        assert (await said(socket))["data"] == {"x": 8}
        for wrong in ({"filter": "x <"}, {"filter": "x < :y"}, {"file": "x"}, 5):
            assert "error" in await answer(socket, replace=wrong)
        await publish(client, event(1), event(7))
        assert (await said(socket))["data"] == {"x": 7}


async def test_a_kept_subscription_is_not_replaced_by_one_of_its_connections() -> None:
    async with broker() as server, listening(server) as client:
        made = (await client.post("/subscriptions", json={})).json()
        async with connect(address(client, f"/subscriptions/{made['id']}/events")) as socket:
            refused = await answer(socket, replace={"filter": "x > 1"})
            assert f"PUT /subscriptions/{made['id']}" in refused["error"]["message"]


async def test_a_connection_that_breaks_before_any_event_is_resumed_without_a_gap() -> None:
    async with talking() as (client, socket):
        opened = (await answer(socket, update={}))["opened"]
        await socket.close()
        await publish(client, event(1), event(2))
        async with connect(address(client, f"{FILTERED}&cursor={opened}")) as again:
            assert [(await said(again))["data"]["x"] for _ in range(2)] == [1, 2]
            assert (await answer(again, update={}))["opened"] == opened


@pytest.mark.parametrize(
    "command",
    [
        "",
        "[",
        "[]",
        "5",
        '{"update": 5}',
        '{"update": {}, "more": 1}',
        '{"acknowledge": 5}',
        "x" * MAX_COMMAND_BYTES,
    ],
    ids=lambda text: text[:20],
)
async def test_what_is_no_command_is_told_and_the_stream_goes_on(command: str) -> None:
    async with talking() as (client, socket):
        await socket.send(command)
        assert (await said(socket))["error"]["type"] == "InvalidInput"
        await publish(client, event(1))
        assert (await said(socket))["data"] == {"x": 1}


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_commands_are_limited(beyond: int) -> None:
    async with talking() as (client, socket):
        await socket.send('{"update": {"limit": 10}}'.ljust(MAX_COMMAND_BYTES + beyond))
        if beyond > 0:
            with pytest.raises(ConnectionClosed) as ended:
                await socket.recv()
            assert ended.value.rcvd is not None
            assert ended.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG
        else:
            assert (await said(socket))["done"] == "update"
            await publish(client, event(9))
            assert (await said(socket))["data"] == {"x": 9}


async def test_commands_may_come_in_fragments() -> None:
    async with talking() as (client, socket):
        await socket.send([*'{"update": {"limit": 10}}', "", " " * 1_000])
        assert (await said(socket))["done"] == "update"
        await publish(client, event(9))
        assert (await said(socket))["data"] == {"x": 9}


async def test_acknowledging_and_coming_back(tmp_path: Path) -> None:
    config = {"durable": True, "acknowledge": "explicit"}
    async with broker(tmp_path) as server, listening(server) as client:
        made = (await client.post("/subscriptions", json={"config": config})).json()
        path = f"/subscriptions/{made['id']}/events"
        for number in range(3):
            await publish(client, event(number), query="?durable=true")
        async with connect(address(client, path)) as socket:
            cursors = [(await said(socket))[CURSOR] for _ in range(3)]
            assert await answer(socket, acknowledge=cursors[0]) == {"done": "acknowledge"}
        async with connect(address(client, path)) as socket:
            assert (await said(socket))["data"] == {"x": 1}
        async with connect(address(client, f"{path}?cursor={cursors[1]}")) as socket:
            assert (await said(socket))["data"] == {"x": 2}


async def test_the_newest_consumer_of_a_durable_subscription_has_it(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        made = (await client.post("/subscriptions", json={"config": {"durable": True}})).json()
        path = address(client, f"/subscriptions/{made['id']}/events")
        async with connect(path) as first, connect(path) as second:
            await first.wait_closed()
            assert first.close_code == REFUSED
            assert "was taken over by another session" in str(first.close_reason)
            await publish(client, event(1), query="?durable=true")
            assert (await said(second))["data"] == {"x": 1}


@pytest.mark.parametrize("offered", [None, [SUBPROTOCOL], ["other", SUBPROTOCOL]])
@pytest.mark.parametrize(
    "path",
    [
        *("/events", "/subscriptions/none/events", "/events?filter=x+%3C"),
        "/events?filter=x&cursr=1",
        f"/events?filter=x+%3C+%27{quote(chr(233) * 200)}",
        f"/subscriptions/{quote(chr(0x1F600) * 200)}/events",
    ],
)
async def test_a_refusal_says_why(path: str, offered: Any) -> None:
    async with talking(path, offered) as (_, socket):
        assert socket.subprotocol == (SUBPROTOCOL if offered else None)
        with pytest.raises(ConnectionClosed) as ended:
            await socket.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == REFUSED
        assert ended.value.rcvd.reason


@pytest.mark.parametrize(
    ("origin", "token", "heard"),
    [
        ("http://{host}", "", True),
        ("http://evil.example", "", False),
        ("http://evil.example", "&access_token=any", False),  # which nobody looks at
        ("http://[::1", "", False),
        ("null", "", False),
    ],
)
async def test_pages_of_other_sites_hear_nothing_where_nobody_shows_a_token(
    origin: str, token: str, heard: bool
) -> None:
    async with broker() as server, listening(server) as client:
        headers = {"origin": origin.format(host=client.base_url.netloc.decode())}
        path = address(client, FILTERED + token)
        async with connect(path, additional_headers=headers) as socket:
            await publish(client, event(1))
            if heard:
                assert (await said(socket))["data"] == {"x": 1}
            else:
                with pytest.raises(
                    ConnectionClosed, match="may do nothing at a broker that asks for no token"
                ):
                    await socket.recv()


@pytest.mark.parametrize(
    ("allowed", "origin", "opens"),
    [
        ("https://app.example", "https://app.example", True),
        ("https://*.example", "https://app.example", True),
        ("http://localhost:*", "http://localhost:3000", True),
        ("http://localhost:*", "http://localhost.evil.example:3000", False),
        ("https://app.example", "http://app.example", False),
        ("https://*.example", "https://evilexample", False),
        ("*", "null", True),
    ],
)
async def test_pages_of_listed_origins_may_use_a_broker_without_tokens(
    allowed: str, origin: str, opens: bool
) -> None:
    http = {"port": 0, "allowed_origins": [allowed]}
    headers = {"origin": origin, "sec-fetch-site": "cross-site"}
    async with broker() as server, listening(server, http=http) as client:
        answer = await client.post("/subscriptions", json={}, headers=headers)
        assert answer.status_code == (201 if opens else 403)
        granted = answer.headers.get("access-control-allow-origin")
        assert granted == (origin if opens else None)
        asked = headers | {"access-control-request-method": "PUT"}
        preflight = await client.options("/subscriptions/1", headers=asked)
        assert preflight.is_success is opens
        async with connect(address(client, FILTERED), additional_headers=headers) as socket:
            if opens:
                await publish(client, event(1))
                assert (await said(socket))["data"] == {"x": 1}
            else:
                with pytest.raises(ConnectionClosed, match="allowed_origins"):
                    await socket.recv()


async def test_there_is_no_web_socket_elsewhere() -> None:
    async with broker() as server, listening(server) as client:
        for path in ("/nowhere", "/subscriptions", "/healthz"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(address(client, path))
            assert refused.value.response.status_code == 404
            assert b"NotFound" in refused.value.response.body


async def test_deleting_a_subscription_ends_its_connections() -> None:
    async with broker() as server, listening(server) as client:
        made = (await client.post("/subscriptions", json={})).json()
        path = f"/subscriptions/{made['id']}"
        async with connect(address(client, f"{path}/events")) as socket:
            assert (await client.delete(path)).status_code == 204
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(socket.recv(), WAIT_S)


async def test_a_connection_whose_durable_subscription_is_taken_over_is_closed_with_words(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as server, listening(server) as client:
        made = (await client.post("/subscriptions", json={"config": {"durable": True}})).json()
        path = address(client, f"/subscriptions/{made['id']}/events")
        async with connect(path) as older, connect(path) as newer:
            await publish(client, event(1), query="?durable=true")
            assert (await said(newer))["data"] == {"x": 1}
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(older.recv(), WAIT_S)


async def test_acknowledging_and_changing_leave_a_consumer_that_is_opening(tmp_path: Path) -> None:
    """Both use the consumer that is there. They take the subscription over where there is none, and
    must not take it from one that opens at the same moment.
    """
    async with broker(tmp_path) as server, listening(server) as client:
        made = (await client.post("/subscriptions", json={"config": {"durable": True}})).json()
        path = f"/subscriptions/{made['id']}"
        await publish(client, event(0), query="?durable=true")
        async with connect(address(client, f"{path}/events")) as socket:
            cursor = (await said(socket))[CURSOR]
        for number in range(1, 10):
            socket, acknowledged, changed = await asyncio.gather(
                connect(address(client, f"{path}/events?cursor={cursor}")),
                client.post(f"{path}/acknowledge", json={"cursor": cursor}),
                client.put(path, json={"config": {"durable": True}}),
            )
            assert (acknowledged.status_code, changed.status_code) == (204, 200)
            async with socket:
                await publish(client, event(number), query="?durable=true")
                got = await said(socket)
                assert got["data"] == {"x": number}
                cursor = got[CURSOR]
