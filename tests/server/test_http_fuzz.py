"""Whatever is asked of the HTTP front, and however, it answers; and never that it failed itself."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote

import httpx
import pytest
from starlette.applications import Starlette

from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.node.authority import OpenAuthority
from palio.server.http.access import Access
from palio.server.http.app import application
from palio.server.http.arrow import ARROW_TYPE
from palio.server.http.openapi import document
from palio.server.http.subscribers import HttpSubscribers
from palio.server.http.subscriptions import Directory
from tests.foreign_bytes import mutated
from tests.protocol.test_legal_parcels import MIXED, stream
from tests.server.fronts import EVENT, WAIT_S, broker, listening
from tests.server.webhooks.test_webhook import SINK, Sink

CASES: Final = 400

NESTED: Final[tuple[Callable[[int], str], ...]] = (
    lambda depth: "[" * depth,
    lambda depth: "[" * depth + "]" * depth,
    lambda depth: '{"a":' * depth + "1" + "}" * depth,
    lambda depth: '{"not":' * depth + "{}" + "}" * depth,
    lambda depth: '{"all":[' * depth + "]}" * depth,
    lambda depth: "(" * depth + "x = 1" + ")" * depth,
    lambda depth: "NOT " * depth + "x = 1",
    lambda depth: "x = " + "-" * depth + "1",
)
DEPTHS: Final = (3, 64, 65, 300, 990, 1_000, 30_000)

TEXTS: Final = (
    *("", "x", "x = 1", "x > :y", "TRUE", "1", "-1", "1e999", "NaN", "null", "9" * 5_000, "\x00"),
    *("\ud800", "\xe9", "\U0001f600", "%", "'", "a\nb", "http://[::1", "http://a:b/", "http://a"),
    *("https://[::1]:99999", "//", "file:///etc", "HTTP", "explicit", "2026-99-99", "s.1.0"),
    *("d." + "9" * 30 + ".1", "s..", "x" * 70_000, "../../etc", "a THEN b WITHIN 1s", "x = 1e400"),
)
VALUES: Final[tuple[Any, ...]] = (
    *TEXTS,
    None,
    True,
    -1,
    2**63,
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
)

NAMES: Final = (
    *("filters", "config", "sink", "protocolsettings", "headers", "types", "id", "palio", "filter"),
    *("parameters", "exact", "all", "not", "sql", "durable", "lease_s", "deadletter", "type", ""),
    *("data", "data_base64", "time", "cursor", "x", "y", "$seq", "Host", "\xe9", "\ud800", "a.b"),
)
GOOD: Final[tuple[dict[str, Any], ...]] = (
    EVENT,
    EVENT | {"extension": 5, "time": "2026-01-01T00:00:00Z", "data": {"a": {"b": [1, None]}}},
    {"filters": [{"palio": {"filter": "x > :y", "parameters": {"y": 1}}}]},
    {"source": "/s", "types": ["a"], "filters": [{"exact": {"type": "t"}}, {"sql": "type = 'x'"}]},
    {"sink": SINK, "protocolsettings": {"headers": {"a": "b"}}, "config": {"deadletter": SINK}},
)
HEADERS: Final = (
    *("content-type", "authorization", "last-event-id", "ce-specversion", "ce-id", "ce-source"),
    *(
        "ce-type",
        "ce-time",
        "ce-x",
        "origin",
        "content-length",
        "content-encoding",
        "accept",
        "sec-fetch-site",
    ),
)
METHODS: Final = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE", "FOO")
STRANGE: Final = ("/", "//", "/%00", "/subscriptions/%2e%2e", "/events/", "/%ff", "/a/b/c/d")


class Fuzz:
    """AdminQueries, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.paths = [*document()["paths"], *STRANGE]

    def twisted(self, value: Any) -> Any:
        """Something in a document, exchanged for what does not belong there."""
        draw = self._draw
        if isinstance(value, dict) and value and draw.random() < 0.85:
            if draw.random() < 0.15:
                return value | {draw.choice(NAMES): draw.choice(VALUES)}
            name = draw.choice(list(value))
            return value | {name: self.twisted(value[name])}
        if isinstance(value, list) and value and draw.random() < 0.85:
            return [self.twisted(value[0]), *value[1:]]
        return draw.choice(VALUES)

    def nested(self) -> str:
        return self._draw.choice(NESTED)(self._draw.choice(DEPTHS))

    def body(self) -> bytes:
        draw = self._draw
        good = draw.choice(GOOD)
        match draw.randrange(6):
            case 0:
                text = self.nested()
            case 1:
                text = json.dumps(good).replace(json.dumps(draw.choice(list(good.values()))), "[]")
                text = text.replace("[]", self.nested(), 1)
            case 2:
                return draw.randbytes(draw.choice((0, 1, 100)))
            case 3:
                return mutated(draw, stream(MIXED, MIXED[1:]))
            case _:
                twisted = self.twisted(good)
                twisted = [twisted] if draw.random() < 0.3 else twisted
                text = json.dumps(twisted, ensure_ascii=draw.random() < 0.7)
        return text.encode("utf-8", "surrogatepass")

    def query(self) -> str:
        draw = self._draw
        names = ("durable", "filter", "cursor", "access_token", "param.y", "param.", "q", "")
        parts = ["filter=x%20%3E%20:y"] if draw.random() < 0.5 else []
        for _ in range(draw.randrange(4)):
            value = draw.choice((*TEXTS, self.nested())).encode("utf-8", "surrogatepass")
            parts.append(f"{draw.choice(names)}={quote_from_bytes(value)}")
        return "&".join(parts)

    def headers(self) -> list[tuple[bytes, bytes]]:
        draw = self._draw
        found = [(b"host", b"localhost")]
        for _ in range(draw.randrange(4)):
            value = draw.choice((*TEXTS, "Bearer x", "1.0", "gzip", "%ff")).replace("\n", " ")
            found.append((draw.choice(HEADERS).encode(), value.encode("latin-1", "replace")))
        if draw.random() < 0.6:
            found.append(
                (b"content-type", draw.choice((JSON_TYPE, BATCH_TYPE, ARROW_TYPE)).encode())
            )
        return found

    def question(self, ids: list[str]) -> dict[str, Any]:
        """The scope of a request, and under `body` what it brings."""
        path = self._draw.choice(self.paths).replace("{id}", self._draw.choice(ids))
        return {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "method": self._draw.choice(METHODS),
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": self.query().encode(),
            "headers": self.headers(),
            "body": self.body(),
        }

    def mangled(self, request: bytes) -> bytes:
        """A request with something wrong in its bytes."""
        draw, data = self._draw, bytearray(request)
        for _ in range(1 + draw.randrange(6)):
            place = draw.randrange(len(data) or 1)
            match draw.randrange(4):
                case 0:
                    del data[place : place + draw.choice((1, 4, 20))]
                case 1:
                    data[place:place] = draw.randbytes(draw.choice((1, 4)))
                case 2:
                    data[place:place] = draw.choice(
                        (b"\r\n", b"\r", b"\n", b" ", b":", b"%", b"\x00")
                    )
                case _:
                    data[place : place + 1] = bytes((draw.randrange(256),))
        return bytes(data)


async def asked(app: Starlette, question: dict[str, Any]) -> tuple[int, bytes]:
    """Status and body of an answer, of a stream the beginning."""
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": question["body"]}]
    enough = asyncio.Event()

    async def receive() -> Any:
        if coming:
            return coming.pop()
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("more_body"):
            enough.set()

    async with asyncio.timeout(WAIT_S):
        await app(dict(question), receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent)


async def test_every_question_is_answered_and_none_by_a_failure(seed: int) -> None:
    fuzz, ids = Fuzz(seed), ["none"]
    async with broker() as server:
        access = Access(OpenAuthority(), server.moment)
        sinks = Sink().sinks
        delivery = HttpSubscribers(
            server.connect_local, access, Directory(server.host.keep, {}), sinks=sinks
        )
        app = application(server.connect_local, access, delivery)
        for _ in range(CASES):
            question = fuzz.question(ids)
            status, body = await asked(app, question)
            assert status < 500 or b"NotStored" in body, (question, body)
            if status == 201:
                ids = [*ids[:5], json.loads(body)["id"]]
            if status >= 400 and question["method"] != "HEAD":
                assert {"type", "message"} <= json.loads(body)["error"].keys()
        await delivery.stop()


DEEP_QUERIES: Final = [f"filter=x%3E:y&param.y={text}" for text in ("[" * 30_000, "[{" * 600)]


@pytest.mark.parametrize("query", DEEP_QUERIES, ids=["lists", "objects"])
async def test_a_deep_parameter_is_a_text_as_any_other(query: str) -> None:
    async with broker() as server, listening(server) as client:
        async with client.stream("GET", f"/events?{query}") as answer:
            assert answer.status_code == 200
        url = httpx.URL(client.base_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET /events?%b HTTP/1.1\r\n" % query.encode() + UPGRADE)
        async with asyncio.timeout(WAIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == (b"101" if len(query) < 8_000 else b"400")
        writer.close()


UPGRADE: Final = (
    b"host: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
REQUESTS: Final = (
    b"GET /events?filter=%C3%A9%20%3D%201&cursor=x HTTP/1.1\r\n" + UPGRADE,
    b"GET /subscriptions/none/events HTTP/1.1\r\n"
    + UPGRADE
    + b"\x81\x85\0\0\0\0[[[[[\x88\x80\0\0\0\0",
    b"GET /events?filter=TRUE HTTP/1.1\r\n" + UPGRADE + b"\x81\x85\0\0\0\0[[[[[\x88\x80\0\0\0\0",
    (
        b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    ),
    (
        b"PUT /subscriptions/x HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        b"content-length: 2\r\n\r\n{}GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n"
    ),
    (
        b"POST /events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/vnd.apache.arrow.stream\r\ncontent-length: %d\r\n\r\n%b"
        % (len(stream(MIXED)), stream(MIXED))
    ),
    b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\r\n",
    b"GET http://localhost/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
)


async def test_whatever_the_bytes_are_nothing_fails(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    fuzz = Fuzz(seed)
    async with broker() as server, listening(server) as client:
        url = httpx.URL(client.base_url)
        for number in range(CASES):
            request = REQUESTS[number % len(REQUESTS)]
            said = request if number < len(REQUESTS) else fuzz.mangled(request)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(said)
            writer.write_eof()
            async with asyncio.timeout(WAIT_S):
                try:
                    answer = await reader.read()
                except ConnectionError:
                    answer = b""
            writer.close()
            statuses = [int(each[:3]) for each in answer.split(b"HTTP/1.1 ")[1:]]
            assert all(status < 500 for status in statuses), (said, answer)
        assert (await client.get("/healthz")).status_code == 200
    assert failures == []
    assert [each for each in caplog.records if each.exc_info] == []
