"""The journal's file: one SQLite database in WAL mode, whose rows say what they are.

| table | a row is | and has a checksum over |
|---|---|---|
| `about` | `name` of the broker, `epoch`, `last_entry`, `commits`, `time_us` | everything |
| `shapes` | a schema, as an Arrow message | itself |
| `entries` | events in custody | all but the events, and another one over these |
| `assigned` | an entry's rows for a durable subscription | everything |
| `subscriptions` | a durable subscription of this broker | everything |
| `bookmarks` | how far the owner of a durable subscription has got | everything |
| `windows` | numbers of a publisher that have come | everything |
| `facts` | what is known of brokers, as JSON | everything |
| `records` | what a front keeps, such as a subscription made by HTTP | everything |

Events are an Arrow message, or, where one was published by itself, its values as MessagePack: to
make a batch of it takes as long as to write it.

`PRAGMA user_version` is the number of this format; a file of another is refused. SQLite itself
notices a file whose structure is broken; the checksums notice content that changed.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from palio.errors import InvalidConfiguration, JournalDamaged
from palio.model.parcels import Parcel, Shape
from palio.node.effects import (
    ANYBODY,
    AddNumbers,
    Assign,
    DropEntries,
    DropNumbers,
    DropRecord,
    DropSubscription,
    Forget,
    ForgetNumbers,
    Operation,
    PutEntry,
    PutFacts,
    PutRecord,
    PutSubscription,
    PutTime,
    Record,
)
from palio.node.notices import Notice, heading_of
from palio.protocol.legal_parcels import batch_parcel, check_stamps, lone_parcel
from palio.protocol.seen_numbers import united
from palio.server.journal.mark import Note, Span

__all__ = [
    "FORMAT",
    "Scribe",
    "about",
    "checksum",
    "connect",
    "create_or_check",
    "homes_of",
    "homes_text",
    "parcel_of",
    "payload_checksum",
    "payload_of",
    "put_about",
]

FORMAT: Final = 2
"""Raised when a journal of the format before would be misread."""

WINDOWS_AT_HAND: Final = 4_096
"""Rows of `windows` that are not read again before they are written; 512 bytes each at the most."""

_TABLES: Final = """
CREATE TABLE about (key TEXT PRIMARY KEY, value, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE shapes (shape INTEGER PRIMARY KEY, schema BLOB NOT NULL UNIQUE, sum INTEGER NOT NULL);
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY, homes TEXT NOT NULL, publisher TEXT NOT NULL,
    first_seq INTEGER, last_seq INTEGER, wall_us INTEGER NOT NULL, shape INTEGER NOT NULL,
    sum INTEGER NOT NULL, payload_sum INTEGER NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE assigned (
    subscription TEXT, entry INTEGER, rows BLOB, sum INTEGER NOT NULL,
    PRIMARY KEY (subscription, entry)
) WITHOUT ROWID;
CREATE TABLE subscriptions (
    subscription TEXT PRIMARY KEY, owner TEXT NOT NULL, filter TEXT NOT NULL,
    "values" BLOB NOT NULL, lease_s REAL NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE bookmarks (
    subscription TEXT PRIMARY KEY, bookmark BLOB NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE windows (key TEXT PRIMARY KEY, ranges BLOB NOT NULL, sum INTEGER NOT NULL)
WITHOUT ROWID;
CREATE TABLE facts (
    origin TEXT, subject TEXT, fact TEXT NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (origin, subject)
) WITHOUT ROWID;
CREATE TABLE records (key TEXT PRIMARY KEY, value BLOB NOT NULL, sum INTEGER NOT NULL);
"""


def checksum(*parts: Any) -> int:
    """A checksum over some values and where one ends and the next begins.

    >>> checksum("ab", "c") == checksum("a", "bc")
    False
    """
    return zlib.crc32(msgspec.msgpack.encode(parts))


def payload_checksum(entry: int, schema: Any, payload: Any) -> int:
    """A checksum over events, what they are read with, and which entry they are."""
    return zlib.crc32(payload, zlib.crc32(schema, entry & 0xFFFFFFFF))


def payload_of(parcel: Parcel) -> Any:
    """Events as they are written."""
    return parcel.payload if parcel.values is None else msgspec.msgpack.encode(parcel.values)


def homes_text(homes: tuple[str, ...], subjects: tuple[str, ...]) -> str:
    """Where an entry is to go, and for whom there, as it is written.

    >>> homes_text(("b2", "b3"), ()), homes_text(("b2",), ("bob/prices",))
    ('[["b2", "b3"], []]', '[["b2"], ["bob/prices"]]')
    """
    return json.dumps([homes, subjects])


def homes_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`homes_text` undone."""
    return msgspec.json.decode(text, type=tuple[tuple[str, ...], tuple[str, ...]])


def parcel_of(publisher: str, shape: Shape, payload: bytes) -> Parcel:
    """`payload_of` undone; `ValueError` if it is neither events with their numbers nor a notice."""
    if payload.startswith(_ARROW):
        parcel = batch_parcel(publisher, shape, payload)
    else:
        parcel = lone_parcel(publisher, shape, msgspec.msgpack.decode(payload))
    if Notice.of(parcel) is None:
        check_stamps(parcel)
    return parcel


_ARROW: Final = b"\xff\xff\xff\xff"
"""What an Arrow message begins with, and MessagePack never does."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file as every connection to it is opened; transactions are begun by hand.

    What was deleted is overwritten where that writes no page more: some builds of SQLite write each
    page that becomes free, a fifth of all that batches write.
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA mmap_size = 1073741824")
    connection.execute("PRAGMA secure_delete = FAST")
    return connection


def create_or_check(connection: sqlite3.Connection, path: Path, name: str) -> None:
    """Make the tables of a new file; refuse a file of another format or of another broker."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0 and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        counters = dict.fromkeys(("epoch", "last_entry", "commits", "time_us"), 0)
        put_about(connection, {"name": name, **counters})
        connection.execute("COMMIT")
        return
    if version != FORMAT:
        raise InvalidConfiguration(
            f"{path} is no journal of format {FORMAT} (its user_version is {version}); use the "
            "Palio that wrote it, or set another broker.data_dir"
        )
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise JournalDamaged(f"the structure of {path} is broken: {problem}")
    owner = about(connection, "name")
    if owner != name:
        raise InvalidConfiguration(
            f"{path} is the journal of the broker {owner!r}, not of {name!r}: other brokers "
            "keep events for it by its name; set broker.name, or another broker.data_dir"
        )


def about(connection: sqlite3.Connection, key: str) -> Any:
    """A value of the table `about`: `name`, `epoch`, `last_entry`, `commits` or `time_us`."""
    found = connection.execute("SELECT value, sum FROM about WHERE key = ?", (key,)).fetchone()
    if found is None or found[1] != checksum(key, found[0]):
        raise JournalDamaged(f"the journal's {key} is not what was written")
    return found[0]


def put_about(connection: sqlite3.Connection, values: Mapping[str, str | int]) -> None:
    """Set some of what the journal says about itself."""
    rows = [each for key, value in values.items() for each in (key, value, checksum(key, value))]
    places = ", ".join(["(?, ?, ?)"] * len(values))
    connection.execute(f"INSERT OR REPLACE INTO about VALUES {places}", rows)


class Scribe:
    """Operations as statements, on the connection of the one that writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._many = connection.executemany
        self._shapes: dict[Shape, tuple[int, pa.Buffer]] = {}
        self._name, self._epochs = str(about(connection, "name")), int(about(connection, "epoch"))
        self._windows: dict[str, bytes] = {}
        """What the table of that name holds under some keys: to read it each time costs as much as
        to write it."""
        self._last_entry = self._time_us = 0
        self._spans: dict[str, Span] = {}
        self._note = Note(self._name, self._epochs, 0, 0)
        self.forget()

    def write(self, operation: Operation) -> None:
        """Carry out one operation within the transaction that is open."""
        match operation:
            case PutEntry():
                self._put_entry(operation)
            case Assign(subscription, entry, rows):
                row = (subscription, entry, rows, checksum(subscription, entry, rows))
                self._execute("INSERT OR REPLACE INTO assigned VALUES (?, ?, ?, ?)", row)
            case DropEntries(entries):
                self._many("DELETE FROM entries WHERE entry = ?", [(each,) for each in entries])
            case Forget():
                self._forget(operation)
            case PutSubscription():
                self._note.began.append(operation.subscription)
                self._execute(
                    "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?, ?, ?)",
                    (*operation, checksum(*operation)),
                )
            case DropSubscription(subscription):
                self._note.ended.append(subscription)
                self._execute("DELETE FROM subscriptions WHERE subscription = ?", (subscription,))
                self._execute("DELETE FROM assigned WHERE subscription = ?", (subscription,))
                self._execute("DELETE FROM bookmarks WHERE subscription = ?", (subscription,))
            case AddNumbers() | DropNumbers() | ForgetNumbers():
                self._write_numbers(operation)
            case PutRecord() | DropRecord():
                self._write_record(operation)
            case PutTime(time_us):
                self._note.time_us = time_us
            case PutFacts(facts):
                for fact in facts:
                    text = msgspec.json.encode(fact).decode()
                    self._execute(
                        "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)",
                        (fact.origin, fact.subject, text, checksum(text)),
                    )

    def finish(self) -> Note:
        """Say, before the commit, how many there were and which entry was the last: numbers are
        used once. What the transaction did is noted.
        """
        note = self._note
        said = {"commits": note.commits}
        if note.last_entry > self._last_entry:
            self._last_entry = said["last_entry"] = note.last_entry
        if note.time_us != self._time_us:
            self._time_us = said["time_us"] = note.time_us
        put_about(self._connection, said)
        note.spans = list(self._spans.values())
        self._begin(note.commits + 1)
        return note

    def forget(self) -> None:
        """After a transaction that failed: what it added is not there."""
        self._shapes.clear()
        self._windows.clear()
        self._last_entry = int(about(self._connection, "last_entry"))
        self._time_us = int(about(self._connection, "time_us"))
        self._begin(int(about(self._connection, "commits")) + 1)

    def _begin(self, commits: int) -> None:
        self._spans = {}
        self._note = Note(self._name, self._epochs, commits, self._last_entry, self._time_us)

    def _forget(self, over: Forget) -> None:
        subscription, entry, bookmark = over
        self._execute(
            "DELETE FROM assigned WHERE subscription = ? AND entry <= ?", (subscription, entry)
        )
        if bookmark:
            row = (subscription, bookmark, checksum(subscription, bookmark))
            self._execute("INSERT OR REPLACE INTO bookmarks VALUES (?, ?, ?)", row)

    def _write_record(self, record: Record) -> None:
        if isinstance(record, DropRecord):
            self._execute("DELETE FROM records WHERE key = ?", record)
        else:  # in its place, since they are read in the order in which they came
            self._execute(
                "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (key) "
                "DO UPDATE SET value = excluded.value, sum = excluded.sum",
                (*record, checksum(*record)),
            )

    def _write_numbers(self, operation: AddNumbers | DropNumbers | ForgetNumbers) -> None:
        match operation:
            case AddNumbers():
                self._add_numbers(operation)
            case DropNumbers(key):
                self._windows.pop(key, None)
                self._execute("DELETE FROM windows WHERE key = ?", (key,))
            case ForgetNumbers(prefix):
                for key in [each for each in self._windows if each.startswith(prefix)]:
                    del self._windows[key]
                span = prefix, f"{prefix}\U0010ffff"
                self._execute("DELETE FROM windows WHERE key >= ? AND key < ?", span)

    def _add_numbers(self, added: AddNumbers) -> None:
        key, bits = added
        known = self._windows.get(key)
        if known is None:
            known = self._window(key)
            if len(self._windows) >= WINDOWS_AT_HAND:
                self._windows.clear()
        bits = self._windows[key] = united(known, bits)
        row = (key, bits, checksum(key, bits))
        self._execute("INSERT OR REPLACE INTO windows VALUES (?, ?, ?)", row)

    def _window(self, key: str) -> bytes:
        query = "SELECT ranges, sum FROM windows WHERE key = ?"
        bits, found = self._execute(query, (key,)).fetchone() or (b"", checksum(key, b""))
        if found != checksum(key, bits):
            raise JournalDamaged(f"in windows, {key} is not what was written")
        return bytes(bits)

    def _put_entry(self, put: PutEntry) -> None:
        shape, schema = self._shape(put.parcel.shape)
        heading = heading_of(put.parcel, put.wall_us)
        has_numbers = heading.publisher != ANYBODY
        first, last = (heading.first_seq, heading.last_seq) if has_numbers else (None, None)
        payload = payload_of(put.parcel)
        homes = homes_text(put.homes, put.subjects)
        head = (put.entry, homes, put.parcel.publisher, first, last, put.wall_us, shape)
        self._execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*head, checksum(*head), payload_checksum(put.entry, schema, payload), payload),
        )
        self._note.last_entry = max(self._note.last_entry, put.entry)
        publisher = put.parcel.publisher
        span = self._spans.get(publisher)
        if span is None:
            self._spans[publisher] = Span(publisher, put.entry, put.entry, first, last)
        else:
            span.last_entry, span.last_seq = put.entry, last

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
