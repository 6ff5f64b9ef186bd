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

from palio.errors import Unreachable

__all__ = ["Fleet"]

READY_S: Final = 30.0
"""How long a broker may take to start, on a machine that is busy with other things."""


class Fleet:
    """Brokers of one network, each linked with those before it."""

    def __init__(self, names: tuple[str, ...], folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self._running: dict[str, Process] = {}

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
        peers = [
            each for other in names[: names.index(name)] for each in ("--peer", self.url(other))
        ]
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
        """Drain all that run, and wait until they are gone."""
        processes = list(self._running.values())
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
        self._running.clear()

    def _configuration(self) -> Path:
        """What is not said by flags: any graph will do, and the dead are missed soon."""
        path = self._folder / "palio.toml"
        path.write_text(
            '[broker]\nrouting = "general"\n\n[limits]\nheartbeat_s = 0.5\npeer_grace_s = 1.0\n',
            encoding="utf-8",
        )
        return path


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. A broker that was killed comes back to its own."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
