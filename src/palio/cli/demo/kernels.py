"""`palio demo` on a machine whose kernels are not compiled: `palio warm` beside it.

The demo begins in plain Python and waits for nothing. One process compiles, with the time that the
demo leaves; the brokers load what it made when all is there. What is compiled when the demo ends
stays on disk.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from palio.cli.warm import IS_DONE

__all__ = ["CompilingKernels"]

WARM: Final = (sys.executable, "-m", "palio", "warm")

NICENESS: Final = 10
"""The niceness of the compiler, so that other processes go first."""

STEP: Final = 5
"""Kernels from one line about them to the next."""

PROGRESS: Final = re.compile(r"(\d+) of (\d+) kernels")


class CompilingKernels:
    """A process that compiles kernels, if there are any to compile, and tells how far it is.

    Whether it compiles is known on entering. Its failure is told and spoils nothing: everything
    works without.
    """

    def __init__(self, tell: Callable[[str], None], command: Sequence[str] = WARM) -> None:
        self._tell = tell
        self._command = command
        self._process: Process | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_compiling = False
        self._far = "none"

    @property
    def pid(self) -> int | None:
        """The process, once it is started."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        known = asyncio.Event()
        self._following = asyncio.create_task(self._follow(process, known))
        try:
            await known.wait()
        except BaseException:
            await self._end(process)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        if self._is_compiling and kind is None:
            self._tell(
                f"kernels: {self._far} compiled so far, which is kept; "
                "palio warm, or whoever needs them next, compiles the others"
            )
        await self._end(process)

    async def _follow(self, process: Process, known: asyncio.Event) -> None:
        """Tell what the process says, until it ends."""
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async for raw in process.stdout:
                line = raw.decode().strip()
                self._pass_on(line)
                known.set()
            errors = (await process.stderr.read()).decode(errors="replace").split("\n")
            if await process.wait():
                self._is_compiling = False
                last = next(filter(None, reversed(errors)), f"status {process.returncode}")
                self._tell(f"kernels: compiling failed, plain Python does it all: {last}")
        finally:
            known.set()

    def _pass_on(self, line: str) -> None:
        progress = PROGRESS.match(line)
        if line.startswith(IS_DONE):
            if self._is_compiling:
                self._tell("kernels: all are compiled")
            self._is_compiling = False
            return
        self._is_compiling = True
        if progress is None:
            self._tell(f"kernels: {line}")
        else:
            self._far = f"{progress[1]} of {progress[2]}"
            if int(progress[1]) % STEP == 0:
                self._tell(f"kernels: {self._far} compiled")

    async def _end(self, process: Process) -> None:
        assert self._following is not None
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()  # files that it writes take their names when they are whole
            await process.wait()
