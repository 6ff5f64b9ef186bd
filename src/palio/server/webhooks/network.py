"""The network as webhooks see it: only addresses that are allowed, only answers that are short.

1. A name is resolved once, each address that it has is looked at, and the connection is made to
   that very address: what a name means cannot change between the look and the connection.
2. Of an answer no more than `MAX_ANSWER_BYTES` are read, whatever they are: a head, interim
   answers, a body.
3. No redirect is followed, and no proxy of the environment is used: either would choose an address
   that nobody looked at.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, Final

import httpcore
import httpx

from palio.server.hosts import Hosts
from palio.server.limits import MAX_ANSWER_BYTES, MAX_CALLS

__all__ = ["allowed_client"]

READ_BYTES: Final = 4_096
"""Read at once: what a sink sends is parsed between two turns of the loop."""

KEEP_S: Final = 5.0
"""Seconds that a connection to a sink is kept for the next call."""


def allowed_client(allowed: Hosts) -> httpx.AsyncClient:
    """A client of HTTP that reaches the hosts that are allowed, and no others."""
    return httpx.AsyncClient(transport=_Transport(_Network(allowed)), trust_env=False)


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
        """See `httpcore.AsyncNetworkBackend`; `ConnectError` if no address is allowed."""
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
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host!r:.80}: {error}") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class _ShortStream(httpcore.AsyncNetworkStream):
    """A connection on which answers are short: each request that is written may have one."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = MAX_ANSWER_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # the base class names it
        """See `httpcore.AsyncNetworkStream`."""
        if self._left <= 0:
            raise httpcore.ReadError(
                f"the answer is longer than {MAX_ANSWER_BYTES} bytes (MAX_ANSWER_BYTES)"
            )
        data = await self._stream.read(min(max_bytes, READ_BYTES, self._left), timeout)
        self._left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # the base class names it
        """See `httpcore.AsyncNetworkStream`."""
        self._left = MAX_ANSWER_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """See `httpcore.AsyncNetworkStream`."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the base class names it
    ) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkStream`."""
        return _ShortStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """See `httpcore.AsyncNetworkStream`."""
        return self._stream.get_extra_info(info)


class _Transport(httpx.AsyncBaseTransport):
    """httpx over a network of our own, which its own transport does not take."""

    def __init__(self, network: httpcore.AsyncNetworkBackend) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=MAX_CALLS,
            keepalive_expiry=KEEP_S,
            network_backend=network,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        url = request.url
        wanted = httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            response = await self._pool.handle_async_request(wanted)
        except _FAILURES as error:
            raise httpx.TransportError(_said(error), request=request) from None
        assert isinstance(response.stream, AsyncIterable)
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response.stream)
        )

    async def aclose(self) -> None:
        """See `httpx.AsyncBaseTransport`."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except _FAILURES as error:
            raise httpx.TransportError(_said(error)) from None

    async def aclose(self) -> None:
        """See `httpx.AsyncByteStream`."""
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


_FAILURES: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
