"""`palio demo`, the third part: the same promises, found again in the archive by a job on Spark.

A JVM takes seconds to start, and its first query seconds more. So a process of its own is started
with the demo: it opens a session, rehearses on quotes that it makes up, and waits on its standard
input for the job. It ends with its input, whoever held the other end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Self

import msgspec

from palio.cli.reporting import show
from palio.errors import Unreachable
from palio.model.events import TIME, to_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Backtester", "Row", "main"]

BACKTESTER: Final = (sys.executable, "-m", "palio.cli.demo.spark")

START_S: Final = 240.0
"""Seconds that Spark may take to be ready, or to answer, on a busy machine:
ten times what it takes on two idle cores."""

END_S: Final = 30.0
"""...and to stop, before it is killed."""


class Row(msgspec.Struct, frozen=True):
    """A subscription, for the time that its parameters counted."""

    id: str
    filter: str
    parameters: dict[str, Any]
    valid_from: datetime | None
    valid_to: datetime | None


class Job(msgspec.Struct, frozen=True):
    """An archive of quotes, and the subscriptions to match it with."""

    archive: str
    rows: list[Row]


Found = dict[str, list[int]]
"""Of each subscription the quotes that it matches, by their `id`."""


# --- the demo's side ---


class Backtester:
    """The process with Spark, ready or not."""

    def __init__(self, command: Sequence[str] = BACKTESTER) -> None:
        self._command = command
        self._process: Process | None = None
        self._errors: IO[bytes] | None = None
        self._ready: asyncio.Task[Any] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether Spark waits for the job, rather than the other way round."""
        return self._ready is not None and self._ready.done()

    async def __aenter__(self) -> Self:
        """Start it; return at once."""
        errors = self._errors = TemporaryFile()  # noqa: SIM115  # closed by __aexit__
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=errors, start_new_session=True
        )
        self._ready = asyncio.create_task(self._answer())
        return self

    async def found(self, archive: Path, rows: Sequence[Row]) -> Found:
        """Match an archive with the subscriptions, as soon as Spark is ready."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._ready is not None
        await self._ready
        job = msgspec.json.encode(Job(str(archive), list(rows)))
        with suppress(ConnectionError):  # then there is no answer either, and that is told
            self._process.stdin.write(job + b"\n")
            await self._process.stdin.drain()
        return msgspec.convert(await self._answer(), Found)

    async def _answer(self) -> Any:
        """The next document that it prints; Java prints lines of its own."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                async for line in self._process.stdout:
                    if line.startswith(b"{"):
                        return json.loads(line)
            problem = "has ended"
        except TimeoutError:
            problem = f"did not answer within {START_S:g} s"
        raise Unreachable(f"the demo's job on Spark {problem}: {self._last_error()}")

    def _last_error(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "nothing was said")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it stop Spark after its work; in the middle of that, end all of its processes."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        if self._ready is not None:
            self._ready.cancel()
            await asyncio.gather(self._ready, return_exceptions=True)
        try:
            process.stdin.close()
            if kind is not None:
                _signal_all(process, signal.SIGTERM)
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            _signal_all(process, signal.SIGKILL)
            await process.wait()
        finally:
            if self._errors is not None:
                self._errors.close()


def _signal_all(process: Process, number: int) -> None:
    """Python and Java, which is one group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# --- the side of Spark ---


def main() -> None:
    """Say when Spark is ready, do the job that comes on standard input, and stop."""
    from palio import spark

    session = spark.session(**{"spark.ui.showConsoleProgress": "false"})
    try:
        _rehearse(session)
        show(json.dumps({"ready": True}))
        sys.stdout.flush()
        line = sys.stdin.readline()
        if line:
            job = msgspec.json.decode(line, type=Job)
            show(json.dumps(_matched(session, job.archive, job.rows)))
            sys.stdout.flush()
    finally:
        spark.stop(session)


def _matched(session: SparkSession, archive: str, rows: Sequence[Row]) -> Found:
    """Match an archive with subscriptions as they were at each event's time."""
    from palio import spark

    given = [msgspec.structs.asdict(row) for row in rows]
    pairs = spark.match(session.read.parquet(archive), given, columns=["id"], time=TIME).collect()
    found: Found = {row.id: [] for row in rows}
    for pair in pairs:
        found[pair["subscription"]].append(pair["id"])
    return found


def _rehearse(session: SparkSession) -> None:
    """The job on one made-up quote: Java compiles what it runs, workers import what they need."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    now = datetime.now(UTC)
    with TemporaryDirectory(prefix="palio-rehearsal-") as folder:
        (batch,) = to_batches([{"id": 1, "symbol": "SAP", "price": 9.5, "volume": 7, TIME: now}])
        pq.write_table(pa.Table.from_batches([batch]), Path(folder) / "quotes.parquet")
        _matched(session, folder, [Row("rehearsal", "price < :limit", {"limit": 10.0}, now, None)])


if __name__ == "__main__":
    main()
