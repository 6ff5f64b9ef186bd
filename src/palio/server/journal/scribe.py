"""`Scribe`: operations as statements, on the connection of the one that writes a journal.

The backlog of a broker is a fold of operations (`LogTables`): `palio.node.queues` is the same in
memory, and what `load_log` reads is what the operations made there.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from palio.model.parcels import Shape
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
    about,
    checksum,
    payload_checksum,
    payload_of,
    put_about,
    put_row,
)
from palio.server.journal.watermark import Note, Span


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
        """Take out the backlog of a durable subscription, in order, except what is in its place
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


class Scribe:
    """Writes operations within transactions, and notes what each of these did."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._name, self._epochs = str(about(connection, "name")), int(about(connection, "epoch"))
        self._shapes: dict[Shape, tuple[int, pa.Buffer]] = {}
        self.forget()

    def forget(self) -> None:
        """After a transaction that failed: what it added is not there."""
        self._shapes.clear()
        self._tables = LogTables(self._connection, self._name)
        self._time_us = int(about(self._connection, "time_us"))
        self._begin(int(about(self._connection, "commits")) + 1)

    def _begin(self, commits: int) -> None:
        self._spans: dict[str, Span] = {}
        self._note = Note(self._name, self._epochs, commits, 0)

    def finish(self) -> Note:
        """Store, before the commit, their number and the last offset: each is used
        once. What the transaction did is noted.
        """
        note, tables = self._note, self._tables
        note.last_offset, note.time_us = tables.last_offset, self._time_us
        counters = {"commits": note.commits, "time_us": self._time_us}
        put_about(
            self._connection, {**counters, "log": tables.log, "last_offset": tables.last_offset}
        )
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
                gone = [(each,) for each in entries]
                self._connection.executemany("DELETE FROM entries WHERE entry = ?", gone)
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
            case PutRecord():  # in its place, since they are read in the order in which they came
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
        """Write something of so many bytes, which goes at once."""
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
        found = self._shapes.get(shape)
        if found is None:
            described = shape.schema.serialize()
            self._execute(
                "INSERT OR IGNORE INTO shapes (schema, sum) VALUES (?, ?)",
                (described, zlib.crc32(described)),
            )
            cursor = self._execute("SELECT shape FROM shapes WHERE schema = ?", (described,))
            found = self._shapes[shape] = cursor.fetchone()[0], described
        return found
