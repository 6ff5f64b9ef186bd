"""`Journal`: what a broker must not forget, in one SQLite file.

It is the node's `Store`, read on the loop's thread, and the shell's `Journaling`, written by a
thread of its own. An answer to an append means that it is on the disk: `synchronous=FULL`.

A journal belongs to one broker: it is locked while it is open, and it knows the broker's name. What
was not written as it is read is never handed out: `JournalDamaged` says which entries, or that the
file cannot be used at all.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Final

from palio import files
from palio.errors import InvalidConfiguration
from palio.node.effects import Entry, Heading, Stored
from palio.node.operations import Append, CaughtUp, Cursor, Put, PutSubscription
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import DiskSpace, Presence
from palio.server.journal.format import connect, create_or_check
from palio.server.journal.losses import begin_epoch
from palio.server.journal.mark import FILE as MARK
from palio.server.journal.mark import Mark
from palio.server.journal.reading import JournalReader, damage_told
from palio.server.journal.wal import check_log
from palio.server.journal.writer import IDLE_S, OnFailed, OnStored, OnWritable, Writer

__all__ = ["FILE", "LOG_PAGES", "Diskless", "Journal", "lock"]

logger: Final = logging.getLogger("palio.server")

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
        with damage_told(self.path), ExitStack() as undo:
            undo.callback(self._lock.close)
            self._mark = undo.enter_context(closing(Mark(directory / MARK)))
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
                Presence([self.path, *_beside(self.path)]),
                idle_s=idle_s,
                room=self._room,
            )
            self._room.reserve()
            undo.pop_all()

    # --- `Journaling`: what the shell calls ---

    def start(self, stored: OnStored, failed: OnFailed, writable: OnWritable) -> None:
        """Begin to write; all three are called on the writer's thread."""
        self._writer.start(stored, failed, writable)

    def append(self, append: Append) -> None:
        """Write soon, after those before."""
        self._writer.append(append)

    def flush(self) -> None:
        """Return when all appends before are answered for."""
        self._writer.flush()

    def records(self) -> dict[str, bytes]:
        """What fronts keep, oldest first."""
        return self._reader.records()

    def close(self) -> None:
        """Write what waits, and let go of the file. May be called twice."""
        self._writer.stop()
        self._reading.close()
        self._connection.close()
        self._room.close()
        self._mark.close()
        self._lock.close()

    # --- `Store`: what the node calls ---

    def load(self) -> Stored:
        """See `Store`. Reads no events, and checks everything that it reads."""
        return self._reader.load(self.epoch)

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """See `Store`."""
        return self._reader.entries(numbers)

    def heading(self, entry: int) -> Heading | None:
        """See `Store`."""
        return self._reader.heading(entry)


PROMISES: Final = (Put, Cursor, PutSubscription)
"""Operations that a broker without a disk refuses: whoever waits relies on them."""

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
        """See `Journaling`."""
        self._stored, self._failed, self._writable = stored, failed, writable

    def append(self, append: Append) -> None:
        """See `Journaling`."""
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
        """See `Journaling`: nothing waits."""

    def records(self) -> dict[str, bytes]:
        """See `Journaling`: nothing is left of an earlier run."""
        return {}

    def close(self) -> None:
        """See `Journaling`."""

    def load(self) -> Stored:
        """Nothing, in an epoch that no earlier run of this broker had: the time of day."""
        return Stored(int(time.time()), (CaughtUp(1),))

    def entries(self, numbers: Sequence[int]) -> list[Entry]:  # noqa: ARG002  # there are none
        """See `Store`."""
        return []

    def heading(self, entry: int) -> Heading | None:  # noqa: ARG002  # there are none
        """See `Store`."""
        return None


def lock(directory: Path) -> IO[str]:
    """Hold a data directory for this process, until the file is closed or the process ends."""
    try:
        files.make_directory(directory)
        if files.is_open_to_others(directory):
            logger.warning(
                "broker.data_dir may be entered by other users of this machine: chmod 700 %s",
                directory,
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
