from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_structured_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import palio
from palio.errors import InvalidConfiguration
from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.model.filters import FALSE, TRUE
from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.node.authority import NamedAuthority, OpenAuthority, Principal
from palio.node.effects import Moment
from palio.node.settings import Settings
from palio.protocol.messages import Bye, Welcome
from palio.server.http.access import MAX_BODY_BYTES
from palio.server.http.app import serve
from palio.server.http.publishing import MAX_BATCH_EVENTS
from palio.server.keyfiles import create_key, load_private_key
from palio.server.run import Running, running
from palio.server.settings import Configuration
from palio.server.tokens import Claims, revoke, sign
from tests.server.certificates import self_signed
from tests.server.fronts import (
    EVENT,
    WAIT_S,
    Source,
    asked,
    broker,
    event,
    listening,
    numbers,
    publish,
    publish_one,
)
from tests.server.helpers import Peer, hello, until


class Tokens(NamedAuthority):
    """Principals by token, as plain as can be."""

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        return super().authenticate("", token or transport_name, at)


def tokens() -> Tokens:
    small = palio.parse("x < 10")
    assert isinstance(small, palio.Filter)
    return Tokens(
        {
            "alice": Principal("alice", TRUE, TRUE),
            "bob": Principal("bob", small, small),
            "mute": Principal("mute", FALSE, TRUE),
            "deaf": Principal("deaf", TRUE, FALSE),
            "ops": Principal("ops", FALSE, FALSE, may_monitor=True),
        }
    )


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


# --- publishing ---


async def test_the_three_modes_of_publishing() -> None:
    async with broker() as server, listening(server) as client:
        source = Source(client, "/events?filter=EXISTS id")
        async with source.open() as events:
            one = await publish_one(client, event(1))
            assert one.status_code == 202
            assert one.json() | {"publisher": ""} == {
                "accepted": 1,
                "level": "memory",
                "publisher": "",
                "first_seq": 1,
                "last_seq": 1,
            }
            many = await publish(client, event(2), event(3))
            assert (many["accepted"], many["first_seq"], many["last_seq"]) == (2, 2, 3)
            headers = {f"ce-{key}": value for key, value in EVENT.items() if key != "data"}
            binary = await client.post(
                "/events", content=b'{"x": 4}', headers=headers | {"content-type": "text/json"}
            )
            assert binary.status_code == 202
            assert await numbers(events, 4) == [1, 2, 3, 4]


async def test_the_sdk_publishes_and_reads() -> None:
    made = CloudEvent(
        attributes={
            "id": "7",
            "source": "/sdk",
            "type": "sdk.made",
            "specversion": "1.0",
            "time": datetime(2026, 1, 31, 12, tzinfo=UTC),
            "datacontenttype": "application/json",
            "myext": "a b",
        },
        data={"x": 1, "tags": ["a", None]},
    )
    async with (
        broker() as server,
        listening(server) as client,
        Source(client, "/events?filter=source = '/sdk'").open() as events,
    ):
        for message in (to_binary_event(made), to_structured_event(made)):
            answer = await client.post(
                "/events", content=message.body, headers=dict(message.headers)
            )
            assert answer.status_code == 202, answer.text
            _, document = await anext(events)
            read = from_structured_event(
                HTTPMessage({"content-type": JSON_TYPE}, json.dumps(document).encode())
            )
            assert read.get_attributes() == made.get_attributes()
            assert read.get_data() == made.get_data()


async def test_durable_is_said_when_it_is(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        assert (await publish(client, event(1), query="?durable=true"))["level"] == "durable"
        assert (await publish(client, event(2), query="?durable=false"))["level"] == "memory"
        assert (await publish(client, event(3), query="?durable=home"))["level"] == "home"
        wrong = await client.post("/events?durable=maybe")
        assert wrong.status_code == 400


async def test_events_of_several_shapes_keep_their_order() -> None:
    async with (
        broker() as server,
        listening(server) as client,
        Source(client, "/events?filter=EXISTS x").open() as events,
    ):
        mixed = [event(n, myext=n if n % 2 else str(n)) for n in range(20)]
        assert (await publish(client, *mixed))["accepted"] == 20
        assert await numbers(events, 20) == list(range(20))


@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        ({}, b"{}", 400, "InvalidEvent"),
        ({"content-type": "application/json"}, b"7", 400, "InvalidEvent"),
        ({"content-type": JSON_TYPE}, b"{", 400, "InvalidInput"),
        ({"content-type": JSON_TYPE}, b"\xff", 400, "InvalidInput"),
        ({"content-type": JSON_TYPE}, b"[" * 50_000, 400, "InvalidInput"),
        ({"content-type": JSON_TYPE}, b"[" * 100_000, 413, "LimitExceeded"),
        (
            {
                **{f"ce-{name}": "1.0" for name in ("specversion", "id", "source", "type")},
                "content-type": "application/json",
            },
            b"[" + b"[]," * 50_000 + b"1]",
            413,
            "LimitExceeded",
        ),
        ({"content-type": BATCH_TYPE}, b"[" + b"[]," * 50_000 + b"1]", 400, "InvalidEvent"),
        ({"content-type": JSON_TYPE}, b"{}", 400, "InvalidEvent"),
        ({"content-type": BATCH_TYPE}, b"{}", 400, "InvalidEvent"),
        ({"content-type": BATCH_TYPE}, b"[{}]", 400, "InvalidEvent"),
        ({"ce-specversion": "0.3"}, b"", 400, "InvalidEvent"),
    ],
)
async def test_bad_bodies_are_told(
    headers: dict[str, str], body: bytes, status: int, kind: str
) -> None:
    async with broker() as server, asked(server) as client:
        answer = await client.post("/events", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


async def test_an_error_in_a_batch_names_the_event() -> None:
    async with broker() as server, asked(server) as client:
        bad = json.dumps([event(1), EVENT | {"id": ""}])
        answer = await client.post("/events", content=bad, headers={"content-type": BATCH_TYPE})
        assert answer.status_code == 400
        assert "event 1 of the batch: " in answer.json()["error"]["message"]


@pytest.mark.parametrize("extra", [0, 1])
async def test_texts_of_an_event_are_limited_and_of_a_request_all_are_looked_at(extra: int) -> None:
    async with broker() as server, asked(server) as client:
        # A text counts as an attribute and within the CloudEvent.
        size = MAX_EVENT_TEXT_BYTES // 2 - (0 if extra else 1_000)
        long = EVENT | {"data": {"text": "a" * size}}
        body = json.dumps([EVENT | {"data": {"x": 1}}, long])
        answer = await client.post("/events", content=body, headers={"content-type": BATCH_TYPE})
        assert answer.status_code == (413 if extra else 202), answer.text
        assert server.node.status()["published"] == (0 if extra else 2)
        if extra:
            assert answer.json()["error"]["limit"] == "MAX_EVENT_TEXT_BYTES"


@pytest.mark.parametrize("said", [True, False])
async def test_bodies_are_limited(said: bool) -> None:
    def parts(size: int) -> Any:
        async def flow() -> Any:
            yield b" " * size

        return b" " * size if said else flow()

    async with broker() as server, asked(server) as client:
        for size, status in ((-1, 400), (0, 400), (1, 413)):
            answer = await client.post(
                "/events", content=parts(MAX_BODY_BYTES + size), headers={"content-type": JSON_TYPE}
            )
            assert answer.status_code == status
            if status == 413:
                assert answer.json()["error"]["limit"] == "MAX_BODY_BYTES"


async def test_batches_are_limited() -> None:
    async with broker() as server, asked(server) as client:
        for count, status in (
            (MAX_BATCH_EVENTS - 1, 202),
            (MAX_BATCH_EVENTS, 202),
            (MAX_BATCH_EVENTS + 1, 413),
        ):
            answer = await client.post(
                "/events",
                content=json.dumps([EVENT] * count),
                headers={"content-type": BATCH_TYPE},
            )
            assert answer.status_code == status
    async with broker() as server, asked(server) as client:
        empty = await client.post("/events", content="[]", headers={"content-type": BATCH_TYPE})
        assert (empty.status_code, empty.json()) == (202, {"accepted": 0})


# --- authority ---


async def test_who_shows_nothing_is_not_let_in() -> None:
    async with broker(authority=tokens()) as server, asked(server, tokens()) as client:
        for headers in ({}, bearer("eve"), {"authorization": "Basic YTpi"}):
            answer = await client.get("/subscriptions", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["type"] == "NotAuthenticated"
        assert (await client.get("/subscriptions", headers=bearer("alice"))).status_code == 200
        assert (await client.get("/subscriptions?access_token=alice")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


async def test_nobody_publishes_beyond_a_grant() -> None:
    async with broker(authority=tokens()) as server, asked(server, tokens()) as client:
        batch = bearer("bob") | {"content-type": BATCH_TYPE}
        part = await client.post(
            "/events", content=json.dumps([event(1), event(20), event(2)]), headers=batch
        )
        assert part.status_code == 207
        assert part.json()["accepted"] == 2
        (refused,) = part.json()["refused"]
        assert (refused["first_seq"], refused["last_seq"]) == (2, 2)
        assert refused["error"]["type"] == "NotPermitted"
        none = await client.post("/events", content=json.dumps([event(20)]), headers=batch)
        assert (none.status_code, none.json()["error"]["type"]) == (403, "NotPermitted")


async def test_nobody_hears_beyond_a_grant() -> None:
    async with broker(authority=tokens()) as server, asked(server, tokens()) as client:
        beyond = {"filters": [{"palio": "x > 10"}]}
        answer = await client.post("/subscriptions", json=beyond, headers=bearer("bob"))
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "NotPermitted")
        streamed = await client.get("/events?filter=x>10", headers=bearer("bob"))
        assert streamed.status_code == 403


async def test_subscriptions_are_their_owners_own() -> None:
    async with broker(authority=tokens()) as server, asked(server, tokens()) as client:
        made = await client.post("/subscriptions", json={}, headers=bearer("alice"))
        address = f"/subscriptions/{made.json()['id']}"
        for request in (client.get, client.delete):
            assert (await request(address, headers=bearer("mute"))).status_code == 404
        assert (await client.get("/subscriptions", headers=bearer("mute"))).json() == []
        assert len((await client.get("/subscriptions", headers=bearer("alice"))).json()) == 1


# --- for those who run it ---


async def test_health_metrics_topology_and_description() -> None:
    async with broker() as server, listening(server) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        ready = {"status": "ready", "reasons": [], "warnings": []}
        assert (await client.get("/readyz")).json() == ready
        measured = await client.get("/metrics")
        assert measured.text == "palio_up 1\n"
        assert measured.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "b" in (await client.get("/topology")).json()["brokers"]
        assert (await client.get("/openapi.json")).json()["openapi"] == "3.1.0"


async def test_a_broker_that_stops_is_not_ready() -> None:
    async with broker() as server, asked(server) as client:
        await server.close()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"][0]["code"]) == (503, "draining")
        assert (await publish_one(client, EVENT)).status_code == 503


async def test_only_those_who_may_monitor_are_told_which_peers_are_away() -> None:
    settings = Settings(peers=("palio://far",))
    async with (
        broker(authority=tokens(), settings=settings) as server,
        asked(server, tokens()) as client,
    ):
        for headers, is_told in (({}, False), (bearer("bob"), False), (bearer("ops"), True)):
            answer = await client.get("/readyz", headers=headers)
            assert (answer.status_code, "palio://far" in answer.text) == (503, is_told)


async def test_other_addresses_and_methods_are_told_in_the_same_form() -> None:
    async with broker() as server, asked(server) as client:
        nowhere = await client.get("/nowhere")
        assert (nowhere.status_code, nowhere.json()["error"]["type"]) == (404, "NotFound")
        assert (await client.get("/subscriptions/none")).status_code == 404
        refused = await client.delete("/events")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")
        assert refused.json()["error"] == {
            "type": "MethodNotAllowed",
            "message": "this address takes GET, HEAD, POST, not DELETE",
        }


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("POST", "/events?durabel=true", "'durabel'; there are durable"),
        ("GET", "/events?filter=x&cursr=1", "'cursr'; there are filter, cursor, param.NAME"),
        ("GET", "/events?filter=x&parameter.y=1", "'parameter.y'"),
        ("GET", "/subscriptions?limit=1", "'limit'; this address takes none"),
        ("POST", "/subscriptions?durable=true", "'durable'"),
        ("GET", "/subscriptions/a?x=1", "'x'"),
        ("GET", "/subscriptions/a/events?filter=x", "'filter'; there are cursor"),
        ("POST", "/subscriptions/a/acknowledge?cursor=1", "'cursor'"),
        ("GET", "/topology?x=1", "'x'"),
    ],
)
async def test_a_slip_in_a_query_is_told(method: str, path: str, told: str) -> None:
    async with broker() as server, asked(server) as client:
        answer = await client.request(method, path, content=b"{}")
        assert answer.status_code == 400
        message = answer.json()["error"]["message"]
        assert message.startswith("the query has an unknown parameter ")
        assert told in message


async def test_a_body_that_is_packed_is_not_read() -> None:
    async with broker() as server, asked(server) as client:
        headers = {"content-type": JSON_TYPE, "content-encoding": "gzip"}
        answer = await client.post("/events", content=b"\x1f\x8b", headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (415, "Encoded")
        headers = {"content-type": JSON_TYPE, "content-encoding": "identity"}
        plain = await client.post("/events", content=json.dumps(EVENT), headers=headers)
        assert plain.status_code == 202


@pytest.mark.parametrize(
    ("durable", "body", "told"),
    [
        (False, {"cursor": "1"}, "this subscription is not durable"),
        (True, {}, "missing cursor"),
        (True, {"cursor": "1"}, "'1' is no cursor of this subscription"),
    ],
)
async def test_what_cannot_be_acknowledged_says_why(
    durable: bool, body: dict[str, str], told: str, tmp_path: Path
) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        made = await client.post("/subscriptions", json={"config": {"durable": durable}})
        answer = await client.post(f"{made.headers['location']}/acknowledge", json=body)
        assert answer.status_code == 400
        assert told in answer.json()["error"]["message"]


# --- as the server opens it ---


def configured(**sections: Any) -> Configuration:
    wanted = {"broker": {"name": "b"}, "listen": {"port": 0}, "http": {"port": 0}}
    return msgspec.convert(wanted | sections, Configuration)


class Signed:
    """A broker that asks for tokens, and who signs them."""

    def __init__(self, directory: Path) -> None:
        create_key(directory / "signing")
        self._key = load_private_key(directory / "signing")
        self.configuration = configured(
            broker={"name": "b", "data_dir": str(directory / "data")},
            auth={"keys": str(directory / "signing.pub")},
        )

    def token(self, name: str, **limits: float) -> str:
        claims = Claims(
            name, name, 0, 2**33, allow_publish="TRUE", allow_subscribe="TRUE", limits=limits
        )
        return sign(claims, self._key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
        async with (
            running(self.configuration) as found,
            httpx.AsyncClient(base_url=found.addresses["http"], timeout=WAIT_S) as client,
        ):
            yield found, client


async def test_sessions_count_by_principal_through_all_doors(tmp_path: Path) -> None:
    signed = Signed(tmp_path)
    alice, bob = (signed.token(name, sessions=3) for name in ("alice", "bob"))
    path = f"/events?filter={quote('EXISTS id')}&access_token="
    async with signed.running() as (found, client), AsyncExitStack() as stack:
        sockets = found.addresses["http"].replace("http", "ws")

        async def greeted(token: str) -> Peer:
            peer = await Peer.connect((found.host, found.port))
            peer.send(hello("me", token=token))
            return peer

        async def enter(token: str) -> Peer:
            """By each door."""
            peer = await greeted(token)
            await peer.next(Welcome)
            source = await stack.enter_async_context(Source(client, path + token).open())
            socket = await stack.enter_async_context(connect(sockets + path + token))
            await publish(client, event(1), query=f"?access_token={publisher}")
            assert await numbers(source, 1) == [1]
            await asyncio.wait_for(socket.recv(), WAIT_S)
            return peer

        publisher = signed.token("carol")
        native = await enter(alice)
        (bye,) = await (await greeted(alice)).until_closed()
        assert isinstance(bye, Bye)
        assert bye.code == "LimitExceeded"
        refused = await client.get(path + alice)
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "LimitExceeded")
        assert "limits.sessions = 3; close one" in refused.json()["error"]["message"]
        async with connect(sockets + path + alice) as socket:
            with pytest.raises(ConnectionClosed, match=r"limits\.sessions = 3"):
                await asyncio.wait_for(socket.recv(), WAIT_S)
        assert (await publish_one(client, EVENT, f"?access_token={alice}")).status_code == 413
        (await enter(bob)).close()
        native.close()
        await until(lambda: found.server.node.status()["connected"] == 5)
        assert (await publish_one(client, EVENT, f"?access_token={alice}")).status_code == 202


async def test_connections_count_by_principal_through_all_doors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those too that only ask, and so have no session."""
    monkeypatch.setattr("palio.server.connection_limiter.MAX_ASKING", 1)
    signed = Signed(tmp_path)
    alice, bob = (signed.token(name, sessions=1) for name in ("alice", "bob"))
    path = f"/events?filter={quote('EXISTS id')}&access_token="
    async with signed.running() as (found, client), AsyncExitStack() as stack:
        address = client.base_url.host, client.base_url.port or 0
        asking: list[asyncio.StreamWriter] = []
        for _ in range(2):
            _, writer = await asyncio.open_connection(*address)
            stack.callback(writer.close)
            head = f"POST /subscriptions?access_token={alice} HTTP/1.1\r\nhost: {address[0]}"
            writer.write(f"{head}:{address[1]}\r\ncontent-length: 2\r\n\r\n{{".encode())
            asking.append(writer)
        await until(
            lambda: sum(each.sockets for each in found.server.limiter.holders.values()) == 2
        )
        refused = await client.get(path + alice)
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "LimitExceeded")
        assert "limits.sessions + MAX_ASKING = 2; close one" in refused.json()["error"]["message"]
        async with connect(found.addresses["http"].replace("http", "ws") + path + alice) as socket:
            with pytest.raises(ConnectionClosed, match="MAX_ASKING"):
                await asyncio.wait_for(socket.recv(), WAIT_S)
        for token in (alice, bob):
            peer = await Peer.connect((found.host, found.port))
            peer.send(hello("me", token=token))
            if token == alice:
                (bye,) = await peer.until_closed()
                assert isinstance(bye, Bye)
                assert bye.code == "LimitExceeded"
                assert "MAX_ASKING" in bye.reason
            else:
                await peer.next(Welcome)
                peer.close()
        asking[0].close()
        await until(lambda: found.server.limiter.holders["alice"].sockets == 1)
        assert (await client.get(f"/subscriptions?access_token={alice}")).status_code == 200


async def test_subscriptions_by_http_count_by_principal_after_a_restart_too(
    tmp_path: Path,
) -> None:
    signed = Signed(tmp_path)
    alice, bob = (bearer(signed.token(name, subscriptions=1)) for name in ("alice", "bob"))
    body = {"filters": [{"palio": "x > 0"}]}
    async with signed.running() as (_, client):
        made = [await client.post("/subscriptions", json=body, headers=alice) for _ in range(20)]
        assert [each.status_code for each in made] == [201] + 19 * [413]
        error = made[-1].json()["error"]
        assert (error["type"], error["limit"]) == ("LimitExceeded", "limits.subscriptions")
        assert error["message"] == (
            "the number of subscriptions by HTTP exceeds limits.subscriptions = 1; delete one"
        )
        other = await client.post("/subscriptions", json=body, headers=bob)
        assert other.status_code == 201
    async with signed.running() as (_, client):
        kept = [(await client.get("/subscriptions", headers=who)).json() for who in (alice, bob)]
        assert kept == [[made[0].json()], [other.json()]]
        refused = await client.post("/subscriptions", json=body, headers=alice)
        assert refused.status_code == 413
        location = made[0].headers["location"]
        assert (await client.delete(location, headers=bob)).status_code == 404
        assert (await client.delete(location, headers=alice)).status_code == 204
        again = await client.post("/subscriptions", json=body, headers=alice)
        assert again.status_code == 201
    async with signed.running() as (_, client):
        assert (await client.get("/subscriptions", headers=alice)).json() == [again.json()]
    kept_in = sorted(each.name.partition("-")[0] for each in (tmp_path / "data").iterdir())
    assert set(kept_in) <= {"journal.lock", "journal.mark", "journal.reserve", "journal.sqlite"}


async def test_all_doors_of_a_broker_with_tls_and_tokens(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    create_key(tmp_path / "signing")
    key = load_private_key(tmp_path / "signing")
    (tmp_path / "revoked").touch()

    def token(name: str, **grants: Any) -> dict[str, str]:
        return bearer(sign(Claims(name, name, 0, 2**33, **grants), key))

    configuration = configured(
        tls={"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")},
        auth={"keys": str(tmp_path / "signing.pub"), "revoked": str(tmp_path / "revoked")},
    )
    trust = ssl.create_default_context(cadata=certificate)
    async with running(configuration) as found:
        address = found.addresses["http"]
        assert address.startswith("https://")
        async with httpx.AsyncClient(base_url=address, verify=trust, timeout=10) as client:
            refused = await publish_one(client, EVENT)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "no token; show a token" in refused.json()["error"]["message"]
            client.headers.update(token("alice", allow_publish="x < 10"))
            assert (await publish_one(client, event(5))).status_code == 202
            assert (await publish_one(client, event(50))).status_code == 403
            assert (await client.get("/events?filter=TRUE")).status_code == 403
            for address in ("/metrics", "/topology"):
                refused = await client.get(address)
                assert refused.status_code == 403
                assert "needs the grant `monitor`" in refused.text
            watching = token("ops", monitor=True)
            measured = await client.get("/metrics", headers=watching)
            assert "palio_events_published_total 1.0" in measured.text
            assert "b" in (await client.get("/topology", headers=watching)).json()["brokers"]
            stranger = httpx.AsyncClient(base_url=found.addresses["http"], verify=trust, timeout=10)
            async with stranger:
                for address in ("/metrics", "/topology"):
                    assert (await stranger.get(address)).status_code == 401
                assert (await stranger.get("/healthz")).json() == {"status": "ok"}
            revoke(tmp_path / "revoked", "alice")
            while (await publish_one(client, event(5))).status_code != 401:
                pass  # within a second


async def test_an_address_in_use_or_a_bad_certificate_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfiguration, match=r"http\.port: 127\.0\.0\.1:"):
            async with running(configured(listen={"port": 0}, http={"port": port})):
                pass
    (tmp_path / "cert.pem").write_text("junk")
    (tmp_path / "key.pem").write_text("junk")
    paths = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    async with broker() as server:
        with pytest.raises(InvalidConfiguration, match=r"tls\.cert, tls\.key"):
            await serve(server, configured(tls=paths), OpenAuthority(), bytes)
