"""`LogTables`: what waits at a broker, as rows of its journal: the fold of operations on a disk.

| table | a row is |
|---|---|
| `waiting` | what a durable subscription gets of an entry: here, or in the stream to its home |
| `streams` | a home: which log it has, and up to where it has stored its stream |
| `cursors` | an origin: up to where its stream is here |
| `claims` | the newest claim of a durable subscription |
| `publishers` | up to which number what a publisher said is kept, the latest publisher last |
| `log` | which log this is, and the last offset that was used |

Each row has a checksum over all of it. `palio.node.queues` is the same in memory: what is loaded
is what the operations made there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from palio.errors import JournalDamaged
from palio.node.operations import (
    Ack,
    CaughtUp,
    Claim,
    Close,
    Cursor,
    Forgotten,
    Numbered,
    Open,
    Operation,
    Place,
    Put,
    Release,
    Renew,
    Retarget,
)
from palio.protocol.messages import Share
from palio.server.journal.format import checksum

__all__ = ["LogTables"]

TABLES: Final = """
CREATE TABLE waiting (
    home TEXT, place INTEGER, subject TEXT, number INTEGER NOT NULL, entry INTEGER NOT NULL,
    rows BLOB, sum INTEGER NOT NULL, PRIMARY KEY (home, place, subject)
) WITHOUT ROWID;
CREATE INDEX waiting_for ON waiting (subject);
CREATE TABLE streams (
    home TEXT PRIMARY KEY, log INTEGER NOT NULL, base INTEGER NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE cursors (
    origin TEXT PRIMARY KEY, log INTEGER NOT NULL, place INTEGER NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE claims (
    subject TEXT PRIMARY KEY, number INTEGER NOT NULL, home TEXT NOT NULL, client TEXT NOT NULL,
    visit INTEGER NOT NULL, revision INTEGER NOT NULL, since INTEGER NOT NULL,
    claimed_us INTEGER NOT NULL, filter TEXT NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE publishers (
    place INTEGER PRIMARY KEY, publisher TEXT NOT NULL UNIQUE, last INTEGER NOT NULL,
    sum INTEGER NOT NULL
);
CREATE TABLE log (key TEXT PRIMARY KEY, value INTEGER NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
"""


class LogTables:
    """The tables of one journal, on the connection of the one that writes."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._name = name
        self._execute = connection.execute
        self._many = connection.executemany
        self._last = 0
        self._knows_last = False

    def create(self) -> None:
        """Make the tables of a new file."""
        for statement in TABLES.split(";"):
            self._execute(statement)

    def write(self, operation: Operation) -> None:
        """Carry out one operation within the transaction that is open."""
        match operation:
            case Put(entry, _, _, targets):
                for home, offset, shares in targets:
                    self._wait([(home, offset, *share, entry) for share in shares])
            case Retarget():
                self._retarget(operation)
            case Close(subject, sent):
                self._take(subject, "", dict(sent))
            case Ack(subject, upto, others):
                where = "DELETE FROM waiting WHERE home = ? AND subject = ? AND place"
                self._execute(f"{where} <= ?", (self._name, subject, upto))
                self._many(f"{where} = ?", [(self._name, subject, each) for each in others])
            case Open(claim):
                self._put("claims", *claim)
            case Cursor():
                self._put("cursors", *operation)
            case Numbered():
                self._execute(
                    "INSERT OR REPLACE INTO publishers (publisher, last, sum) VALUES (?, ?, ?)",
                    (*operation, checksum(*operation)),
                )
            case Forgotten(publishers):
                gone = [(each,) for each in publishers]
                self._many("DELETE FROM publishers WHERE publisher = ?", gone)
            case _:
                self._write_stream(operation)

    def finish(self) -> None:
        """Say, before the commit, which offset was the last: each is used once."""
        self._put("log", "last", self.last_offset)

    def _write_stream(self, operation: Operation) -> None:
        match operation:
            case Release(home, log, upto):
                known, base = self._stream(home)
                if known == log:
                    gone = "DELETE FROM waiting WHERE home = ? AND place <= ?"
                    self._execute(gone, (home, upto))
                    self._put("streams", home, log, max(base, upto))
            case Renew(home, log):
                self._put("streams", home, log, 0)
            case CaughtUp(log):
                self._put("log", "number", log)
                self._execute("DELETE FROM cursors")
                for home, known in self._rows("SELECT home, log FROM streams"):
                    self._put("streams", home, known, 0)
            case _:
                pass

    def _retarget(self, what: Retarget) -> None:
        taken = self._take(what.subject, what.to, dict(what.sent))
        self._wait(
            (what.to, offset, what.subject, what.number, rows, entry)
            for offset, (_, rows, entry) in enumerate(taken, what.first)
        )
        self._last = max(self._last, what.first + what.reserved - 1)

    def _take(self, subject: str, to: str, sent: dict[str, int]) -> list[tuple[int, Any, int]]:
        """Take out what waits for a durable subscription, in order, but for what is in its place
        and what others may have: where it was, its rows, and in which entry.
        """
        query = "SELECT home, place, rows, entry FROM waiting WHERE subject = ? ORDER BY place"
        moved = [
            (home, place, rows, entry)
            for home, place, rows, entry in self._rows(query, subject)
            if home != to and (home == self._name or place > sent.get(home, 0))
        ]
        keys = [(home, place, subject) for home, place, _, _ in moved]
        self._many("DELETE FROM waiting WHERE home = ? AND place = ? AND subject = ?", keys)
        return [(place, rows, entry) for _, place, rows, entry in moved]

    def _wait(self, rows: Iterable[tuple[str, int, str, int, bytes | None, int]]) -> None:
        ordered = [
            (home, offset, subject, number, entry, some)
            for home, offset, subject, number, some, entry in rows
        ]
        self._many(
            "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*row, checksum(*row)) for row in ordered],
        )
        self._last = max([self._last, *(offset for _, offset, *_ in ordered)])

    def _put(self, table: str, *row: Any) -> None:
        places = ", ".join("?" * (len(row) + 1))
        self._execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", (*row, checksum(*row)))

    def _stream(self, home: str) -> tuple[int, int]:
        found = self._rows("SELECT log, base FROM streams WHERE home = ?", home)
        return found[0] if found else (0, 0)

    # --- reading ---

    def load(self) -> Iterator[Operation]:
        """Operations whose fold is what the tables hold. Everything that is read is checked."""
        log = dict(self._checked("SELECT * FROM log", "log"))
        if "number" in log:
            yield CaughtUp(log["number"])
        for row in self._checked("SELECT * FROM claims", "claims"):
            yield Open(Claim(*row))
        for home, number, base in self._checked("SELECT * FROM streams", "streams"):
            if number:
                yield Renew(home, number)
            yield Release(home, number, base)
        query = "SELECT * FROM waiting ORDER BY place, home, subject"
        rows = self._checked(query, "waiting")
        for (offset, home), those in groupby(rows, key=lambda row: (row[1], row[0])):
            entries, shares = set(), []
            for _, _, subject, number, entry, some in those:
                entries.add(entry)
                shares.append(Share(subject, number, some))
            (entry,) = entries
            yield Place(home, offset, entry, tuple(shares))
        for row in self._checked("SELECT * FROM cursors", "cursors"):
            yield Cursor(*row)
        query = "SELECT publisher, last, sum FROM publishers ORDER BY place"
        for row in self._checked(query, "publishers"):
            yield Numbered(*row)

    @property
    def last_offset(self) -> int:
        """The last offset that was used, also of what is over, and before this was opened."""
        if not self._knows_last:
            log = dict(self._checked("SELECT * FROM log", "log"))
            self._last = max(self._last, log.get("last", 0))
            self._knows_last = True
        return self._last

    def entries(self) -> set[int]:
        """Those for which somebody waits."""
        return {entry for (entry,) in self._rows("SELECT DISTINCT entry FROM waiting")}

    def _checked(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        for *row, found in self._rows(query):
            if found != checksum(*row):
                raise JournalDamaged(f"in {table}, {row[:3]} is not what was written")
            yield tuple(row)

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._execute(query, values).fetchall()
