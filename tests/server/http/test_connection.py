from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import isfunction
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect as connect_socket

from palio import connect
from palio.server.http import websocket
from palio.server.http.access import MAX_BODY_BYTES, Access
from palio.server.http.app import _Uvicorn
from palio.server.http.connection import HttpConnection, SocketConnection
from palio.server.run import running
from palio.server.server import Server
from palio.server.settings import Configuration
from tests.client.helpers import turns
from tests.server.certificates import self_signed
from tests.server.fronts import WAIT_S, Source, broker, event, listening, numbers, publish
from tests.server.helpers import until

SOON_S: Final = 0.1
HALF_HEAD: Final = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-more: "
HALF_BODY: Final = (
    b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n"
    b"content-length: 100000\r\n\r\n{"
)
KNOWN: Final = b"GET /subscriptions HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""A request of whoever has shown a principal, where one has to be shown."""
WHOLE: Final = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Caller:
    """A client that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, client: httpx.AsyncClient, said: bytes = b"") -> Caller:
        url = httpx.URL(client.base_url)
        self = cls(*await asyncio.open_connection(url.host, url.port))
        self.writer.write(said)
        return self

    async def answered(self) -> bytes:
        """Everything until the other end hangs up."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""
            finally:
                self.writer.close()

    async def answers_once(self) -> bytes:
        """One answer, with a length."""
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split()[0])
            return head + await self.reader.readexactly(size)

    async def trickle(self, byte: bytes = b"x") -> None:
        """A byte every now and then, until nobody takes them any more."""
        try:
            while not self.reader.at_eof():
                self.writer.write(byte)
                await self.writer.drain()
                await asyncio.sleep(SOON_S / 10)
        except ConnectionError:
            pass


async def nobody_is_left(server: Server, but: int = 0) -> None:
    await until(lambda: server.connections <= but)


def refusal(answer: bytes) -> tuple[int, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


HASTE: Final = {"http_head_s": SOON_S, "http_body_s": SOON_S, "http_idle_s": SOON_S}


@asynccontextmanager
async def hasty(
    caplog: pytest.LogCaptureFixture, **limits: float
) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    """A broker that waits for one thing not long, and for others forever. It has no traceback."""
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    patient = dict.fromkeys(HASTE, 1_000.0)
    async with broker() as server, listening(server, limits=patient | limits) as client:
        yield server, client
        await client.aclose()
        await nobody_is_left(server)
    assert failures == []
    assert [each for each in caplog.records if each.exc_info] == []
    assert [each for each in caplog.records if not each.name.startswith("palio")] == []


@pytest.mark.parametrize("trickles", [False, True])
@pytest.mark.parametrize(
    ("said", "limit"), [(HALF_HEAD, "http_head_s"), (HALF_BODY, "http_body_s")]
)
async def test_half_a_request_is_waited_for_no_longer_than_the_limit(
    said: bytes, limit: str, trickles: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with hasty(caplog, **{limit: SOON_S}) as (server, client):
        callers = [await Caller.to(client, said) for _ in range(30)]
        async with asyncio.TaskGroup() as group:
            for caller in callers if trickles else ():
                group.create_task(caller.trickle())
            for answer in await asyncio.gather(*(caller.answered() for caller in callers)):
                if not answer and trickles:
                    continue  # what was still on its way to the broker has taken the answer along
                status, error = refusal(answer)
                assert (status, error["type"]) == (408, "LimitExceeded")
                assert f"limits.{limit}" in error["message"]
        assert server.traffic.late == len(callers)
        assert (await client.get("/healthz")).status_code == 200


async def test_who_says_nothing_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with hasty(caplog, http_head_s=SOON_S) as (server, client):
        assert await (await Caller.to(client)).answered() == b""
        assert server.traffic.late == 1


async def test_a_connection_is_kept_for_a_while_and_no_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hasty(caplog, http_idle_s=SOON_S) as (server, client):
        caller = await Caller.to(client, WHOLE)
        assert b"200 OK" in await caller.answers_once()
        assert await caller.answered() == b""
        assert server.traffic.late == 0


async def test_the_next_head_has_its_own_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with hasty(caplog, http_head_s=SOON_S) as (_, client):
        caller = await Caller.to(client)
        for _ in range(3):
            caller.writer.write(WHOLE)
            assert b"200 OK" in await caller.answers_once()
        caller.writer.write(HALF_HEAD)
        assert refusal(await caller.answered())[0] == 408


@pytest.mark.parametrize("trickles", [False, True])
async def test_a_body_that_nobody_asked_for_has_no_more_time(
    trickles: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It was refused by its head: the rest is read off, to keep the connection, not forever."""
    async with hasty(caplog, http_body_s=SOON_S) as (_, client):
        refused = HALF_BODY.replace(b"localhost", b"evil.example")
        caller = await Caller.to(client, refused)
        assert b" 421 " in await caller.answers_once()
        async with asyncio.TaskGroup() as group:
            if trickles:
                group.create_task(caller.trickle())
            assert await caller.answered() == b""


async def test_who_leaves_in_the_middle_of_a_request_leaves_no_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hasty(caplog) as (server, client):
        for said in (b"", HALF_HEAD, HALF_BODY, WHOLE, WHOLE * 20):
            caller = await Caller.to(client, said)
            caller.writer.write_eof()
            caller.writer.transport.abort()
        await nobody_is_left(server)


@pytest.mark.parametrize(
    "said",
    [
        *(b"\x00" * 10 + b"\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n"),
        *(b"x" * 100_000, b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a: b\r\n" * 10_000),
        b"POST /events HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        b"POST /events HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /events HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    ],
    ids=lambda said: repr(said[:30]),
)
async def test_what_is_no_request_is_answered_in_the_same_form(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with hasty(caplog) as (server, client):
        status, error = refusal(await (await Caller.to(client, said)).answered())
        assert (status, error["type"]) == (400, "InvalidInput")
        assert server.traffic.illegal == 1


async def test_nonsense_after_an_answer_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hasty(caplog) as (server, client):
        chunked = HALF_BODY.split(b"content-length")[0] + b"transfer-encoding: chunked\r\n"
        refused = chunked.replace(b"localhost", b"evil.example")
        caller = await Caller.to(client, refused + b"\r\n5\r\nabcde\r\n")
        assert b" 421 " in await caller.answers_once()
        caller.writer.write(b"nonsense\r\n")
        await caller.answered()
        assert server.traffic.illegal == 1


HANDSHAKE: Final = (
    b"GET /events?filter=EXISTS%%20id HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: %b==\r\n\r\n"
) % (b"A" * 22)


class Gate:
    """Holds a WebSocket back that is about to be accepted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached, self.is_open = asyncio.Event(), asyncio.Event()
        self._accept = websocket.accept
        monkeypatch.setattr(websocket, "accept", self._wait)

    async def _wait(self, connection: WebSocket) -> None:
        self.is_reached.set()
        await self.is_open.wait()
        await self._accept(connection)


@pytest.mark.parametrize("is_accepted", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        b"\x81\x82\x00\x00\x00\x00\xff\xff",  # a text that is not UTF-8
        b"\x81\x02{}",  # not masked
        b"\xf3\x80\x00\x00\x00\x00",  # of no kind that there is
        b"\x80\x80\x00\x00\x00\x00",  # the rest of nothing
        b"\x82\xff" + b"\x7f" * 12,  # larger than anything
    ],
    ids=lambda said: repr(said[:8]),
)
async def test_what_is_no_web_socket_is_counted_and_not_logged(
    said: bytes,
    is_accepted: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    async with hasty(caplog) as (server, client):
        caller = await Caller.to(client, HANDSHAKE)
        await gate.is_reached.wait()
        if is_accepted:
            gate.is_open.set()
            assert b" 101 " in await caller.reader.readuntil(b"\r\n\r\n")
        caller.writer.write(said)
        assert (await client.get("/healthz")).status_code == 200  # so that it has come
        gate.is_open.set()
        await caller.answered()
        await nobody_is_left(server, but=1)
        assert server.traffic.illegal == 1


async def test_who_leaves_before_a_web_socket_is_accepted_is_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    async with hasty(caplog) as (server, client):
        caller = await Caller.to(client, HANDSHAKE)
        await gate.is_reached.wait()
        caller.writer.transport.abort()
        assert (await client.get("/healthz")).status_code == 200
        gate.is_open.set()
        await nobody_is_left(server, but=1)


async def test_what_fails_in_the_broker_is_logged_by_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(Access, "caller", fail)
    async with broker() as server, listening(server) as client:
        assert (await client.get("/metrics")).status_code == 500
        assert b" 500 " in await (await Caller.to(client, HANDSHAKE)).answered()
    failed = [each for each in caplog.records if each.exc_info]
    assert [(each.name, each.getMessage()) for each in failed] == [
        ("palio.server", "request_failed")
    ] * 2


# --- uvicorn ---


def hooks_of(kind: type) -> set[str]:
    """Whatever uvicorn or the loop calls."""
    return {name for name, value in vars(kind).items() if isfunction(value) and name[0] != "_"}


async def test_uvicorn_calls_every_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are methods of uvicorn's own classes, which another version may name otherwise."""
    called: set[tuple[type, str]] = set()
    hooks = {
        (kind, name)
        for kind in (HttpConnection, SocketConnection, _Uvicorn)
        for name in hooks_of(kind)
    } - {(_Uvicorn, "renew")}  # which the broker calls

    def spied(hook: tuple[type, str], original: Any) -> Any:
        def spy(*arguments: Any, **options: Any) -> Any:
            called.add(hook)
            return original(*arguments, **options)

        return spy

    for kind, name in hooks:
        monkeypatch.setattr(kind, name, spied((kind, name), vars(kind)[name]))
    async with broker() as server, listening(server) as client:
        assert (await client.get("/healthz")).status_code == 200
        await (await Caller.to(client, b"nonsense\r\n\r\n")).answered()
        caller = await Caller.to(client, HANDSHAKE)
        await caller.reader.readuntil(b"\r\n\r\n")
        caller.writer.write(b"\x01\x80\0\0\0\0\x80\x82\0\0\0\0{}")  # in fragments
        caller.writer.write(b"\x81\x82\x00\x00\x00\x00\xff\xff")
        await caller.answered()
        await client.aclose()
        await nobody_is_left(server)
        await until(lambda: (_Uvicorn, "on_tick") in called)
    assert len(hooks) >= 10
    assert hooks - called == set()


async def test_every_answer_is_for_pages_of_the_broker_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hasty(caplog, http_head_s=SOON_S) as (_, client):
        get = b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n"
        for said, status in (
            (get % (b"/healthz", b"localhost"), 200),
            (get % (b"/events?filter=(", b"localhost"), 400),
            (get % (b"/nowhere", b"localhost"), 404),
            (get.replace(b"GET", b"PUT") % (b"/healthz", b"localhost"), 405),
            (get % (b"/healthz", b"evil.example"), 421),
            (HALF_HEAD, 408),
            (b"nonsense\r\n\r\n", 400),
        ):
            head, _, _ = (await (await Caller.to(client, said)).answered()).partition(b"\r\n\r\n")
            assert int(head.split()[1]) == status
            lines = head.lower().split(b"\r\n")
            assert b"x-content-type-options: nosniff" in lines
            assert b"cross-origin-resource-policy: same-origin" in lines


async def test_streams_stay(caplog: pytest.LogCaptureFixture) -> None:
    async with hasty(caplog, **HASTE) as (_, client):
        path = "/events?filter=EXISTS%20id"
        url = str(client.base_url).replace("http://", "ws://").rstrip("/") + path
        async with Source(client, path).open() as events, connect_socket(url) as web_socket:
            for _ in range(3):  # more than any limit, one after the other
                assert refusal(await (await Caller.to(client, HALF_HEAD)).answered())[0] == 408
            await publish(client, event(1))
            assert await numbers(events, 1) == [1]
            assert json.loads(await web_socket.recv())["id"] == "1"


async def test_who_does_not_take_the_answers_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with hasty(caplog, http_body_s=SOON_S) as (server, client):
        url = httpx.URL(client.base_url)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, (url.host, url.port))
            asking = WHOLE.replace(b"healthz", b"openapi.json") * 2_000
            sending = asyncio.create_task(loop.sock_sendall(deaf, asking))
            await nobody_is_left(server)
            await asyncio.wait((sending,))
            sending.exception()


# --- slots ---


def configured(limit: int, **sections: Any) -> Configuration:
    wanted = {
        "broker": {"name": "b"},
        "listen": {"port": 0},
        "http": {"port": 0},
        "limits": {"max_connections": limit},
    }
    return msgspec.convert(wanted | sections, Configuration)


async def test_all_ports_share_the_limit_of_connections() -> None:
    async with running(configured(3)) as found:
        address = f"palio://{found.host}:{found.port}"
        async with (
            httpx.AsyncClient(base_url=found.addresses["http"], timeout=WAIT_S) as client,
            connect(address, name="native"),
        ):
            url = found.addresses["http"].replace("http://", "ws://") + "/events?filter=TRUE"
            async with connect_socket(url):
                caller = await Caller.to(client, KNOWN)
                assert b"200 OK" in await caller.answers_once()
                assert found.server.connections == 3
                status, error = refusal(await (await Caller.to(client)).answered())
                assert (status, error["type"]) == (503, "LimitExceeded")
                assert "limits.max_connections" in error["message"]
                reader, writer = await asyncio.open_connection(found.host, found.port)
                assert b"limits.max_connections" in await reader.read()
                writer.close()
                await nobody_is_left(found.server, but=3)
                assert found.server.traffic.refused == 2
            await nobody_is_left(found.server, but=2)
            assert (await client.get("/healthz")).status_code == 200
            caller.writer.close()
        await nobody_is_left(found.server)


async def test_strangers_that_say_nothing_keep_nobody_out() -> None:
    async with running(configured(30)) as found:
        async with httpx.AsyncClient(base_url=found.addresses["http"], timeout=WAIT_S) as client:
            url = found.addresses["http"].replace("http://", "ws://") + "/events?filter=TRUE"
            async with connect_socket(url) as web_socket:
                silent = [await Caller.to(client, HALF_HEAD) for _ in range(40)]
                for _ in range(20):
                    honest = await Caller.to(client, KNOWN)
                    assert b"200 OK" in await honest.answers_once()
                    silent.append(await Caller.to(client))
                    honest.writer.close()
                await publish(client, event(1))
                assert json.loads(await web_socket.recv())["id"] == "1"
            status, error = refusal(await silent[0].answered())
            assert (status, error["type"]) == (503, "LimitExceeded")
            assert found.server.connections <= 30
            for caller in silent:
                caller.writer.close()
        await nobody_is_left(found.server)


BODY: Final = b"x" * 100_000
POSTED: Final = HALF_BODY[:-1]


async def test_bodies_beyond_the_share_of_a_principal_wait_unread(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.server.connection_limiter.SHARE_BYTES", 2 * len(BODY))
    monkeypatch.setattr("palio.server.connection_limiter.MAX_WAITING", 1)
    # They are all of one principal.
    monkeypatch.setattr(
        "palio.server.connection_limiter.ANYONE", ""
    )  # they are all of one principal
    async with hasty(caplog) as (server, client):
        callers = list[Caller]()
        for _ in range(4):
            callers.append(await Caller.to(client, POSTED + BODY[:-1]))
            await until(lambda: server.limiter.size == min(len(callers), 2) * len(BODY))
        (holder,) = server.limiter.holders.values()
        await until(lambda: server.traffic.refused == 1)
        assert len(holder.waiting) == 1
        last = callers.pop()
        status, error = refusal(await last.answered())
        assert (status, error["type"]) == (503, "LimitExceeded")
        assert "MAX_WAITING" in error["message"]
        for caller in callers:
            caller.writer.write(BODY[-1:])
        for caller in callers:
            assert b" 400 " in await caller.answers_once()
        assert (holder.size, len(holder.waiting)) == (0, 0)
        for caller in callers:
            caller.writer.close()


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"content-length: 16384\r\n\r\n", 0),
        (b"content-length: 16385\r\n\r\n", 16_385),
        (b"transfer-encoding: chunked\r\n\r\n", MAX_BODY_BYTES),
    ],
)
async def test_a_body_needs_room_for_its_length(
    head: bytes, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with hasty(caplog) as (server, client):
        caller = await Caller.to(client, POSTED.replace(b"content-length: 100000\r\n\r\n", head))
        await until(lambda: len(server.limiter.holders) == 1)
        await turns(5)
        assert server.limiter.size == size
        caller.writer.close()
        await nobody_is_left(server)
        assert server.limiter.size == 0


async def test_a_body_has_room_until_its_request_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its connection is lost while it is worked on: it is in memory."""
    working, may_end = asyncio.Event(), asyncio.Event()

    async def work(*_: Any) -> list[Any]:
        working.set()
        await may_end.wait()
        return []

    monkeypatch.setattr("palio.server.http.publishing._events", work)
    async with hasty(caplog) as (server, client):
        caller = await Caller.to(client, POSTED + BODY)
        await working.wait()
        caller.writer.close()
        await nobody_is_left(server)
        assert server.limiter.size == len(BODY)
        may_end.set()
        await until(lambda: server.limiter.size == 0)


async def test_who_leaves_while_it_waits_for_room_leaves_no_trace(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.server.connection_limiter.SHARE_BYTES", len(BODY))
    monkeypatch.setattr("palio.server.connection_limiter.ANYONE", "")
    async with hasty(caplog) as (server, client):
        first = await Caller.to(client, POSTED)
        await until(lambda: server.limiter.size > 0)
        second = await Caller.to(client, POSTED)
        (holder,) = server.limiter.holders.values()
        await until(lambda: len(holder.waiting) == 1)
        second.writer.close()
        await nobody_is_left(server, but=1)
        assert len(holder.waiting) == 0
        first.writer.close()


async def test_what_a_stranger_sends_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.server.connection_limiter.STRANGER_BYTES", 150_000)
    async with hasty(caplog) as (server, client):
        refused = POSTED.replace(b"localhost", b"evil.example")
        half = await Caller.to(client, HALF_HEAD + b"x" * 30_000)
        await until(lambda: server.limiter.stranger_bytes > 30_000)
        caller = await Caller.to(client, refused + BODY[:-1])
        assert b" 421 " in await caller.answers_once()
        await until(lambda: 60_000 < server.limiter.stranger_bytes < 110_000)
        caller.writer.close()
        await nobody_is_left(server, but=1)
        large = await Caller.to(client, HALF_HEAD + b"x" * 31_000)
        await until(lambda: server.limiter.stranger_bytes > 60_000)
        others = [await Caller.to(client, HALF_HEAD + b"x" * 30_000) for _ in range(3)]
        assert refusal(await large.answered())[0] == 503
        assert server.traffic.refused == 1
        for caller in (half, *others):
            caller.writer.close()


async def test_a_handshake_of_tls_has_a_limit_and_a_place(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    files = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    limits = {"max_connections": 10, "handshake_timeout_s": SOON_S}
    async with running(configured(10, tls=files, limits=limits)) as found:
        trust = ssl.create_default_context(cadata=certificate)
        ports: list[Callable[[], Any]] = [
            lambda: httpx.URL(found.addresses["http"]).port,
            lambda: found.port,
        ]
        for port in ports:
            silent = [await asyncio.open_connection(found.host, port()) for _ in range(10)]
            async with asyncio.timeout(WAIT_S):
                while found.server.connections < len(silent):  # noqa: ASYNC110  # there is no event
                    await asyncio.sleep(0)
                for reader, writer in silent:
                    assert await reader.read() == b""
                    writer.close()
            await nobody_is_left(found.server)
        async with httpx.AsyncClient(base_url=found.addresses["http"], verify=trust) as client:
            assert (await client.get("/healthz")).status_code == 200
