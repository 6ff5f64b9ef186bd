"""The gate before gRPC: Palio's own listener, which passes on what it has looked at.

gRPC for Python can be told neither how long a message may be nor how long a connection may stand
there without a word, so it listens on a socket of this process alone (in a directory that nobody
else may enter), and the gate on the port.

1. TLS, preface and settings come within `greeting_s`; a connection without a call ends after
   `IDLE_S`, a message that has begun and does not end after `MESSAGE_S`, and a client that takes
   nothing of what it is sent after `STALL_S`.
2. Connections count against `limits.connections`, with those of all ports.
3. Messages are as long as frames may be, and nothing in them is compressed (`frames`).
4. Neither end is read from faster than the other takes it.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final, cast

from palio.errors import LimitExceeded
from palio.server.flight.frames import AnsweredCalls, Illegal, Inspector, farewell
from palio.server.limits import CLOSE_S, WRITE_HIGH_BYTES
from palio.server.places import Places

__all__ = ["IDLE_S", "MESSAGE_S", "STALL_S", "Gate"]

IDLE_S: Final = 60.0
"""A connection without a call; clients connect again when they have one."""

MESSAGE_S: Final = 60.0
"""A message, from its first byte to its last: 280 KB/s for the longest."""

STALL_S: Final = 60.0
"""A client that takes nothing of what it is sent."""

LOOK_S: Final = 0.25
"""Seconds between two checks of the times above."""

MAX_UNFINISHED_BYTES: Final = 256 << 20
"""Bytes that incomplete messages of all connections may take together."""

_INVALID, _TOO_MUCH, _AWAY = 3, 8, 14
"""gRPC's codes for a wrong argument, an exceeded limit, and a server that is not there."""


class Gate:
    """Listens, and makes a `_Client` for each connection."""

    def __init__(self, path: str, places: Places, *, greeting_s: float) -> None:
        self.path = path
        self.places = places
        self.greeting_s = greeting_s
        self._clients: set[_Client] = set()
        self.is_stopped = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._unfinished = 0
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._clients)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Begin; the port."""
        self._listener = await self._loop.create_server(
            lambda: _Client(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else self.greeting_s,
            backlog=1024,
        )
        self._timer = self._loop.call_later(LOOK_S, self._look)
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    def stop(self) -> None:
        """Take no more connections, and tell those that are open why they end (`gone`)."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for client in list(self._clients):
            client.end("the server is stopping", _AWAY)

    async def gone(self) -> None:
        """Wait until all have read why they end; who takes longer than `CLOSE_S` is cut."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._is_empty.wait()
        for client in list(self._clients):
            client.cut()
        await asyncio.sleep(0)  # in which the loop lets go of them

    def opened(self, client: _Client) -> None:
        """There is one more."""
        self._clients.add(client)
        self._is_empty.clear()

    def closed(self, client: _Client) -> None:
        """One is gone."""
        self._clients.discard(client)
        self._unfinished -= client.unfinished
        if not self._clients:
            self._is_empty.set()

    def has_room_for(self, more: int) -> bool:
        """Whether the unfinished messages of all connections are still within their limit."""
        self._unfinished += more
        return self._unfinished <= MAX_UNFINISHED_BYTES

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        now = self._loop.time()
        for client in list(self._clients):
            client.look(now)


class _Client(asyncio.Protocol):
    """A connection from outside, and the one to gRPC that belongs to it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._place = gate.places.take(gate.greeting_s)
        self._loop = asyncio.get_running_loop()
        self._inspector = Inspector()
        self._answers = AnsweredCalls(self._inspector)
        self._transport: asyncio.Transport | None = None
        self._inside: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._quiet_since = self._loop.time()
        """Since when it has been without a call, or without its greeting."""
        self._stalled_since: float | None = None
        self.unfinished = 0
        """Bytes of messages that have not come whole."""
        self._early = b""
        """The bytes of one read that came before the server's end was connected."""
        self._is_over = False
        self._closing: asyncio.TimerHandle | None = None

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._gate.opened(self)
        self._place.hold()
        if self._place.is_beyond:
            self.end("the most connections are open (limits.connections)", _TOO_MUCH)
            return
        if self._gate.is_stopped:  # it had been accepted before
            self.cut()
            return
        self._transport.pause_reading()
        self._connecting = self._loop.create_task(self._connect(), name="flight gate")

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_over or self._transport is None:
            return
        if self._inside is None:  # uvloop reads once more after it was asked to pause
            self._early += data
            self._transport.pause_reading()
            return
        now = self._loop.time()
        try:
            self._inspector.feed(memoryview(data), now)
        except (Illegal, LimitExceeded) as error:
            self.end(f"{type(error).__name__}: {error}", _INVALID)
            return
        if self._inspector.calls:
            self._quiet_since = now
        before, self.unfinished = self.unfinished, self._inspector.unfinished
        if not self._gate.has_room_for(self.unfinished - before) and self.unfinished > before:
            self.end("too much has been sent by half (MAX_UNFINISHED_BYTES)", _TOO_MUCH)
            return
        self._inside.write(data)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client does not take what it is sent."""
        self._stalled_since = self._loop.time()
        if self._inside is not None:
            self._inside.pause_reading()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._stalled_since = None
        if self._inside is not None and not self._is_over:
            self._inside.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # both ends close
        """See `asyncio.Protocol`."""
        self._is_over = True
        self._gate.closed(self)
        self._place.leave()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._closing is not None:
            self._closing.cancel()
        if self._inside is not None:
            self._inside.abort()

    # --- the other end ---

    async def _connect(self) -> None:
        try:
            _, inside = await self._loop.create_unix_connection(
                lambda: _Inside(self), self._gate.path
            )
        except OSError:
            self.end("the broker is going down", _AWAY)
            return
        assert isinstance(inside, _Inside)
        self._inside = cast(asyncio.Transport, inside.transport)
        self._inside.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if self._is_over or self._transport is None:
            self._inside.abort()
            return
        self._transport.resume_reading()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def answered(self, data: bytes) -> None:
        """gRPC said something."""
        if self._transport is None or self._is_over:
            return
        self._answers.feed(memoryview(data))
        if self._inspector.calls:
            self._quiet_since = self._loop.time()
        self._transport.write(data)

    def hold(self, *, is_full: bool) -> None:
        """gRPC takes no more for now, or takes more again."""
        if self._transport is not None and not self._is_over:
            if is_full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # --- the end ---

    def look(self, now: float) -> None:
        """End it if it has taken too long for something."""
        quiet_s = IDLE_S if self._inspector.has_greeted else self._gate.greeting_s
        if not self._inspector.calls and now - self._quiet_since > quiet_s:
            self.end("no call came", 0)
        elif now - self._inspector.waiting_since > MESSAGE_S:
            self.end(f"a message took longer than {MESSAGE_S:g} s", _TOO_MUCH)
        elif self._stalled_since is not None and now - self._stalled_since > STALL_S:
            self.cut()

    def end(self, reason: str, status: int) -> None:
        """Say why, and close. Nothing more goes on to gRPC.

        A client that has calls reads why only if it may go on sending for a while: it closes.
        """
        if self._is_over or self._transport is None:
            return
        self._is_over = True
        if self._inside is not None:
            self._inside.abort()
        self._closing = self._loop.call_later(CLOSE_S, self.cut)
        if not self._inspector.has_greeted or not self._answers.is_between:
            self._transport.close()
            return
        self._transport.write(farewell(self._inspector, self._answers, reason, status))
        if status and self._inspector.calls:
            self._transport.resume_reading()
        else:
            self._transport.close()

    def cut(self) -> None:
        """Close at once, whatever was not sent."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()


class _Inside(asyncio.Protocol):
    """The connection to gRPC."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._client.answered(data)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._client.hold(is_full=True)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._client.hold(is_full=False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # both ends close
        """See `asyncio.Protocol`."""
        self._client.end("the broker closed the connection", _AWAY)
