"""Reads a journal: `JournalReader` returns only rows whose checksums match."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from palio.errors import InvalidConfiguration, InvalidInput, JournalDamaged
from palio.model.shapes import Shape
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
