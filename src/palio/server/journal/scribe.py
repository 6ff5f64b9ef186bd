"""`Scribe`: executes operations as SQL statements, on the writer's connection to a journal.

A broker's durable backlog is a fold of operations. `LogTables` folds them into tables, and
`palio.node.queues` does the same in memory; `load_operations` reads the tables back.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from palio.model.shapes import Shape
from palio.node.effects import ANYBODY
from palio.node.loss_markers import heading_of
from palio.node.operations import (
    Ack,
    CaughtUp,
    Close,
    Cursor,
    Discard,
    DropRecord,
    DropSubscription,
    Forgotten,
    Numbered,
    Open,
    Operation,
    Place,
    Put,
    PutFacts,
    PutRecord,
    PutSubscription,
    PutTime,
    Release,
    Renew,
    Retarget,
)
from palio.server.journal.format import (
    checksum,
    payload_checksum,
    payload_of,
    put_about,
    put_row,
    read_about,
)
from palio.server.journal.watermark import Note, Span


class LogTables:
    """The tables of one journal, on the connection of the one that writes."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._name = name
        self._connection = connection
        self._execute = connection.execute
        self._many = connection.executemany
        self.log = int(read_about(connection, "log"))
        """The number of this log; 0 until the broker has caught up with its network."""
        self.last_offset = int(read_about(connection, "last_offset"))
        """The greatest offset that was ever used: each is used once."""

    def write(self, operation: Operation) -> None:
        """Carry out one operation within the transaction that is open."""
        match operation:
            case Put(entry, _, _, targets):
                for home, offset, shares in targets:
                    self._wait([(home, offset, *share, entry) for share in shares])
            case Place(home, offset, entry, shares):
                self._wait([(home, offset, *share, entry) for share in shares])
            case Retarget():
                self._retarget(operation)
            case Close(subject, sent):
                self._take(subject, "", dict(sent))
            case Ack(subject, upto, others):
                where = "DELETE FROM waiting WHERE home = ? AND subject = ? AND place"
                self._execute(f"{where} <= ?", (self._name, subject, upto))
                self._many(f"{where} = ?", [(self._name, subject, place) for place in others])
            case Open(claim):
                put_row(self._connection, "claims", *claim)
            case Cursor():
                put_row(self._connection, "cursors", *operation)
            case Numbered():
                put_row(self._connection, "publishers", *operation)
            case Forgotten(publishers):
                names = [(publisher,) for publisher in publishers]
                self._many("DELETE FROM publishers WHERE publisher = ?", names)
            case _:
                self._write_stream(operation)

    def _write_stream(self, operation: Operation) -> None:
        match operation:
            case Release(home, log, upto):
                current, base = self._stream(home)
                if current == log:
                    query = "DELETE FROM waiting WHERE home = ? AND place <= ?"
                    self._execute(query, (home, upto))
                    put_row(self._connection, "streams", home, log, max(base, upto))
            case Renew(home, log):
                put_row(self._connection, "streams", home, log, 0)
            case CaughtUp(log):
                self.log = log
                self._execute("DELETE FROM cursors")
                for home, number in self._rows("SELECT home, log FROM streams"):
                    put_row(self._connection, "streams", home, number, 0)
            case _:
                pass

    def _retarget(self, move: Retarget) -> None:
        taken = self._take(move.subject, move.to, dict(move.sent))
        self._wait(
            (move.to, offset, move.subject, move.number, rows, entry)
            for offset, (rows, entry) in enumerate(taken, move.first)
        )
        self.last_offset = max(self.last_offset, move.first + move.reserved - 1)

    def _take(self, subject: str, to: str, sent: dict[str, int]) -> list[tuple[Any, int]]:
        """Remove and return the backlog of a durable subscription, in order: rows and entries. Not
        the part that is at its home `to` already, nor the part that was `sent` to other homes.
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
        rows = self._rows("SELECT log, base FROM streams WHERE home = ?", home)
        return rows[0] if rows else (0, 0)

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._execute(query, values).fetchall()


class Scribe:
    """Writes operations within transactions, and makes a note of each transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._name = str(read_about(connection, "name"))
        self._epochs = int(read_about(connection, "epoch"))
        self._shapes: dict[Shape, tuple[int, pa.Buffer]] = {}
        self.forget()

    def forget(self) -> None:
        """Read counters and shapes again after a transaction failed: its changes are undone."""
        self._shapes.clear()
        self._tables = LogTables(self._connection, self._name)
        self._time_us = int(read_about(self._connection, "time_us"))
        self._begin(int(read_about(self._connection, "commits")) + 1)

    def _begin(self, commits: int) -> None:
        self._spans: dict[str, Span] = {}
        self._note = Note(self._name, self._epochs, commits, 0)

    def finish(self) -> Note:
        """Write the counters before the commit, and return the transaction's note."""
        note, tables = self._note, self._tables
        note.last_offset, note.time_us = tables.last_offset, self._time_us
        counters = {"commits": note.commits, "time_us": self._time_us, "log": tables.log}
        put_about(self._connection, {**counters, "last_offset": tables.last_offset})
        note.spans = list(self._spans.values())
        self._begin(note.commits + 1)
        return note

    def write(self, operation: Operation) -> None:
        """Carry out one operation within the transaction that is open."""
        self._tables.write(operation)
        match operation:
            case Put():
                self._put(operation)
            case Discard(entries):
                numbers = [(entry,) for entry in entries]
                self._connection.executemany("DELETE FROM entries WHERE entry = ?", numbers)
            case Ack(subject, bookmark=bookmark):
                if bookmark:
                    put_row(self._connection, "bookmarks", subject, bookmark)
            case PutTime(time_us):
                self._time_us = time_us
            case _:
                self._write_beside(operation)

    def _write_beside(self, operation: Operation) -> None:
        """Write an operation that shares the log, and is no part of the fold."""
        match operation:
            case PutSubscription(subject):
                self._note.began.append(subject)
                put_row(self._connection, "subscriptions", *operation)
            case DropSubscription(subject):
                self._note.ended.append(subject)
                for table in ("subscriptions", "bookmarks"):
                    self._execute(f"DELETE FROM {table} WHERE subject = ?", (subject,))
            case PutRecord():  # REPLACE would move it to the end, and records are read in order
                self._execute(
                    "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (key) "
                    "DO UPDATE SET value = excluded.value, sum = excluded.sum",
                    (*operation, checksum(*operation)),
                )
            case DropRecord(key):
                self._execute("DELETE FROM records WHERE key = ?", (key,))
            case PutFacts(facts):
                for fact in facts:
                    text = msgspec.json.encode(fact).decode()
                    put_row(self._connection, "facts", fact.origin, fact.subject, text)
            case _:
                pass

    def try_room(self, nbytes: int) -> None:
        """Write and delete so many bytes, to learn whether the disk has space for them."""
        row = "INSERT INTO entries VALUES (-1, '', NULL, NULL, 0, 0, 0, 0, zeroblob(?))"
        self._execute(row, (nbytes,))
        self._execute("DELETE FROM entries WHERE entry = -1")

    def _put(self, put: Put) -> None:
        entry, parcel, wall_us, _ = put
        assert parcel is not None, f"entry {entry} is put without its events"
        shape, schema = self._shape(parcel.shape)
        heading = heading_of(parcel, wall_us)
        has_numbers = heading.publisher != ANYBODY
        first, last = (heading.first_seq, heading.last_seq) if has_numbers else (None, None)
        payload = payload_of(parcel)
        head = (entry, parcel.publisher, first, last, wall_us, shape)
        self._execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*head, checksum(*head), payload_checksum(entry, schema, payload), payload),
        )
        span = self._spans.get(parcel.publisher)
        if span is None:
            self._spans[parcel.publisher] = Span(parcel.publisher, entry, entry, first, last)
        else:
            span.last_entry, span.last_seq = entry, last

    def _shape(self, shape: Shape) -> tuple[int, pa.Buffer]:
        numbered = self._shapes.get(shape)
        if numbered is None:
            described = shape.schema.serialize()
            self._execute(
                "INSERT OR IGNORE INTO shapes (schema, sum) VALUES (?, ?)",
                (described, zlib.crc32(described)),
            )
            cursor = self._execute("SELECT shape FROM shapes WHERE schema = ?", (described,))
            numbered = self._shapes[shape] = cursor.fetchone()[0], described
        return numbered
