"""`Sinks`: the HTTP client for webhook URLs that untrusted users supply.

It limits calls and responses, and protects against requests to internal addresses (SSRF).

1. At most `MAX_CALLS` are in flight, and `MAX_CALLS_OF_ONE` of one owner. Further calls wait.
2. A call takes at most `CALL_S`, from its start until its response was read.
3. Only the status and the headers of a response are used. A short body is read and dropped, so
   that the connection can be reused. For any other body the connection is closed.
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

MAX_DRAINED_BYTES: Final = 4_096
"""Longest body that is read and dropped. For a longer one a new connection is cheaper."""

DRAIN_S: Final = 1.0
"""Timeout of reading a body that is dropped."""

_HEADERS: Final = {"accept-encoding": "identity", "user-agent": "palio"}
"""Headers of every request: the response is not to be compressed, as its body is dropped."""

_FAILURES: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


class SinkFailed(PalioError):
    """A call failed: the sink is unreachable or not allowed, or its response is invalid HTTP.

    For the log only: the message would show a subscriber what is in the broker's network.
    """


class SinkAnswer(NamedTuple):
    """The status and the headers of a sink's response."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_success(self) -> bool:
        """Return whether the status is 2xx."""
        return 200 <= self.status < 300


class SinkPool(Protocol):
    """The part of httpcore's connection pool that sinks use."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request; the caller closes the response."""

    async def aclose(self) -> None:
        """Close all connections."""


class Sinks:
    """Calls the broker's sinks, within the limits above."""

    def __init__(
        self,
        new_pool: Callable[[], SinkPool] = lambda: allowed_pool(Hosts([PUBLIC])),
    ) -> None:
        self._new_pool = new_pool
        self._pool: SinkPool | None = None
        self._slots = asyncio.Semaphore(MAX_CALLS)
        self._owner_slots: dict[str, asyncio.Semaphore] = {}
        self._calls: dict[str, int] = {}
        """For each owner, its calls that wait or are in flight."""

    async def call(
        self, owner: str, method: str, address: str, headers: Mapping[str, str], body: bytes = b""
    ) -> SinkAnswer:
        """Call an address on behalf of an owner; `SinkFailed` if there is no valid response."""
        all_headers = _HEADERS | {name.lower(): value for name, value in headers.items()}
        async with self._slot(owner):
            try:
                async with asyncio.timeout(CALL_S):
                    response = await self._http.handle_async_request(
                        _request(method, address, all_headers, body)
                    )
                    try:
                        return await _drained(response)
                    finally:
                        await response.aclose()
            except TimeoutError:
                raise SinkFailed(f"no answer within {CALL_S:g} s") from None
            except (httpx.InvalidURL, *_FAILURES) as error:
                raise SinkFailed(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.aclose()

    @asynccontextmanager
    async def _slot(self, owner: str) -> AsyncIterator[None]:
        owner_slots = self._owner_slots.setdefault(owner, asyncio.Semaphore(MAX_CALLS_OF_ONE))
        self._calls[owner] = self._calls.get(owner, 0) + 1
        try:
            # An owner's own slot comes first: its waiting calls must not occupy slots of others.
            async with owner_slots, self._slots:
                yield
        finally:
            self._calls[owner] -= 1
            if not self._calls[owner]:
                del self._calls[owner], self._owner_slots[owner]

    @property
    def _http(self) -> SinkPool:
        # Created at the first call, since it reads the system's certificates.
        if self._pool is None:
            self._pool = self._new_pool()
        return self._pool


def _request(
    method: str, address: str, headers: Mapping[str, str], body: bytes
) -> httpcore.Request:
    url = httpx.URL(address)
    completed = httpx.Request(method, url, headers=headers, content=body)  # adds Host and length
    return httpcore.Request(
        method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=completed.headers.raw,
        content=body,
    )


async def _drained(response: httpcore.Response) -> SinkAnswer:
    """Return the status and headers; drop a short body, so that the connection can be reused."""
    headers = httpx.Headers(response.headers)
    length = headers.get("content-length", "0" if response.status == 204 else "")
    if length.isdecimal() and int(length) <= MAX_DRAINED_BYTES:
        with suppress(TimeoutError, *_FAILURES):  # the status is valid, whatever the body
            async with asyncio.timeout(DRAIN_S):
                async for _ in response.aiter_stream():
                    pass
    return SinkAnswer(response.status, headers)


# --- the network: protection against SSRF and endless responses ---
#
# 1. Each resolved address is checked, and the connection goes to the checked address itself. A
#    second resolution could return another address (DNS rebinding).
# 2. At most `MAX_ANSWER_BYTES` of a response are read, including interim responses, head and body.
# 3. No redirect is followed and no proxy of the environment is used: either could choose an
#    address that was not checked.


READ_BYTES: Final = 4_096
"""Largest single read: the loop parses it in one step, which must be short."""

KEEP_S: Final = 5.0
"""Seconds that an idle connection to a sink is kept for the next call."""


def allowed_pool(allowed: Hosts) -> httpcore.AsyncConnectionPool:
    """Create a pool of HTTP connections that connects to allowed hosts only."""
    return httpcore.AsyncConnectionPool(
        ssl_context=httpx.create_ssl_context(),
        max_connections=MAX_CALLS,
        keepalive_expiry=KEEP_S,
        network_backend=_Network(allowed),
    )


class _Network(httpcore.AsyncNetworkBackend):
    """Connects to allowed addresses only."""

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
                return _LimitedStream(stream)
        raise failure


async def _addresses(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host!r:.80}: {error}") from None
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


class _LimitedStream(httpcore.AsyncNetworkStream):
    """Limits the bytes that a connection reads after each request (`MAX_ANSWER_BYTES`)."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._remaining_bytes = MAX_ANSWER_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # the base class names it
        """Read up to `READ_BYTES`, within the limit of a response."""
        if self._remaining_bytes <= 0:
            raise httpcore.ReadError(
                f"the answer is longer than {MAX_ANSWER_BYTES} bytes (MAX_ANSWER_BYTES)"
            )
        count = min(max_bytes, READ_BYTES, self._remaining_bytes)
        data = await self._stream.read(count, timeout)
        self._remaining_bytes -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the base class names it
        """Write a request, and begin the limit of its response."""
        self._remaining_bytes = MAX_ANSWER_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the base class names it
    ) -> httpcore.AsyncNetworkStream:
        """Encrypt the connection."""
        return _LimitedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Describe the connection."""
        return self._stream.get_extra_info(info)
