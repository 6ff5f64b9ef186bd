"""`LogTables`: what waits at a broker, as rows of its journal: the fold of operations on a disk.

`palio.node.queues` is the same in memory: what `load_log` reads is what the operations made there.
The tables are `waiting`, `streams`, `cursors`, `claims` and `publishers` (see `format`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

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
from palio.server.journal.format import about, checksum, put_row, sound_rows

__all__ = ["LogTables", "load_log"]


class LogTables:
    """The tables of one journal, on the connection of the one that writes."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._name = name
        self._connection = connection
        self._execute = connection.execute
        self._many = connection.executemany
        self.log = int(about(connection, "log"))
        """Which log this is; 0 until the broker has caught up with its network."""
        self.last_offset = int(about(connection, "last_offset"))
        """The last that was used, also of what is over: each is used once."""

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
                put_row(self._connection, "claims", *claim)
            case Cursor():
                put_row(self._connection, "cursors", *operation)
            case Numbered():
                put_row(self._connection, "publishers", *operation)
            case Forgotten(publishers):
                gone = [(each,) for each in publishers]
                self._many("DELETE FROM publishers WHERE publisher = ?", gone)
            case _:
                self._write_stream(operation)

    def _write_stream(self, operation: Operation) -> None:
        match operation:
            case Release(home, log, upto):
                known, base = self._stream(home)
                if known == log:
                    gone = "DELETE FROM waiting WHERE home = ? AND place <= ?"
                    self._execute(gone, (home, upto))
                    put_row(self._connection, "streams", home, log, max(base, upto))
            case Renew(home, log):
                put_row(self._connection, "streams", home, log, 0)
            case CaughtUp(log):
                self.log = log
                self._execute("DELETE FROM cursors")
                for home, known in self._rows("SELECT home, log FROM streams"):
                    put_row(self._connection, "streams", home, known, 0)
            case _:
                pass

    def _retarget(self, what: Retarget) -> None:
        taken = self._take(what.subject, what.to, dict(what.sent))
        self._wait(
            (what.to, offset, what.subject, what.number, rows, entry)
            for offset, (rows, entry) in enumerate(taken, what.first)
        )
        self.last_offset = max(self.last_offset, what.first + what.reserved - 1)

    def _take(self, subject: str, to: str, sent: dict[str, int]) -> list[tuple[Any, int]]:
        """Take out what waits for a durable subscription, in order, but for what is in its place
        and what others may have: its rows, and in which entry.
        """
        query = "SELECT home, place, rows, entry FROM waiting WHERE subject = ? ORDER BY place"
        moved = [
            (home, place, rows, entry)
            for home, place, rows, entry in self._rows(query, subject)
            if home != to and (home == self._name or place > sent.get(home, 0))
        ]
        keys = [(home, place, subject) for home, place, _, _ in moved]
        self._many("DELETE FROM waiting WHERE home = ? AND place = ? AND subject = ?", keys)
        return [(rows, entry) for _, _, rows, entry in moved]

    def _wait(self, rows: Iterable[tuple[str, int, str, int, bytes | None, int]]) -> None:
        ordered = [
            (home, offset, subject, number, entry, some)
            for home, offset, subject, number, some, entry in rows
        ]
        self._many(
            "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*row, checksum(*row)) for row in ordered],
        )
        self.last_offset = max([self.last_offset, *(offset for _, offset, *_ in ordered)])

    def _stream(self, home: str) -> tuple[int, int]:
        found = self._rows("SELECT log, base FROM streams WHERE home = ?", home)
        return found[0] if found else (0, 0)

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._execute(query, values).fetchall()


def load_log(connection: sqlite3.Connection) -> Iterator[Operation]:
    """Operations whose fold is what the tables hold. Everything that is read is checked."""
    log = about(connection, "log")
    if log:
        yield CaughtUp(log)
    for row in sound_rows(connection, "claims"):
        yield Open(Claim(*row))
    bases: dict[str, int] = {}
    for home, number, base in sound_rows(connection, "streams"):
        bases[home] = base
        if number:
            yield Renew(home, number)
        yield Release(home, number, base)
    rows = sound_rows(connection, "waiting", "ORDER BY place, home, subject")
    for (offset, home), those in groupby(rows, key=lambda row: (row[1], row[0])):
        if offset <= bases.get(home, 0):
            raise JournalDamaged(f"in waiting, {offset} for {home!r} is there, and was let go")
        parts = list(those)
        shares = tuple(Share(subject, number, some) for _, _, subject, number, _, some in parts)
        yield Place(home, offset, parts[0][4], shares)
    # The broker stopped before it was written that nobody needs them.
    left = "SELECT entry FROM entries WHERE entry NOT IN (SELECT entry FROM waiting)"
    for (entry,) in connection.execute(left):
        yield Put(entry, None, 0, ())
    for row in sound_rows(connection, "cursors"):
        yield Cursor(*row)
    for row in sound_rows(connection, "publishers", "ORDER BY rowid"):
        yield Numbered(*row)
