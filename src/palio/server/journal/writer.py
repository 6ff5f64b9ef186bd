"""`Writer`: the one thread that writes a journal. What waits is one transaction (group commit).

1. An append is answered once, in the order of the appends: `stored` after the commit that holds it
   is on the disk, or `failed` when that could not be. Of a transaction that failed each append is
   tried by itself, and whatever fits is stored, but for what needs another that was not.
2. What is over (`Append.released`), and an append of nothing but what makes room (`RELEASING`), is
   written also where nothing else can be: the reserve is for that (see `DiskSpace`). What is over
   and could not be written even so is owed: it is written before anything else once there is room.
3. When nothing is to be written for a while, the file gives back what it no longer needs.
4. After a commit and before its answers the mark is told (`mark`).
5. Once the files are not where they were (`presence`), everything is refused.
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
from palio.node.effects import RELEASING, Append, Operation, PutEntry, PutRecord
from palio.node.prerequisites import UNMET, Prerequisites
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import DiskSpace
from palio.server.journal.format import Scribe
from palio.server.journal.mark import Mark
from palio.server.journal.presence import Presence

__all__ = ["IDLE_S", "MAX_GROUP", "Writer"]

logger: Final = logging.getLogger("palio.journal")

MAX_GROUP: Final = 512
"""Appends of one transaction, so that the first of them does not wait for ever."""

IDLE_S: Final = 1.0
"""So long without an append, and the file is made smaller."""

WORTHWHILE_PAGES: Final = 4_096
"""Free pages (of 4 KiB) that are worth giving back, if they are more than half of the file; fewer
are kept for what comes next."""

MOVABLE_PAGES: Final = 65_536
"""Pages in use that may be moved for it: 256 MiB, about two seconds in which appends wait."""

SMALL_BYTES: Final = 8_192
"""Bytes that a row takes beside its events, with the changes of the trees above it."""

Stored = Callable[[list[int]], None]
Failed = Callable[[int, str], None]


class Writer:
    """A queue of appends, and the thread that empties it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        counters: JournalCounters,
        mark: Mark,
        presence: Presence,
        *,
        idle_s: float = IDLE_S,
        room: DiskSpace | None = None,
    ) -> None:
        self._connection = connection
        self._counters = counters
        self._mark = mark
        self._presence = presence
        self._is_gone = False
        self._idle_s = idle_s
        self._room = room
        self._scribe = Scribe(connection)
        self._queue: queue.SimpleQueue[Append | threading.Event | None] = queue.SimpleQueue()
        self._owed: list[Operation] = []
        self._prerequisites = Prerequisites()
        self._grown = True
        self._stored: Stored = lambda _: None
        self._failed: Failed = lambda _, __: None
        self._thread = threading.Thread(target=self._run, name="palio journal", daemon=True)

    def start(self, stored: Stored, failed: Failed) -> None:
        """Begin; both are called on the writer's thread."""
        self._stored, self._failed = stored, failed
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
        """Write what waits, make the file small, and end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    # --- the thread ---

    def _run(self) -> None:
        going = True
        while going:
            try:
                first = self._queue.get(timeout=self._idle_s if self._grown else None)
            except queue.Empty:
                self._compact()
                continue
            group: list[Append] = []
            marks: list[threading.Event] = []
            item: Append | threading.Event | None = first
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

    def _commit(self, group: Sequence[Append]) -> None:
        self._grown = True
        started = time.perf_counter()
        gone = self._presence.problem()
        if gone is not None:
            self._refuse_all(group, gone)
        elif (problem := self._tried(group)) is None:
            self._stored([each.ticket for each in group])
        elif len(group) == 1:
            self._alone(group[0], problem)
        else:
            for each in group:
                self._alone(each, self._tried([each]))
        self._counters.waiting -= len(group)
        self._counters.commit_s += time.perf_counter() - started

    def _tried(self, group: Sequence[Append]) -> str | None:
        """Write some appends, unless one of them needs what was refused; why that was not done."""
        is_due = all(map(self._prerequisites.are_met, group))
        return self._attempt(group) if is_due else UNMET

    def _alone(self, append: Append, problem: str | None) -> None:
        """An append was tried by itself: answer it; what releases room has the reserve too."""
        if problem is not None:
            self._owed += append.released
            makes_room = all(isinstance(each, RELEASING) for each in append.operations)
            may_pay = makes_room or append.released
            if may_pay and self._pay([append] if makes_room else []) and makes_room:
                problem = None
        if problem is None:
            self._stored([append.ticket])
        else:
            self._counters.failures += 1
            self._prerequisites.refused(append.ticket)
            logger.error("the journal cannot be written", extra={"details": {"reason": problem}})
            self._failed(append.ticket, problem)

    def _pay(self, appends: Sequence[Append]) -> bool:
        """Write what is owed, and what makes room, with the reserve as room; whether that could be
        done.
        """
        room = self._room
        if room is None:
            return False
        room.release()
        is_paid = self._attempt(appends) is None
        if is_paid:
            self._empty_log()
        room.reserve()
        return is_paid

    def _is_too_much(self, group: Sequence[Append]) -> bool:
        """Whether the disk has no room for some appends and for what must be written after them."""
        room = self._room
        nbytes = sum(_size(each) for append in group for each in append.operations)
        if room is None or not nbytes or room.grants(nbytes):
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
            logger.debug(
                "the log stays as long as it is", extra={"details": {"reason": str(error)}}
            )

    def _attempt(self, group: Sequence[Append]) -> str | None:
        """Write some appends as one transaction; why it failed, or None."""
        execute = self._connection.execute
        try:
            if self._is_too_much(group):
                return "the disk is full, but for what is kept to write acknowledgements"
            execute("BEGIN IMMEDIATE")
            for operation in self._owed:
                self._scribe.write(operation)
            for append in group:
                for operation in (*append.operations, *append.released):
                    self._scribe.write(operation)
            note = self._scribe.finish()
            execute("COMMIT")
        except (sqlite3.Error, JournalDamaged) as error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            self._scribe.forget()
            return str(error)
        self._mark.note(note)
        self._owed.clear()
        self._counters.commits += 1
        self._counters.appends += len(group)
        return None

    def _refuse_all(self, group: Sequence[Append], gone: str) -> None:
        if not self._is_gone:
            logger.error("the journal is gone", extra={"details": {"reason": gone}})
            self._is_gone = True
            self._owed.clear()
        self._counters.failures += len(group)
        for each in group:
            self._failed(each.ticket, gone)

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
            logger.warning(
                "the journal stays as large as it is", extra={"details": {"reason": str(error)}}
            )


def _size(operation: Operation) -> int:
    """About how much an operation makes a journal grow; nothing if it makes room."""
    if isinstance(operation, RELEASING):
        return 0
    match operation:
        case PutEntry():
            return SMALL_BYTES + operation.parcel.nbytes
        case PutRecord(_, value):
            return SMALL_BYTES + len(value)
    return SMALL_BYTES
