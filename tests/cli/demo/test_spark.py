"""The job on Spark: in the session of the tests, and as processes that stand in for it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from palio.cli.demo.audit import Period, Promise, match_again, matches_in, write_job
from palio.errors import Unreachable
from palio.model.events import SEQ, TIME
from tests.cli.helpers import Palio

PATIENCE_S = 60.0
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def batch(*quotes: tuple[int, int, float]) -> pa.RecordBatch:
    """Quotes: their number, the hour after noon, the price."""
    numbers, hours, prices = zip(*quotes, strict=True)
    times = [NOON + timedelta(hours=hour) for hour in hours]
    columns = {SEQ: numbers, TIME: pa.array(times, pa.timestamp("us", "UTC")), "price": prices}
    return pa.record_batch(columns)


@pytest.mark.usefixtures("spark")
def test_quotes_are_matched_with_the_values_of_their_time(palio: Palio, tmp_path: Path) -> None:
    bargains = Promise("bargains", "here", "price < :limit", {"limit": 10.0})
    bargains.periods = [Period({"limit": 10.0}, None, NOON), Period({"limit": 5.0}, NOON, None)]
    nobody = Promise("nobody", "here", "price > 1000", {})
    batches = [batch((1, -2, 9.0), (2, -1, 11.0)), batch((3, 1, 9.0), (4, 2, 4.0))]
    arguments = write_job(tmp_path, batches, [bargains, nobody])
    assert palio(*arguments).status == 0
    matches = matches_in(tmp_path)
    assert {name: sorted(numbers) for name, numbers in matches.items()} == {"bargains": [1, 4]}


def program(code: str) -> Sequence[str]:
    return (sys.executable, "-c", f"import os, sys, time\n{code}")


async def test_the_command_gets_its_arguments(tmp_path: Path) -> None:
    target = tmp_path / "arguments"
    code = f"open({str(target)!r}, 'w').write(' '.join(sys.argv[1:]))"
    await match_again(["match", "quotes"], program(code))
    assert target.read_text() == "match quotes"


@pytest.mark.parametrize(
    ("code", "problem"),
    [("sys.exit('no Java here\\n')", "failed: no Java here"), ("os.kill(os.getpid(), 9)", "-9")],
)
async def test_a_job_that_fails_says_why(code: str, problem: str) -> None:
    with pytest.raises(Unreachable, match=problem):
        await match_again([], program(code))


async def test_an_interrupt_ends_the_job_and_its_children(tmp_path: Path) -> None:
    """Its JVM is a child: a pipe that both of them hold open ends when both are gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        "import subprocess\n"
        f"pipe = os.open({str(pipe)!r}, os.O_WRONLY)\n"
        "os.set_inheritable(pipe, True)\n"
        "child = [sys.executable, '-c', 'import time; time.sleep(1e6)']\n"
        "subprocess.Popen(child, close_fds=False)\n"
        "os.write(pipe, b'!')\n"
        "time.sleep(1e6)"
    )
    async with asyncio.timeout(PATIENCE_S):
        job = asyncio.create_task(match_again([], program(code)))
        reader = await asyncio.to_thread(os.open, pipe, os.O_RDONLY)
        assert await asyncio.to_thread(os.read, reader, 1) == b"!"
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert await asyncio.to_thread(os.read, reader, 1) == b""
    os.close(reader)
