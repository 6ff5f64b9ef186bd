"""Checks, copies and salvages the journal of a broker: `palio journal`.

Nothing is changed in the directory that is read; what is written goes to another one. A broker that
starts from there reports what is lost (`journal`): the mark beside a copy, or beside what was left
of a damaged journal, shows that there was more.
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
    about,
    connect,
    create_or_check,
    put_about,
    sound,
)
from palio.server.journal.journal import FILE, lock
from palio.server.journal.reading import JournalReader, check_log, translated_damage
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
"""By what the rows of a table are in order, if that is not their first column."""


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
        damage = []
        with files.held(directory / "journal.lock", wait=False) as is_free:
            if is_free:  # else it is being written
                damage += _damage_of_log(path)
        connection.execute("BEGIN")
        damage += _damage_of_structure(connection)
        tables = {}
        for table in ("shapes", "entries", *ROWS):
            found: list[str] = []
            tables[table] = sum(1 for _ in _readable(connection, path, table, found))
            damage += found[:MAX_LISTED]
        name = ""
        with suppress(JournalDamaged, sqlite3.DatabaseError):
            name = str(about(connection, "name"))
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


def _damage_of_log(path: Path) -> list[str]:
    try:
        check_log(path)
    except JournalDamaged as error:
        return [str(error)]
    return []


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """A journal that is only read: not even its log is moved into the file."""
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
    """The sound rows of a table, from both ends up to what cannot be read. Those behind a page that
    cannot be read may come twice. Events whose heading is sound are kept to be reported as lost.
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
        _copy_mark(
            directory, to, target, has_pending_updates=True
        )  # of what is written from now on
    return check(to)


def salvage(directory: Path, to: Path) -> Findings:
    """Write what is sound of a journal, whose broker has ended, to a directory of its own."""
    with (
        _opened(directory) as (source, path),
        closing(lock(directory)),
        closing(Watermark(directory / MARK)) as mark,
        _fresh(to) as target,
    ):
        name = str(_about(source, mark.newest, "name"))
        create_or_check(target, to / FILE, name)
        target.execute("BEGIN")
        damage = _damage_of_log(path)
        rows = {table: _copy(source, target, path, table, damage) for table in ROWS}
        keys = ("epoch", "commits", "time_us", "log", "last_offset")
        put_about(target, {key: _about(source, mark.newest, key) for key in keys})
        has_pending_updates = bool(damage)
        for table in ("shapes", "entries"):  # their subscriptions get a gap for lost entries
            rows[table] = _copy(source, target, path, table, damage)
        _copy_waiting(source, target)
        target.execute("COMMIT")
        _copy_mark(directory, to, target, has_pending_updates=has_pending_updates)
    return Findings(name, rows, damage)


def _copy_mark(
    directory: Path, to: Path, target: sqlite3.Connection, *, has_pending_updates: bool
) -> None:
    """Write the mark that belongs to a copy."""
    with files.replaced(to / MARK) as file, suppress(FileNotFoundError):
        file.write((directory / MARK).read_bytes())
    name = about(target, "name")
    epoch, commits, last_offset = (
        int(about(target, key)) for key in ("epoch", "commits", "last_offset")
    )
    with closing(Watermark(to / MARK)) as mark:
        if has_pending_updates:
            known = mark.newest or Note(name, epoch, commits, last_offset)
            commits, last_offset = max(commits, known.commits), max(last_offset, known.last_offset)
            mark.note(Note(name, epoch, commits + 1, last_offset + 1))


@contextmanager
def _fresh(to: Path) -> Iterator[sqlite3.Connection]:
    """A journal in a directory that has none."""
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
    """Entries between two pages that cannot be read are found by the numbers that wait."""
    missing = "SELECT entry FROM waiting WHERE entry NOT IN (SELECT entry FROM entries)"
    for key in target.execute(missing).fetchall():
        with suppress(sqlite3.DatabaseError):
            for row in source.execute("SELECT * FROM entries WHERE entry = ?", key):
                query = "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                target.execute(query, row)


def _about(connection: sqlite3.Connection, known: Note | None, key: str) -> str | int:
    """Read a value of the table `about`, or of the mark in its stead."""
    try:
        found: str | int = about(connection, key)
    except (JournalDamaged, sqlite3.DatabaseError):
        if known is None:
            raise JournalDamaged(f"its {key} cannot be read, nor a mark") from None
        field = {"epoch": "epochs"}.get(key, key)
        found = getattr(known, field, 1)  # without its log, and another one begins
    return found
