from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore
import pytest

from palio.server.hosts import Hosts
from palio.server.limits import MAX_ANSWER_BYTES
from palio.server.webhooks.sinks import allowed_pool
from tests.server.certificates import self_signed
from tests.server.fronts import WAIT_S

HEAD = b"HTTP/1.1 200 OK\r\n"


class Machine:
    """A server of loopback that says what it is told to; counts who connects and what is taken."""

    def __init__(self, *answer: bytes, endless: bytes = b"") -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.said = 0
        self.port = 0
        self._answer = b"".join(answer) or HEAD + b"content-length: 0\r\n\r\n"
        self._endless = endless

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self._answer)
                while self._endless:
                    writer.write(self._endless)
                    self.said += len(self._endless)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other end, or the test, has had enough
        finally:
            writer.close()

    @asynccontextmanager
    async def at_work(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Machine]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        async with server, asyncio.timeout(WAIT_S):
            yield self


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.0.0.2", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1"),
        *("0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
        *("169.254.169.254", "10.0.0.1", "[fe80::1]", "[fd00::1]", "nowhere.invalid"),
    ],
)
async def test_nobody_nearby_is_called(host: str) -> None:
    async with Machine().at_work() as machine, allowed_pool(Hosts(["public"])) as client:
        with pytest.raises(httpcore.ConnectError):
            await client.request("GET", f"http://{host}:{machine.port}/")
        assert machine.connections == 0


@pytest.mark.parametrize("allowed", ["127.0.0.0/8", "localhost", "*"])
async def test_unless_it_is_allowed(allowed: str) -> None:
    async with Machine().at_work() as machine, allowed_pool(Hosts([allowed])) as client:
        assert (await client.request("GET", f"http://localhost:{machine.port}/")).status == 200
        assert b"host: localhost:" in machine.requests[0].lower()


async def test_a_name_is_resolved_once_and_the_address_that_was_looked_at_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    resolved: list[str] = []
    called: list[str] = []

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        resolved.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers.pop(0)
        ]

    async def connect(_: object, host: str, *__: Any) -> Any:
        called.append(host)
        raise httpcore.ConnectError("nobody is called in a test")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    async with allowed_pool(Hosts(["public"])) as client:
        for _ in range(2):
            with pytest.raises(httpcore.NetworkError):
                await client.request("GET", "http://changing.example/")
    assert (resolved, called) == (["changing.example"] * 2, ["93.184.216.34"])
    answers[:] = [["127.0.0.1", "10.0.0.1", "1.1.1.1", "8.8.8.8", "::1"]]
    async with allowed_pool(Hosts(["public"])) as client:
        with pytest.raises(httpcore.NetworkError, match="nobody is called in a test"):
            await client.request("GET", "http://many.example/")
    assert called[1:] == ["1.1.1.1", "8.8.8.8"]


async def test_neither_redirects_nor_proxies_lead_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Machine().at_work() as other:
        target = f"http://127.0.0.1:{other.port}/"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, target)
        moved = b"HTTP/1.1 307 Moved\r\nlocation: " + target.encode() + b"\r\n"
        machine = Machine(moved, b"content-length: 0\r\n\r\n")
        async with machine.at_work(), allowed_pool(Hosts(["*"])) as client:
            answer = await client.request(
                "POST", f"http://localhost:{machine.port}/", content=b"{}"
            )
        assert (answer.status, machine.connections, other.connections) == (307, 1, 0)


HINT = b"HTTP/1.1 103 Hint\r\n\r\n"
BOMB = gzip.compress(bytes(30_000_000))

LONG: dict[str, Callable[[], Machine]] = {
    "a body that unpacks to much": lambda: Machine(
        HEAD, b"content-encoding: gzip\r\ncontent-length: 1000000000\r\n\r\n", endless=BOMB
    ),
    "a body without end": lambda: Machine(HEAD, b"\r\n", endless=bytes(65_536)),
    "headers without end": lambda: Machine(HEAD, endless=b"x-more: and more\r\n" * 4_096),
    "a header without end": lambda: Machine(HEAD, b"x-more: ", endless=b"x" * 65_536),
    "interim answers without end": lambda: Machine(HINT, endless=HINT * 4_096),
    "chunks without end": lambda: Machine(
        HEAD, b"transfer-encoding: chunked\r\n\r\n", endless=b"1\r\nx\r\n" * 4_096
    ),
}


async def read(client: httpcore.AsyncConnectionPool, machine: Machine, taken: list[int]) -> None:
    async with client.stream("GET", f"http://127.0.0.1:{machine.port}/") as answer:
        async for part in answer.aiter_stream():
            taken[0] += len(part)


@pytest.mark.parametrize("kind", LONG)
async def test_of_a_long_answer_only_the_beginning_is_read(kind: str) -> None:
    machine = LONG[kind]()
    taken = [0]
    async with machine.at_work(), allowed_pool(Hosts(["*"])) as client:
        with pytest.raises((httpcore.NetworkError, httpcore.ProtocolError)):
            await read(client, machine, taken)
    assert taken[0] <= MAX_ANSWER_BYTES


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_answers_are_limited(beyond: int) -> None:
    head = HEAD + b"content-length: 65000\r\n"
    padding = MAX_ANSWER_BYTES - 65_000 - len(head) - len(b"x: \r\n\r\n") + beyond
    machine = Machine(head, b"x: " + b"x" * padding + b"\r\n\r\n", bytes(65_000))
    async with machine.at_work(), allowed_pool(Hosts(["*"])) as client:
        call = client.request("GET", f"http://127.0.0.1:{machine.port}/")
        if beyond > 0:
            with pytest.raises(httpcore.NetworkError, match="MAX_ANSWER_BYTES"):
                await call
        else:
            assert (await call).status == 200


async def test_a_certificate_is_checked_for_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    self_signed(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with Machine().at_work(tls) as machine, allowed_pool(Hosts(["*"])) as client:
        assert (await client.request("GET", f"https://localhost:{machine.port}/")).status == 200
        with pytest.raises(httpcore.NetworkError, match="certificate"):
            await client.request("GET", f"https://2130706433:{machine.port}/")
