"""Begins an epoch of a journal, and tells what the journal had and has no longer.

The journal counts its transactions; its mark (`mark`) says how many there were. If there
were more, then the log was cut short, a file was emptied, or an old copy was put in its place:

- the range of entries is logged, with the publishers and numbers that the mark knows of;
- each durable subscription is assigned an entry that does not exist. It is told as a gap when its
  turn comes, and again until something after it was acknowledged. Those that were lost with the
  journal are told when they are registered again: they wait for that entry already;
- numbers of entries and of epochs, and the times of publications, go on after those that were
  used, so that none is used twice.

A broker then starts with what it has.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

from palio.errors import InvalidConfiguration
from palio.server.counters import JournalCounters
from palio.server.journal.format import about, checksum, put_about
from palio.server.journal.mark import Mark, Note

__all__ = ["begin_epoch"]

logger: Final = logging.getLogger("palio.journal")

SHOWN: Final = 20
"""So many publishers, or names, are told of in a line of the log."""


def begin_epoch(
    connection: sqlite3.Connection, path: Path, name: str, mark: Mark, counters: JournalCounters
) -> int:
    """Count one more opening, and tell what is gone: how often the journal was opened before."""
    known = mark.newest
    if known is not None and known.name != name:
        raise InvalidConfiguration(
            f"{mark.path} is of the journal of the broker {known.name!r}, not of {name!r}; "
            "set broker.name, or another broker.data_dir"
        )
    epoch, commits = int(about(connection, "epoch")), int(about(connection, "commits"))
    last_entry = int(about(connection, "last_entry"))
    time_us = int(about(connection, "time_us"))
    here = [each for (each,) in connection.execute("SELECT subscription FROM subscriptions")]
    connection.execute("BEGIN IMMEDIATE")
    if known is not None and known.commits > commits:
        told = _told(path, mark, known, commits, last_entry, here)
        counters.missing = max(0, known.last_entry - last_entry)
        last_entry = max(last_entry, known.last_entry)
        epoch, commits = max(epoch, known.epochs), known.commits
        time_us = max(time_us, known.time_us)
        if told:
            last_entry += 1
            rows = [(each, last_entry, None, checksum(each, last_entry, None)) for each in told]
            connection.executemany("INSERT INTO assigned VALUES (?, ?, ?, ?)", rows)
        put_about(connection, {"last_entry": last_entry, "time_us": time_us})
    put_about(connection, {"epoch": epoch + 1, "commits": commits + 1})
    connection.execute("COMMIT")
    mark.note(Note(name, epoch + 1, commits + 1, last_entry, time_us, began=here))
    mark.sync()
    return epoch


def _told(
    path: Path, mark: Mark, known: Note, commits: int, last_entry: int, here: list[str]
) -> list[str]:
    """Log what is gone; the durable subscriptions that are to be told."""
    lost = [each for each in mark.names if each not in set(here)]
    details = {
        "file": str(path),
        "transactions": f"{commits + 1} to {known.commits}",
    }
    if lost:
        details["subscriptions"] = _some(lost)
    if known.last_entry <= last_entry:
        # What was taken, acknowledged or learnt is forgotten: it is sent, or asked for, again.
        logger.error("the journal has lost transactions", extra={"details": details})
        return lost
    details["entries"] = f"{last_entry + 1} to {known.last_entry}"
    details["events"] = _some([str(each) for each in mark.spans_after(last_entry)]) or "not known"
    logger.error("the journal has lost entries", extra={"details": details})
    return [*here, *lost]


def _some(what: list[str]) -> str:
    more = len(what) - SHOWN
    return ", ".join(what[:SHOWN]) + (f" and {more} more" if more > 0 else "")
