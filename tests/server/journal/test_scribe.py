from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from palio.node.operations import (
    CaughtUp,
    Claim,
    DropSubscription,
    Open,
    PutSubscription,
    PutTime,
)
from palio.server.journal.format import connect, create_or_check, read_about
from palio.server.journal.scribe import Scribe
from palio.server.journal.watermark import Note, Span
from tests.server.helpers import put


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path / "journal")) as found:
        create_or_check(found, tmp_path / "journal", "b1")
        yield found


def test_the_last_offset_is_the_highest_ever_used(connection: sqlite3.Connection) -> None:
    for entry in (4, 9, 2):
        scribe = Scribe(connection)
        scribe.write(put(entry))
        scribe.finish()
    assert read_about(connection, "last_offset") == 9


def test_events_of_one_shape_share_its_description(connection: sqlite3.Connection) -> None:
    scribe = Scribe(connection)
    for entry in range(1, 5):
        scribe.write(put(entry))
    assert connection.execute("SELECT count(*) FROM shapes").fetchone() == (1,)
    scribe.forget()  # as after a transaction that failed
    scribe.write(put(5))
    assert connection.execute("SELECT count(*) FROM shapes").fetchone() == (1,)


def test_each_transaction_is_noted(connection: sqlite3.Connection) -> None:
    scribe = Scribe(connection)
    scribe.write(put(4))
    scribe.write(put(5))
    scribe.write(Open(Claim("carol/d", 1, "b9")))
    scribe.write(PutSubscription("ann/d", "ann", "TRUE", b"\x80", 60.0))
    scribe.write(CaughtUp(3))
    scribe.write(PutTime(77))
    spans = [Span("alice", 4, 5, 400, 502)]
    assert scribe.finish() == Note("b1", 0, 1, 5, 77, spans, ["ann/d"])
    scribe.write(DropSubscription("ann/d"))
    assert scribe.finish() == Note("b1", 0, 2, 5, 77, ended=["ann/d"])
    assert (read_about(connection, "log"), read_about(connection, "time_us")) == (3, 77)


def test_what_a_failed_transaction_did_is_forgotten(connection: sqlite3.Connection) -> None:
    scribe = Scribe(connection)
    connection.execute("BEGIN")
    for operation in (put(4), CaughtUp(3), PutTime(77)):
        scribe.write(operation)
    connection.execute("ROLLBACK")
    scribe.forget()
    assert scribe.finish() == Note("b1", 0, 1, 0)
    assert read_about(connection, "log") == 0


def test_room_is_tried_and_nothing_is_left(connection: sqlite3.Connection) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    scribe = Scribe(connection)
    scribe.try_room(4_096)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        scribe.try_room(8 * 4_096)
    assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_any_tool_for_sqlite_reads_it(tmp_path: Path, connection: sqlite3.Connection) -> None:
    Scribe(connection).write(put(7, "b3"))
    with closing(sqlite3.connect(tmp_path / "journal")) as other:
        query = "SELECT entry, publisher, first_seq, last_seq, home FROM entries"
        assert other.execute(f"{query} JOIN waiting USING (entry)").fetchall() == [
            (7, "alice", 700, 702, "b3")
        ]
