"""`Sinks`: calls addresses that subscribers gave, so that neither they nor what answers do harm.

1. At most `MAX_CALLS` are under way at once, and `MAX_CALLS_OF_ONE` of one owner. A call that
   has to wait for its turn has not failed.
2. A call takes at most `CALL_S` in all, whatever the other end does.
3. Of an answer only the status and the headers count. Nothing is unpacked; a short body is read
   off and thrown away, so that the connection can be used again, and of a long one nothing.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol

import httpcore
import httpx

from palio.errors import PalioError
from palio.server.hosts import PUBLIC, Hosts
from palio.server.limits import CALL_S, MAX_ANSWER_BYTES, MAX_CALLS, MAX_CALLS_OF_ONE

READ_OFF_BYTES: Final = 4_096
"""A longer body than this costs the connection: a new one is cheaper than to read it."""

READ_OFF_S: Final = 1.0
"""As long as a short body may take."""

NO_PACKING: Final = {"accept-encoding": "identity", "user-agent": "palio"}

_FAILURES: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


class SinkFailed(PalioError):
    """A sink was not reached, is not allowed, or did not answer as HTTP does. For the log only: its
    owner would learn from it what is in the broker's network.
    """


class SinkAnswer(NamedTuple):
    """The answer of a sink: its status and its headers."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_success(self) -> bool:
        """Return whether it is one of 2xx."""
        return 200 <= self.status < 300


class SinkPool(Protocol):
    """The part of httpcore's connection pool that sinks use."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request; its answer is to be closed."""

    async def aclose(self) -> None:
        """Close what is open."""


class Sinks:
    """Makes all calls of the broker to sinks."""

    def __init__(
        self,
        new_pool: Callable[[], SinkPool] = lambda: allowed_pool(Hosts([PUBLIC])),
    ) -> None:
        self._new_pool = new_pool
        self._pool: SinkPool | None = None
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._own_turns: dict[str, asyncio.Semaphore] = {}
        self._waiting: dict[str, int] = {}

    async def call(
        self, owner: str, method: str, address: str, headers: Mapping[str, str], body: bytes = b""
    ) -> SinkAnswer:
        """Call an address on behalf of an owner; `SinkFailed` if nothing good comes of it."""
        sent = NO_PACKING | {name.lower(): value for name, value in headers.items()}
        async with self._turn(owner):
            try:
                async with asyncio.timeout(CALL_S):
                    response = await self._http.handle_async_request(
                        _request(method, address, sent, body)
                    )
                    try:
                        return await _read_off(response)
                    finally:
                        await response.aclose()
            except TimeoutError:
                raise SinkFailed(f"no answer within {CALL_S:g} s") from None
            except (httpx.InvalidURL, *_FAILURES) as error:
                raise SinkFailed(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close what is open."""
        if self._pool is not None:
            await self._pool.aclose()

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        own = self._own_turns.setdefault(owner, asyncio.Semaphore(MAX_CALLS_OF_ONE))
        self._waiting[owner] = self._waiting.get(owner, 0) + 1
        try:
            async with own, self._turns:
                yield
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner], self._own_turns[owner]

    @property
    def _http(self) -> SinkPool:
        """The connections, made when they are first needed: that reads the certificates of the
        system.
        """
        if self._pool is None:
            self._pool = self._new_pool()
        return self._pool


def _request(
    method: str, address: str, headers: Mapping[str, str], body: bytes
) -> httpcore.Request:
    url = httpx.URL(address)
    whole = httpx.Request(method, url, headers=headers, content=body)
    return httpcore.Request(
        method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=whole.headers.raw,
        content=body,
    )


async def _read_off(response: httpcore.Response) -> SinkAnswer:
    """The answer. A short body is read off, for the connection to be used again."""
    headers = httpx.Headers(response.headers)
    length = headers.get("content-length", "0" if response.status == 204 else "")
    if length.isdecimal() and int(length) <= READ_OFF_BYTES:
        with suppress(TimeoutError, *_FAILURES):
            async with asyncio.timeout(READ_OFF_S):
                async for _ in response.aiter_stream():
                    pass
    return SinkAnswer(response.status, headers)


# --- the network ---
#
# 1. A name is resolved once, each address that it has is looked at, and the connection is made to
#    that very address: what a name means cannot change between the look and the connection.
# 2. Of an answer no more than `MAX_ANSWER_BYTES` are read, whatever they are: a head, interim
#    answers, a body.
# 3. No redirect is followed, and no proxy of the environment is used: either would choose an
#    address that nobody looked at.


READ_BYTES: Final = 4_096
"""Read at once: what a sink sends is parsed between two turns of the loop."""

KEEP_S: Final = 5.0
"""Seconds that a connection to a sink is kept for the next call."""


def allowed_pool(allowed: Hosts) -> httpcore.AsyncConnectionPool:
    """Connections of HTTP to the hosts that are allowed, and to no others."""
    return httpcore.AsyncConnectionPool(
        ssl_context=httpx.create_ssl_context(),
        max_connections=MAX_CALLS,
        keepalive_expiry=KEEP_S,
        network_backend=_Network(allowed),
    )


class _Network(httpcore.AsyncNetworkBackend):
    """Connects to addresses that are allowed."""

    def __init__(self, allowed: Hosts) -> None:
        self._allowed = allowed
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the base class names it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to an allowed address of a host; `ConnectError` if it has none."""
        failure = httpcore.ConnectError(f"no address of {host!r:.80} is allowed (webhooks.allow)")
        for address in await _addresses(host, port):
            if not self._allowed.allow(host, address):
                continue
            try:
                stream = await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore.ConnectError as error:
                failure = error
            else:
                return _ShortStream(stream)
        raise failure


async def _addresses(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host!r:.80}: {error}") from None
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


class _ShortStream(httpcore.AsyncNetworkStream):
    """A connection on which answers are short: each request that is written may have one."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = MAX_ANSWER_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # the base class names it
        """Read a little, up to the limit of an answer (`httpcore.AsyncNetworkStream`)."""
        if self._left <= 0:
            raise httpcore.ReadError(
                f"the answer is longer than {MAX_ANSWER_BYTES} bytes (MAX_ANSWER_BYTES)"
            )
        data = await self._stream.read(min(max_bytes, READ_BYTES, self._left), timeout)
        self._left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the base class names it
        """Write a request, and allow an answer to it (`httpcore.AsyncNetworkStream`)."""
        self._left = MAX_ANSWER_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection (`httpcore.AsyncNetworkStream`)."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the base class names it
    ) -> httpcore.AsyncNetworkStream:
        """Encrypt the connection (`httpcore.AsyncNetworkStream`)."""
        return _ShortStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Describe the connection (`httpcore.AsyncNetworkStream`)."""
        return self._stream.get_extra_info(info)
