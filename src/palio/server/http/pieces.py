"""`PacedSocket`: a socket of HTTP whose reads are parsed in pieces, with others' turns between.

The smallest chunk or frame takes 6 bytes and 7 us, so that one read of 256 KiB held the loop for a
third of a second. While a piece waits, or the protocol has paused, nothing is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from palio.server.limits import PIECE_BYTES
from palio.server.places import SocketPlace
from palio.server.turns import Turns, Waiting

__all__ = ["PacedSocket"]


class PacedSocket(asyncio.Protocol):
    """It is the protocol to the loop, and the transport to the protocol."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        place: SocketPlace,
        turns: Turns,
        wait: Callable[[Waiting], None],
    ) -> None:
        self._protocol = protocol
        self._place = place
        self._turns = turns
        self._wait = wait
        self._transport = cast(asyncio.Transport, None)
        self._rest = bytearray()
        self._is_waiting = False
        self._is_paused = False

    # --- to the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._rest += data
        if not self._is_waiting:
            self.go_on()

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._rest.clear()
        protocol, self._protocol = self._protocol, asyncio.Protocol()  # they hold each other
        protocol.connection_lost(exc)

    # --- to the queue ---

    def go_on(self) -> None:
        """Parse as many pieces as this turn has time for."""
        self._is_waiting = False
        rest, turns = self._rest, self._turns
        until = turns.slice()
        try:
            while rest and until > turns.clock() and not self._is_paused:
                piece = bytes(rest[:PIECE_BYTES])
                del rest[:PIECE_BYTES]
                self._protocol.data_received(piece)
                if self._transport.is_closing():
                    rest.clear()
        finally:
            if until:
                turns.spend(until)
        if self._place.is_strangers and not self._transport.is_closing():
            self._place.keep(len(rest) + cast(Any, self._protocol).unfinished)
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport.is_closing():
            return
        if self._rest and not self._is_paused and not self._is_waiting:
            self._is_waiting = True
            self._wait(self)
        if self._rest or self._is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- to the protocol ---

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """See `asyncio.BaseTransport`."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio.BaseTransport`."""
        return self._protocol

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._is_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._is_paused = False
        self._read_or_not()
