"""The floor: the same bytes sent back by a process that does nothing else, and a bare commit."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.network_ends import Frames, echo_process
from benchmarks.peer_systems.system import (
    NO_GROUPS,
    Client,
    Hear,
    Move,
    Running,
    System,
    Wanted,
    encoded,
)

_LENGTH: Final = struct.Struct("<I")


class _Back(Frames):
    """Counts what comes back."""

    hear: Hear

    def frame(self, data: bytes) -> None:  # noqa: ARG002  # it is the one that was sent
        self.hear({})


class EchoClient(Client):
    """Hears whatever it sends; each event goes as the bytes of the first one."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory
        self._back: _Back | None = None
        self._frame = b""
        self._disk: sqlite3.Connection | None = None

    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:  # noqa: ARG002  # no filters here
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, self._back = await loop.create_connection(_Back, host, int(port))
        self._back.hear = hear

    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        raise NotImplementedError

    async def send(self, event: dict[str, Any]) -> None:
        if not self._frame:
            body = encoded(event)
            self._frame = _LENGTH.pack(len(body)) + body
        assert self._back is not None
        self._back.write(self._frame)

    async def keep(self, hear: Hear) -> None:  # noqa: ARG002  # nobody hears a bare commit
        disk = sqlite3.connect(self._directory / "bare.db", isolation_level=None)
        disk.execute("PRAGMA journal_mode=WAL")
        disk.execute("PRAGMA synchronous=FULL")
        disk.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, event BLOB)")
        self._disk = disk

    async def send_durable(self, event: dict[str, Any]) -> None:
        assert self._disk is not None
        self._disk.execute("INSERT INTO kept (event) VALUES (?)", (encoded(event),))

    async def close(self) -> None:
        if self._back is not None:
            self._back.close()
        if self._disk is not None:
            self._disk.close()


class Echo(System):
    name = "raw echo"
    cannot = {  # noqa: RUF012  # a table
        "fanout": "an echo has no filters",
        "filters": "an echo has no filters",
        "moved": "an echo has no filters",
        **NO_GROUPS,
        "durable-64": "one synced commit for many would be a design of its own",
        "ready": "there is nothing to load",
    }
    notes = (
        "One connection, which gets back the bytes of an event that it sends, ready-made and not "
        "read. Durable: a row of the same bytes in SQLite (WAL, synchronous=FULL), one commit each"
    )

    @contextmanager
    def start(self, directory: Path, *, durable: bool) -> Iterator[Running]:  # noqa: ARG002  # the interface
        with echo_process() as (port, process):
            yield Running(f"127.0.0.1:{port}", process)

    async def connect(self, address: str, name: str, directory: Path) -> Client:  # noqa: ARG002  # the interface
        return EchoClient(address, directory)
