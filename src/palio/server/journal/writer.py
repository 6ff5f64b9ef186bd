"""`Writer`: the one thread that writes a journal, with group commit of pending appends.

1. An append is answered once, in the order of the appends: `stored` after the commit that holds it
   is on the disk, or `failed` when that could not be.
2. What is on the disk is a prefix of what was appended (L1): if a transaction fails, all of it is
   refused, and so is all that was appended before its broker knew of that (`Append.term`).
3. From then on it is tried once in `PROBE_S` whether the disk takes a write; then `writable`.
4. What only lets go (appends of `released` alone) is written also where nothing else can be: the
   reserve is for that (see `DiskSpace`).
5. When nothing is to be written for a while, the file gives back what it no longer needs.
6. After a commit and before its answers the mark is updated (`watermark`).
7. Once the files are not where they were (`identity`), everything is refused for good.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from palio.errors import JournalDamaged
from palio.node.operations import Append, Operation, Put, PutRecord, Retarget
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import DiskSpace, FileIdentity
from palio.server.journal.scribe import Scribe
from palio.server.journal.watermark import Watermark

logger: Final = logging.getLogger("palio.journal")

MAX_GROUP: Final = 512
"""Appends of one transaction, so that the first of them does not wait for ever."""

IDLE_S: Final = 1.0
"""So long without an append, and the file is made smaller."""

PROBE_S: Final = 1.0
"""How often a disk that refuses is tried: soon enough for publishers that try again, and several
times `RELEASE_S`: what lets go comes by itself before something that grows comes with it."""

WORTHWHILE_PAGES: Final = 4_096
"""Free pages (of 4 KiB) that are worth giving back, if they are more than half of the file; fewer
are kept for later writes."""

MOVABLE_PAGES: Final = 65_536
"""Pages in use that may be moved for it: 256 MiB, about two seconds in which appends wait."""

SMALL_BYTES: Final = 8_192
"""Bytes that a row takes beside its events, with the changes of the trees above it."""

ROW_BYTES: Final = 512
"""The same of a row of `waiting` with its index, of which many are written together."""

OnStored = Callable[[list[int]], None]
OnFailed = Callable[[int, str], None]
OnWritable = Callable[[], None]


class Writer:
    """A queue of appends, and the thread that empties it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        counters: JournalCounters,
        mark: Watermark,
        identity: FileIdentity,
        *,
        idle_s: float = IDLE_S,
        room: DiskSpace | None = None,
    ) -> None:
        self._connection = connection
        self._counters = counters
        self._mark = mark
        self._identity = identity
        self._idle_s = idle_s
        self._room = room
        self._scribe = Scribe(connection)
        self._queue: queue.SimpleQueue[Append | threading.Event | None] = queue.SimpleQueue()
        self._term = 0
        self._problem = ""
        self._probe_at: float | None = None
        """When to try a disk that refuses."""
        self._grown = True
        self._stored: OnStored = lambda _: None
        self._failed: OnFailed = lambda _, __: None
        self._writable: OnWritable = lambda: None
        self._thread = threading.Thread(target=self._run, name="palio journal", daemon=True)

    def start(self, stored: OnStored, failed: OnFailed, writable: OnWritable) -> None:
        """Begin; all three are called on the writer's thread."""
        self._stored, self._failed, self._writable = stored, failed, writable
        self._thread.start()

    def append(self, append: Append) -> None:
        """Write soon, after those before."""
        self._counters.waiting += 1
        self._queue.put(append)

    def flush(self) -> None:
        """Return when all before is answered for."""
        if self._thread.is_alive():
            written = threading.Event()
            self._queue.put(written)
            written.wait()

    def stop(self) -> None:
        """Write pending appends, compact the file, and end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    # --- the thread ---

    def _run(self) -> None:
        going = True
        while going:
            if self._probe_at is not None and time.monotonic() >= self._probe_at:
                self._probe()
            try:
                item = self._queue.get(timeout=self._rest_s())
            except queue.Empty:
                if self._probe_at is None:
                    self._compact()
                continue
            group: list[Append] = []
            marks: list[threading.Event] = []
            while True:
                if item is None:
                    going = False
                elif isinstance(item, threading.Event):
                    marks.append(item)
                else:
                    group.append(item)
                if item is None or len(group) >= MAX_GROUP:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            if group:
                self._commit(group)
            for mark in marks:
                mark.set()
        self._compact()

    def _rest_s(self) -> float | None:
        """Seconds to wait for an append until there is something else to do."""
        if self._probe_at is not None:
            return max(0.0, self._probe_at - time.monotonic())
        return self._idle_s if self._grown else None

    def _commit(self, group: Sequence[Append]) -> None:
        self._grown = True
        started = time.perf_counter()
        outdated = [append for append in group if append.term < self._term]
        due = group[len(outdated) :]
        assert all(append.term == self._term for append in due), "L1: terms only grow"
        self._refuse(outdated)
        if due:
            problem = self._identity.problem() or self._attempt(due)
            # What only lets go may be paid for by the reserve (rule 4).
            if problem is not None and not any(append.operations for append in due):
                problem = self._pay(due, problem)
            if problem is None:
                self._stored([append.ticket for append in due])
            else:
                self._begin_refusing(problem)
                self._refuse(due)
        self._counters.waiting -= len(group)
        self._counters.commit_s += time.perf_counter() - started

    def _begin_refusing(self, problem: str) -> None:
        if self._probe_at is None:  # else it has been logged
            logger.error("journal_write_failed", extra={"details": {"reason": problem}})
            self._probe_at = time.monotonic() + PROBE_S
        self._problem = problem
        self._term += 1

    def _refuse(self, appends: Sequence[Append]) -> None:
        self._counters.failures += len(appends)
        for append in appends:
            self._failed(append.ticket, self._problem)

    def _probe(self) -> None:
        """Try whether the disk takes something that grows."""
        if self._identity.problem() is None and self._attempt((), SMALL_BYTES) is None:
            logger.info("journal_write_resumed")
            self._probe_at = None
            self._writable()
        else:
            self._probe_at = time.monotonic() + PROBE_S

    def _pay(self, appends: Sequence[Append], problem: str) -> str | None:
        """Write what only lets go, with the reserve as room; why it failed, or None."""
        room = self._room
        if room is None or self._identity.problem() is not None:
            return problem
        room.release()
        error = self._attempt(appends)
        if error is None:
            self._empty_log()
        room.reserve()
        return error

    def _is_too_much(self, nbytes: int) -> bool:
        """Return whether the disk lacks room for so much and for what must be written after it."""
        room = self._room
        if room is None or not nbytes or room.admits(nbytes):
            return False
        self._empty_log()
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
        return not room.admits(nbytes, reusable=free * page_bytes)

    def _empty_log(self) -> None:
        """Move the log into the file, as far as there is room."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            logger.debug("wal_truncation_failed", extra={"details": {"reason": str(error)}})

    def _attempt(self, group: Sequence[Append], probe_bytes: int = 0) -> str | None:
        """Write some appends, or something that goes at once, as one transaction; why it failed, or
        None.
        """
        execute = self._connection.execute
        operations = [
            operation for append in group for operation in (*append.released, *append.operations)
        ]
        if not operations and not probe_bytes:
            return None
        try:
            grown = sum(_size(operation) for append in group for operation in append.operations)
            if self._is_too_much(grown + probe_bytes):
                return "the disk is full, but for what is kept to write acknowledgements"
            execute("BEGIN IMMEDIATE")
            for operation in operations:
                self._scribe.write(operation)
            if probe_bytes:
                self._scribe.try_room(probe_bytes)
            note = self._scribe.finish()
            execute("COMMIT")
        except (sqlite3.Error, JournalDamaged) as error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            self._scribe.forget()  # it has counted, and cached shapes, for what was rolled back
            return str(error)
        self._mark.note(note)
        self._counters.commits += 1
        self._counters.appends += len(group)
        return None

    def _compact(self) -> None:
        """Give back what the file no longer needs, and move the log into it. The log itself keeps
        its length: to sync a file that grows takes longer.
        """
        self._grown = False
        self._mark.sync()
        execute = self._connection.execute
        try:
            (free,) = execute("PRAGMA freelist_count").fetchone()
            (pages,) = execute("PRAGMA page_count").fetchone()
            used = pages - free
            if free >= WORTHWHILE_PAGES and free > used and used <= MOVABLE_PAGES:
                execute("VACUUM")
            execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            if self._room is not None:
                self._room.reserve()
        except sqlite3.Error as error:
            logger.warning("journal_compaction_failed", extra={"details": {"reason": str(error)}})


def _size(operation: Operation) -> int:
    """About how much an operation makes a journal grow."""
    match operation:
        case Put(_, parcel, _, targets):
            shares = sum(len(target.shares) for target in targets)
            return SMALL_BYTES + ROW_BYTES * shares + (0 if parcel is None else parcel.nbytes)
        case Retarget():
            return SMALL_BYTES + ROW_BYTES * operation.reserved
        case PutRecord(_, value):
            return SMALL_BYTES + len(value)
    return SMALL_BYTES
