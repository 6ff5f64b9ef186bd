"""`Journal`: a broker's durable state, in one SQLite file.

It is the node's `Store`, read on the loop's thread and written by a thread of its own. An answer to
an append means that it is on the disk: `synchronous=FULL`.

A journal belongs to one broker: it is locked while it is open, and has the broker's name in it. All
rows have checksums, and a row that fails its check is never returned: `JournalDamaged` names the
entries, or the file if it cannot be used at all.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Final

from palio import files
from palio.errors import InvalidConfiguration, JournalDamaged
from palio.node.effects import ANYBODY, Entry, Heading, Stored
from palio.node.loss_markers import LossMarker
from palio.node.operations import Append, CaughtUp, Claim, Cursor, Put, PutSubscription, Target
from palio.protocol.limits import MAX_SUBJECTS
from palio.protocol.messages import Share
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import DiskSpace, FileIdentity
from palio.server.journal.format import connect, create_or_check, put_about, read_about, sound_rows
from palio.server.journal.reading import JournalReader, translated_damage
from palio.server.journal.scribe import Scribe
from palio.server.journal.watermark import FILE as MARK
from palio.server.journal.watermark import Note, Watermark
from palio.server.journal.writer import IDLE_S, OnFailed, OnStored, OnWritable, Writer

logger: Final = logging.getLogger("palio.server")
losses: Final = logging.getLogger("palio.journal")

FILE: Final = "journal.sqlite"
"""The name of a journal in the data directory; its log and its lock are beside it."""

LOG_PAGES: Final = 4_000
"""Pages of the log at which SQLite moves it into the file. Seldom, as this takes syncs of its own,
but before reading it delays a broker's start. The log keeps that length: to sync a file that grows
takes a third longer."""


class Journal:
    """The journal of one broker; opening it begins a new epoch."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        idle_s: float = IDLE_S,
        max_bytes: int = 0,
        reserve_bytes: int = 0,
    ) -> None:
        self.path = directory / FILE
        self.counters = JournalCounters()
        self._lock = lock(directory)
        with translated_damage(self.path), ExitStack() as undo:
            undo.callback(self._lock.close)
            self._mark = undo.enter_context(closing(Watermark(directory / MARK)))
            _make_private(self.path)
            self._room = DiskSpace(directory, reserve_bytes)
            _check_log(self.path)
            self._connection = undo.enter_context(closing(connect(self.path)))
            create_or_check(self._connection, self.path, name)
            (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
            log_pages = LOG_PAGES
            if self._room.reserve_bytes:
                log_pages = min(LOG_PAGES, self._room.reserve_bytes // 2 // page_bytes)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {log_pages}")
            self._connection.execute(f"PRAGMA journal_size_limit = {log_pages * page_bytes}")
            if max_bytes:
                self._connection.execute(f"PRAGMA max_page_count = {max_bytes // page_bytes}")
            self._reading = undo.enter_context(closing(connect(self.path)))
            self._reader = JournalReader(self._reading, self.path, self.counters)
            self.epoch = begin_epoch(self._connection, self.path, name, self._mark, self.counters)
            self._writer = Writer(
                self._connection,
                self.counters,
                self._mark,
                FileIdentity([self.path, *_beside(self.path)]),
                idle_s=idle_s,
                room=self._room,
            )
            self._room.reserve()
            undo.pop_all()

    # --- called by the server ---

    def start(self, stored: OnStored, failed: OnFailed, writable: OnWritable) -> None:
        """Begin to write; the callbacks run on the writer's thread. After an append has `failed`,
        the writer refuses all appends of its term (`Append.term`), until it is `writable`.
        """
        self._writer.start(stored, failed, writable)

    @property
    def free_bytes(self) -> int:
        """Free bytes of the disk that holds the journal."""
        return self._room.free

    def append(self, append: Append) -> None:
        """Queue an append to be written in order."""
        self._writer.append(append)

    def flush(self) -> None:
        """Return when all earlier appends are answered. Blocks: call it in a thread."""
        self._writer.flush()

    def records(self) -> dict[str, bytes]:
        """Read the records of fronts, oldest first."""
        return self._reader.records()

    def close(self) -> None:
        """Write all queued appends, and close the file. Blocks. May be called twice."""
        self._writer.stop()
        self._reading.close()
        self._connection.close()
        self._room.close()
        self._mark.close()
        self._lock.close()

    # --- `Store`: called by the node ---

    def load(self) -> Stored:
        """Read and check all but the events (`Store`)."""
        return self._reader.load(self.epoch)

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Read entries by their numbers (`Store`)."""
        return self._reader.entries(numbers)

    def heading(self, entry: int) -> Heading | None:
        """Read an entry's heading, if it is sound (`Store`)."""
        return self._reader.heading(entry)


PROMISES: Final = (Put, Cursor, PutSubscription)
"""Operations that a broker without a disk refuses: their callers rely on them."""

NO_DISK: Final = "this broker has no disk: set broker.data_dir (--data) to make it so"


class Diskless:
    """The journal of a broker without a disk: it refuses durable publications and subscriptions.

    Operations that a restart may lose, such as facts about other brokers, are accepted and dropped.
    """

    def __init__(self) -> None:
        self.counters = JournalCounters()
        self._term = 0
        self._stored: OnStored = lambda _: None
        self._failed: OnFailed = lambda _, __: None
        self._writable: OnWritable = lambda: None

    def start(self, stored: OnStored, failed: OnFailed, writable: OnWritable) -> None:
        """Begin to answer appends."""
        self._stored, self._failed, self._writable = stored, failed, writable

    def append(self, append: Append) -> None:
        """Accept and drop operations that a restart may lose, and refuse others."""
        if append.term == self._term and not any(
            isinstance(operation, PROMISES) for operation in append.operations
        ):
            self._stored([append.ticket])
            return
        self.counters.failures += 1
        self._failed(append.ticket, NO_DISK)
        if append.term == self._term:
            self._term += 1
            self._writable()

    def flush(self) -> None:
        """Return: every append was answered at once."""

    def records(self) -> dict[str, bytes]:
        """Return nothing: no earlier run has left any."""
        return {}

    def close(self) -> None:
        """Do nothing: no file is open."""

    def load(self) -> Stored:
        """Return an empty state, in an epoch that no earlier run had: the time of day."""
        return Stored(int(time.time()), (CaughtUp(1),))

    def entries(self, numbers: Sequence[int]) -> list[Entry]:  # noqa: ARG002  # there are none
        """Read entries by their numbers (`Store`)."""
        return []

    def heading(self, entry: int) -> Heading | None:  # noqa: ARG002  # there are none
        """Read an entry's heading, if it is sound (`Store`)."""
        return None


def lock(directory: Path) -> IO[str]:
    """Hold a data directory for this process, until the file is closed or the process ends."""
    try:
        files.make_directory(directory)
        if files.is_open_to_others(directory):
            logger.warning(
                "data_dir_exposed",
                extra={
                    "details": {
                        "directory": str(directory),
                        "remedy": "other users may enter it; chmod 700",
                    }
                },
            )
        path = directory / "journal.lock"
        descriptor = files.locked(path, wait=False)
    except OSError as error:
        raise InvalidConfiguration(f"broker.data_dir: {error}") from None
    if descriptor is None:
        raise InvalidConfiguration(
            f"{directory} is in use by another broker (process {path.read_text().strip()}); "
            "stop it, or give this one a directory of its own (broker.data_dir)"
        )
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return os.fdopen(descriptor)


def _beside(path: Path) -> list[Path]:
    """Return the paths of a database's log and its index."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")]


def _check_log(path: Path) -> None:
    """Refuse a log beside an empty database: SQLite would delete it."""
    log, _ = _beside(path)
    if not path.stat().st_size and log.exists() and log.stat().st_size:
        raise JournalDamaged(
            f"{path} is empty or missing, and its log {log.name} is not: what was acknowledged "
            "depends on both; take the directory from a backup, or move it away and start empty"
        )


def _make_private(path: Path) -> None:
    """Create the file and its log for their owner only: SQLite gives the log the file's mode."""
    try:
        os.close(files.open_own(path))
        for beside in _beside(path):
            if os.path.lexists(beside):
                os.close(files.open_own(beside))
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error}") from None


# --- losses ---
#
# The journal counts its transactions, and its watermark has their number, too. If the watermark has
# more, the log was cut short, a file was emptied, or an old copy was restored. Or a frame of the
# log was damaged: SQLite takes that for an interrupted write, and drops it with all behind.
#
# - the range of lost entries is logged, with the publishers and numbers in the watermark;
# - a loss marker is put for each durable subscription, and acked like an event. Subscriptions that
#   were lost with the journal receive it when they are registered again;
# - another log begins: other brokers assume entries of the old streams here that are lost;
# - offsets, numbers of epochs and times of publications continue after those in use, so that none
#   is used twice.
#
# The broker then starts with the rest. Entries that `palio journal salvage` leaves out are reported
# in the same way.


SHOWN: Final = 20
"""Publishers, or names, that are listed in a line of the log."""


def begin_epoch(
    connection: sqlite3.Connection,
    path: Path,
    name: str,
    mark: Watermark,
    counters: JournalCounters,
) -> int:
    """Count one more opening, and report losses; return the number of earlier openings."""
    newest = mark.newest
    if newest is not None and newest.name != name:
        raise InvalidConfiguration(
            f"{mark.path} is of the journal of the broker {newest.name!r}, not of {name!r}; "
            "set broker.name, or another broker.data_dir"
        )
    epoch, commits = int(read_about(connection, "epoch")), int(read_about(connection, "commits"))
    here = [row[0] for row in sound_rows(connection, "subscriptions")]
    connection.execute("BEGIN IMMEDIATE")
    if newest is not None and newest.commits > commits:
        last_offset = int(read_about(connection, "last_offset"))
        lost = [subject for subject in mark.names if subject not in set(here)]
        _log_loss(path, mark, newest, commits, last_offset, lost)
        counters.missing = max(0, newest.last_offset - last_offset)
        epoch = max(epoch, newest.epochs)
        put_about(connection, _after(connection, newest))
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


def _after(connection: sqlite3.Connection, newest: Note) -> dict[str, int]:
    """Raise the journal's counters to those that the watermark has as used."""
    used = {
        "commits": newest.commits,
        "last_offset": newest.last_offset,
        "time_us": newest.time_us,
    }
    return {key: max(value, int(read_about(connection, key))) for key, value in used.items()}


def _begin_log(
    connection: sqlite3.Connection,
    scribe: Scribe,
    lost: Iterable[str],
    *,
    for_all: bool,
) -> None:
    """Begin another log, and put a loss marker: for all durable subscriptions, or for the `lost`
    ones alone. A journal without a log has yet to learn from its network which one to begin.

    The number of a log is the time of day, so that two brokers from one copy begin different logs.
    """
    wall_us = time.time_ns() // 1_000
    name, log = str(read_about(connection, "name")), int(read_about(connection, "log"))
    homes: dict[str, list[Share]] = {}
    for subject in lost:
        homes.setdefault(name, []).append(Share(subject, 0, None))
    for claim in (Claim(*row) for row in sound_rows(connection, "claims")):
        if for_all and not claim.is_over:
            homes.setdefault(claim.home, []).append(Share(claim.subject, claim.number, None))
    targets = tuple(_targets(homes, int(read_about(connection, "last_offset"))))
    if targets:
        notice = LossMarker.at(name, wall_us, Heading(ANYBODY, 0, 0, wall_us), 0)
        scribe.write(Put(targets[0].offset, notice.parcel, wall_us, targets))
    if log:
        scribe.write(CaughtUp(max(wall_us, log + 1)))


def _targets(homes: dict[str, list[Share]], offset: int) -> Iterator[Target]:
    for home, shares in homes.items():
        unique = list({share.subject: share for share in shares}.values())
        for first in range(0, len(unique), MAX_SUBJECTS):
            offset += 1
            yield Target(home, offset, tuple(unique[first : first + MAX_SUBJECTS]))


def _log_loss(
    path: Path, mark: Watermark, newest: Note, commits: int, last_offset: int, lost: list[str]
) -> None:
    """Log the transactions and entries that are lost."""
    details = {
        "file": str(path),
        "transactions": f"{commits + 1} to {newest.commits}",
    }
    if lost:
        details["subscriptions"] = _some(lost)
    if newest.last_offset <= last_offset:
        # Only acks, cursors or facts are lost: other brokers retransmit them.
        losses.error("journal_transactions_lost", extra={"details": details})
        return
    details["entries"] = f"{last_offset + 1} to {newest.last_offset}"
    details["events"] = _some([str(span) for span in mark.spans_after(last_offset)]) or "not known"
    losses.error("journal_truncated", extra={"details": details})


def _some(items: list[str]) -> str:
    more = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {more} more" if more > 0 else "")
