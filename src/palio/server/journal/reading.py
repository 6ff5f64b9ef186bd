"""Reads a journal: `JournalReader` returns only rows whose checksums match.

`check_wal` runs before SQLite opens the database, because SQLite drops damaged transactions
silently.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from palio.errors import InvalidConfiguration, InvalidInput, JournalDamaged
from palio.model.parcels import Shape
from palio.node.effects import ANYBODY, Entry, Heading, Stored
from palio.node.operations import (
    CaughtUp,
    Claim,
    Cursor,
    Numbered,
    Open,
    Operation,
    Place,
    Put,
    PutSubscription,
    Release,
    Renew,
)
from palio.protocol.legal_parcels import read_shape
from palio.protocol.messages import Fact, Share
from palio.server.counters import JournalCounters
from palio.server.journal.format import (
    checksum,
    parcel_of,
    payload_checksum,
    read_about,
    sound_rows,
)

DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)
"""Errors raised by decoding a damaged row: SQLite stores values of any type in any column."""

_HEAD: Final = "SELECT entry, publisher, first_seq, last_seq, wall_us, shape, sum"


class JournalReader:
    """Reads the tables of one journal, on a connection of its own."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, counters: JournalCounters
    ) -> None:
        self._connection = connection
        self._path = path
        self._counters = counters
        self._shapes: dict[int, tuple[Shape, bytes]] = {}

    def load(self, epoch: int) -> Stored:
        """Read all tables except the events.

        The operations are read while the caller iterates, as the backlog may exceed the memory.
        """
        connection = self._connection
        with translated_damage(self._path, self._counters):
            return Stored(
                epoch=epoch,
                operations=self._operations(),
                last_offset=read_about(connection, "last_offset"),
                subscriptions=[
                    PutSubscription(*row) for row in sound_rows(connection, "subscriptions")
                ],
                facts=[
                    msgspec.json.decode(fact, type=Fact)
                    for _, _, fact in sound_rows(connection, "facts")
                ],
                time_us=read_about(connection, "time_us"),
                bookmarks=dict(sound_rows(connection, "bookmarks")),
            )

    def _operations(self) -> Iterator[Operation]:
        with translated_damage(self._path, self._counters):
            yield from load_operations(self._connection)

    def records(self) -> dict[str, bytes]:
        """Read the records of fronts, oldest first."""
        with translated_damage(self._path, self._counters):
            return dict(sound_rows(self._connection, "records", "ORDER BY rowid"))

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Read entries by their numbers (`Store`)."""
        query = (
            f"{_HEAD}, payload_sum, payload FROM entries "
            "WHERE entry IN (SELECT value FROM json_each(?)) ORDER BY entry"
        )
        with translated_damage(self._path, self._counters, remedy=""):
            rows = self._connection.execute(query, (json.dumps(list(numbers)),))
            return [self.entry(row) for row in rows]

    def heading(self, entry: int) -> Heading | None:
        """Read an entry's heading (`Store`); None if it is missing or damaged."""
        query = f"{_HEAD} FROM entries WHERE entry = ?"
        try:
            row = self._connection.execute(query, (entry,)).fetchone()
        except sqlite3.Error:
            return None
        if row is None or row[-1] != checksum(*row[:-1]):
            return None
        _, publisher, first_seq, last_seq, wall_us, *_ = row
        if first_seq is None:
            return Heading(ANYBODY, 0, 0, wall_us)
        return Heading(publisher, first_seq, last_seq, wall_us)

    def entry(self, row: tuple[Any, ...]) -> Entry:
        """Decode a row of `entries`; `JournalDamaged` if a checksum differs."""
        *head, head_sum, payload_sum, payload = row
        entry, publisher, first_seq, last_seq, wall_us, shape = head
        try:
            parsed, described = self._shape(shape)
            if head_sum != checksum(*head) or payload_sum != payload_checksum(
                entry, described, payload
            ):
                raise ValueError("its checksum differs")  # reported with the others
            return Entry(entry, parcel_of(publisher, parsed, payload), wall_us)
        except DECODE_ERRORS as error:
            raise JournalDamaged(
                f"entry {entry} is not what was written ({error}); lost are the "
                f"events {first_seq} to {last_seq} of {publisher!r}"
            ) from None

    def _shape(self, number: int) -> tuple[Shape, bytes]:
        shape = self._shapes.get(number)
        if shape is None:
            query = "SELECT schema, sum FROM shapes WHERE shape = ?"
            row = self._connection.execute(query, (number,)).fetchone()
            if row is None or zlib.crc32(row[0]) != row[1]:
                raise ValueError(f"shape {number} is not what was written")
            shape = self._shapes[number] = read_shape(row[0]), row[0]
        return shape


def load_operations(connection: sqlite3.Connection) -> Iterator[Operation]:
    """Yield operations that rebuild the state of the tables; check every row."""
    log = read_about(connection, "log")
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
    for (offset, home), group in groupby(rows, key=lambda row: (row[1], row[0])):
        if offset <= bases.get(home, 0):
            raise JournalDamaged(f"in waiting, {offset} for {home!r} exists, but was released")
        members = list(group)
        shares = tuple(Share(subject, number, some) for _, _, subject, number, _, some in members)
        yield Place(home, offset, members[0][4], shares)
    # Entries that no subscription needs: the broker stopped before it discarded them.
    unneeded = "SELECT entry FROM entries WHERE entry NOT IN (SELECT entry FROM waiting)"
    for (entry,) in connection.execute(unneeded):
        yield Put(entry, None, 0, ())
    for row in sound_rows(connection, "cursors"):
        yield Cursor(*row)
    for row in sound_rows(connection, "publishers", "ORDER BY rowid"):
        yield Numbered(*row)


REMEDY: Final = "; palio journal salvage writes the rest to another directory"


@contextmanager
def translated_damage(
    path: Path, counters: JournalCounters | None = None, *, remedy: str = REMEDY
) -> Iterator[None]:
    """Translate errors that a damaged file causes in SQLite and the codecs to `JournalDamaged`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "unable to open" in str(error) or "readonly" in str(error):
            raise InvalidConfiguration(f"{path}: {error}") from error
        if "disk is full" in str(error):
            raise InvalidConfiguration(
                f"{path}: the disk is full; make some room for the broker to start"
            ) from error
        raise JournalDamaged(f"{path}: {error}{remedy}") from error
    except (*DECODE_ERRORS, JournalDamaged, sqlite3.DatabaseError) as error:
        if isinstance(error, InvalidInput):
            raise
        if counters is not None:
            counters.damaged += 1
        raise JournalDamaged(f"{path}: {error}{remedy}") from error


# --- SQLite's write-ahead log (WAL), checked before SQLite reads it ---
#
# SQLite reads the WAL up to the first frame with a wrong checksum, and treats the rest as a write
# that a crash interrupted. That is right for the last transaction, which was not acked. But the
# broker syncs each transaction before it writes the next. So a broken frame with a later
# transaction behind it was once complete on the disk and acked, and was damaged since.
# SQLite would silently drop it and all frames after it; `check_wal` raises an error instead.
#
# Damage within the last transaction looks like an interrupted write, and is not detected. The
# watermark detects a WAL that was cut short. `check_wal` also refuses a WAL beside an empty
# database, because SQLite would delete that WAL.
#
# The WAL has a header of 32 bytes, then frames of a 24-byte head and a page; numbers are
# big-endian. A frame's head has the page's number, the size of the database in pages if the frame
# ends a transaction (else 0), and two salts. Both are equal to the header's salts in frames of the
# current WAL; both differ in frames left from an older WAL in the same file. The last frame that
# SQLite accepts is in the head of the WAL index (https://sqlite.org/walformat.html).


_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">4I")
_FRAME_HEAD_BYTES: Final = 24
_LAST_COMMITTED: Final = struct.Struct("=16xI")
"""`mxFrame` in the WAL index, in native byte order: the last frame of a committed transaction."""
_MAGIC_LITTLE: Final = 0x377F0682
_MAGIC_BIG: Final = 0x377F0683
_MASK: Final = 0xFFFFFFFF


def check_wal(database: Path) -> None:
    """Raise `JournalDamaged` if a transaction that was synced is damaged in a database's WAL."""
    wal = database.with_name(database.name + "-wal")
    if not wal.exists() or wal.stat().st_size <= _HEADER.size:
        return
    if not database.exists() or not database.stat().st_size:
        raise JournalDamaged(
            f"{database} is empty or missing, and its log {wal.name} is not: what was acknowledged "
            "depends on both; take the directory from a backup, or move it away and start empty"
        )
    frames, transaction_ends = _frames(wal)
    committed = _last_committed_frame(database)
    end = next((frame for frame in transaction_ends if frame > committed), None)
    # SQLite rejected the transaction that ends at `end`. Later frames show that it was synced.
    if end is not None and frames[-1] > end:
        raise JournalDamaged(
            f"{wal}: one of the frames {committed + 1} to {end} is not what was written, and what "
            "was acknowledged after it depends on it"
        )


def _frames(wal: Path) -> tuple[list[int], list[int]]:
    """Return the numbers of the current WAL's frames, and of those that end a transaction."""
    with wal.open("rb") as file:
        header = file.read(_HEADER.size)
        magic, _, page_bytes, _, salt_1, salt_2, *sums = _HEADER.unpack(header)
        if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or _header_checksum(header, magic) != sums:
            raise JournalDamaged(f"{wal}: the header of the log is not what was written")
        frame_bytes = _FRAME_HEAD_BYTES + (65_536 if page_bytes == 1 else page_bytes)
        count = (os.fstat(file.fileno()).st_size - _HEADER.size) // frame_bytes
        frames, transaction_ends = [], []
        for frame in range(1, count + 1):
            file.seek(_HEADER.size + (frame - 1) * frame_bytes)
            _, pages, frame_salt_1, frame_salt_2 = _FRAME.unpack(file.read(_FRAME.size))
            # Either salt identifies a frame of this WAL, as the other may be damaged.
            if frame_salt_1 == salt_1 or frame_salt_2 == salt_2:
                frames.append(frame)
                if pages:
                    transaction_ends.append(frame)
    return frames, transaction_ends


def _header_checksum(header: bytes, magic: int) -> list[int]:
    sum_1 = sum_2 = 0
    words = struct.unpack("<6I" if magic == _MAGIC_LITTLE else ">6I", header[:24])
    for first, second in zip(words[::2], words[1::2], strict=True):
        sum_1 = sum_1 + first + sum_2 & _MASK
        sum_2 = sum_2 + second + sum_1 & _MASK
    return [sum_1, sum_2]


def _last_committed_frame(database: Path) -> int:
    """Return the last frame that SQLite accepts, without changing the WAL."""
    source = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as connection:
        with suppress(sqlite3.DatabaseError):  # damage to the database itself; `load` reports it
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        # SQLite writes the index at the first read, and may delete it with the last connection.
        index = database.with_name(database.name + "-shm").read_bytes()
    (frame,) = _LAST_COMMITTED.unpack_from(index)
    return int(frame)
