"""`JournalReader`: reads of a journal, which return only rows whose checksum is right."""

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
from palio.server.journal.format import about, checksum, parcel_of, payload_checksum, sound_rows

BROKEN: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)
"""Errors of a row with other types: SQLite keeps values of any type in a column."""

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
        """Read all but the events; the backlog is read lazily, as it may not fit into memory."""
        connection = self._connection
        with translated_damage(self._path, self._counters):
            return Stored(
                epoch=epoch,
                operations=self._operations(),
                last_offset=about(connection, "last_offset"),
                subscriptions=[
                    PutSubscription(*row) for row in sound_rows(connection, "subscriptions")
                ],
                facts=[
                    msgspec.json.decode(fact, type=Fact)
                    for _, _, fact in sound_rows(connection, "facts")
                ],
                time_us=about(connection, "time_us"),
                bookmarks=dict(sound_rows(connection, "bookmarks")),
            )

    def _operations(self) -> Iterator[Operation]:
        with translated_damage(self._path, self._counters):
            yield from load_log(self._connection)

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
        """Read an entry's heading, if it is sound (`Store`)."""
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
        """Return a row of `entries`; `JournalDamaged` if it is not what was written."""
        *head, head_sum, payload_sum, payload = row
        entry, publisher, first_seq, last_seq, wall_us, shape = head
        try:
            parsed, described = self._shape(shape)
            if head_sum != checksum(*head) or payload_sum != payload_checksum(
                entry, described, payload
            ):
                raise ValueError("its checksum differs")  # reported with the others
            return Entry(entry, parcel_of(publisher, parsed, payload), wall_us)
        except BROKEN as error:
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


def load_log(connection: sqlite3.Connection) -> Iterator[Operation]:
    """Yield operations whose fold is the state in the tables. All rows are checked."""
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
    for (offset, home), group in groupby(rows, key=lambda row: (row[1], row[0])):
        if offset <= bases.get(home, 0):
            raise JournalDamaged(f"in waiting, {offset} for {home!r} exists, but was released")
        parts = list(group)
        shares = tuple(Share(subject, number, some) for _, _, subject, number, _, some in parts)
        yield Place(home, offset, parts[0][4], shares)
    # Entries that no subscription needs: the broker stopped before it discarded them.
    left = "SELECT entry FROM entries WHERE entry NOT IN (SELECT entry FROM waiting)"
    for (entry,) in connection.execute(left):
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
    """Translate errors of SQLite and of the codecs about a broken file into `JournalDamaged`."""
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
    except (*BROKEN, JournalDamaged, sqlite3.DatabaseError) as error:
        if isinstance(error, InvalidInput):
            raise
        if counters is not None:
            counters.damaged += 1
        raise JournalDamaged(f"{path}: {error}{remedy}") from error


# --- the log, before SQLite reads it ---
#
# SQLite reads the log up to the first frame whose checksum is wrong, and takes the rest for a write
# that a crash tore. That is right for the last transaction, which was not acked. But each
# transaction is synced before the next one is written. So a broken frame with a later transaction
# behind it was on the disk and whole: it was acked, and has changed since.
# SQLite would drop it and all after it silently; `check_log` raises an error instead.
#
# A change within the very last transaction looks like a torn write, and is not detected. The
# watermark detects a log that was cut short. A log beside an empty database, which SQLite would
# remove, is refused too.
#
# The log is a header of 32 bytes and frames of 24 bytes and a page, all numbers big-endian. A frame
# has the page's number, the size of the database if it ends a transaction, and two salts: those of
# the header, if it is of this log, and both others if it is of an older one in the same file. How
# many frames SQLite takes is in the head of its index (https://sqlite.org/walformat.html).


_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">4I")
_FRAME_HEAD_BYTES: Final = 24
_TAKEN: Final = struct.Struct("=16xI")
"""Of the index: in the order of the machine, the last frame of the last whole transaction."""
_MAGIC_LITTLE: Final = 0x377F0682
_MAGIC_BIG: Final = 0x377F0683
_MASK: Final = 0xFFFFFFFF


def check_log(database: Path) -> None:
    """Raise `JournalDamaged` if the log of a database lost a transaction that was synced."""
    log = database.with_name(database.name + "-wal")
    if not log.exists() or log.stat().st_size <= _HEADER.size:
        return
    if not database.exists() or not database.stat().st_size:
        raise JournalDamaged(
            f"{database} is empty or missing, and its log {log.name} is not: what was acknowledged "
            "depends on both; take the directory from a backup, or move it away and start empty"
        )
    ours, ends = _frames(log)
    taken = _taken(database)
    end = next((frame for frame in ends if frame > taken), None)
    if end is not None and ours[-1] > end:
        raise JournalDamaged(
            f"{log}: of the frames {taken + 1} to {end} one is not what was written, and what was "
            "acknowledged after it depends on it"
        )


def _frames(log: Path) -> tuple[list[int], list[int]]:
    """Return the numbers of this log's frames, and of those that end a transaction."""
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        magic, _, page_bytes, _, salt_1, salt_2, *sums = _HEADER.unpack(head)
        if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or _sums(head, magic) != sums:
            raise JournalDamaged(f"{log}: the head of the log is not what was written")
        step = _FRAME_HEAD_BYTES + (65_536 if page_bytes == 1 else page_bytes)
        ours, ends = [], []
        for frame in range(1, (os.fstat(file.fileno()).st_size - _HEADER.size) // step + 1):
            file.seek(_HEADER.size + (frame - 1) * step)
            _, pages, one, other = _FRAME.unpack(file.read(_FRAME.size))
            if one == salt_1 or other == salt_2:  # one of them may have changed
                ours.append(frame)
                if pages:
                    ends.append(frame)
    return ours, ends


def _sums(head: bytes, magic: int) -> list[int]:
    """Return the checksum of the head of a log."""
    one = other = 0
    words = struct.unpack("<6I" if magic == _MAGIC_LITTLE else ">6I", head[:24])
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = one + first + other & _MASK
        other = other + second + one & _MASK
    return [one, other]


def _taken(database: Path) -> int:
    """Return the last frame that SQLite accepts, without changing the log."""
    source = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as connection:
        with suppress(sqlite3.DatabaseError):  # of the database, not of its log
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        index = database.with_name(database.name + "-shm").read_bytes()
    (taken,) = _TAKEN.unpack_from(index)
    return int(taken)
