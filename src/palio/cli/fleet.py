"""`Fleet`: real brokers as processes on loopback, for the demo to kill and to start again."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from palio.client.connection import connect
from palio.errors import Unreachable

__all__ = ["Fleet"]

READY_S: Final = 30.0
"""How long a broker may take to start, on a machine that is busy with other things."""


class Fleet:
    """Brokers of one network, each linked with all before it, or (no mesh) with the one before."""

    def __init__(self, names: tuple[str, ...], folder: Path, *, mesh: bool = True) -> None:
        self._folder = folder
        self._mesh = mesh
        self._ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self._running: dict[str, Process] = {}
        self._archive: Process | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The brokers, running or not."""
        return tuple(self._ports)

    def url(self, name: str) -> str:
        """Where a broker listens, before and after it was killed."""
        return f"palio://127.0.0.1:{self._ports[name]}"

    async def start(self, name: str) -> None:
        """Start a broker, with whatever is on its disk; return once it listens."""
        names = self.names
        place = names.index(name)
        before = names[:place] if self._mesh else names[max(0, place - 1) : place]
        peers = [each for other in before for each in ("--peer", self.url(other))]
        process = self._running[name] = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "palio",
            "serve",
            "--config",
            str(self._configuration()),
            "--name",
            name,
            "--listen",
            self.url(name).removeprefix("palio://"),
            "--data",
            str(self._folder / name),
            "--json",
            *peers,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line or json.loads(line)["broker"] != name:
            raise Unreachable(f"broker {name} does not start; try palio serve --name {name}")

    async def archive(self, name: str, to: Path) -> None:
        """Archive all that is published, from now on, by a process of its own."""
        self._archive = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "palio",
            "archive",
            "TRUE",
            "--from",
            self.url(name),
            "--to",
            str(to),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(READY_S), connect(self.url(name)) as client:
            while not (await client.ask("status"))["durable_subscriptions"]:  # noqa: ASYNC110  # elsewhere
                await asyncio.sleep(0.05)

    async def kill(self, name: str) -> None:
        """Stop a broker with SIGKILL: it has no time for anything."""
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def __aenter__(self) -> Self:
        try:
            for name in self.names:
                await self.start(name)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Let the archive finish, then drain all brokers, and wait until they are gone."""
        if self._archive is not None:
            await _end([self._archive])
            self._archive = None
        await _end(list(self._running.values()))
        self._running.clear()

    def _configuration(self) -> Path:
        """What is not said by flags: any graph will do, and who has gone is missed soon."""
        path = self._folder / "palio.toml"
        path.write_text(
            '[broker]\nrouting = "general"\n\n[limits]\npeer_grace_s = 1.0\n',
            encoding="utf-8",
        )
        return path


async def _end(processes: list[Process]) -> None:
    for process in processes:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            async with asyncio.timeout(READY_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. A broker that was killed comes back to its own."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
