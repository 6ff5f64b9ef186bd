"""One Ctrl-C ends every command at once, also while its broker is away or does not answer."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import pytest

import palio
from palio.cli.main import INTERRUPTED
from tests.cli.brokers import PATIENCE_S, PROGRAM
from tests.conftest import share

ENDS_S: Final = 10.0
"""How long a command may take to end, on a busy machine: far less than the 30 s of a request."""


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process with three pipes."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@contextmanager
def served(data: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker as a process, and its address."""
    arguments = (
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(data),
        "--routing",
        "advertised",
        "--json",
    )
    with started("serve", *arguments) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield process, told["listening"]["palio"]


def until_connected(client: palio.SyncClient, count: int) -> None:
    """Wait until so many clients, and this one, are there."""
    until = monotonic() + PATIENCE_S
    while client.admin.query("status")["connected"] <= count:
        assert monotonic() < until, "the commands do not connect"
        sleep(0.05)


def until_told(process: subprocess.Popen[bytes], text: str) -> list[str]:
    """The lines of stderr up to one with a text."""
    assert process.stderr is not None
    lines = []
    for line in iter(process.stderr.readline, b""):
        lines.append(line.decode())
        if text in lines[-1]:
            return lines
    raise AssertionError(f"{text!r} was not told: {lines}")


def say(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


@pytest.mark.parametrize("end", share(["killed", "stopped"], 1))
def test_one_interrupt_ends_every_command(end: str, tmp_path: Path) -> None:
    archived = tmp_path / "archived"
    with ExitStack() as stack:
        broker, url = stack.enter_context(served(tmp_path / "data"))
        commands = {
            "sub": ("sub", "TRUE", "--broker", url),
            "durable": ("sub", "TRUE", "--broker", url, "--name", "ann", "--durable", "d"),
            "pub": ("pub", "--broker", url, "--identity", "bob"),
            "advertise": ("advertise", "EXISTS x", "--broker", url, "--identity", "bob"),
            "archive": ("archive", "TRUE", "--broker", url, "--output", str(archived)),
            "top": ("top", "--broker", url),
        }
        running = {
            name: stack.enter_context(started(*arguments)) for name, arguments in commands.items()
        }
        with palio.SyncClient(url) as client:
            until_connected(client, len(running))
        until_told(running["advertise"], "advertised")
        say(running["pub"], b'{"x": 1}')
        until_told(running["sub"], "in force")
        until_told(running["archive"], "archiving")
        if end == "killed":
            broker.kill()
            until_told(running["sub"], "broke")
        else:
            broker.send_signal(signal.SIGSTOP)
        say(running["pub"], b'{"x": 2}')
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for name, process in running.items():
            try:
                _, errors = process.communicate(timeout=ENDS_S)
            except subprocess.TimeoutExpired:
                pytest.fail(f"{name} does not end")
            assert b"Traceback" not in errors, f"{name}: {errors.decode()}"
            assert process.returncode == INTERRUPTED, name


def test_people_are_told_that_the_connection_is_lost_and_that_it_is_back(tmp_path: Path) -> None:
    with served(tmp_path / "data") as (broker, url), started("sub", "TRUE", "--broker", url) as sub:
        until_told(sub, "subscribed to TRUE at palio")
        until_told(sub, "in force wherever events are published")
        broker.kill()
        broker.wait()
        (line,) = until_told(sub, "broke")
        assert line.startswith("palio: the connection to palio broke")
        port = url.rpartition(":")[2]
        with started("serve", "--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data")):
            *_, back = until_told(sub, "again")
            assert back == "palio: connected to palio again; all is subscribed again\n"
            sub.send_signal(signal.SIGINT)
            assert sub.wait(ENDS_S) == INTERRUPTED


def test_a_command_that_has_not_connected_yet_ends_too(tmp_path: Path) -> None:
    """Nobody takes the connection that the archive dials."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        url = f"palio://127.0.0.1:{deaf.getsockname()[1]}"
        target = str(tmp_path / "archived")
        with started("archive", "TRUE", "--broker", url, "--output", target) as archive:
            connection, _ = deaf.accept()
            archive.send_signal(signal.SIGINT)
            assert archive.wait(ENDS_S) == INTERRUPTED
            connection.close()


@pytest.mark.parametrize("line", share([b"Three brokers start", b"is killed"], 1))
def test_the_demo_ends_with_its_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started("demo", "--seconds", "5") as demo:
        assert demo.stdout is not None
        while line not in demo.stdout.readline():
            assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=PATIENCE_S)
        assert b"Traceback" not in errors, errors.decode()
        assert demo.returncode == INTERRUPTED
    assert list(tmp_path.iterdir()) == []
    processes = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, check=True).stdout
    assert str(tmp_path).encode() not in processes
