"""The demo's check on Spark: `palio match`, on the quotes that the ledger received."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from palio.cli.demo.audit import Promise
from palio.errors import Unreachable
from palio.model.events import SEQ, TIME

__all__ = ["match_again", "matches_in", "write_job"]

COMMAND: Final = (sys.executable, "-m", "palio")

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: it starts in half of the time."""


def write_job(
    folder: Path, batches: Sequence[pa.RecordBatch], promises: Iterable[Promise]
) -> tuple[str, ...]:
    """Write quotes, and subscriptions with every value that a parameter had, as files in a folder;
    return the command's arguments.
    """
    quotes, subscriptions = folder / "quotes.parquet", folder / "subscriptions.jsonl"
    pq.write_table(pa.Table.from_batches(batches), quotes)
    rows = [
        {
            "id": promise.name,
            "filter": promise.text,
            "parameters": period.values,
            "valid_from": period.since,
            "valid_to": period.until,
        }
        for promise in promises
        for period in promise.periods
    ]
    subscriptions.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    options = ("--subscriptions", str(subscriptions), "--out", str(folder / "matches"))
    return ("match", str(quotes), *options, "--key", SEQ, "--as-of", TIME)


def matches_in(folder: Path) -> dict[str, list[int]]:
    """The numbers of the quotes that each subscription matches, as the command wrote them."""
    table = pq.read_table(folder / "matches")
    matches: dict[str, list[int]] = {}
    for row in table.to_pylist():
        matches.setdefault(row["subscription"], []).append(row[SEQ])
    return matches


async def match_again(arguments: Sequence[str], command: Sequence[str] = COMMAND) -> None:
    """Run the command; if that is cancelled, end it with its JVM."""
    environment = {"SPARK_SUBMIT_OPTS": QUICK_JAVA, **os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=environment,
        start_new_session=True,  # a group, so that one signal reaches the JVM as well
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        lines = errors.decode(errors="replace").strip().split("\n")
        raise Unreachable(f"the job on Spark failed: {lines[-1] or process.returncode}")
