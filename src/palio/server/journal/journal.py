"""`Journal`: what a broker must not forget, in one SQLite file.

It is the node's `Store`, read on the loop's thread, and it is written by a
thread of its own. An answer to an append means that it is on the disk: `synchronous=FULL`.

A journal belongs to one broker: it is locked while it is open, and it knows the broker's name.
Damaged data are never handed out: `JournalDamaged` names the entries, or reports that the file
cannot be used at all.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Final

from palio import files
from palio.errors import InvalidConfiguration
from palio.node.effects import ANYBODY, Entry, Heading, Stored
from palio.node.loss_markers import LossMarker
from palio.node.operations import Append, CaughtUp, Claim, Cursor, Put, PutSubscription, Target
from palio.protocol.limits import MAX_SUBJECTS
from palio.protocol.messages import Share
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import DiskSpace, FileIdentity
from palio.server.journal.format import about, connect, create_or_check, put_about, sound_rows
from palio.server.journal.reading import JournalReader, check_log, translated_damage
from palio.server.journal.scribe import Scribe
from palio.server.journal.watermark import FILE as MARK
from palio.server.journal.watermark import Note, Watermark
from palio.server.journal.writer import IDLE_S, OnFailed, OnStored, OnWritable, Writer

logger: Final = logging.getLogger("palio.server")
losses: Final = logging.getLogger("palio.journal")

FILE: Final = "journal.sqlite"
"""The name of a journal in the data directory; its log and its lock stand beside it."""

LOG_PAGES: Final = 4_000
"""So many pages of the log, and it is moved into the file: seldom, as this takes syncs of its own,
and yet before reading it takes long when a broker starts. It keeps that length: to sync a file that
grows takes a third longer."""


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
            check_log(self.path)
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
        """Begin to write; all three are called on the writer's thread. After something has `failed`
        all is refused that was appended before the node knew it (`Append.term`), until it is
        `writable`.
        """
        self._writer.start(stored, failed, writable)

    @property
    def free_bytes(self) -> int:
        """Free bytes of the disk that holds the journal."""
        return self._room.free

    def append(self, append: Append) -> None:
        """Write soon, after those before."""
        self._writer.append(append)

    def flush(self) -> None:
        """Return when all appends before are answered for. Blocks: call it in a thread."""
        self._writer.flush()

    def records(self) -> dict[str, bytes]:
        """Read the records of fronts, oldest first."""
        return self._reader.records()

    def close(self) -> None:
        """Write pending appends, and close the file. Blocks. May be called twice."""
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
    """A journal for a broker without a disk: durable publications and subscriptions are refused,
    and then it takes writes again at once.

    What may be forgotten by a restart, such as facts about other brokers, is taken and forgotten.
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
        """Forget what may be forgotten, and refuse the rest."""
        if append.term == self._term and not any(
            isinstance(each, PROMISES) for each in append.operations
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
        """Nothing, in an epoch that no earlier run of this broker had: the time of day."""
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
        lock = os.fdopen(files.open_own(directory / "journal.lock"), "r+")
    except OSError as error:
        raise InvalidConfiguration(f"broker.data_dir: {error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise InvalidConfiguration(
            f"{directory} is in use by another broker (process {owner}); "
            "stop it, or give this one a directory of its own (broker.data_dir)"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _beside(path: Path) -> list[Path]:
    """The log of a database and its index."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")]


def _make_private(path: Path) -> None:
    """The file and its log, which SQLite makes with the file's mode, are for their owner only."""
    try:
        os.close(files.open_own(path))
        for beside in _beside(path):
            if os.path.lexists(beside):
                os.close(files.open_own(beside))
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error}") from None


# --- what is gone ---
#
# The journal counts its transactions; its mark (`watermark`) has their number. If there
# were more, then the log was cut short, a file was emptied, or an old copy was put in its place:
#
# - the range of entries is logged, with the publishers and numbers that the mark knows of;
# - a notice that something was lost is put for each durable subscription, and it is acknowledged
#   like an event. Those that were lost with the journal get it when they are registered again: it
#   waits for them already;
# - another log begins: what this broker forgot of its streams the others believe to be there;
# - offsets, the numbers of epochs and the times of publications continue after those in use,
#   so that none is used twice.
#
# A broker then starts with what it has. So is reported what `palio journal salvage` leaves out.


SHOWN: Final = 20
"""So many publishers, or names, are listed in a line of the log."""


def begin_epoch(
    connection: sqlite3.Connection,
    path: Path,
    name: str,
    mark: Watermark,
    counters: JournalCounters,
) -> int:
    """Count one more opening, and report losses; return how often it was opened before."""
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
        _log_loss(path, mark, known, commits, last_offset, lost)
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
    """Raise the journal's counters to those that the mark knows as used."""
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
    """Begin another log, and put a notice of loss: for all durable subscriptions, or for the `lost`
    ones alone. A journal without a log has yet to learn from its network which one to begin.

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
    path: Path, mark: Watermark, known: Note, commits: int, last_offset: int, lost: list[str]
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
        losses.error("journal_transactions_lost", extra={"details": details})
        return
    details["entries"] = f"{last_offset + 1} to {known.last_offset}"
    details["events"] = _some([str(each) for each in mark.spans_after(last_offset)]) or "not known"
    losses.error("journal_truncated", extra={"details": details})


def _some(what: list[str]) -> str:
    more = len(what) - SHOWN
    return ", ".join(what[:SHOWN]) + (f" and {more} more" if more > 0 else "")
