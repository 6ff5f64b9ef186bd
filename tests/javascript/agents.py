"""A client of examples/javascript as a process of Node.js, which takes calls in lines of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples" / "javascript"
AGENT: Final = Path(__file__).with_name("agent.mjs")

NPM_S: Final = 120.0
"""How long npm may take to install one package."""

MAX_LINE_BYTES: Final = 2 << 20
"""A line of the agent: an event of at most a megabyte of text fits."""

PATIENCE_S: Final = 30.0
"""How long a test waits for what must come; none waits so long unless it fails."""


def installed() -> Path:
    """A folder with the client, the agent and what they import; skip the test where there is none.

    npm installs once a lock file: Node.js looks for packages beside the files that import them.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("the client in JavaScript needs node and npm; install Node.js 20 or newer")
    folder = ROOT / ".cache" / "javascript"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(EXAMPLE / name, folder)
    for path in (*EXAMPLE.glob("*.mjs"), AGENT):
        shutil.copy(path, folder)
    stamp, lock = folder / "installed", (EXAMPLE / "package-lock.json").read_bytes()
    if not stamp.exists() or stamp.read_bytes() != lock:
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=NPM_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stderr or b"").decode(errors="replace").strip()[-300:]
            pytest.skip(f"npm cannot install @msgpack/msgpack, which needs a registry: {said}")
        stamp.write_bytes(lock)
    return folder


class Refused(Exception):
    """The error of a call."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class Agent:
    """One client in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._events: defaultdict[str, asyncio.Queue[Any]] = defaultdict(asyncio.Queue)
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        node = shutil.which("node")
        assert node is not None
        environment = {key: value for key, value in os.environ.items() if key != "NODE_OPTIONS"}
        self._process = await asyncio.create_subprocess_exec(
            node,
            str(self._folder / AGENT.name),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            limit=MAX_LINE_BYTES,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._reading is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "event" in said:
                self._events[said["event"]].put_nowait(said["data"])
            elif "error" in said:
                self._answers.pop(said["id"]).set_exception(Refused(**said["error"]))
            else:
                self._answers.pop(said["id"]).set_result(said["result"])
        for answer in self._answers.values():
            answer.set_exception(Refused("exit", "the agent has ended"))

    def start(self, call: str, *args: Any) -> asyncio.Future[Any]:
        """Begin a call; its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": number, "call": call, "args": args})
        self._process.stdin.write(line.encode() + b"\n")
        return answer

    async def call(self, call: str, *args: Any) -> Any:
        """The result of a call; `Refused` if it fails."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.start(call, *args)

    async def next(self, event: str) -> Any:
        """What the client tells next of a kind."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._events[event].get()

    def is_silent(self, event: str) -> bool:
        """Whether nothing of a kind has come that was not asked for."""
        return self._events[event].empty()
