from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from palio.errors import InvalidConfiguration
from palio.server.hosts import Hosts
from palio.server.http.host_check import HostCheck, own_names
from palio.server.http.openapi import document
from palio.server.settings import Configuration
from tests.server.certificates import self_signed
from tests.server.fronts import Source, broker, event, listening, numbers, publish


def names(**sections: Any) -> Hosts:
    return Hosts(own_names(msgspec.convert(sections, Configuration)))


async def passed(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def status(check: HostCheck, *hosts: bytes) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"accept", b"*/*"), *((b"host", each) for each in hosts)]
    await check({"type": "http", "headers": headers}, None, send)  # type: ignore[arg-type]  # not read
    found: int = sent[0]["status"]
    return found


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        *((b"localhost", True), (b"LOCALHOST:7480", True), (b"localhost.", True)),
        *((b"127.0.0.1:1", True), (b"127.9.9.9", True), (b"[::1]:7480", True), (b"[::1]", True)),
        *((b"broker.example:443", True), (b"a.proxied.example", True), (b"10.0.0.7", False)),
        *((b"evil.example", False), (b"evil.example:7480", False), (b"localhost.evil", False)),
        *(
            (b"", False),
            (b"localhost:", False),
            (b"localhost:x", False),
            (b"localhost:999999", False),
        ),
        *(
            (b"localhost@evil", False),
            (b"localhost, evil", False),
            (b"::1", False),
            (b"[::1", False),
        ),
        *((b"localhost/", False), (b" localhost", False), (b"\xff", False), (b"2130706433", False)),
    ],
)
async def test_who_is_called_by_which_name(host: bytes, is_own: bool) -> None:
    check = HostCheck(
        passed, ["localhost", "127.0.0.0/8", "::1", "broker.example", "*.proxied.example"]
    )
    assert await status(check, host) == (204 if is_own else 421)


async def test_there_is_one_host() -> None:
    check = HostCheck(passed, ["localhost"])
    assert await status(check) == 421
    assert await status(check, b"localhost", b"localhost") == 421


def test_a_broker_answers_to_where_it_listens(tmp_path: Path) -> None:
    assert names().name("localhost")
    assert not names().name("192.168.1.5")
    assert names(listen={"host": "192.168.1.5"}).name("192.168.1.5")
    assert names(listen={"host": "b.example"}).name("b.example")
    assert names(http={"allowed_hosts": ["proxied.example"]}).name("proxied.example")
    for everywhere in ("0.0.0.0", "::"):
        assert names(listen={"host": everywhere}).name("192.168.1.5")
        assert names(listen={"host": everywhere}).name("fd00::5")
        assert not names(listen={"host": everywhere}).name("evil.example")
    self_signed(tmp_path, "b.example", "*.b.example")
    certified = names(tls={"cert": str(tmp_path / "cert.pem")})
    assert certified.name("b.example")
    assert certified.name("a.b.example")
    assert not certified.name("evil.example")
    (tmp_path / "cert.pem").write_text("junk")
    with pytest.raises(InvalidConfiguration, match=r"tls\.cert"):
        names(tls={"cert": str(tmp_path / "cert.pem")})


EVIL = {"host": "evil.example:7480", "origin": "http://evil.example:7480"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", "/events?filter=TRUE"), ("POST", "/events"), ("GET", "/subscriptions")),
        *(("GET", "/healthz"), ("GET", "/metrics"), ("GET", "/nowhere"), ("OPTIONS", "/events")),
    ],
)
async def test_a_page_whose_name_leads_here_is_told_nothing(method: str, path: str) -> None:
    async with broker() as server, listening(server) as client:
        answer = await client.request(method, path, headers=EVIL)
        assert answer.status_code == 421
        assert answer.json()["error"]["type"] == "Misdirected"
        assert "http.allowed_hosts" in answer.json()["error"]["message"]


async def test_nor_by_web_socket() -> None:
    async with broker() as server, listening(server) as client:
        url = httpx.URL(client.base_url)
        path = f"ws://evil.example:{url.port}/events?filter=TRUE"
        origin = Origin(EVIL["origin"])
        with pytest.raises(InvalidStatus) as refused:
            await connect(path, host=url.host, port=url.port, origin=origin)
        assert refused.value.response.status_code == 421
        assert b"http.allowed_hosts" in refused.value.response.body


async def test_a_page_of_another_site_makes_no_subscription() -> None:
    """What a browser sends for any page without asking: a POST of plain text."""
    page = {"origin": "http://evil.example", "content-type": "text/plain"}
    async with broker() as server, listening(server) as client:
        answer = await client.post("/subscriptions", content=b"{}", headers=page)
        assert answer.status_code == 403
        assert (await client.get("/subscriptions")).json() == []


OPEN_TO_ALL: Final = ("/", "/healthz", "/readyz", "/openapi.json", "/asyncapi.json", "/palio.js")
"""What says nothing of anybody."""


async def test_a_page_of_another_site_opens_and_changes_nothing_by_what_it_shows_or_links() -> None:
    """An `<img>`, a `<script>`, a form or a link: of no other origin, but of another site."""
    page = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    async with broker() as server, listening(server) as client:
        made = await client.post("/subscriptions", content=b"{}")
        id = made.json()["id"]
        for path, operations in document()["paths"].items():
            if path in OPEN_TO_ALL:
                continue
            for method in operations:
                query = "?filter=TRUE" if (method, path) == ("get", "/events") else ""
                address = path.replace("{id}", id) + query
                answer = await client.request(method, address, headers=page)
                assert answer.status_code == 403, (method, path, answer.text)
        assert [each["id"] for each in (await client.get("/subscriptions")).json()] == [id]
        url = str(client.base_url).replace("http://", "ws://").rstrip("/")
        async with connect(f"{url}/events?filter=TRUE", additional_headers=page) as socket:
            with pytest.raises(ConnectionClosed, match="another site"):
                await socket.recv()


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_the_pages_of_the_broker_and_typed_addresses_are_answered(site: str) -> None:
    async with broker() as server, listening(server) as client:
        client.headers["sec-fetch-site"] = site
        assert (await client.get("/metrics")).status_code == 200
        async with Source(client, "/events?filter=EXISTS id").open() as events:
            await publish(client, event(1))
            assert await numbers(events, 1) == [1]


async def test_a_proxy_on_this_machine_says_by_which_scheme_a_page_came() -> None:
    async with broker() as server, listening(server) as client:
        page = {"origin": str(client.base_url).rstrip("/").replace("http://", "https://")}
        assert (await client.get("/subscriptions", headers=page)).status_code == 403
        page |= {"x-forwarded-proto": "https"}
        assert (await client.get("/subscriptions", headers=page)).status_code == 200


async def test_a_name_that_is_added_is_answered() -> None:
    own = {"port": 0, "allowed_hosts": ["evil.example"]}
    async with broker() as server, listening(server, http=own) as client:
        assert (await client.get("/subscriptions", headers=EVIL)).status_code == 200
        client.headers["host"] = "evil.example"
        assert (await publish(client, event(1)))["accepted"] == 1


@pytest.mark.parametrize("host", [b"", b"host: localhost\r\nhost: localhost\r\n", b"host: a b\r\n"])
async def test_requests_without_one_good_host_are_refused(host: bytes) -> None:
    async with broker() as server, listening(server) as client:
        url = httpx.URL(client.base_url)
        for version in (b"1.0", b"1.1"):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"GET /subscriptions HTTP/%b\r\n%b\r\n" % (version, host))
            writer.write_eof()
            said = await reader.read()
            assert said.split()[1] in (b"400", b"421"), said
            writer.close()
