"""`Relay`: a line of TCP that takes its time, can be cut or hushed, and counts what goes over it.

Bytes arrive in order, each `delay_s` after it was sent; what is on the way is bounded, so that a
receiver that does not read is felt by the sender. The two ends may be in different namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Self

from benchmarks.namespaces import Namespace

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 16
CHUNKS: Final = 256
"""Pieces on the way in one direction: 16 MiB, which is what 10 ms hold at 1.6 GB/s."""


class Relay:
    """Listens at `url` and carries each connection to a port, after a delay in each direction."""

    def __init__(
        self,
        port: int,
        *,
        delay_s: float = 0.0,
        near: Namespace | None = None,
        far: Namespace | None = None,
        spoil: Callable[[bytes], bytes] = bytes,
        at: int = 0,
    ) -> None:
        """It listens `at` a port of `near`, any if that is 0, and leads to a port of `far`."""
        self.forth_bytes = 0
        """What came from those who connected here."""
        self.back_bytes = 0
        """What came from the other end."""
        self._target = (LOOPBACK, port)
        self._delay_s = delay_s
        self._far = far
        self.spoil = spoil
        """What becomes of a piece on its way."""
        with _within(near):
            self._listener = socket.create_server((LOOPBACK, at))
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        """Where it can be reached, in the namespace `near`."""
        host, port = self._listener.getsockname()
        return f"palio://{host}:{port}"

    @property
    def carried_bytes(self) -> int:
        """What came from both ends."""
        return self.forth_bytes + self.back_bytes

    def cut(self) -> None:
        """Break all connections; those that come are broken at once, until `mend`."""
        self._is_cut = True
        for line in self._lines:
            line.cancel()

    def mend(self) -> None:
        """Carry connections again."""
        self._is_cut = False

    def hush(self) -> None:
        """Let nothing arrive any more, not even that a connection ended, until `speak`."""
        self._flows.clear()

    def speak(self) -> None:
        """Let everything arrive again, beginning with what is on its way."""
        self._flows.set()

    async def flowing(self) -> None:
        """Wait while it is hushed."""
        await self._flows.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, sock=self._listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            await self.flowing()
            if not self._is_cut:
                await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):  # nobody listens there; it was cut
            pass
        finally:
            self._lines.discard(line)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _within(self._far):
            there = socket.socket()
        there.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(there, self._target)
        except BaseException:
            there.close()
            raise
        far_reader, far_writer = await asyncio.open_connection(sock=there)
        directions = [_Direction(self, self._delay_s), _Direction(self, self._delay_s)]
        try:
            await _first(
                directions[0].carry(reader, far_writer, forth=True),
                directions[1].carry(far_reader, writer, forth=False),
            )
        finally:
            far_writer.transport.abort()


class _Direction:
    """One way of one connection."""

    def __init__(self, relay: Relay, delay_s: float) -> None:
        self._relay = relay
        self._delay_s = delay_s
        self._under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS)

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, forth: bool
    ) -> None:
        """Until the sender has closed, and all that it sent has arrived."""
        reading = asyncio.create_task(self._read(reader, forth=forth))
        try:
            await self._write(writer)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, *, forth: bool) -> None:
        now = asyncio.get_running_loop().time
        data = b"?"
        while data:
            try:
                data = self._relay.spoil(await reader.read(CHUNK_BYTES))
            except OSError:  # reset, as by whom a signal has ended
                data = b""
            if forth:
                self._relay.forth_bytes += len(data)
            else:
                self._relay.back_bytes += len(data)
            await self._under_way.put((now() + self._delay_s, data))

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, data = await self._under_way.get()
            await asyncio.sleep(max(0.0, due - now()))
            await self._relay.flowing()
            if not data:
                break
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()


async def _first(*jobs: Coroutine[None, None, None]) -> None:
    """Return, or raise, as the first of several does; the others are cancelled."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _within(namespace: Namespace | None) -> AbstractContextManager[None]:
    return nullcontext() if namespace is None else namespace.inside()
