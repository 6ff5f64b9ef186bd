from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from palio.server.journal.journal import FILE, Journal
from tests.cli.helpers import Palio
from tests.server.helpers import append, put


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with closing(Journal(tmp_path / "data", "b1")) as journal:
        journal.start(lambda _: None, lambda _, __: None, lambda: None)
        journal.append(append(1, put(1), put(2)))
    return tmp_path / "data"


def test_a_journal_that_is_whole(run: Palio, data: Path) -> None:
    told = run("journal", "check", str(data))
    assert told.status == 0
    assert told.out.startswith("journal of b1: whole; sound rows: 1 shapes, 2 entries")
    document = run("journal", "check", str(data), "--json").document
    assert (document["broker"], document["damage"]) == ("b1", [])
    assert document["rows"]["waiting"] == 2


def test_what_is_damaged_is_told_and_the_rest_is_salvaged(
    run: Palio, data: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(data / FILE)) as connection, connection:
        connection.execute("UPDATE entries SET payload = x'00' WHERE entry = 2")
    told = run("journal", "check", str(data))
    assert told.status == 1
    first, second = told.out.splitlines()
    assert "damaged" in first
    assert "lost are the events 200 to 202 of 'alice'" in second
    salvaged = run("journal", "salvage", str(data), str(tmp_path / "new"))
    assert (salvaged.status, salvaged.out.splitlines()[1]) == (1, second)
    with closing(Journal(tmp_path / "new", "b1")) as journal:
        assert [each.entry for each in journal.entries([1])] == [1]


def test_a_copy_is_another_journal(run: Palio, data: Path, tmp_path: Path) -> None:
    assert run("journal", "backup", str(data), str(tmp_path / "copy")).status == 0
    assert run("journal", "check", str(tmp_path / "copy")).status == 0
    again = run("journal", "backup", str(data), str(tmp_path / "copy"))
    assert again.status == 2
    assert "is not empty; name another directory" in again.err
