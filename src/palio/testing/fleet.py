"""`Fleet`: real brokers as processes on loopback, to be measured, killed and started again."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from palio.client.connection import connect
from palio.errors import Unreachable

SOON: Final[Mapping[str, float]] = MappingProxyType({"peer_grace_s": 1.0})
"""A short grace, so that a lost broker is detected soon."""

READY_S: Final = 60.0
"""Seconds that a broker may take to start on a busy machine."""

LINKED_S: Final = 300.0
"""Seconds that all of them, which may be a hundred, may take to find each other."""


class Fleet:
    """Brokers of one network, which all reach each other once it is entered.

    `links` are pairs of names, of which the first dials the second; without them every broker dials
    all before it. `limits` are settings of `[limits]`. A subclass may lead links through
    proxies: see `url`, `way`, `options` and `launcher`.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        folder: Path,
        *,
        links: Iterable[tuple[str, str]] | None = None,
        limits: Mapping[str, float] = SOON,
        routing: str = "general",
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._routing = routing
        self._links = tuple(combinations(reversed(names), 2) if links is None else links)
        self._ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self._running: dict[str, Process] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The brokers, running or not."""
        return tuple(self._ports)

    def port(self, name: str) -> int:
        """The port on which a broker listens on its loopback, before and after it was killed."""
        return self._ports[name]

    def url(self, name: str) -> str:
        """Return the address at which clients reach a broker."""
        return f"palio://127.0.0.1:{self._ports[name]}"

    def way(self, name: str, other: str) -> str:  # noqa: ARG002  # for those who override it
        """Return the address at which one broker reaches another."""
        return self.url(other)

    def options(self, name: str) -> Sequence[str]:  # noqa: ARG002  # for those who override it
        """List the words after the command that runs a broker."""
        return ()

    def launcher(self, name: str) -> Sequence[str]:  # noqa: ARG002  # for those who override it
        """List the words before the command that runs a broker."""
        return ()

    async def start(self, name: str) -> None:
        """Start a broker from its disk; return once it listens."""
        others = [other for one, other in self._links if one == name]
        peers = [argument for other in others for argument in ("--peer", self.way(name, other))]
        process = self._running[name] = await asyncio.create_subprocess_exec(
            *self.launcher(name),
            sys.executable,
            "-m",
            "palio",
            "serve",
            "--config",
            str(self._configuration()),
            "--name",
            name,
            "--listen",
            f"127.0.0.1:{self.port(name)}",
            "--data",
            str(self._folder / name),
            "--json",
            *self.options(name),
            *peers,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await process.stdout.readline()
                is_up = line.startswith(b'{"broker"')
                output = line if is_up else line + await process.stdout.read()
        except TimeoutError:
            output = b"no output"
        if not output.startswith(b'{"broker"'):
            raise Unreachable(f"broker {name} does not start: {output.decode()}")

    def pid(self, name: str) -> int:
        """Return the process of a running broker."""
        return self._running[name].pid

    async def kill(self, name: str) -> None:
        """Stop a broker with SIGKILL, without any cleanup."""
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def restart(self, name: str) -> None:
        """Drain a broker with SIGTERM, and start it again once it has gone; return once it is
        linked.
        """
        await _end([self._running.pop(name)])
        await self.start(name)
        await self.linked()

    async def linked(self) -> None:
        """Wait until all brokers that run are in reach of one of them. A broker that listens is not
        linked yet: who subscribes at another is unknown to it, and so is what it publishes there.
        """
        one = next(iter(self._running))
        async with asyncio.timeout(LINKED_S):
            while await self.unreached(one):  # noqa: ASYNC110  # other processes notify nobody
                await asyncio.sleep(0.05)

    async def unreached(self, by: str) -> list[str]:
        """List the running brokers that one of them cannot reach."""
        try:
            async with connect(self.url(by)) as client:
                reached = (await client.admin.topology())["brokers"]
        except Unreachable:  # it has too much to do
            return list(self._running)
        return [
            name for name in self._running if name not in reached or not reached[name]["reachable"]
        ]

    async def __aenter__(self) -> Self:
        try:
            for name in self.names:
                await self.start(name)
            await self.linked()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop all brokers, and wait until they are gone."""
        await _end(list(self._running.values()))
        self._running.clear()

    def _configuration(self) -> Path:
        """The file of settings: all of a fleet have the same."""
        path = self._folder / "palio.toml"
        if not path.exists():  # another broker may be reading it
            limits = "\n".join(f"{name} = {value}" for name, value in self._limits.items())
            text = f'[broker]\nrouting = "{self._routing}"\n\n[limits]\n{limits}\n'
            path.write_text(text, encoding="utf-8")
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
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports
