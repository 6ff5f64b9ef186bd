"""What is told of kernels that are compiled beside the demo, by processes that stand in for it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import pytest

from palio.cli.demo.kernels import NICENESS, CompilingKernels

PATIENCE_S = 60.0


def program(*lines: str, then: str = "") -> Sequence[str]:
    """A process that prints some lines, then does something."""
    printed = "".join(f"print({line!r}, flush=True);" for line in lines)
    return (sys.executable, "-c", f"import os, sys, time;{printed}{then}")


PROGRESS = tuple(f"{done} of 12 kernels" for done in range(1, 13))
ENDLESS = "time.sleep(1e6)"


async def told(command: Sequence[str], *, until: str = "") -> list[str]:
    """What is told by a demo that ends when it has heard a text."""
    lines: list[str] = []
    spoken = asyncio.Event()

    def tell(line: str) -> None:
        lines.append(line)
        if until in line:
            spoken.set()

    async with asyncio.timeout(PATIENCE_S), CompilingKernels(tell, command):
        if until:
            await spoken.wait()
    return lines


async def test_where_all_is_compiled_nothing_is_told() -> None:
    done = program("The kernels are compiled and cached: 1.0 s")
    assert await told(done) == []


async def test_it_tells_that_it_compiles_and_how_far_it_is() -> None:
    command = program("compiling takes a minute", *PROGRESS, "The kernels are compiled and cached")
    assert await told(command, until="all are compiled") == [
        "kernels: compiling takes a minute",
        "kernels: 5 of 12 compiled",
        "kernels: 10 of 12 compiled",
        "kernels: all are compiled",
    ]


async def test_the_demo_ends_before_it_and_tells_what_is_left() -> None:
    lines = await told(program("compiling", *PROGRESS[:11], then=ENDLESS), until="10 of")
    assert lines[0] == "kernels: compiling"
    assert lines[-1].startswith(("kernels: 10 of 12", "kernels: 11 of 12"))
    assert "compiled so far, which is kept; palio warm" in lines[-1]


async def test_a_compiler_that_fails_is_told_and_spoils_nothing() -> None:
    lines = await told(program("compiling", then="sys.exit('no room')"), until="failed")
    assert lines[-1] == "kernels: compiling failed, plain Python does it all: no room"


async def test_a_compiler_that_is_killed_is_told() -> None:
    lines = await told(program("compiling", then="os.kill(os.getpid(), 9)"), until="failed")
    assert lines[-1].startswith("kernels: compiling failed")
    assert lines[-1].endswith("status -9")


async def test_a_compiler_that_says_nothing_holds_nobody_up() -> None:
    async with asyncio.timeout(PATIENCE_S), CompilingKernels(print, program()):
        pass


async def test_it_stands_back_and_is_gone_afterwards() -> None:
    lines: list[str] = []
    pid = 0
    async with asyncio.timeout(PATIENCE_S):
        command = program(then="print(os.getpid(), flush=True);" + ENDLESS)
        async with CompilingKernels(lines.append, command):
            pid = int(lines[0].removeprefix("kernels: "))
            assert os.getpriority(os.PRIO_PROCESS, pid) >= NICENESS
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_an_interrupt_while_it_starts_leaves_no_process() -> None:
    """It has said nothing yet: whether anything is to be compiled is not known."""
    started = CompilingKernels(print, program(then="time.sleep(1e6)"))
    task = asyncio.create_task(started.__aenter__())
    while started.pid is None:  # noqa: ASYNC110  # nobody is told
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)
