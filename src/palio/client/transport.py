"""Connect a client to a broker over TCP or TLS, and exchange messages.

A connection collects the messages of one loop iteration and writes them at its end with one system
call. A single message waits only for the end of that iteration.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from palio.engine import is_installed
from palio.errors import IllegalMessage, InvalidConfiguration
from palio.protocol.addresses import CLOSED, parse_address
from palio.protocol.messages import Message
from palio.protocol.wire import Decoder, Encoder, write


class Receiver(Protocol):
    """The receiver of one connection's messages."""

    def arrived(self, message: Message) -> None:
        """Handle a message."""

    def lost(self, reason: str) -> None:
        """Handle the loss of the connection. Called once, unless this end closed it."""

    def illegal(self, error: IllegalMessage) -> None:
        """Handle undecodable input, the last input. Called in place of `lost`."""


class Wire(Protocol):
    """One connection, seen from the end that opened it."""

    def send(self, message: Message) -> None:
        """Write a message after those before it."""

    def flush(self) -> None:
        """Write pending messages now, not at the end of this loop iteration."""

    def close(self) -> None:
        """Close once pending messages are written. No further message arrives."""

    async def wait_closed(self) -> None:
        """Wait until it is closed."""


Dial: TypeAlias = Callable[[str, Receiver], Awaitable[Wire]]
"""Opens a connection to a URL; raises `OSError` if no server answers."""


def tcp(tls: TLS = None) -> Dial:
    """Connections over TCP, with TLS for `palios://` or where `tls` is given."""

    async def dial(url: str, receiver: Receiver) -> Wire:
        address = parse_address(url)
        context = tls_context(tls, is_secure=address.is_secure)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(url, receiver), address.host, address.port, ssl=context
        )
        return connection

    return dial


class _Connection(asyncio.Protocol):
    """A framed stream of messages."""

    def __init__(self, url: str, receiver: Receiver) -> None:
        self._receiver: Receiver | None = receiver
        self._encoder = Encoder()
        self._decoder = Decoder(url, plain=not is_installed())
        self._out: list[Any] = []
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # what is flushed is written at once

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                if self._receiver is None:
                    return
                self._receiver.arrived(message)
        except IllegalMessage as error:
            receiver = self._abandon()
            if receiver is not None:
                receiver.illegal(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set_result(None)
        self._lost(str(exc) if exc else CLOSED)

    def send(self, message: Message) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self.flush)
        self._out += self._encoder.encode(message)

    def close(self) -> None:
        self._receiver = None
        self.flush()
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    def flush(self) -> None:
        if self._out and self._transport is not None:
            buffers, self._out = self._out, []
            write(self._transport, buffers)

    def _lost(self, reason: str) -> None:
        receiver = self._abandon()
        if receiver is not None:
            receiver.lost(reason)

    def _abandon(self) -> Receiver | None:
        """Abort the connection, and return the receiver to notify, if any."""
        receiver, self._receiver = self._receiver, None
        if self._transport is not None:
            self._transport.abort()
        return receiver


TLS: TypeAlias = ssl.SSLContext | str | Path | bool | None
"""A context, the file of the authorities to trust, True for those of the system, or none."""


def tls_context(tls: TLS, *, is_secure: bool) -> ssl.SSLContext | None:
    """Return the TLS context for a connection; None for one without TLS."""
    if tls is None and not is_secure:
        return None
    if tls is False:
        if is_secure:
            raise InvalidConfiguration("palios:// is TLS, and tls=False asks for none")
        return None
    if isinstance(tls, ssl.SSLContext):
        return tls
    authorities = None if tls is None or tls is True else str(tls)
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise InvalidConfiguration(
            f"cannot read the authorities in {authorities!r}: {error}"
        ) from None
