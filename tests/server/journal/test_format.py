from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from palio.errors import InvalidConfiguration, JournalDamaged
from palio.server.journal import format as pages
from palio.server.journal.format import (
    checksum,
    connect,
    create_or_check,
    payload_checksum,
    put_about,
    put_row,
    read_about,
    sound_rows,
)
from tests.tables import code


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """To a journal that was just made."""
    with closing(connect(tmp_path / "journal")) as found:
        create_or_check(found, tmp_path / "journal", "b1")
        yield found


def test_a_checksum_depends_on_every_part_and_where_it_ends() -> None:
    parts = ("ab", "c", 1, None, b"x")
    others = [("a", "bc", 1, None, b"x"), ("ab", "c", 2, None, b"x"), ("ab", "c", 1, b"", b"x")]
    assert all(checksum(*other) != checksum(*parts) for other in others)
    assert checksum(*parts) == checksum(*parts)


def test_a_checksum_of_events_depends_on_entry_schema_and_payload() -> None:
    sums = {
        payload_checksum(1, b"schema", b"payload"),
        payload_checksum(2, b"schema", b"payload"),
        payload_checksum(1, b"schemA", b"payload"),
        payload_checksum(1, b"schema", b"paYload"),
    }
    assert len(sums) == 4


def test_a_new_file_is_of_this_format_and_survives_a_power_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with closing(connect(path)) as connection:
        create_or_check(connection, path, "b1")
        create_or_check(connection, path, "b1")
        settings = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("user_version", "journal_mode", "synchronous")
        }
    assert settings == {
        "user_version": pages.FORMAT,
        "journal_mode": "wal",
        "synchronous": 2,
    }


def test_a_database_of_something_else_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
        with pytest.raises(InvalidConfiguration, match="is no journal of format 3"):
            create_or_check(connection, path, "b1")


def test_what_a_journal_says_of_itself_is_checked(connection: sqlite3.Connection) -> None:
    put_about(connection, {"epoch": 4})
    assert read_about(connection, "epoch") == 4
    connection.execute("UPDATE about SET value = 5 WHERE key = 'epoch'")
    with pytest.raises(JournalDamaged, match="'epoch' is not what was written"):
        read_about(connection, "epoch")
    with pytest.raises(JournalDamaged, match="'age' is missing"):
        read_about(connection, "age")


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("cursors", ("b2", "x", 9)),
        ("cursors", ("b2", -1, 9)),
        ("streams", ("b2", 7, 2**62 + 1)),
        ("waiting", ("b2", 1, "ann/d", 1, None, None)),
        ("bookmarks", ("ann/d", "text")),
        ("publishers", ("p", 1.5)),
    ],
)
def test_a_row_that_is_none_is_told_though_its_checksum_is_right(
    connection: sqlite3.Connection, table: str, row: tuple[Any, ...]
) -> None:
    columns = [each[1] for each in connection.execute(f"PRAGMA table_info({table})")]
    named = ", ".join(columns)
    connection.execute(f"CREATE TABLE loose AS SELECT * FROM {table}")  # without NOT NULL
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE loose RENAME TO {table}")
    places = ", ".join("?" * (len(row) + 1))
    query = f"INSERT INTO {table} ({named}) VALUES ({places})"
    connection.execute(query, (*row, checksum(*row)))
    with pytest.raises(JournalDamaged, match=f"in {table}, '.*' is no row"):
        list(sound_rows(connection, table))


def test_the_tables_are_those_that_the_documentation_lists(connection: sqlite3.Connection) -> None:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    names = {name for (name,) in tables}
    rows = [line.split("|")[1] for line in (pages.__doc__ or "").splitlines() if "|" in line]
    assert {code(row) for row in rows[2:]} == names
    assert names == {"shapes", "entries", *pages.ROWS}


def test_pages_that_become_free_are_not_written(tmp_path: Path) -> None:
    path, pages_of_entry = tmp_path / "journal", 64
    with closing(connect(path)) as connection:
        create_or_check(connection, path, "b1")
        row = (1, "p", 1, 1, 0, 1, 0, 0, bytes(pages_of_entry * 4_096))
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("DELETE FROM entries")
        log = path.with_name(path.name + "-wal")
        assert log.stat().st_size < pages_of_entry * 4_096 // 4


def test_rows_are_read_one_by_one(connection: sqlite3.Connection) -> None:
    """A journal of a million rows is not in memory while it is read."""
    for number in range(1, 101):
        put_row(connection, "cursors", f"b{number:03}", 1, number)
    rows = sound_rows(connection, "cursors", "ORDER BY origin")
    assert next(rows) == ("b001", 1, 1)
    connection.execute("DELETE FROM cursors WHERE origin = 'b099'")
    assert len(list(rows)) == 98
