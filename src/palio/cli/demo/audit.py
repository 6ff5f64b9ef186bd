"""The audit: the quotes that every subscriber should receive, worked out apart from the brokers.

Each quote is tested by brute force with `Filter.matches` just before it is published. A quote that
matches is owed until the subscriber receives it, or a gap reports it lost. Afterwards Spark may
match the quotes again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from palio.client.events import Gap
from palio.errors import Unreachable
from palio.language.parsing import parse_filter
from palio.model.events import SEQ, TIME

Quote: TypeAlias = dict[str, Any]

COUNTS: Final = ("expected", "received", "lost", "missing", "wrong", "twice")


class Outcome(msgspec.Struct, frozen=True):
    """The promise to one subscriber held against what it received."""

    subscriber: str
    at: str
    filter: str
    expected: int
    received: int
    lost: int
    """Quotes that gaps reported."""
    missing: int
    wrong: int
    """Quotes that do not match or were altered, and errors in the counts of gaps."""
    twice: int

    @property
    def is_kept(self) -> bool:
        """True if the promise was kept."""
        return not (self.missing or self.wrong or self.twice)


class Period(msgspec.Struct):
    """Parameter values, and the time for which they counted; None is open."""

    values: dict[str, Any]
    since: datetime | None = None
    until: datetime | None = None


class Promise:
    """The account of one subscription: the quotes it is owed, and those it received."""

    def __init__(self, name: str, broker: str, text: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self.broker = broker
        self.text = text
        self.periods = [Period(dict(values))]
        self.expected: set[int] = set()
        self.received = 0
        self.lost = 0
        self._numbers: set[int] = set()
        self._wrong = 0
        self._twice = 0
        self._owed: dict[int, Quote] = {}
        self._filter = parse_filter(text)

    @property
    def values(self) -> dict[str, Any]:
        """The values of the filter's parameters now."""
        return self.periods[-1].values

    @property
    def is_settled(self) -> bool:
        """True if nothing is owed."""
        return not self._owed

    def change(self, values: Mapping[str, Any]) -> None:
        """From now on the subscription has these values."""
        now = datetime.now(UTC)
        self.periods[-1].until = now
        self.periods.append(Period({**self.values, **values}, now))

    def expect(self, number: int, quote: Quote) -> None:
        """Note a quote that is about to be published, if it matches."""
        if self._filter.matches(quote, self.values):
            self.expected.add(number)
            self._owed[number] = quote

    def receive(self, number: int, quote: Quote) -> None:
        """Account for a delivery."""
        self.received += 1
        if number in self._numbers:
            self._twice += 1
        elif self._owed.get(number) == quote:
            del self._owed[number]
            self._numbers.add(number)
        else:
            self._wrong += 1

    def lose(self, gap: Gap) -> None:
        """Account for a gap: it must count what is owed within its numbers, no more and no less.
        A possible loss alone changes nothing.
        """
        if not gap.is_certain:
            return
        gone = [number for number in self._owed if gap.first_seq <= number <= gap.last_seq]
        for number in gone:
            del self._owed[number]
        self.lost += gap.count
        self._wrong += abs(gap.count - len(gone))

    def outcome(self) -> Outcome:
        """The account as it stands: what is still owed is missing."""
        counts = (self.received, self.lost, len(self._owed), self._wrong, self._twice)
        return Outcome(self.name, self.broker, self.text, len(self.expected), *counts)

    def outcome_of(self, place: str, numbers: Iterable[int]) -> Outcome:
        """The promise held against matches that were computed elsewhere."""
        matches = list(numbers)
        distinct = set(matches)
        missing, wrong = len(self.expected - distinct), len(distinct - self.expected)
        counts = (len(matches), 0, missing, wrong, len(matches) - len(distinct))
        return Outcome(self.name, place, self.text, len(self.expected), *counts)


def table_of(outcomes: Iterable[Outcome]) -> str:
    """A table of promises and deliveries, 60 columns wide."""
    widths = [max(6, len(title) + 1) for title in COUNTS]
    rows = [("", "at", *COUNTS)] + [
        (outcome.subscriber, outcome.at, *(f"{getattr(outcome, title):,}" for title in COUNTS))
        for outcome in outcomes
    ]
    return "\n".join(
        f"{name:<9}{place:<7}"
        + "".join(f"{count:>{width}}" for count, width in zip(counts, widths, strict=True))
        for name, place, *counts in rows
    )


# --- Spark: `palio match`, on the quotes that the ledger received ---


COMMAND: Final = (sys.executable, "-m", "palio")

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Settings for a short-lived JVM: it starts in half of the time."""


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
    options = ("--subscriptions", str(subscriptions), "--output", str(folder / "matches"))
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
