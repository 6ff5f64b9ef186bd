"""One connection of HTTP: uvicorn's, with a slot among all sockets and a limit on every wait.

1. The handshake of TLS may take `limits.handshake_timeout_s`; then the socket is closed.
2. The head of a request may take `limits.http_head_s` from its first byte, that of the first
   request from the connection on; its body `limits.http_body_s` more. A later request is answered
   by 408.
3. For another request a connection waits `limits.http_idle_s`.
4. A client that does not take the end of what it asked for is cut, `limits.http_body_s` to twice
   that after the connection was closed, or after it asked for more.
5. An answer without an end, an event stream or a WebSocket, has no limit of time.
6. The state of a request (`scope["state"]`) has its slot: `Access` knows its principal.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NamedTuple, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from palio.server.connection_limiter import ConnectionLimiter, ConnectionSlot
from palio.server.counters import Traffic
from palio.server.http.access import SLOT
from palio.server.limits import MAX_COMMAND_BYTES, PIECE_BYTES
from palio.server.scheduler import FairScheduler
from palio.server.settings import Limits


class PacedSocket(asyncio.Protocol):
    """A socket whose reads are parsed in pieces, with others' turns between: the protocol to the
    loop, and the transport to the protocol.

    The smallest chunk or frame takes 6 bytes and 7 us, so that one read of 256 KiB held the loop
    for a third of a second. While a piece waits, or the protocol has paused, nothing is read.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        slot: ConnectionSlot,
        scheduler: FairScheduler,
    ) -> None:
        self._protocol = protocol
        self._slot = slot
        self._scheduler = scheduler
        self._transport = cast(asyncio.Transport, None)
        self._rest = bytearray()
        self._is_waiting = False
        self._is_paused = False

    # --- to the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room for the socket (`asyncio.Protocol`)."""
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        """Parse what was read (`asyncio.Protocol`)."""
        self._rest += data
        if not self._is_waiting:
            self.proceed()

    def eof_received(self) -> bool | None:
        """Pass the end of the input on (`asyncio.Protocol`)."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Pass backpressure on to the protocol (`asyncio.Protocol`)."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass the end of backpressure on (`asyncio.Protocol`)."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the socket held (`asyncio.Protocol`)."""
        self._rest.clear()
        protocol, self._protocol = self._protocol, asyncio.Protocol()  # they hold each other
        protocol.connection_lost(exc)

    # --- to the queue ---

    def proceed(self) -> None:
        """Parse as many pieces as this turn has time for."""
        self._is_waiting = False
        rest, scheduler = self._rest, self._scheduler
        until = scheduler.slice()
        try:
            while rest and until > scheduler.clock() and not self._is_paused:
                piece = bytes(rest[:PIECE_BYTES])
                del rest[:PIECE_BYTES]
                self._protocol.data_received(piece)
                if self._transport.is_closing():
                    rest.clear()
        finally:
            if until:
                scheduler.spend(until)
        if self._slot.is_strangers and not self._transport.is_closing():
            self._slot.keep(len(rest) + cast(Any, self._protocol).unfinished)
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport.is_closing():
            return
        if self._rest and not self._is_paused and not self._is_waiting:
            self._is_waiting = True
            self._scheduler.wait(self)
        if self._rest or self._is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- to the protocol ---

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """Give the socket another protocol (`asyncio.BaseTransport`)."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol behind this (`asyncio.BaseTransport`)."""
        return self._protocol

    def pause_reading(self) -> None:
        """Read no more (`asyncio.ReadTransport`)."""
        self._is_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """Read again, unless a piece waits (`asyncio.ReadTransport`)."""
        self._is_paused = False
        self._read_or_not()


class FrontDoor(NamedTuple):
    """The state that all connections of a front share."""

    limiter: ConnectionLimiter
    traffic: Traffic
    scheduler: FairScheduler
    limits: Limits


class HttpConnection(H11Protocol):
    """A connection over which requests come."""

    def __init__(self, config: Config, state: ServerState, door: FrontDoor) -> None:
        self._door = door
        self._slot = door.limiter.take(door.limits.handshake_timeout_s)
        super().__init__(config, state, {SLOT: self._slot})
        self._awaited = ""
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._is_handed_on = False

    @classmethod
    def paced(cls, config: Config, state: ServerState, door: FrontDoor) -> PacedSocket:
        """A connection, for the loop."""
        self = cls(config, state, door)
        return PacedSocket(self, self._slot, door.scheduler)

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Begin, if there is room for the socket (`asyncio.Protocol`)."""
        super().connection_made(transport)
        door = self._door
        if not self._slot.hold(self._make_room):
            self._make_room(
                f"{door.limiter.most} connections are the most (limits.max_connections)"
            )
            return
        door.traffic.accepted += 1
        self._await("head", door.limits.http_head_s)

    def data_received(self, data: bytes) -> None:
        """Parse what was read (`asyncio.Protocol`)."""
        if self.transport.is_closing():
            return
        self._has_begun = True
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.SEND_BODY and not self._is_handed_on:
            self._await("body", self._door.limits.http_body_s)
        elif state is h11.IDLE:
            self._await("head", self._door.limits.http_head_s)
        else:
            self._await_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the socket held (`asyncio.Protocol`)."""
        self._await_nothing()
        self._slot.leave()
        super().connection_lost(exc)

    @property
    def unfinished(self) -> int:
        """Bytes of a request that has not come whole, or that nobody has asked for."""
        body = 0 if self.cycle is None else len(self.cycle.body)
        return body + len(self.conn.trailing_data[0])

    @property
    def lingers(self) -> bool:
        """Return whether only the client's taking of the answer is left: the connection was
        closed, or another answer waits behind those that were not taken.
        """
        if self.transport.is_closing():
            return True
        return self.flow.write_paused and not self.cycle.response_started

    # --- what uvicorn calls ---

    def on_response_complete(self) -> None:
        """An answer went out; a body that still comes has no more time than it had."""
        super().on_response_complete()
        if self._awaited == "head" and self.timeout_keep_alive_task is not None:
            self._await_nothing()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection on, and its slot with it."""
        self._await_nothing()
        super().handle_websocket_upgrade(event)
        heir = self.transport.get_protocol()
        assert isinstance(heir, SocketConnection)
        heir.traffic = self._door.traffic
        if not self.transport.is_closing():
            heir.read_paused = True  # until it is accepted: there is no closing frame before
            self.transport.pause_reading()
        self._is_handed_on = True
        if not heir.handshake_initiated:  # such as a line that is too long for it
            self.send_400_response("This is no handshake of a WebSocket.")

    def send_400_response(self, msg: str) -> None:
        """Bytes came that are no request."""
        self._door.traffic.illegal += 1
        self._end(400, "InvalidInput", msg)

    # --- parts ---

    def _await(self, event: str, seconds: float) -> None:
        """The client has to send something; time runs from when that began."""
        if self._awaited != event:
            self._await_nothing()
            self._awaited = event
            self._timer = self.loop.call_later(seconds, self._too_late)

    def _await_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._awaited = ""

    def _make_room(self, reason: str) -> None:
        self._end(503, "LimitExceeded", reason)

    def _too_late(self) -> None:
        self._timer = None
        self._door.traffic.late += 1
        if not self._has_begun:
            self.transport.close()
            return
        setting = f"limits.http_{self._awaited}_s"
        self._end(
            408, "LimitExceeded", f"the {self._awaited} of a request did not come ({setting})"
        )

    def _end(self, status: int, kind: str, message: str) -> None:
        """Answer without asking the application, if nothing was answered yet, and close."""
        self._await_nothing()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = json.dumps({"error": {"type": kind, "message": message}}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *self.config.encoded_headers,
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


class SocketConnection(WebSocketsSansIOProtocol):
    """A connection that became a WebSocket; it keeps the slot of the one before."""

    traffic: Traffic | None = None
    unfinished: Final = MAX_COMMAND_BYTES
    """What may have come of a message."""

    @property
    def lingers(self) -> bool:
        """Return whether it was closed, and the client does not take the rest."""
        return self.transport.is_closing()

    def handle_cont(self, event: Frame) -> None:
        """Join fragments as they come: empty ones would take memory and count for none."""
        frames: list[Any] = self.frames
        if not isinstance(frames[0], bytearray):
            frames[0] = bytearray(frames[0])
        frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the socket held (`asyncio.Protocol`)."""
        self.app_state[SLOT].leave()
        super().connection_lost(exc)

    def handle_parser_exception(self) -> None:
        """Bytes came that are no frame, or no text."""
        if self.traffic is not None:
            self.traffic.illegal += 1
        super().handle_parser_exception()
