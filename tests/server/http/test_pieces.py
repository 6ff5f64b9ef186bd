from __future__ import annotations

import asyncio
from typing import Any, cast

from palio.node.authority import Principal
from palio.server.connection_limiter import ConnectionLimiter
from palio.server.counters import Traffic
from palio.server.http.connection import PacedSocket
from palio.server.limits import PIECE_BYTES
from palio.server.scheduler import FairScheduler
from tests.server.fronts import WAIT_S


class Transport:
    """A socket of which it is noted whether it is read."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def get_extra_info(self, name: str) -> str:
        return f"its {name}"


class Parser(asyncio.Protocol):
    """A protocol that notes the sizes of what it gets."""

    unfinished = 7

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.transport: Any = None
        self.is_lost = False
        self.pauses = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))
        if self.pauses:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the interface
        self.is_lost = True


class World:
    """A socket, with a clock that a piece takes a second of."""

    def __init__(self, *, slice_s: float) -> None:
        self.now = 100.0
        self.scheduler = FairScheduler(self._clock, turn_s=1e6, slice_s=slice_s)
        self.limiter = ConnectionLimiter(10, Traffic())
        self.slot = self.limiter.take(WAIT_S)
        self.slot.hold(lambda _: None)
        self.parser, self.transport = Parser(), Transport()
        self.socket = PacedSocket(self.parser, self.slot, self.scheduler)
        self.socket.connection_made(cast(asyncio.Transport, self.transport))

    def is_read(self) -> bool:
        return self.transport.is_read

    def _clock(self) -> float:
        self.now += 1.0
        return self.now

    def turn(self) -> None:
        self.scheduler.serve(self.scheduler.begin())


async def test_a_read_is_parsed_in_pieces_and_nothing_is_read_before_the_last() -> None:
    world = World(slice_s=2.5)
    world.socket.data_received(bytes(5 * PIECE_BYTES + 3))
    assert world.parser.sizes == [PIECE_BYTES] * 2
    assert not world.is_read()
    world.socket.data_received(bytes(4))  # as TLS may have had it
    assert world.parser.sizes == [PIECE_BYTES] * 2
    world.turn()
    assert len(world.parser.sizes) == 4
    world.turn()
    assert world.parser.sizes == [*[PIECE_BYTES] * 5, 7]
    assert world.is_read()
    assert world.scheduler.is_idle


async def test_a_turn_without_time_parses_nothing() -> None:
    world = World(slice_s=2.5)
    world.scheduler = FairScheduler(world._clock, turn_s=0.0)
    world.socket._scheduler = world.scheduler
    world.socket.data_received(bytes(5))
    assert world.parser.sizes == []
    assert not world.is_read()


async def test_a_protocol_that_pauses_is_given_no_more_pieces() -> None:
    world = World(slice_s=1e3)
    world.parser.pauses = True
    world.socket.data_received(bytes(3 * PIECE_BYTES))
    world.turn()
    assert world.parser.sizes == [PIECE_BYTES]
    assert world.scheduler.is_idle
    world.parser.pauses = False
    world.parser.transport.resume_reading()
    assert not world.is_read(), "what was read comes first"
    assert world.parser.sizes == [PIECE_BYTES], "not within the call"
    world.turn()
    assert world.parser.sizes == [PIECE_BYTES] * 3
    assert world.is_read()


async def test_who_is_handed_the_socket_gets_the_rest() -> None:
    world, heir = World(slice_s=1.5), Parser()
    world.socket.data_received(bytes(2 * PIECE_BYTES))
    world.parser.transport.set_protocol(heir)
    assert world.parser.transport.get_protocol() is heir
    world.turn()
    assert (len(world.parser.sizes), len(heir.sizes)) == (1, 1)
    assert world.parser.transport.get_extra_info("peername") == "its peername"


async def test_what_a_stranger_has_sent_is_counted() -> None:
    world = World(slice_s=1.5)
    world.socket.data_received(bytes(3 * PIECE_BYTES))
    assert world.limiter.stranger_bytes == 2 * PIECE_BYTES + Parser.unfinished
    world.slot.shown(Principal("ann"))
    world.turn()
    assert world.limiter.stranger_bytes == 0


async def test_nothing_is_parsed_after_the_end() -> None:
    world = World(slice_s=1.5)
    world.socket.data_received(bytes(3 * PIECE_BYTES))
    world.transport.is_closed = True
    world.socket.connection_lost(None)
    assert world.parser.is_lost
    world.turn()
    assert world.parser.sizes == [PIECE_BYTES]
    assert world.scheduler.is_idle
