"""The journal's file: one SQLite database in WAL mode, in which each row has a checksum.

| table | a row is |
|---|---|
| `about` | `name` of the broker, `epoch`, `commits`, `time_us`, `log`, `last_offset` |
| `shapes` | a schema, as an Arrow message |
| `entries` | durable events, with one checksum of their heading and another one of the events |
| `waiting` | a durable subscription's share of an entry: here, or in the stream to its home |
| `streams` | a home: the number of its log, and the offset up to which it has stored its stream |
| `cursors` | an origin: the offset up to which its stream is stored here |
| `claims` | the newest claim of a durable subscription |
| `publishers` | the last number that is kept of a publisher, the latest publisher last |
| `subscriptions` | a durable subscription whose home is this broker |
| `bookmarks` | the progress of a durable subscription's owner |
| `facts` | a fact about a broker, as JSON |
| `records` | a record of a front end, such as a subscription made by HTTP |

Events are an Arrow message. A single event is its values as MessagePack: to make a batch of it
takes as long as to write it.

`PRAGMA user_version` is the number of this format; a file of another is refused. SQLite itself
detects a file whose structure is broken; the checksums detect content that changed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from palio.errors import InvalidConfiguration, JournalDamaged
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.node.loss_markers import LossMarker
from palio.protocol.legal_parcels import batch_parcel, check_stamps
from palio.protocol.plain import lone_parcel

FORMAT: Final = 3
"""Raised when a journal of the format before would be misread."""

_TABLES: Final = """
CREATE TABLE about (key TEXT PRIMARY KEY, value, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE shapes (shape INTEGER PRIMARY KEY, schema BLOB NOT NULL UNIQUE, sum INTEGER NOT NULL);
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY, publisher TEXT NOT NULL, first_seq INTEGER, last_seq INTEGER,
    wall_us INTEGER NOT NULL, shape INTEGER NOT NULL, sum INTEGER NOT NULL,
    payload_sum INTEGER NOT NULL, payload BLOB NOT NULL
);
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
    session_epoch INTEGER NOT NULL, revision INTEGER NOT NULL, since INTEGER NOT NULL,
    claimed_us INTEGER NOT NULL, filter TEXT NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE publishers (
    publisher TEXT NOT NULL UNIQUE, last INTEGER NOT NULL, sum INTEGER NOT NULL
);
CREATE TABLE subscriptions (
    subject TEXT PRIMARY KEY, owner TEXT NOT NULL, filter TEXT NOT NULL,
    "values" BLOB NOT NULL, lease_s REAL NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE bookmarks (
    subject TEXT PRIMARY KEY, bookmark BLOB NOT NULL, sum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (
    origin TEXT, subject TEXT, fact TEXT NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (origin, subject)
) WITHOUT ROWID;
CREATE TABLE records (
    key TEXT NOT NULL UNIQUE, value BLOB NOT NULL, sum INTEGER NOT NULL
);
"""

_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Ordinal = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]

_COLUMNS: Final[Mapping[str, Any]] = {
    "about": tuple[str, str | _Number],
    "waiting": tuple[str, _Ordinal, str, _Number, _Number, bytes | None],
    "streams": tuple[str, _Number, _Number],
    "cursors": tuple[str, _Ordinal, _Ordinal],
    "claims": tuple[str, _Number, str, str, _Number, _Number, _Number, int, str],
    "publishers": tuple[str, _Ordinal],
    "subscriptions": tuple[str, str, str, bytes, float],
    "bookmarks": tuple[str, bytes],
    "facts": tuple[str, str, str],
    "records": tuple[str, bytes],
}

ROWS: Final = {table: msgspec.msgpack.Decoder(row) for table, row in _COLUMNS.items()}
"""Read the rows of each table: SQLite keeps values of any type in a column."""


# --- checksums ---


def checksum(*parts: Any) -> int:
    """Return a checksum of some values and their boundaries.

    >>> checksum("ab", "c") == checksum("a", "bc")
    False
    """
    return zlib.crc32(msgspec.msgpack.encode(parts))


def payload_checksum(entry: int, schema: Any, payload: Any) -> int:
    """Return a checksum of events, their schema and the number of their entry."""
    return zlib.crc32(payload, zlib.crc32(schema, entry & 0xFFFFFFFF))


def sound(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row without its checksum; `JournalDamaged` if it is not what was written."""
    *values, row_sum = row
    packed = msgspec.msgpack.encode(values)
    if row_sum != zlib.crc32(packed):
        raise JournalDamaged(f"in {table}, {values[0]!r} is not what was written")
    try:
        read: tuple[Any, ...] = ROWS[table].decode(packed)
    except msgspec.ValidationError as error:
        raise JournalDamaged(f"in {table}, {values[0]!r} is no row: {error}") from None
    return read


def sound_rows(
    connection: sqlite3.Connection, table: str, order: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table one by one: a journal may hold more than fits into memory."""
    for row in connection.execute(f"SELECT * FROM {table} {order}"):
        yield sound(table, row)


def put_row(connection: sqlite3.Connection, table: str, *row: Any) -> None:
    """Write a row with its checksum, replacing an earlier one of the same key."""
    places = ", ".join("?" * (len(row) + 1))
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", (*row, checksum(*row)))


# --- events ---


def payload_of(parcel: Parcel) -> Any:
    """Return the bytes of events as they are written."""
    return parcel.payload if parcel.values is None else msgspec.msgpack.encode(parcel.values)


def parcel_of(publisher: str, shape: Shape, payload: bytes) -> Parcel:
    """Undo `payload_of`; `ValueError` for anything but numbered events and loss markers."""
    if payload.startswith(_ARROW):
        parcel = batch_parcel(publisher, shape, payload)
    else:
        parcel = lone_parcel(publisher, shape, msgspec.msgpack.decode(payload))
    if LossMarker.of(parcel) is None:
        check_stamps(parcel)
    return parcel


_ARROW: Final = b"\xff\xff\xff\xff"
"""The first bytes of an Arrow message, with which no MessagePack begins."""


# --- the file ---


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection to the file; transactions are begun by hand.

    The file is not mapped: a page that the disk cannot read would end the process. Deleted content
    is overwritten only where that writes no additional page (`FAST`): some builds of SQLite write
    each freed page, a fifth of all that batches write.
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
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
        counters = dict.fromkeys(("epoch", "commits", "time_us", "log", "last_offset"), 0)
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
        raise JournalDamaged(f"the structure is broken: {problem}")
    owner = read_about(connection, "name")
    if owner != name:
        raise InvalidConfiguration(
            f"{path} is the journal of the broker {owner!r}, not of {name!r}: other brokers "
            "keep events for it by its name; set broker.name, or another broker.data_dir"
        )


def read_about(connection: sqlite3.Connection, key: str) -> Any:
    """Return a value of the table `about`."""
    row = connection.execute("SELECT * FROM about WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise JournalDamaged(f"in about, {key!r} is missing")
    return sound("about", row)[1]


def put_about(connection: sqlite3.Connection, values: Mapping[str, str | int]) -> None:
    """Set some values of the table `about`."""
    rows = [cell for key, value in values.items() for cell in (key, value, checksum(key, value))]
    places = ", ".join(["(?, ?, ?)"] * len(values))
    connection.execute(f"INSERT OR REPLACE INTO about VALUES {places}", rows)
