"""Checks, copies and salvages the journal of a broker: `palio journal`.

The source directory is never changed; copies are written to another one. A broker that starts from
a copy reports losses (`journal`): the watermark beside it has more transactions than the copy.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from palio import files
from palio.errors import InvalidConfiguration, InvalidInput, JournalDamaged
from palio.server.counters import JournalCounters
from palio.server.journal.format import (
    FORMAT,
    ROWS,
    connect,
    create_or_check,
    put_about,
    read_about,
    sound,
)
from palio.server.journal.journal import FILE, lock
from palio.server.journal.reading import JournalReader, translated_damage
from palio.server.journal.watermark import FILE as MARK
from palio.server.journal.watermark import Note, Watermark

MAX_LISTED: Final = 20
"""Problems that are listed of each table, and of the structure."""

_KEYS: Final = {
    "waiting": ("home", "place", "subject"),
    "facts": ("origin", "subject"),
    "publishers": ("rowid",),
    "records": ("rowid",),
}
"""The columns that a table's rows are ordered by, if not by the first one."""


class Findings(NamedTuple):
    """The result of a check: sound rows, and damage."""

    name: str
    rows: dict[str, int]
    """Sound rows of each table."""
    damage: list[str]


# --- check ---


def check(directory: Path) -> Findings:
    """Read all of a journal, of a broker that is running or not."""
    with _opened(directory) as (connection, path):
        connection.execute("BEGIN")
        damage = _damage_of_structure(connection)
        tables = {}
        for table in ("shapes", "entries", *ROWS):
            problems: list[str] = []
            tables[table] = sum(1 for _ in _readable(connection, path, table, problems))
            damage += problems[:MAX_LISTED]
        name = ""
        with suppress(JournalDamaged, sqlite3.DatabaseError):
            name = str(read_about(connection, "name"))
        return Findings(name, tables, damage)


def _damage_of_structure(connection: sqlite3.Connection) -> list[str]:
    for pragma in ("quick_check", "integrity_check"):
        try:
            rows = connection.execute(f"PRAGMA {pragma}({MAX_LISTED})").fetchall()
        except sqlite3.DatabaseError as error:
            return [f"the structure is broken: {error}"]
        if rows != [("ok",)]:
            return [f"the structure is broken: {text}" for (text,) in rows]
    return []


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Open a journal read-only: not even its log is moved into the file."""
    path = directory / FILE
    if not path.is_file():
        raise InvalidInput(f"{str(path)!r} is missing; name the data directory of a broker")
    source = f"{path.absolute().as_uri()}?mode=ro"
    with (
        translated_damage(path, remedy="; take the directory from a backup"),
        closing(sqlite3.connect(source, uri=True, isolation_level=None)) as connection,
    ):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            raise InvalidConfiguration(
                f"{path} is no journal of format {FORMAT} (its user_version is {version}); use the "
                "Palio that wrote it"
            )
        yield connection, path


def _readable(
    connection: sqlite3.Connection, path: Path, table: str, damage: list[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the sound rows of a table, from both ends up to a page that cannot be read. A row may
    be yielded twice. Damaged entries are yielded, too: their headings name the lost events.
    """
    reader = JournalReader(connection, path, JournalCounters())
    keys = _KEYS.get(table) or connection.execute(f"PRAGMA table_info({table})").fetchone()[1:2]
    ends, reason = [], ""
    for order in ("ASC", "DESC"):
        last: tuple[Any, ...] = ()
        by = ", ".join(f"{key} {order}" for key in keys)
        try:
            for row in connection.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY {by}"):
                last = row[: len(keys)]
                try:
                    _check_row(reader, table, row)
                except JournalDamaged as error:
                    damage.append(str(error))
                    if table != "entries":
                        continue
                yield row
        except sqlite3.DatabaseError as error:
            ends.append(last)
            reason = str(error)
        else:
            return
    damage.append(f"in {table}, between {ends[0]} and {ends[1]}: {reason}")


def _check_row(reader: JournalReader, table: str, row: tuple[Any, ...]) -> None:
    match table:
        case "entries":
            reader.entry(row)
        case "shapes":
            if row[-1] != zlib.crc32(row[1]):
                raise JournalDamaged(f"in shapes, {row[0]} is not what was written")
        case _:
            sound(table, row)


# --- backup and salvage ---


def backup(directory: Path, to: Path) -> Findings:
    """Copy a journal as it is now, beside a broker that is running, to a directory of its own."""
    with _opened(directory) as (source, _), _fresh(to) as target:
        source.backup(target)
        _copy_mark(directory, to, target, is_incomplete=True)  # the broker writes on
    return check(to)


def salvage(directory: Path, to: Path) -> Findings:
    """Write the sound rows of a journal, whose broker has ended, to a directory of its own."""
    with (
        _opened(directory) as (source, path),
        closing(lock(directory)),
        closing(Watermark(directory / MARK)) as mark,
        _fresh(to) as target,
    ):
        name = str(_about(source, mark.newest, "name"))
        create_or_check(target, to / FILE, name)
        target.execute("BEGIN")
        damage: list[str] = []
        rows = {table: _copy(source, target, path, table, damage) for table in ROWS}
        keys = ("epoch", "commits", "time_us", "log", "last_offset")
        put_about(target, {key: _about(source, mark.newest, key) for key in keys})
        is_incomplete = bool(damage)
        for table in ("shapes", "entries"):  # their subscriptions get a gap for lost entries
            rows[table] = _copy(source, target, path, table, damage)
        _copy_waiting(source, target)
        target.execute("COMMIT")
        _copy_mark(directory, to, target, is_incomplete=is_incomplete)
    return Findings(name, rows, damage)


def _copy_mark(
    directory: Path, to: Path, target: sqlite3.Connection, *, is_incomplete: bool
) -> None:
    """Write the watermark of a copy. If it `is_incomplete`, it is one transaction ahead, so that a
    broker which starts from the copy reports a loss.
    """
    with files.replaced(to / MARK) as file, suppress(FileNotFoundError):
        file.write((directory / MARK).read_bytes())
    name = read_about(target, "name")
    epoch, commits, last_offset = (
        int(read_about(target, key)) for key in ("epoch", "commits", "last_offset")
    )
    with closing(Watermark(to / MARK)) as mark:
        if is_incomplete:
            newest = mark.newest or Note(name, epoch, commits, last_offset)
            commits = max(commits, newest.commits)
            last_offset = max(last_offset, newest.last_offset)
            mark.note(Note(name, epoch, commits + 1, last_offset + 1))


@contextmanager
def _fresh(to: Path) -> Iterator[sqlite3.Connection]:
    """Create a journal in an empty directory."""
    files.make_directory(to)
    if any(to.iterdir()):
        raise InvalidInput(f"{str(to)!r} is not empty; name another directory")
    files.create(to / FILE).close()
    with closing(connect(to / FILE)) as connection:
        yield connection


def _copy(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    path: Path,
    table: str,
    damage: list[str],
) -> int:
    copied = 0
    for row in _readable(source, path, table, damage):
        places = ", ".join("?" * len(row))
        query = f"INSERT OR IGNORE INTO {table} VALUES ({places})"
        copied += target.execute(query, row).rowcount
    return copied


def _copy_waiting(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy entries between two pages that cannot be read, by their numbers in `waiting`."""
    missing = "SELECT entry FROM waiting WHERE entry NOT IN (SELECT entry FROM entries)"
    for key in target.execute(missing).fetchall():
        with suppress(sqlite3.DatabaseError):
            for row in source.execute("SELECT * FROM entries WHERE entry = ?", key):
                query = "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                target.execute(query, row)


def _about(connection: sqlite3.Connection, newest: Note | None, key: str) -> str | int:
    """Read a value of the table `about`, or of the watermark if that is damaged."""
    try:
        value: str | int = read_about(connection, key)
    except (JournalDamaged, sqlite3.DatabaseError):
        if newest is None:
            raise JournalDamaged(f"its {key} cannot be read, nor a mark") from None
        field = {"epoch": "epochs"}.get(key, key)
        value = getattr(newest, field, 1)  # a watermark has no `log`: another one begins
    return value
