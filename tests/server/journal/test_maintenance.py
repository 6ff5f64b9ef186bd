from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from palio.errors import InvalidConfiguration, InvalidInput, JournalDamaged
from palio.node.loss_markers import LossMarker
from palio.node.operations import (
    CaughtUp,
    Claim,
    Cursor,
    Open,
    Place,
    Put,
    PutRecord,
    Renew,
    Target,
)
from palio.protocol.messages import Share
from palio.server.journal.journal import FILE, Journal
from palio.server.journal.maintenance import backup, check, salvage
from palio.server.journal.watermark import FILE as MARK
from tests.modes import modes_below
from tests.server.helpers import append, flip, put

PAGE: Final = 4_096
ENTRIES: Final = 300
ANN: Final = "ann/d"


def entry(number: int) -> Put:
    """For Ann here, and for Bob at b2."""
    targets = (
        Target("b1", 2 * number, (Share(ANN, 1, None),)),
        Target("b2", 2 * number + 1, (Share("bob/d", 1, None),)),
    )
    return put(2 * number)._replace(targets=targets)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of a broker that has ended, with everything in its file."""
    found = started(tmp_path / "data")
    opening = CaughtUp(1), Open(Claim(ANN, 1, "b1")), Open(Claim("bob/d", 1, "b2"))
    found.append(append(1, *opening, Renew("b2", 1), Cursor("b3", 1, 9), PutRecord("a", b"1")))
    for number in range(1, ENTRIES + 1):
        found.append(append(number + 1, entry(number)))
    found.close()
    return tmp_path / "data"


def started(directory: Path) -> Journal:
    found = Journal(directory, "b1", reserve_bytes=0)
    found.start(lambda _: None, lambda _, __: None, lambda: None)
    return found


def held(directory: Path) -> tuple[dict[str, list[int]], dict[str, int]]:
    """What a broker that starts there has for each home, and how many are told that it is lost."""
    waiting: dict[str, list[int]] = {}
    told: dict[str, int] = {}
    with closing(Journal(directory, "b1", reserve_bytes=0)) as found:
        for each in found.load().operations:
            if isinstance(each, Place):
                events = found.entries([each.entry])
                if events and LossMarker.of(events[0].parcel) is not None:
                    told[each.home] = told.get(each.home, 0) + len(each.shares)
                else:
                    waiting.setdefault(each.home, []).append(each.entry)
    return waiting, told


def pages(directory: Path, name: str) -> list[int]:
    """The leaves of a table or an index."""
    with closing(sqlite3.connect(directory / FILE)) as connection:
        query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
        try:
            found = [page for (page,) in connection.execute(query, (name,))]
        except sqlite3.OperationalError:
            pytest.skip("this SQLite does not tell which pages a table has")
        connection.execute("PRAGMA journal_mode")
    return found


def overwrite(directory: Path, page: int) -> None:
    with (directory / FILE).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE)


ALL: Final = [2 * number for number in range(1, ENTRIES + 1)]


def test_a_whole_journal_is_whole(data: Path) -> None:
    before = (data / FILE).read_bytes()
    report = check(data)
    assert (report.name, report.damage) == ("b1", [])
    assert report.rows["entries"] == ENTRIES
    assert report.rows["waiting"] == 2 * ENTRIES
    assert (data / FILE).read_bytes() == before
    assert held(data) == ({"b1": ALL, "b2": ALL}, {})


def test_what_is_whole_is_salvaged_as_it_is(data: Path, tmp_path: Path) -> None:
    report = salvage(data, tmp_path / "new")
    assert report.damage == []
    assert held(tmp_path / "new") == ({"b1": ALL, "b2": ALL}, {})
    assert modes_below(tmp_path / "new") == ({0o700}, {0o600})


@pytest.mark.parametrize("table", ["waiting", "entries", "waiting_for"])
def test_a_page_that_cannot_be_read_costs_what_is_on_it(
    data: Path, tmp_path: Path, table: str
) -> None:
    found = pages(data, table)
    assert len(found) > 2
    bad = found[len(found) // 2]
    overwrite(data, bad)
    before = (data / FILE).read_bytes()
    with pytest.raises(JournalDamaged, match="palio journal salvage"):
        Journal(data, "b1")
    place = f"Page {bad}:" if table == "waiting_for" else f"in {table}, between ("
    assert any(place in each for each in check(data).damage)
    report = salvage(data, tmp_path / "new")
    assert (data / FILE).read_bytes() == before
    waiting, told = held(tmp_path / "new")
    if table == "waiting":
        assert report.damage
        total = len(waiting["b1"]) + len(waiting["b2"])
        assert 2 * ENTRIES - 250 < total < 2 * ENTRIES
        assert told == {"b1": 1, "b2": 1}
    else:
        assert waiting == {"b1": ALL, "b2": ALL}
        assert told == {}, "those for whom what is lost was to be are told in its turn"
    if table == "entries":
        assert report.damage
        with closing(Journal(tmp_path / "new", "b1")) as journal:
            assert ENTRIES - 40 < len(journal.entries(ALL)) < ENTRIES
    assert check(tmp_path / "new").damage == []


def test_entries_between_pages_that_cannot_be_read_are_found(data: Path, tmp_path: Path) -> None:
    found = pages(data, "entries")
    for bad in (found[2], found[-3]):
        overwrite(data, bad)
    salvage(data, tmp_path / "new")
    with closing(Journal(tmp_path / "new", "b1")) as journal:
        assert ENTRIES - 40 < len(journal.entries(ALL)) < ENTRIES


def test_a_row_that_changed_is_told_and_left_out(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / FILE)) as connection, connection:
        connection.execute("UPDATE cursors SET place = 10")
    (told,) = check(data).damage
    assert told == "in cursors, 'b3' is not what was written"
    salvage(data, tmp_path / "new")
    waiting, losses = held(tmp_path / "new")
    assert waiting == {"b1": ALL, "b2": ALL}
    assert losses == {"b1": 1, "b2": 1}
    with closing(Journal(tmp_path / "new", "b1")) as journal:
        assert CaughtUp(1) not in journal.load().operations


def test_events_that_changed_are_told_in_their_turn(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / FILE)) as connection, connection:
        connection.execute("UPDATE entries SET payload = x'00' WHERE entry = 8")
    (told,) = check(data).damage
    assert "entry 8 is not what was written" in told
    salvage(data, tmp_path / "new")
    with closing(Journal(tmp_path / "new", "b1")) as journal:
        heading = journal.heading(8)
        assert heading is not None
        assert (heading.publisher, heading.first_seq, heading.last_seq) == ("alice", 800, 802)


@pytest.mark.parametrize("has_mark", [True, False])
def test_what_the_journal_says_of_itself_is_taken_from_its_mark(
    data: Path, tmp_path: Path, has_mark: bool
) -> None:
    with closing(sqlite3.connect(data / FILE)) as connection, connection:
        connection.execute("UPDATE about SET sum = 0")
    assert check(data).name == ""
    if not has_mark:
        (data / MARK).unlink()
        with pytest.raises(JournalDamaged, match="nor a mark"):
            salvage(data, tmp_path / "new")
        return
    salvage(data, tmp_path / "new")
    waiting, losses = held(tmp_path / "new")
    assert (waiting, losses) == ({"b1": ALL, "b2": ALL}, {"b1": 1, "b2": 1})


def test_a_log_with_a_broken_frame_costs_what_came_after_it(tmp_path: Path) -> None:
    found = started(tmp_path / "at work")
    found.append(append(1, CaughtUp(1), Open(Claim(ANN, 1, "b1"))))
    for number in range(1, 41):
        found.append(append(number + 1, entry(number)))
        found.flush()
    shutil.copytree(tmp_path / "at work", tmp_path / "data")
    found.close()
    log = tmp_path / "data" / f"{FILE}-wal"
    flip(log, log.stat().st_size // 2)
    report = salvage(tmp_path / "data", tmp_path / "new")
    assert report.damage == [], "SQLite has dropped it; the mark tells"
    waiting, losses = held(tmp_path / "new")
    assert 0 < len(waiting["b1"]) < 40
    assert losses == {"b1": 1}


# --- backup ---


def test_a_copy_beside_a_broker_that_writes_is_whole_and_says_that_it_is_old(
    tmp_path: Path,
) -> None:
    found = started(tmp_path / "data")
    found.append(append(1, CaughtUp(1), Open(Claim(ANN, 1, "b1"))))
    found.flush()
    copied = threading.Event()

    def proceed() -> None:
        number = 1
        while not copied.is_set():
            found.append(append(number + 1, entry(number)))
            found.flush()
            number += 1

    thread = threading.Thread(target=proceed)
    thread.start()
    try:
        while not found.counters.appends > 10:
            pass
        assert check(tmp_path / "data").damage == [], "it is checked beside it, too"
        reports = [backup(tmp_path / "data", tmp_path / f"copy {each}") for each in range(3)]
    finally:
        copied.set()
        thread.join()
    found.close()
    sizes = [report.rows["entries"] for report in reports]
    assert sizes == sorted(sizes)
    for each, report in enumerate(reports):
        assert report.damage == []
        waiting, losses = held(tmp_path / f"copy {each}")
        assert waiting["b1"] == [2 * number for number in range(1, sizes[each] + 1)]
        assert losses == {"b1": 1}
        assert modes_below(tmp_path / f"copy {each}")[1] == {0o600}


def test_a_copy_of_what_is_damaged_is_told_to_be(data: Path, tmp_path: Path) -> None:
    overwrite(data, pages(data, "entries")[3])
    assert backup(data, tmp_path / "copy").damage


# --- what is refused ---


@pytest.mark.parametrize("write", [backup, salvage])
def test_nothing_is_written_over(
    data: Path, tmp_path: Path, write: Callable[[Path, Path], object]
) -> None:
    before = (data / FILE).read_bytes()
    for to in (data, tmp_path):
        with pytest.raises(InvalidInput, match="is not empty; name another directory"):
            write(data, to)
    assert (data / FILE).read_bytes() == before


@pytest.mark.parametrize("read", [check, lambda data: backup(data, data / "x")])
def test_a_directory_without_a_journal_is_told(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    with pytest.raises(InvalidInput, match="is missing; name the data directory of a broker"):
        read(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_journal_in_use_is_not_salvaged(data: Path, tmp_path: Path) -> None:
    with closing(Journal(data, "b1")), pytest.raises(InvalidConfiguration, match="in use"):
        salvage(data, tmp_path / "new")


def test_a_file_that_is_no_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 1_000)
    with pytest.raises(JournalDamaged, match="not a database; take the directory from a backup"):
        check(tmp_path)
    (tmp_path / FILE).unlink()
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(InvalidConfiguration, match="no journal of format 3"):
        check(tmp_path)
