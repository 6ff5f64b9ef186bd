"""`JournalReader`: what a node reads of a journal; never what is not as it was written."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from palio.errors import InvalidConfiguration, InvalidInput, JournalDamaged
from palio.model.parcels import Shape
from palio.node.effects import ANYBODY, Entry, Heading, Stored
from palio.node.operations import Operation, PutSubscription
from palio.protocol.legal_parcels import read_shape
from palio.protocol.messages import Fact
from palio.server.counters import JournalCounters
from palio.server.journal.format import about, checksum, parcel_of, payload_checksum, sound_rows
from palio.server.journal.tables import load_log

__all__ = ["BROKEN", "JournalReader", "damage_told"]

BROKEN: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)
"""What is raised for a row that is none: SQLite keeps values of any type in a column."""

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
        """All but the events; what waits is read while it is asked for."""
        connection = self._connection
        with damage_told(self._path, self._counters):
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
        with damage_told(self._path, self._counters):
            yield from load_log(self._connection)

    def records(self) -> dict[str, bytes]:
        """What fronts keep, oldest first."""
        with damage_told(self._path, self._counters):
            return dict(sound_rows(self._connection, "records", "ORDER BY rowid"))

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """See `Store`."""
        query = (
            f"{_HEAD}, payload_sum, payload FROM entries "
            "WHERE entry IN (SELECT value FROM json_each(?)) ORDER BY entry"
        )
        with damage_told(self._path, self._counters, remedy=""):
            rows = self._connection.execute(query, (json.dumps(list(numbers)),))
            return [self.entry(row) for row in rows]

    def heading(self, entry: int) -> Heading | None:
        """See `Store`."""
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
        """A row of `entries`; `JournalDamaged` if it is not what was written."""
        *head, found, payload_sum, payload = row
        entry, publisher, first_seq, last_seq, wall_us, shape = head
        try:
            known, described = self._shape(shape)
            if found != checksum(*head) or payload_sum != payload_checksum(
                entry, described, payload
            ):
                raise ValueError("its checksum differs")  # told with the others
            return Entry(entry, parcel_of(publisher, known, payload), wall_us)
        except BROKEN as error:
            raise JournalDamaged(
                f"entry {entry} is not what was written ({error}); lost are the "
                f"events {first_seq} to {last_seq} of {publisher!r}"
            ) from None

    def _shape(self, number: int) -> tuple[Shape, bytes]:
        known = self._shapes.get(number)
        if known is None:
            query = "SELECT schema, sum FROM shapes WHERE shape = ?"
            row = self._connection.execute(query, (number,)).fetchone()
            if row is None or zlib.crc32(row[0]) != row[1]:
                raise ValueError(f"shape {number} is not what was written")
            known = self._shapes[number] = read_shape(row[0]), row[0]
        return known


REMEDY: Final = "; palio journal salvage writes the rest to another directory"


@contextmanager
def damage_told(
    path: Path, counters: JournalCounters | None = None, *, remedy: str = REMEDY
) -> Iterator[None]:
    """Translates errors of SQLite and of the codecs about a broken file into ours."""
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
