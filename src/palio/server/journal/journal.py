"""`Journal`: what a broker must not forget, in one SQLite file.

It is the node's `Store`, read on the loop's thread, and the shell's `Journaling`, written by a
thread of its own. An answer to an append means that it is on the disk: `synchronous=FULL`.

A journal belongs to one broker: it is locked while it is open, and it knows the broker's name. What
was not written as it is read is never handed out: `JournalDamaged` says which entries, or that the
file cannot be used at all.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from palio import files
from palio.errors import InvalidConfiguration, JournalDamaged, UnsafeFile
from palio.model.parcels import Shape
from palio.node.effects import (
    ANYBODY,
    AddNumbers,
    Append,
    Assign,
    Entry,
    Heading,
    PutEntry,
    PutSubscription,
    Stored,
)
from palio.protocol.legal_parcels import read_shape
from palio.protocol.messages import Fact
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import DiskSpace
from palio.server.journal.format import (
    about,
    checksum,
    connect,
    create_or_check,
    homes_of,
    parcel_of,
    payload_checksum,
)
from palio.server.journal.losses import begin_epoch
from palio.server.journal.mark import FILE as MARK
from palio.server.journal.mark import Mark
from palio.server.journal.presence import Presence
from palio.server.journal.wal import check_log
from palio.server.journal.writer import IDLE_S, Writer

__all__ = ["FILE", "LOG_PAGES", "Diskless", "Journal"]

logger: Final = logging.getLogger("palio.server")

FILE: Final = "journal.sqlite"
"""The name of a journal in the data directory; its log and its lock stand beside it."""

LOG_PAGES: Final = 4_000
"""So many pages of the log, and it is moved into the file: seldom, as this takes syncs of its own,
and yet before reading it takes long when a broker starts. It keeps that length: to sync a file that
grows takes a third longer."""

_BROKEN: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)
"""What is raised for a row that is none: SQLite keeps values of any type in a column."""

_BY_NUMBER: Final = "(SELECT value FROM json_each(?))"


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
        self._shapes: dict[int, tuple[Shape, bytes]] = {}
        self._lock = _lock(directory)
        with _damage_told(self.path), ExitStack() as undo:
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

    def start(
        self, stored: Callable[[list[int]], None], failed: Callable[[int, str], None]
    ) -> None:
        """Begin to write; both are called on the writer's thread."""
        self._writer.start(stored, failed)

    def append(self, append: Append) -> None:
        """Write soon, after those before."""
        self._writer.append(append)

    def flush(self) -> None:
        """Return when all appends before are answered for."""
        self._writer.flush()

    def records(self) -> dict[str, bytes]:
        """What fronts keep, oldest first."""
        with _damage_told(self.path):
            rows = self._rows("SELECT * FROM records ORDER BY rowid")
            for *record, found in rows:
                self._expect(found, checksum(*record), "records", record[0])
        return {key: value for key, value, _ in rows}

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
        with _damage_told(self.path):
            pending = list(self._pending())
            waiting: dict[str, list[int]] = {}
            for subscription, entry, rows, found in self._rows("SELECT * FROM assigned"):
                self._expect(found, checksum(subscription, entry, rows), "assigned", entry)
                waiting.setdefault(subscription, []).append(entry)
            return Stored(
                epoch=self.epoch,
                last_entry=int(about(self._reading, "last_entry")),
                pending=[(entry, homes) for entry, homes, _ in pending],
                subscriptions=list(self._subscriptions()),
                waiting=dict(waiting),
                windows=list(self._windows()),
                facts=list(self._facts()),
                time_us=int(about(self._reading, "time_us")),
                bookmarks=dict(self._bookmarks()),
                subjects={entry: subjects for entry, _, subjects in pending if subjects},
            )

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """See `Store`."""
        query = (
            "SELECT entry, homes, publisher, first_seq, last_seq, wall_us, shape, sum, "
            f"payload_sum, payload FROM entries WHERE entry IN {_BY_NUMBER} ORDER BY entry"
        )
        with _damage_told(self.path):
            return [self._entry(row) for row in self._rows(query, json.dumps(list(numbers)))]

    def assigned(self, subscription: str, numbers: Sequence[int]) -> list[bytes | None]:
        """See `Store`."""
        query = (
            "SELECT entry, rows, sum FROM assigned "
            f"WHERE subscription = ? AND entry IN {_BY_NUMBER}"
        )
        selections: dict[int, bytes | None] = {}
        with _damage_told(self.path):
            for entry, rows, found in self._rows(query, subscription, json.dumps(list(numbers))):
                self._expect(found, checksum(subscription, entry, rows), "assigned", entry)
                selections[entry] = rows
        return [selections.get(number) for number in numbers]

    def heading(self, entry: int) -> Heading | None:
        """See `Store`."""
        query = (
            "SELECT entry, homes, publisher, first_seq, last_seq, wall_us, shape, sum "
            "FROM entries WHERE entry = ?"
        )
        try:
            rows = self._rows(query, entry)
        except sqlite3.Error:
            return None
        for *head, found in rows:
            _, _, publisher, first_seq, last_seq, wall_us, _ = head
            if found == checksum(*head) and first_seq is not None:
                return Heading(publisher, first_seq, last_seq, wall_us)
            if found == checksum(*head):
                return Heading(ANYBODY, 0, 0, wall_us)
        return None

    # --- reading ---

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._reading.execute(query, values).fetchall()

    def _pending(self) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
        query = (
            "SELECT entry, homes, publisher, first_seq, last_seq, wall_us, shape, sum "
            "FROM entries ORDER BY entry"
        )
        read: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}  # a million have a handful
        for *head, found in self._rows(query):
            self._expect(found, checksum(*head), "entries", head[0])
            entry, homes = head[:2]
            if homes not in read:
                read[homes] = homes_of(homes)
            yield entry, *read[homes]

    def _subscriptions(self) -> Iterator[PutSubscription]:
        for *fields, found in self._rows("SELECT * FROM subscriptions"):
            self._expect(found, checksum(*fields), "subscriptions", fields[0])
            yield PutSubscription(*fields)

    def _bookmarks(self) -> Iterator[tuple[str, bytes]]:
        for subscription, bookmark, found in self._rows("SELECT * FROM bookmarks"):
            self._expect(found, checksum(subscription, bookmark), "bookmarks", subscription)
            yield subscription, bookmark

    def _windows(self) -> Iterator[AddNumbers]:
        for key, bits, found in self._rows("SELECT * FROM windows"):
            self._expect(found, checksum(key, bits), "windows", key)
            yield AddNumbers(key, bits)

    def _facts(self) -> Iterator[Fact]:
        for origin, subject, fact, found in self._rows("SELECT * FROM facts"):
            self._expect(found, checksum(fact), "facts", f"{origin} {subject}")
            yield msgspec.json.decode(fact, type=Fact)

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        *head, found, payload_sum, payload = row
        entry, homes, publisher, first_seq, last_seq, wall_us, shape = head
        self._expect(found, checksum(*head), "entries", entry)
        try:
            known, described = self._shape(shape)
            if payload_sum != payload_checksum(entry, described, payload):
                raise ValueError("its checksum differs")  # told with the others
            homes, subjects = homes_of(homes)
            return Entry(entry, parcel_of(publisher, known, payload), homes, wall_us, subjects)
        except _BROKEN as error:
            self.counters.damaged += 1
            raise JournalDamaged(
                f"{self.path}: entry {entry} is not what was written ({error}); lost are the "
                f"events {first_seq} to {last_seq} of {publisher!r}"
            ) from None

    def _shape(self, number: int) -> tuple[Shape, bytes]:
        known = self._shapes.get(number)
        if known is None:
            found = self._rows("SELECT schema, sum FROM shapes WHERE shape = ?", number)
            if not found or zlib.crc32(found[0][0]) != found[0][1]:
                raise JournalDamaged(f"{self.path}: shape {number} is not what was written")
            known = self._shapes[number] = read_shape(found[0][0]), found[0][0]
        return known

    def _expect(self, found: object, expected: int, table: str, which: object) -> None:
        if found != expected:
            self.counters.damaged += 1
            raise JournalDamaged(f"{self.path}: in {table}, {which} is not what was written")


class Diskless:
    """A journal for a broker without a disk: durable publications and subscriptions are refused.

    What may be forgotten by a restart, such as facts about other brokers, is taken and forgotten.
    """

    def __init__(self) -> None:
        self.counters = JournalCounters()
        self._stored: Callable[[list[int]], None] = lambda _: None
        self._failed: Callable[[int, str], None] = lambda _, __: None

    def start(
        self, stored: Callable[[list[int]], None], failed: Callable[[int, str], None]
    ) -> None:
        """See `Journaling`."""
        self._stored, self._failed = stored, failed

    def append(self, append: Append) -> None:
        """See `Journaling`."""
        promises = (PutEntry, PutSubscription, Assign)
        if any(isinstance(each, promises) for each in append.operations):
            self.counters.failures += 1
            self._failed(
                append.ticket, "this broker has no disk: set broker.data_dir (--data) to make it so"
            )
        else:
            self._stored([append.ticket])

    def flush(self) -> None:
        """See `Journaling`: nothing waits."""

    def records(self) -> dict[str, bytes]:
        """See `Journaling`: nothing is left of an earlier run."""
        return {}

    def close(self) -> None:
        """See `Journaling`."""

    def load(self) -> Stored:
        """Nothing, in an epoch that no earlier run of this broker had: the time of day."""
        return Stored(int(time.time()), 0, (), (), {}, (), ())

    def entries(self, numbers: Sequence[int]) -> list[Entry]:  # noqa: ARG002  # there are none
        """See `Store`."""
        return []

    def assigned(self, subscription: str, numbers: Sequence[int]) -> list[bytes | None]:  # noqa: ARG002  # nobody's
        """See `Store`."""
        return [None for _ in numbers]

    def heading(self, entry: int) -> Heading | None:  # noqa: ARG002  # there are none
        """See `Store`."""
        return None


def _lock(directory: Path) -> IO[str]:
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


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Translates errors of SQLite and of the codecs about a broken file into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "unable to open" in str(error) or "readonly" in str(error):
            raise InvalidConfiguration(f"{path}: {error}") from error
        if "disk is full" in str(error):
            raise InvalidConfiguration(
                f"{path}: the disk is full; make some room for the broker to start"
            ) from error
        raise JournalDamaged(f"{path}: {error}") from error
    except (*_BROKEN, sqlite3.DatabaseError) as error:
        if isinstance(error, InvalidConfiguration | UnsafeFile):
            raise
        raise JournalDamaged(f"{path}: {error}") from error
