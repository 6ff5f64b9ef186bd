"""Advertisements by HTTP, and what an identity hears cancelled by it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx
import pytest

from palio.model.filters import TRUE
from palio.node.authority import Principal
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Ended, Hello, Message, Subscribe, Withdraw
from palio.routing.advertised import Advertised
from palio.server.http import advertising
from palio.server.local_link import LocalLink
from palio.server.server import Server
from tests.server.fronts import EVENT, asked, broker, event, publish_one
from tests.server.http.test_app import Tokens, bearer

ENVELOPE: Final = " AND ".join(f"EXISTS {name}" for name in EVENT if name != "data")


async def put(client: httpx.AsyncClient, path: str, **body: Any) -> httpx.Response:
    return await client.put(f"/advertisements/{path}", json=body)


async def statuses(client: httpx.AsyncClient, *xs: int, query: str = "?as=ann") -> list[int]:
    """What is answered to events."""
    return [(await publish_one(client, event(x), query)).status_code for x in xs]


def acting(server: Server, heard: list[Message], identity: str = "ann") -> LocalLink:
    """A client that acts under an identity."""
    link = server.connect_local(heard.append, lambda _reason: None)
    link.send(Hello("client", "native", PROTOCOL_VERSION, identity=identity))
    return link


async def test_what_is_advertised_by_http_is_published_under_that_identity() -> None:
    async with broker(router=Advertised) as server, asked(server) as client:
        assert await statuses(client, 1) == [409]
        text = f"{ENVELOPE} AND x > :least"
        made = await put(client, "a?as=ann", filter=text, parameters={"least": 0})
        assert (made.status_code, made.json()["id"], made.json()["lease_s"]) == (201, "a", 3600)
        assert made.json()["filter"].endswith("AND x > 0")
        assert await statuses(client, 1, -1) == [202, 409]
        assert await statuses(client, 1, query="?as=bob") == [409]
        again = await put(client, "a?as=ann", filter=text, parameters={"least": 5}, lease_s=60)
        assert (again.status_code, again.json()["lease_s"]) == (200, 60)
        assert await statuses(client, 1, 6) == [409, 202]
        assert (await client.get("/advertisements?as=ann")).json() == [again.json()]
        assert (await client.get("/advertisements?as=bob")).json() == []
        gone = await client.delete("/advertisements/a?as=ann")
        assert gone.status_code == 204
        assert await statuses(client, 6) == [409]
        for path in ("a?as=ann", "a?as=bob"):
            assert (await client.delete(f"/advertisements/{path}")).status_code == 404
        assert (await client.get("/advertisements?as=ann")).json() == []


async def test_all_that_a_filter_covers_is_withdrawn_whoever_announced_it() -> None:
    async with broker(router=Advertised) as server, asked(server) as client:
        for name, least in (("low", 0), ("high", 5)):
            await put(client, f"{name}?as=ann", filter=f"{ENVELOPE} AND x > {least}")
        gone = await client.delete(
            "/advertisements",
            params={"as": "ann", "filter": f"{ENVELOPE} AND x > :x", "param.x": "3"},
        )
        assert gone.status_code == 204
        assert [each["id"] for each in (await client.get("/advertisements?as=ann")).json()] == [
            "low"
        ]
        native = acting(server, [])
        native.send(Withdraw(1, f"{ENVELOPE} AND EXISTS x"))
        assert await statuses(client, 9) == [409]
        assert (await client.get("/advertisements?as=ann")).json() == []
        made = await put(client, "low?as=ann", filter=f"{ENVELOPE} AND x > 0")
        assert made.status_code == 201
        assert await statuses(client, 9) == [202]
        native.close()


async def test_an_advertisement_ends_with_its_lease() -> None:
    async with broker(router=Advertised) as server, asked(server) as client:
        text = f"{ENVELOPE} AND x > 0"
        await put(client, "a?as=ann", filter=text, lease_s=0.05)
        while await statuses(client, 1) == [202]:
            pass  # each answer takes some turns of the loop
        assert (await client.get("/advertisements?as=ann")).json() == []
        await put(client, "a?as=ann", filter=text, lease_s=0.05)
        await put(client, "a?as=ann", filter=text, lease_s=600)
        over = asyncio.get_running_loop().time() + 0.1
        while asyncio.get_running_loop().time() < over:
            assert await statuses(client, 1) == [202]


async def test_requests_at_once_for_one_name_leave_one_advertisement() -> None:
    async with broker(router=Advertised) as server, asked(server) as client:
        texts = [f"{ENVELOPE} AND x > {least}" for least in range(5)]
        made = await asyncio.gather(*(put(client, "a?as=ann", filter=text) for text in texts))
        assert sorted(each.status_code for each in made) == [200, 200, 200, 200, 201]
        assert len((await client.get("/advertisements?as=ann")).json()) == 1
        assert await statuses(client, 9) == [202]
        await client.delete("/advertisements/a?as=ann")
        assert await statuses(client, 9) == [409]
        assert server.node.status()["sessions"] == 2  # an advertiser and a publisher


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("a", {"filter": "x > 0"}, "InvalidInput"),
        ("a?as=b/c", {"filter": "x > 0"}, "InvalidInput"),
        ("a?as=ann&x=1", {"filter": "x > 0"}, "InvalidInput"),
        ("%0a?as=ann", {"filter": "x > 0"}, "InvalidInput"),
        ("a?as=ann", {}, "InvalidInput"),
        ("a?as=ann", {"filter": "x >"}, "ParseError"),
        ("a?as=ann", {"filter": "x > 0 THEN x > 1"}, "InvalidFilter"),
        ("a?as=ann", {"filter": "x IN :y", "parameters": {"y": [[1]]}}, "InvalidBinding"),
        ("a?as=ann", {"filter": "x > :y"}, "InvalidBinding"),
        ("a?as=ann", {"filter": "x > 0", "parameters": {"y": 1}}, "InvalidBinding"),
        ("a?as=ann", {"filter": "x > 0", "parameters": {"y": {}}}, "InvalidInput"),
        ("a?as=ann", {"filter": "x > 0", "lease_s": -1}, "InvalidInput"),
        ("a?as=ann", {"filter": "x > 0", "other": 1}, "InvalidInput"),
    ],
)
async def test_what_is_wrong_is_said(path: str, body: dict[str, Any], kind: str) -> None:
    async with broker(router=Advertised) as server, asked(server) as client:
        refused = await put(client, path, **body)
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == kind
        assert server.node.status()["sessions"] == 0


async def test_where_routing_asks_for_no_advertisements_that_is_said() -> None:
    async with broker() as server, asked(server) as client:
        for _ in range(2):
            refused = await put(client, "a?as=ann", filter="x > 0")
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "NotSupported")
        assert (await client.get("/advertisements?as=ann")).json() == []


async def test_what_is_refused_leaves_what_was_before() -> None:
    some = Tokens({"ann": Principal("ann", TRUE, TRUE), "b": Principal("b", TRUE, TRUE)})
    async with broker(router=Advertised, authority=some) as server, asked(server, some) as client:
        client.headers.update(bearer("ann"))
        refused = await put(client, "a?as=b", filter="x > 0")
        assert refused.status_code == 403
        assert "may not act as 'b'" in refused.json()["error"]["message"]
        assert (await put(client, "a?as=ann", filter=f"{ENVELOPE} AND EXISTS x")).is_success
        client.headers.update(bearer("b"))
        assert (await client.get("/advertisements?as=ann")).status_code == 403


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_advertisers_are_limited_and_idle_ones_forgotten(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(advertising, "MAX_ADVERTISERS", most)
    async with broker(router=Advertised) as server, asked(server) as client:
        answers = [await put(client, f"a?as={name}", filter="x > 0") for name in ("a", "b")]
        assert [each.status_code for each in answers] == ([201, 413] if most == 1 else [201, 201])
        if most == 1:
            assert answers[1].json()["error"]["limit"] == "MAX_ADVERTISERS"
            await client.delete("/advertisements/a?as=a")
            assert (await put(client, "a?as=b", filter="x > 0")).status_code == 201


async def test_what_an_identity_hears_is_cancelled_by_http() -> None:
    async with broker() as server, asked(server) as client:
        heard: list[Message] = []
        native = acting(server, heard)
        for key, text in enumerate(("x > 5", "x > 6", "y > 5", "x > 5 THEN y > 5")):
            native.send(Subscribe(key, key, text))
        query = {"as": "ann", "filter": "x > :low", "param.low": "3"}
        ended = await client.delete("/subscriptions", params=query)
        assert (ended.status_code, ended.json()) == (200, {"cancelled": 2})
        assert [each.keys for each in heard if isinstance(each, Ended)] == [(0, 1)]
        query = {"as": "ann", "filter": "x > 3 THEN TRUE", "forget": "true"}
        assert (await client.delete("/subscriptions", params=query)).json() == {"cancelled": 1}
        for wrong in (
            {"filter": "x > 3"},
            {"as": "ann"},
            {"as": "ann", "filter": "x > :y"},
            {"as": "ann", "filter": "x > 1", "param.y": "1"},
            {"as": "ann", "filter": "x > 1", "forget": "perhaps"},
        ):
            assert (await client.delete("/subscriptions", params=wrong)).status_code == 400
        native.close()
