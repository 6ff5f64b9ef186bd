from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from palio.errors import InvalidConfiguration, JournalDamaged, UnsafeFile
from palio.node.operations import (
    Ack,
    Append,
    CaughtUp,
    Claim,
    Cursor,
    Discard,
    DropRecord,
    DropSubscription,
    Numbered,
    Open,
    Operation,
    Place,
    PutFacts,
    PutRecord,
    PutSubscription,
    PutTime,
    Release,
    Renew,
)
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.protocol.messages import Fact, Share
from palio.server.journal import writer
from palio.server.journal.format import FORMAT
from palio.server.journal.journal import FILE, Diskless, Journal
from tests.conftest import NIGHTLY
from tests.modes import modes_below, umask
from tests.server.helpers import append, flip, put

ROOT: Final = Path(__file__).parents[3]


class Answers:
    """What a journal answered, and a way to wait for it."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.failed: dict[int, str] = {}
        self.writable = threading.Event()
        self.threads: set[str] = set()

    def on_stored(self, tickets: list[int]) -> None:
        self.threads.add(threading.current_thread().name)
        self.stored += tickets

    def on_failed(self, ticket: int, reason: str) -> None:
        self.failed[ticket] = reason

    def on_writable(self) -> None:
        self.writable.set()

    def start(self, journal: Journal | Diskless) -> None:
        journal.start(self.on_stored, self.on_failed, self.on_writable)


@contextmanager
def journal(directory: Path, answers: Answers | None = None, **options: int) -> Iterator[Journal]:
    found = Journal(directory, "b1", **options)
    (answers or Answers()).start(found)
    try:
        yield found
    finally:
        found.close()


def written(directory: Path, *appends: Append) -> None:
    with journal(directory) as found:
        for each in appends:
            found.append(each)


def waiting(journal: Journal) -> list[int]:
    """The entries for which somebody waits."""
    return [each.entry for each in journal.load().operations if isinstance(each, Place)]


SUBSCRIPTION: Final = PutSubscription("alice/all", "alice", "x > :low", b"\x81\xa3low\x01", 60.0)
CLAIM: Final = Claim("alice/all", 3, "b1", "alice", 1, 0, 1, 9, "x > :low")

HISTORY: Final = (
    append(1, CaughtUp(2), Renew("b2", 5), Open(CLAIM), SUBSCRIPTION),
    append(2, put(1), put(2, "b1", "alice/all"), put(3, "b1", "alice/all"), Numbered("p", 7)),
    append(3, PutFacts((Fact("b2", 1, "links", ("b1",)), Fact("b2", 2, "x", filter="x = 1")))),
    append(4, put(5), Cursor("b3", 1, 7)),
    append(5, PutFacts((Fact("b2", 3, "links", ("b1", "b3")),))),
    append(6, PutTime(77), released=(Release("b2", 5, 1), Discard((1,)))),
    append(7, released=(Ack("alice/all", 2, (), b"here"), Discard((2,)))),
    append(8, PutSubscription("bob/some", "bob", "TRUE", b"\x80", 60.0)),
    append(9, DropSubscription("bob/some"), released=(Ack("bob/some", 0, (), b"gone"),)),
    append(10, released=(Ack("alice/all", 2, (), b"further"),)),
    append(11, PutRecord("b", b"1"), PutRecord("c", b"2"), PutRecord("a", b"3")),
    append(12, PutRecord("b", b"4"), DropRecord("c")),
)

KEPT: Final[list[Operation]] = [
    CaughtUp(2),
    Open(CLAIM),
    Renew("b2", 5),
    Release("b2", 5, 1),
    Place("b1", 3, 3, (Share("alice/all", 1, None),)),
    Place("b2", 5, 5, (Share("bob/d", 1, None),)),
    Cursor("b3", 1, 7),
    Numbered("p", 7),
]


def test_what_was_written_is_what_is_loaded(tmp_path: Path) -> None:
    written(tmp_path, *HISTORY)
    with journal(tmp_path) as found:
        stored = found.load()
        assert list(stored.operations) == KEPT
        assert (stored.epoch, stored.last_offset, stored.time_us) == (1, 5, 77)
        assert stored.subscriptions == [SUBSCRIPTION]
        assert stored.bookmarks == {"alice/all": b"further"}
        assert sorted(stored.facts, key=lambda fact: fact.version) == [
            Fact("b2", 2, "x", filter="x = 1"),
            Fact("b2", 3, "links", ("b1", "b3")),
        ]
        assert list(found.records().items()) == [("b", b"4"), ("a", b"3")]
        assert [each.entry for each in found.entries(range(10))] == [3, 5]


def test_a_stored_entry_is_placed_in_another_queue(tmp_path: Path) -> None:
    share = Share("bob/late", 1, None)
    written(tmp_path, *HISTORY, append(13, Place("b1", 6, 3, (share,))))
    with journal(tmp_path) as found:
        stored = found.load()
        assert Place("b1", 6, 3, (share,)) in stored.operations
        assert stored.last_offset == 6


def test_answers_come_in_order_from_the_writers_thread(tmp_path: Path) -> None:
    answers = Answers()
    with journal(tmp_path, answers) as found:
        for ticket in range(1, 101):
            found.append(append(ticket, put(ticket)))
        found.flush()
        assert answers.stored == list(range(1, 101))
        assert answers.threads == {"palio journal"}
        assert found.counters.appends == 100
        assert found.counters.waiting == 0


def test_what_waits_is_one_transaction(tmp_path: Path) -> None:
    found = Journal(tmp_path, "b1")
    for ticket in range(1, 101):  # before there is anybody to write them
        found.append(append(ticket, put(ticket)))
    answers = Answers()
    answers.start(found)
    found.close()
    assert answers.stored == list(range(1, 101))
    assert found.counters.commits == 1


def test_two_brokers_never_share_a_journal(tmp_path: Path) -> None:
    with journal(tmp_path), pytest.raises(InvalidConfiguration, match="in use by another broker"):
        Journal(tmp_path, "b1")
    Journal(tmp_path, "b1").close()


def test_a_journal_belongs_to_one_broker(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(InvalidConfiguration, match="journal of the broker 'b1', not of 'b2'"):
        Journal(tmp_path, "b2")


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_a_journal_of_another_format_is_refused(tmp_path: Path, version: int) -> None:
    written(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    told = f"no journal of format {FORMAT} \\(its user_version is {version}\\); use the Palio"
    with pytest.raises(InvalidConfiguration, match=told):
        Journal(tmp_path, "b1")


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfiguration, match=r"broker\.data_dir"):
        Journal(tmp_path / "file" / "data", "b1")


# --- a full disk ---


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PROBE_S", 0.01)


@pytest.mark.usefixtures("_impatient")
def test_a_full_disk_refuses_what_comes_until_there_is_room(tmp_path: Path) -> None:
    answers = Answers()
    with journal(tmp_path, answers, max_bytes=250_000) as found:
        found.append(append(1, put(1, rows=1_000)))
        found.flush()
        found.append(append(2, put(2, rows=30_000)))
        found.append(append(3, put(3, rows=1)))
        found.flush()
        assert answers.stored == [1]
        assert answers.failed[2] == "database or disk is full"
        assert set(answers.failed) == {2, 3}, "what is on the disk is a prefix of what was appended"
        assert answers.writable.wait(20)
        found.append(append(4, put(4, rows=1), term=0))
        found.append(append(5, term=1, released=(Release("b2", 0, 1), Discard((1,)))))
        found.append(append(6, put(6, rows=1_000), term=1))
        found.flush()
        assert answers.stored == [1, 5, 6]
        assert set(answers.failed) == {2, 3, 4}, "it was appended before the refusal was known"
        assert found.counters.failures == 3
    with journal(tmp_path) as found:
        assert waiting(found) == [6]


@pytest.mark.usefixtures("_impatient")
def test_a_disk_that_stays_full_is_not_called_writable(tmp_path: Path) -> None:
    answers = Answers()
    with journal(tmp_path, answers, max_bytes=250_000) as found:
        ticket = 0
        while not answers.failed:  # to the last page
            ticket += 1
            found.append(append(ticket, put(ticket, rows=100)))
            found.flush()
        assert not answers.writable.wait(0.2)
        found.append(append(ticket + 1, term=1, released=(Release("b2", 0, ticket),)))
        everything = tuple(range(1, ticket))
        found.append(append(ticket + 2, term=1, released=(Discard(everything),)))
        assert answers.writable.wait(20)
        assert answers.stored[-2:] == [ticket + 1, ticket + 2]


# --- compaction ---


def test_a_file_that_is_mostly_empty_becomes_small(tmp_path: Path) -> None:
    with journal(tmp_path) as found:
        for ticket in range(1, 101):
            found.append(append(ticket, put(ticket, rows=MAX_BATCH_ROWS)))
    full = (tmp_path / FILE).stat().st_size
    with journal(tmp_path) as found:
        found.append(append(1, released=(Discard(tuple(range(2, 101))),)))
        found.flush()
    assert full > 20_000_000
    assert (tmp_path / FILE).stat().st_size < 2_000_000
    with journal(tmp_path) as found:
        assert [each.entry for each in found.entries(range(1, 101))] == [1]


def test_the_log_is_moved_into_the_file_when_nothing_is_to_be_written(tmp_path: Path) -> None:
    found = Journal(tmp_path, "b1", idle_s=0.01)
    answers = Answers()
    answers.start(found)
    found.append(append(1, put(1)))
    deadline = threading.Event()
    moved: list[Any] = []
    for _ in range(2_000):  # it moves by itself; nothing tells when
        found.flush()
        with (
            closing(sqlite3.connect(f"file:{tmp_path / FILE}?immutable=1", uri=True)) as alone,
            suppress(sqlite3.OperationalError),  # the tables, too, are in the log at first
        ):
            moved = alone.execute("SELECT entry FROM entries").fetchall()
        if moved:
            break
        deadline.wait(0.01)
    assert (answers.stored, moved) == ([1], [(1,)])
    log_bytes = (tmp_path / f"{FILE}-wal").stat().st_size
    found.append(append(2, PutTime(1)))
    found.flush()
    assert (tmp_path / f"{FILE}-wal").stat().st_size == log_bytes, (
        "it is written from its beginning"
    )
    found.close()


# --- damage ---


TAMPERED: Final = {
    "about": "UPDATE about SET value = 7 WHERE key = 'last_offset'",
    "waiting": "UPDATE waiting SET rows = x'01'",
    "streams": "UPDATE streams SET base = 0",
    "cursors": "UPDATE cursors SET place = 9",
    "claims": "UPDATE claims SET home = 'b9'",
    "publishers": "UPDATE publishers SET last = 9",
    "subscriptions": "UPDATE subscriptions SET filter = 'x > 0'",
    "bookmarks": "UPDATE bookmarks SET bookmark = x'00'",
    "facts": "UPDATE facts SET fact = replace(fact, 'b1', 'b9')",
    "records": "UPDATE records SET value = x'35' WHERE key = 'b'",
}


@pytest.mark.parametrize("table", sorted(TAMPERED))
def test_rows_that_changed_are_found_when_a_journal_is_read(tmp_path: Path, table: str) -> None:
    written(tmp_path, *HISTORY)
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute(TAMPERED[table])
    connection.commit()
    connection.close()
    with pytest.raises(JournalDamaged, match="not what was written"), journal(tmp_path) as found:
        _ = list(found.load().operations), found.records()


def read(journal: Journal) -> Any:
    """All that a journal serves but how often it was opened."""
    stored = journal.load()
    events = [each.parcel.batch for each in journal.entries([3, 5])]
    kept = list(stored.operations)
    return stored._replace(epoch=0, operations=kept), journal.records(), events


def test_no_flipped_bit_anywhere_changes_what_is_served(tmp_path: Path, rng: random.Random) -> None:
    written(tmp_path / "sound", *HISTORY)
    sound = (tmp_path / "sound" / FILE).read_bytes()
    with journal(tmp_path / "sound") as found:
        expected = read(found)
    noticed = 0
    for attempt in range(400 if NIGHTLY else 120):
        directory = tmp_path / f"flipped {attempt}"
        directory.mkdir()
        (directory / FILE).write_bytes(sound)
        flip(directory / FILE, rng.randrange(len(sound)))
        try:
            with journal(directory) as found:
                assert read(found) == expected
        except (JournalDamaged, InvalidConfiguration):
            noticed += 1
    assert noticed > (5 if NIGHTLY else 0)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 1_000)
    with pytest.raises(JournalDamaged, match="file is not a database"):
        Journal(tmp_path, "b1")
    Journal(tmp_path / "other", "b1").close()


# --- kill -9 ---

WRITER: Final = """
import sys
from pathlib import Path
from palio.server.journal.journal import Journal
from tests.server.helpers import append, put

journal = Journal(Path(sys.argv[1]), "b1")
first = journal.load().last_offset + 1

def stored(tickets):
    print(*tickets, flush=True)

journal.start(stored, lambda ticket, reason: sys.exit(reason), lambda: None)
for entry in range(first, first + 100_000):
    journal.append(append(entry, put(entry, rows=50)))
    if journal.counters.waiting > 200:
        journal.flush()
"""


def test_nothing_that_was_answered_for_is_lost_by_kill_9(
    tmp_path: Path, rng: random.Random
) -> None:
    promised: set[int] = set()
    for _ in range(40 if NIGHTLY else 2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            for _ in range(rng.randrange(1, 30)):
                promised.update(map(int, process.stdout.readline().split()))
        finally:
            process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        complete, _, _ = rest.rpartition("\n")
        promised.update(map(int, complete.split()))
    with journal(tmp_path) as found:
        held = set(waiting(found))
        assert promised <= held
        assert held == set(range(1, max(held) + 1))
        assert found.load().last_offset == max(held)
        assert all(each.parcel.batch.num_rows == 50 for each in found.entries(sorted(held)))


# --- no disk ---


def test_without_a_disk_promises_are_refused_and_the_rest_is_taken() -> None:
    answers = Answers()
    diskless = Diskless()
    answers.start(diskless)
    claim = Open(CLAIM._replace(home="b2"))
    diskless.append(append(1, PutFacts((Fact("b2", 1, "links"),)), claim))
    diskless.append(append(2, put(1)))
    assert answers.writable.is_set(), "something else is taken at once"
    diskless.append(append(3, PutTime(1)))
    diskless.append(append(4, Open(CLAIM), SUBSCRIPTION, term=1))
    diskless.append(append(5, Cursor("b2", 1, 1), term=2))
    diskless.append(append(6, PutTime(1), term=3))
    diskless.flush()
    diskless.close()
    assert answers.stored == [1, 6]
    assert set(answers.failed) == {2, 3, 4, 5}
    assert "broker.data_dir" in answers.failed[2]
    stored = diskless.load()
    assert stored.epoch > 1_700_000_000
    assert list(stored.operations) == [CaughtUp(1)], "there is nothing to catch up with"
    assert diskless.entries([1]) == []
    assert diskless.heading(1) is None


# --- other users of the machine ---


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_a_journal_is_for_its_owner_only(tmp_path: Path, mask: int) -> None:
    with umask(mask), journal(tmp_path / "data") as opened:
        opened.append(append(1, put(1)))
        opened.flush()
        assert (tmp_path / "data" / f"{FILE}-wal").exists()
        assert modes_below(tmp_path / "data") == ({0o700}, {0o600})


def test_a_journal_that_others_may_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with umask(0o000), journal(tmp_path):
        pass
    assert not caplog.records
    tmp_path.chmod(0o755)
    for each in tmp_path.iterdir():
        each.chmod(0o644)
    with journal(tmp_path):
        assert modes_below(tmp_path)[1] == {0o600}
    (told,) = caplog.records
    assert told.getMessage() == "data_dir_exposed"
    assert told.__dict__["details"]["directory"] == str(tmp_path)


@pytest.mark.parametrize(
    "name", ["journal.lock", "journal.mark", FILE, f"{FILE}-wal", f"{FILE}-shm"]
)
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir(0o700)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (data / name).symlink_to(precious)
    with pytest.raises(UnsafeFile, match=name), journal(data):
        pytest.fail("it was opened")
    assert precious.read_text() == "precious"
    (data / name).unlink()
    with journal(data):
        pass
