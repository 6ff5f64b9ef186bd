"""What `benchmarks.peers` asks of each system that it compares: start a broker, connect clients.

All systems hear the same: filters `a = i AND b = j AND c < x` on events of ten attributes. How much
of that the broker tests, and how much is left to the client, is the system's own affair; a client
calls `hear` with what passes the whole filter, and with nothing else.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

READY_S: Final = 60.0
"""More than any of the brokers takes to start."""

Event = dict[str, Any]
Hear = Callable[[Mapping[str, Any]], None]

encoded: Final = msgspec.json.Encoder().encode
"""An event for systems that leave the form of messages to applications."""

decoded: Final = msgspec.json.Decoder(Event).decode


class Wanted(NamedTuple):
    """`a = i AND b = j AND c < x`."""

    a: int
    b: int
    x: int

    @property
    def text(self) -> str:
        return f"a = {self.a} AND b = {self.b} AND c < {self.x}"


Move = Callable[[Wanted], Awaitable[None]]

NO_GROUPS: Final[Mapping[str, str]] = {"groups": "only Palio and JetStream are compared"}


class Running(NamedTuple):
    """A broker at work."""

    address: str
    process: int

    @property
    def processes(self) -> list[int]:
        """Its process, and those that came of it."""
        parents: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            except OSError:  # ended meanwhile
                continue
            parents.setdefault(int(fields.split()[1]), []).append(int(path.parent.name))
        found = [self.process]
        for each in found:
            found += parents.get(each, [])
        return found


class Client(ABC):
    """One connection of an application."""

    @abstractmethod
    async def subscribe(self, wanted: Sequence[Wanted], hear: Hear) -> None:
        """Hear what matches any of them; return when all are in force."""

    @abstractmethod
    async def follow(self, wanted: Wanted, hear: Hear) -> Move:
        """The same for one that moves: what is returned makes it another, and returns when that is
        in force.
        """

    @abstractmethod
    async def send(self, event: Event) -> None:
        """Publish without waiting for the broker; only what must wait for room waits."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the broker."""

    async def keep(self, hear: Hear) -> None:
        """Hear what is published as durable, and acknowledge it."""
        raise NotImplementedError

    async def work(self, hear: Hear) -> None:
        """Take a share of what is published as durable, a few at a time, and acknowledge each."""
        raise NotImplementedError

    async def send_durable(self, event: Event) -> None:
        """Publish, and return when the broker says that the event is kept."""
        raise NotImplementedError


class System(ABC):
    """One of those that are compared."""

    name: ClassVar[str]
    module: ClassVar[str] = ""
    """What its client is imported from; nothing where frames are written here."""
    distribution: ClassVar[str] = ""
    """Which package brings that."""
    program: ClassVar[str] = ""
    """The command of its broker."""
    package: ClassVar[str] = ""
    """Debian's package of that."""
    cannot: ClassVar[Mapping[str, str]] = NO_GROUPS
    """Rows that it has no figure for, and why."""
    notes: ClassVar[str] = ""
    """What is to be known of its figures."""

    @classmethod
    def missing(cls) -> str:
        """Why it cannot run on this machine; empty if it can."""
        if cls.program and find(cls.program) is None:
            return f"{cls.program} is not installed"
        if cls.module and importlib.util.find_spec(cls.module) is None:
            return f"the Python package {cls.module} is not installed"
        return ""

    @classmethod
    def versions(cls) -> str:
        """Those of broker and client, as far as the system knows them."""
        found = []
        if cls.package and shutil.which("dpkg-query"):
            asked = ["dpkg-query", "-W", "-f", "${Version}", cls.package]
            said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
            found += [f"{cls.package} {said}"] if said else []
        if cls.distribution:
            found.append(f"{cls.distribution} {importlib.metadata.version(cls.distribution)}")
        return ", ".join(found)

    def prepare(self) -> None:  # noqa: B027  # most have nothing to do
        """What is done once after an installation, and not by every start."""

    @abstractmethod
    def start(self, directory: Path, *, durable: bool) -> AbstractContextManager[Running]:
        """A broker for the time of the block, on loopback, with its data in a directory."""

    @abstractmethod
    async def connect(self, address: str, name: str, directory: Path) -> Client:
        """A client of that broker."""


def find(program: str) -> str | None:
    """Where a broker's command is; Debian keeps some where only root looks."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port of loopback that nobody listens at now."""
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        port: int = there.getsockname()[1]
        return port


@contextmanager
def child(
    command: Sequence[str],
    port: int,
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    is_ready: Callable[[], bool] | None = None,
) -> Iterator[Running]:
    """A broker's process for the time of the block, from when it accepts connections."""
    program = find(command[0])
    assert program is not None, f"{command[0]} is not installed"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *command[1:]],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    running = Running(f"127.0.0.1:{port}", process.pid)
    try:
        _wait(process, port, directory / "log")
        while is_ready is not None and not is_ready():
            time.sleep(0.05)
        yield running
    finally:
        _end(process, running.processes)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when somebody accepts connections at a port."""
    until = time.monotonic() + READY_S
    while True:
        if process.poll() is not None or time.monotonic() > until:
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{process.args!r} did not start:\n{said}")
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.01)
        else:
            return


def _end(process: subprocess.Popen[bytes], family: Collection[int]) -> None:
    """End a broker and what came of it."""
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for each in family:
        if each != process.pid:
            try:
                os.kill(each, 9)
            except ProcessLookupError:
                continue
