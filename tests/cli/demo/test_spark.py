"""The process with Spark, and processes that stand in for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.cli.demo import spark
from palio.cli.demo.spark import BACKTESTER, Backtester, Row
from palio.errors import Unreachable
from palio.model import to_batches
from palio.model.events import TIME

PATIENCE_S = 60.0
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = [
    Row("bargains", "price < :limit", {"limit": 10.0}, None, NOON),
    Row("bargains", "price < :limit", {"limit": 5.0}, NOON, None),
    Row("nobody", "price > 1000", {}, None, None),
]


def program(code: str) -> Sequence[str]:
    return (sys.executable, "-c", f"import os, sys, time\n{code}")


async def test_an_archive_is_matched_with_parameters_as_they_were(tmp_path: Path) -> None:
    quotes = [
        {"id": hour, "price": price, TIME: NOON + timedelta(hours=hour)}
        for hour, price in ((-2, 9.0), (-1, 11.0), (1, 9.0), (2, 4.0))
    ]
    (batch,) = to_batches(quotes)
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "quotes.parquet")
    async with Backtester() as backtester:
        found = await backtester.found(tmp_path, ROWS)
        assert backtester.is_ready
    assert {name: sorted(ids) for name, ids in found.items()} == {"bargains": [-2, 2], "nobody": []}


ANSWERS = """
print("WARNING: of Java", flush=True)
print('{"ready": true}', flush=True)
job = sys.stdin.readline()
print("WARNING: of Java", flush=True)
print('{"bargains": [%d]}' % len(job), flush=True)
"""


async def test_lines_of_java_are_no_answers(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), Backtester(program(ANSWERS)) as backtester:
        ((name, (length,)),) = (await backtester.found(tmp_path, ROWS)).items()
    assert name == "bargains"
    assert length > 100


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("sys.exit('no Java here\\n')", "has ended: no Java here"),
        ("pass", "has ended: nothing was said"),
        ("print('{}', flush=True); sys.stdin.readline(); sys.exit('too deep')", "ended: too deep"),
    ],
)
async def test_a_job_that_fails_says_why(tmp_path: Path, code: str, says: str) -> None:
    with pytest.raises(Unreachable, match=says):
        async with asyncio.timeout(PATIENCE_S), Backtester(program(code)) as backtester:
            await backtester.found(tmp_path, ROWS)


async def test_a_job_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "START_S", 0.01)
    with pytest.raises(Unreachable, match=r"did not answer within 0\.01 s"):
        async with asyncio.timeout(PATIENCE_S), Backtester(program("time.sleep(1e6)")) as one:
            await one.found(tmp_path, ROWS)


async def test_an_interrupt_ends_it_and_what_it_started() -> None:
    """Java is a child of the process, and holds its output open for as long as it lives."""
    code = (
        "import subprocess\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1e6)'])\n"
        "print('{}', flush=True)\ntime.sleep(1e6)"
    )
    async with all_gone(code) as command:
        with pytest.raises(KeyboardInterrupt):
            async with asyncio.timeout(PATIENCE_S), Backtester(command):
                raise KeyboardInterrupt


@asynccontextmanager
async def all_gone(code: str) -> AsyncIterator[list[str]]:
    """A command that runs a program; in the end neither it nor any child of it is left."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    yield ["/bin/sh", "-c", f'exec "$@" {writer}>&{writer}', "sh", *program(code)]
    os.close(writer)
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.to_thread(os.read, reader, 1) == b"", "somebody is left who writes"
    os.close(reader)


async def test_who_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "END_S", 0.01)
    code = "import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('{}', flush=True)\n"
    async with (
        all_gone(code + "time.sleep(1e6)") as command,
        asyncio.timeout(PATIENCE_S),
        Backtester(command),
    ):
        pass


def test_it_ends_with_its_input() -> None:
    """The demo was killed: nobody gives it a job any more."""
    done = subprocess.run(
        BACKTESTER, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == '{"ready": true}'
