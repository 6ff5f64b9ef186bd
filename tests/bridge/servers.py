"""The other systems of the tests: processes on loopback, killed and started again in one place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from benchmarks.peer_systems.system import find, free_port

READY_S: Final = 60.0

RABBIT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's command in the path starts it as another user, with data in one place for all."""


class Server:
    """A server that keeps its port and its data over kills."""

    def __init__(
        self, command: list[str], port: int, home: Path, environment: Mapping[str, str]
    ) -> None:
        self.port = port
        self._command = command
        self._home = home
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + READY_S
        while True:
            assert self._process.poll() is None, (self._home / "log").read_text()[-2000:]
            assert time.monotonic() < until, (self._home / "log").read_text()[-2000:]
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", self.port)) == 0:
                    return

    def kill(self) -> None:
        """End it and its children as a power cut does to programs."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def _running(
    command: list[str], port: int, home: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    server = Server(command, port, home, environment or {})
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _program(name: str) -> str:
    found = find(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@contextmanager
def nats(home: Path) -> Iterator[Server]:
    port = free_port()
    program = _program("nats-server")
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(home / "streams")]
    with _running(command, port, home) as server:
        yield server


@contextmanager
def mqtt(home: Path) -> Iterator[Server]:
    """It saves each change: otherwise a kill takes what it has confirmed."""
    port = free_port()
    program = _program("mosquitto")
    home.chmod(0o777)
    (home / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n"
        "max_queued_messages 0\nmax_inflight_messages 0\n"
        f"persistence true\npersistence_location {home}/\n"
        "autosave_on_changes true\nautosave_interval 1\n"
    )
    with _running([program, "-c", str(home / "mosquitto.conf")], port, home) as server:
        yield server


@contextmanager
def amqp(home: Path) -> Iterator[Server]:
    if not RABBIT.exists():
        pytest.skip("rabbitmq-server is not installed")
    port, names, others = free_port(), free_port(), free_port()
    (home / "rabbitmq.conf").write_text("loopback_users = none\n")
    environment = {
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "HOME": str(home),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_DIST_PORT": str(others),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_LOG_BASE": str(home / "logs"),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_NODENAME": f"bridge{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
    }
    epmd = _program("epmd")
    with (
        _running([epmd, "-port", str(names), "-address", "127.0.0.1"], names, home),
        _running([str(RABBIT)], port, home, environment) as server,
    ):
        yield server


@contextmanager
def kafka() -> Iterator[str]:
    """The cluster that librdkafka keeps in this process for tests: its address."""
    mock = {"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0}
    cluster = Producer(mock)  # it lives as long as its producer
    (member,) = cluster.list_topics(timeout=READY_S).brokers.values()
    yield f"{member.host}:{member.port}"
    cluster.flush(0)
