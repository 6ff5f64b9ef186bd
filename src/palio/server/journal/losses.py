"""Begins an epoch of a journal, and tells what the journal had and has no longer.

The journal counts its transactions; its mark (`mark`) says how many there were. If there
were more, then the log was cut short, a file was emptied, or an old copy was put in its place:

- the range of entries is logged, with the publishers and numbers that the mark knows of;
- a notice that something was lost is put for each durable subscription, and it is acknowledged like
  an event. Those that were lost with the journal are told when they are registered again: it waits
  for them already;
- another log begins: what this broker forgot of its streams the others believe to be there;
- offsets, the numbers of epochs and the times of publications go on after those that were used, so
  that none is used twice.

A broker then starts with what it has. What `palio journal salvage` leaves out is told in this way.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from palio.errors import InvalidConfiguration
from palio.node.effects import ANYBODY, Heading
from palio.node.notices import Notice
from palio.node.operations import CaughtUp, Claim, Put, Target
from palio.protocol.limits import MAX_SUBJECTS
from palio.protocol.messages import Share
from palio.server.counters import JournalCounters
from palio.server.journal.format import about, put_about, sound_rows
from palio.server.journal.mark import Mark, Note
from palio.server.journal.scribe import Scribe

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
    here = [row[0] for row in sound_rows(connection, "subscriptions")]
    connection.execute("BEGIN IMMEDIATE")
    if known is not None and known.commits > commits:
        last_offset = int(about(connection, "last_offset"))
        lost = [each for each in mark.names if each not in set(here)]
        _tell(path, mark, known, commits, last_offset, lost)
        counters.missing = max(0, known.last_offset - last_offset)
        epoch = max(epoch, known.epochs)
        put_about(connection, _after(connection, known))
        put_about(connection, {"epoch": epoch + 1})
        scribe = Scribe(connection)
        _begin_log(connection, scribe, lost, for_all=bool(counters.missing))
    else:
        put_about(connection, {"epoch": epoch + 1})
        scribe = Scribe(connection)
    note = scribe.finish()
    connection.execute("COMMIT")
    note.began = here
    mark.note(note)
    mark.sync()
    return epoch


def _after(connection: sqlite3.Connection, known: Note) -> dict[str, int]:
    """What goes on after that which was used."""
    used = {
        "commits": known.commits,
        "last_offset": known.last_offset,
        "time_us": known.time_us,
    }
    return {key: max(value, int(about(connection, key))) for key, value in used.items()}


def _begin_log(
    connection: sqlite3.Connection,
    scribe: Scribe,
    lost: Iterable[str],
    *,
    for_all: bool,
) -> None:
    """Begin another log, and tell of a loss: all durable subscriptions, or those that are `lost`
    themselves. A journal without a log has yet to hear from its network, and which one to begin.

    The number of a log is the time of day, so that a copy that is used twice begins two of them.
    """
    wall_us = time.time_ns() // 1_000
    name, log = str(about(connection, "name")), int(about(connection, "log"))
    homes: dict[str, list[Share]] = {}
    for subject in lost:
        homes.setdefault(name, []).append(Share(subject, 0, None))
    for claim in (Claim(*row) for row in sound_rows(connection, "claims")):
        if for_all and not claim.is_over:
            homes.setdefault(claim.home, []).append(Share(claim.subject, claim.number, None))
    targets = tuple(_targets(homes, int(about(connection, "last_offset"))))
    if targets:
        notice = Notice.at(name, wall_us, Heading(ANYBODY, 0, 0, wall_us), 0)
        scribe.write(Put(targets[0].offset, notice.parcel, wall_us, targets))
    if log:
        scribe.write(CaughtUp(max(wall_us, log + 1)))


def _targets(homes: dict[str, list[Share]], offset: int) -> Iterator[Target]:
    for home, shares in homes.items():
        unique = list({share.subject: share for share in shares}.values())
        for first in range(0, len(unique), MAX_SUBJECTS):
            offset += 1
            yield Target(home, offset, tuple(unique[first : first + MAX_SUBJECTS]))


def _tell(
    path: Path, mark: Mark, known: Note, commits: int, last_offset: int, lost: list[str]
) -> None:
    """Log what is gone."""
    details = {
        "file": str(path),
        "transactions": f"{commits + 1} to {known.commits}",
    }
    if lost:
        details["subscriptions"] = _some(lost)
    if known.last_offset <= last_offset:
        # What was taken, acknowledged or learnt is forgotten: it is sent, or asked for, again.
        logger.error("the journal has lost transactions", extra={"details": details})
        return
    details["entries"] = f"{last_offset + 1} to {known.last_offset}"
    details["events"] = _some([str(each) for each in mark.spans_after(last_offset)]) or "not known"
    logger.error("the journal has lost entries", extra={"details": details})


def _some(what: list[str]) -> str:
    more = len(what) - SHOWN
    return ", ".join(what[:SHOWN]) + (f" and {more} more" if more > 0 else "")
