from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from palio.errors import JournalDamaged
from palio.server.journal.reading import check_wal

PAGE: Final = 4_096
FRAME: Final = 24 + PAGE


def commit(connection: sqlite3.Connection, rows: int) -> None:
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t VALUES (?)", [(b"x" * 3_000,)] * rows)
    connection.execute("COMMIT")


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A database as a crash leaves it: 8 transactions of some frames each are in its log."""
    (tmp_path / "at work").mkdir()
    database = tmp_path / "at work" / "db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (b BLOB)")
        for _ in range(8):
            commit(connection, 2)
        for name in ("db", "db-wal"):
            shutil.copy(database.parent / name, tmp_path / name)
    return tmp_path / "db"


def log(database: Path) -> Path:
    return database.with_name("db-wal")


def frames(database: Path) -> list[bool]:
    """For each frame, whether it ends a transaction."""
    data = log(database).read_bytes()
    places = range(32, len(data), FRAME)
    return [any(data[place + 4 : place + 8]) for place in places]


def change(database: Path, place: int) -> None:
    data = bytearray(log(database).read_bytes())
    data[place] ^= 4
    log(database).write_bytes(data)


def test_a_sound_log_passes(crashed: Path) -> None:
    assert frames(crashed).count(True) == 9
    check_wal(crashed)


def test_no_log_and_an_empty_one_pass(tmp_path: Path) -> None:
    check_wal(tmp_path / "db")
    log(tmp_path / "db").write_bytes(b"")
    check_wal(tmp_path / "db")


@pytest.mark.parametrize("place", [8, 100, 4_000])
def test_a_change_before_the_last_transaction_is_found_in_any_frame(
    crashed: Path, place: int
) -> None:
    ends = [number for number, end in enumerate(frames(crashed)) if end]
    last_transaction = ends[-2] + 1
    sound = log(crashed).read_bytes()
    for frame in range(last_transaction):
        log(crashed).write_bytes(sound)
        change(crashed, 32 + frame * FRAME + place)
        with pytest.raises(JournalDamaged, match="is not what was written") as told:
            check_wal(crashed)
        first, last = map(int, re.findall(r"frames (\d+) to (\d+)", str(told.value))[0])
        assert [end for end in (-1, *ends) if first - 2 <= end < last] == [first - 2, last - 1]
        assert first <= frame + 1 <= last


def test_sqlite_itself_would_lose_what_comes_after_it(crashed: Path) -> None:
    """Why the log is looked through."""
    change(crashed, 32 + 5 * FRAME + 100)
    with closing(sqlite3.connect(crashed)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM t").fetchone()
    assert rows < 8 * 2


def test_a_last_transaction_that_was_torn_passes(crashed: Path) -> None:
    sound = log(crashed).read_bytes()
    ends = [number for number, end in enumerate(frames(crashed)) if end]
    torn = 32 + (ends[-2] + 1) * FRAME + 100
    log(crashed).write_bytes(sound[:torn])  # cut off
    check_wal(crashed)
    log(crashed).write_bytes(sound[:torn] + bytes(len(sound) - torn))  # never written
    check_wal(crashed)
    log(crashed).write_bytes(sound[:torn] + bytes(FRAME) + sound[torn + FRAME :])  # out of order
    check_wal(crashed)


def test_a_header_that_changed_is_found(crashed: Path) -> None:
    change(crashed, 17)
    with pytest.raises(JournalDamaged, match="header of the log"):
        check_wal(crashed)


def test_frames_of_an_older_log_in_the_same_file_pass(tmp_path: Path) -> None:
    database = tmp_path / "at work" / "db"
    database.parent.mkdir()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (b BLOB)")
        for _ in range(8):
            commit(connection, 2)
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        commit(connection, 1)
        for name in ("db", "db-wal"):
            shutil.copy(database.parent / name, tmp_path / name)
    assert len(frames(tmp_path / "db")) > 10
    check_wal(tmp_path / "db")
    change(tmp_path / "db", 32 + 8 * FRAME)  # in the old ones
    check_wal(tmp_path / "db")
