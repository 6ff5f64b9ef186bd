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

import msgspec
import pyarrow as pa
import pytest

from palio.errors import InvalidConfiguration, JournalDamaged, UnsafeFile
from palio.model.events import stamped, to_batches
from palio.model.parcels import Parcel, Shape
from palio.node.effects import (
    AddNumbers,
    Append,
    Assign,
    DropEntries,
    DropNumbers,
    DropRecord,
    DropSubscription,
    Forget,
    ForgetNumbers,
    Heading,
    PutEntry,
    PutFacts,
    PutRecord,
    PutSubscription,
    PutTime,
)
from palio.node.memory import MemoryStore
from palio.node.notices import Notice
from palio.node.prerequisites import UNMET
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.protocol.messages import Fact
from palio.server.journal import format as journal_format
from palio.server.journal.format import FORMAT, connect, create_or_check, payload_checksum
from palio.server.journal.journal import FILE, Diskless, Journal
from tests.conftest import NIGHTLY
from tests.modes import modes_below, umask
from tests.server.helpers import append, flip, parcel, put

ROOT: Final = Path(__file__).parents[3]


class Answers:
    """What a journal answered, and a way to wait for it."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.failed: dict[int, str] = {}
        self.threads: set[str] = set()

    def on_stored(self, tickets: list[int]) -> None:
        self.threads.add(threading.current_thread().name)
        self.stored += tickets

    def on_failed(self, ticket: int, reason: str) -> None:
        self.failed[ticket] = reason


@contextmanager
def journal(directory: Path, answers: Answers | None = None, **options: int) -> Iterator[Journal]:
    found = Journal(directory, "b1", **options)
    heard = answers or Answers()
    found.start(heard.on_stored, heard.on_failed)
    try:
        yield found
    finally:
        found.close()


def written(directory: Path, *appends: Append) -> None:
    with journal(directory) as found:
        for each in appends:
            found.append(each)


SUBSCRIPTION: Final = PutSubscription("alice/all", "alice", "x > :low", b"\x81\xa3low\x01", 60.0)

HISTORY: Final = (
    append(1, put(1, "b2"), put(2, "b2", "b3"), SUBSCRIPTION),
    append(2, Assign("alice/all", 1, None), Assign("alice/all", 2, b"\x05")),
    append(3, AddNumbers("p#0", b"\x03\x01"), AddNumbers("q#0", b"c")),
    append(4, PutFacts((Fact("b2", 1, "links", ("b1",)), Fact("b2", 2, "x", filter="x = 1")))),
    append(5, put(3), Assign("alice/all", 3, None), Assign("bob/some", 3, None)),
    append(
        6, DropEntries((1,)), Forget("alice/all", 1), AddNumbers("p#0", b"\x04"), DropNumbers("q#0")
    ),
    append(7, PutFacts((Fact("b2", 3, "links", ("b1", "b3")),))),
    append(8, DropSubscription("bob/some")),
    append(9, put(9), DropEntries((9,)), PutTime(77)),
    append(10, Forget("alice/all", 0, b"here"), Forget("bob/some", 0, b"gone")),
    append(11, Forget("alice/all", 1, b"further"), DropSubscription("bob/some")),
    append(12, PutRecord("b", b"1"), PutRecord("c", b"2"), PutRecord("a", b"3")),
    append(13, PutRecord("b", b"4"), DropRecord("c")),
)


def test_what_was_written_is_read_as_the_store_in_memory_has_it(tmp_path: Path) -> None:
    memory = MemoryStore()
    for each in HISTORY:
        memory.write(each.operations)
    expected = memory.load()
    written(tmp_path, *HISTORY)
    with journal(tmp_path) as found:
        loaded = found.load()
        assert loaded.last_entry == expected.last_entry == 9
        assert loaded.time_us == expected.time_us == 77
        assert loaded.pending == expected.pending == [(2, ("b2", "b3")), (3, ())]
        assert loaded.subscriptions == expected.subscriptions == [SUBSCRIPTION]
        assert loaded.waiting == {"alice/all": [2, 3]}
        assert loaded.bookmarks == expected.bookmarks == {"alice/all": b"further"}
        assert loaded.windows == expected.windows == [AddNumbers("p#0", b"\x07\x01")]
        assert sorted(loaded.facts, key=lambda fact: fact.version) == [
            Fact("b2", 2, "x", filter="x = 1"),
            Fact("b2", 3, "links", ("b1", "b3")),
        ]
        assert found.assigned("alice/all", [3, 2]) == [None, b"\x05"]
        assert list(found.records().items()) == [("b", b"4"), ("a", b"3")]


PAIR: Final = Shape(pa.record_batch({"x": [1], "s": ["a"]}).schema)


def lone(seq: int, **values: Any) -> Parcel:
    """An event that was published by itself."""
    (whole,) = to_batches([{"x": 1, **values}])
    found = Parcel.of("alice", stamped(whole, seq, 1_700_000_000_000_001))
    assert found.event is not None
    return found


def test_an_event_by_itself_comes_back_as_its_values(tmp_path: Path) -> None:
    values = {"s": "a'ẞ", "b": b"\xff\xff", "f": float("inf"), "t": True, "i": -(2**63)}
    with_null = Parcel.lone("p", PAIR, (1, None)).stamped("p", 1, 0)
    parcels = [lone(1, **values), lone(2), with_null]
    puts = [PutEntry(entry, each, (), 0) for entry, each in enumerate(parcels, start=1)]
    written(tmp_path, append(1, *puts))
    with journal(tmp_path) as found:
        for before, entry in zip(parcels, found.entries([1, 2, 3]), strict=True):
            assert entry.parcel.values == before.values
            assert entry.parcel.batch.equals(before.batch)
        assert found.heading(2) == Heading("alice", 2, 2, 0)


def test_an_entry_for_some_subscriptions_alone_stays_so(tmp_path: Path) -> None:
    alone = PutEntry(1, lone(1), ("b2",), 9, ("alice/d", "bob/\u1e9e"))
    written(tmp_path, append(1, alone, PutEntry(2, lone(2), ("b2",), 9)))
    with journal(tmp_path) as found:
        assert [(each.homes, each.subjects) for each in found.entries([1, 2])] == [
            (("b2",), alone.subjects),
            (("b2",), ()),
        ]
        stored = found.load()
        assert (stored.pending, stored.subjects) == (
            [(1, ("b2",)), (2, ("b2",))],
            {1: alone.subjects},
        )


def test_a_notice_has_no_numbers_of_its_own(tmp_path: Path) -> None:
    notice = Notice("b1 7", 12, "ann/1", 5, 9, 3)
    written(tmp_path, append(1, PutEntry(1, notice.parcel, ("b2",), 9)))
    with journal(tmp_path) as found:
        (entry,) = found.entries([1])
        assert Notice.of(entry.parcel) == notice
        assert found.heading(1) == Heading("*", 0, 0, 9)


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), ("a", "b"), 7])
def test_values_of_another_shape_are_told(tmp_path: Path, values: Any) -> None:
    pair = Parcel.lone("p", PAIR, (1, "a")).stamped("p", 1, 0)
    written(tmp_path, append(1, PutEntry(1, pair, (), 0)))
    payload = msgspec.msgpack.encode(values)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        (schema,) = connection.execute("SELECT schema FROM shapes").fetchone()
        sums = payload_checksum(1, schema, payload)
        connection.execute("UPDATE entries SET payload = ?, payload_sum = ?", (payload, sums))
    with journal(tmp_path) as found, pytest.raises(JournalDamaged):
        found.entries([1])


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path, append(1, put(4, "b2", rows=2), put(5, rows=1)))
    with journal(tmp_path) as found:
        (four, five) = found.entries([5, 4, 77])
        assert (four.entry, four.homes, four.wall_us) == (4, ("b2",), 1_004)
        assert four.parcel.publisher == "alice"
        assert four.parcel.batch.equals(parcel(400, 2).batch)
        assert five.parcel.batch.num_rows == 1


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
    found.start(answers.on_stored, answers.on_failed)
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


def test_a_full_disk_refuses_what_does_not_fit_and_goes_on(tmp_path: Path) -> None:
    answers = Answers()
    with journal(tmp_path, answers, max_bytes=200_000) as found:
        found.append(append(1, put(1, rows=1_000)))
        found.flush()
        found.append(append(2, put(2, rows=30_000)))
        found.append(append(3, put(3, rows=1)))
        found.flush()
        assert answers.stored == [1, 3]
        assert answers.failed == {2: "database or disk is full"}
        found.append(append(4, DropEntries((1,))))
        found.append(append(5, put(5, rows=1_000)))
        found.flush()
        assert answers.stored == [1, 3, 4, 5]
        assert found.counters.failures == 1
    with journal(tmp_path) as found:
        assert [entry for entry, _ in found.load().pending] == [3, 5]


@pytest.mark.parametrize("together", [False, True])
def test_what_needs_an_append_that_was_refused_is_refused_too(
    tmp_path: Path, together: bool
) -> None:
    found, answers = Journal(tmp_path, "b1", max_bytes=200_000), Answers()
    if not together:
        found.start(answers.on_stored, answers.on_failed)
    for each in (
        append(1, put(1, rows=10)),
        append(2, put(2, rows=30_000)),
        Append(3, (put(3, rows=10),), needs=(1,), oldest=1),
        Append(4, (put(4, rows=10),), (DropEntries((1,)),), needs=(1, 2), oldest=1),
        append(5, put(5, rows=10)),
    ):
        found.append(each)
        if not together:
            found.flush()
    if together:
        found.start(answers.on_stored, answers.on_failed)
    found.close()
    assert answers.stored == [1, 3, 5]
    assert answers.failed == {2: "database or disk is full", 4: UNMET}
    with journal(tmp_path) as again:
        assert [entry for entry, _ in again.load().pending] == [3, 5], "what is over is over"


def test_what_releases_room_is_written_once_there_is_room(tmp_path: Path) -> None:
    answers = Answers()
    with journal(tmp_path, answers, max_bytes=200_000) as found:
        found.append(append(1, put(1, rows=10)))
        found.append(Append(2, (put(2, rows=30_000),), (DropEntries((1,)),)))
        found.append(append(3, put(3)))
        found.flush()
        assert list(answers.failed) == [2]
    with journal(tmp_path) as found:
        assert [entry for entry, _ in found.load().pending] == [3]


# --- compaction ---


def test_a_file_that_is_mostly_empty_becomes_small(tmp_path: Path) -> None:
    with journal(tmp_path) as found:
        for ticket in range(1, 101):
            found.append(append(ticket, put(ticket, rows=MAX_BATCH_ROWS)))
    full = (tmp_path / FILE).stat().st_size
    with journal(tmp_path) as found:
        found.append(append(1, DropEntries(tuple(range(2, 101)))))
        found.flush()
    assert full > 20_000_000
    assert (tmp_path / FILE).stat().st_size < 2_000_000
    with journal(tmp_path) as found:
        assert [each.entry for each in found.entries(range(1, 101))] == [1]


def test_the_log_is_moved_into_the_file_when_nothing_is_to_be_written(tmp_path: Path) -> None:
    found = Journal(tmp_path, "b1", idle_s=0.01)
    answers = Answers()
    found.start(answers.on_stored, answers.on_failed)
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


def test_events_that_changed_on_the_disk_are_not_served(tmp_path: Path) -> None:
    written(tmp_path, append(1, put(1, rows=500)), append(2, put(20, rows=500)))
    file = tmp_path / FILE
    data = bytes(file.read_bytes())
    payload = bytes(memoryview(parcel(2_000, 500).payload))[1_000:1_400]
    flip(file, data.index(payload) + 7)
    with journal(tmp_path) as found:
        assert [entry for entry, _ in found.load().pending] == [1, 20]
        assert found.entries([1])[0].parcel.batch.num_rows == 500
        with pytest.raises(JournalDamaged, match=r"entry 20 .* events 2000 to 2499 of 'alice'"):
            found.entries([1, 20])
        assert found.counters.damaged == 1
        assert found.heading(20) == Heading("alice", 2_000, 2_499, 1_020)
        assert found.heading(21) is None


def test_numbers_are_added_to_those_that_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is at hand, and whatever was not written after all."""
    monkeypatch.setattr(journal_format, "WINDOWS_AT_HAND", 2)
    with closing(connect(tmp_path / FILE)) as connection:
        create_or_check(connection, tmp_path / FILE, "b1")
        scribe = journal_format.Scribe(connection)
        for key, bits in [("p", 1), ("q", 1), ("p", 2), ("r", 1), ("q", 4), ("p", 8)]:
            scribe.write(AddNumbers(key, bytes([bits])))
        connection.execute("BEGIN")
        scribe.write(AddNumbers("p", b"\x10"))
        scribe.write(DropNumbers("q"))
        connection.execute("ROLLBACK")
        scribe.forget()
        scribe.write(AddNumbers("p", b"\x20"))
        scribe.write(DropNumbers("r"))
        scribe.write(AddNumbers("r", b"\x02"))
        rows = connection.execute("SELECT key, ranges FROM windows").fetchall()
    assert rows == [("p", b"\x2b"), ("q", b"\x05"), ("r", b"\x02")]


def test_all_numbers_of_a_subscription_are_forgotten_known_or_not(tmp_path: Path) -> None:
    others = [AddNumbers(key, b"\x01") for key in ("a/d", "a/c\np#0", "a/d2\np#0", "a/e\np#0")]
    mine = [
        AddNumbers(f"a/d\n{key}", b"\x01") for key in ("p#0", "p#1", "\u1e9e#0", "\U0010fffd#9")
    ]
    written(tmp_path, append(1, *mine, *others))
    with journal(tmp_path) as found:
        found.append(append(2, AddNumbers("a/d\nr#0", b"\x01"), ForgetNumbers("a/d\n")))
        found.append(append(3, AddNumbers("a/d\np#0", b"\x04")))
        found.flush()
        assert sorted(found.load().windows) == sorted([*others, AddNumbers("a/d\np#0", b"\x04")])


def test_nothing_is_added_to_numbers_that_changed_on_the_disk(tmp_path: Path) -> None:
    answers = Answers()
    written(tmp_path, append(1, AddNumbers("p#0", b"\x01")))
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE windows SET ranges = x'03'")
    with journal(tmp_path, answers) as found:
        found.append(append(2, put(1), AddNumbers("p#0", b"\x04")))
        found.append(append(3, put(2), AddNumbers("q#0", b"\x04")))
    assert answers.stored == [3]
    assert answers.failed == {2: "in windows, p#0 is not what was written"}


TAMPERED: Final = {
    "about": "UPDATE about SET value = 7 WHERE key = 'last_entry'",
    "entries": "UPDATE entries SET homes = '[]' WHERE entry = 2",
    "assigned": "UPDATE assigned SET rows = x'01' WHERE entry = 2",
    "subscriptions": "UPDATE subscriptions SET filter = 'x > 0'",
    "bookmarks": "UPDATE bookmarks SET bookmark = x'00'",
    "windows": "UPDATE windows SET ranges = x'00'",
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
        _ = found.load(), found.records()


def test_no_flipped_bit_anywhere_changes_what_is_served(tmp_path: Path, rng: random.Random) -> None:
    written(tmp_path / "sound", *HISTORY)
    sound = (tmp_path / "sound" / FILE).read_bytes()
    with journal(tmp_path / "sound") as found:
        expected = found.load()
        events = [each.parcel.batch for each in found.entries([2, 3])]
    noticed = 0
    for attempt in range(400 if NIGHTLY else 120):
        directory = tmp_path / f"flipped {attempt}"
        directory.mkdir()
        (directory / FILE).write_bytes(sound)
        flip(directory / FILE, rng.randrange(len(sound)))
        try:
            with journal(directory) as found:
                loaded = found.load()
                assert loaded._replace(epoch=0) == expected._replace(epoch=0)
                assert [each.parcel.batch for each in found.entries([2, 3])] == events
        except (JournalDamaged, InvalidConfiguration):
            noticed += 1
    assert noticed > (5 if NIGHTLY else 1)


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
first = journal.load().last_entry + 1

def stored(tickets):
    print(*tickets, flush=True)

journal.start(stored, lambda ticket, reason: sys.exit(reason))
for entry in range(first, first + 100_000):
    journal.append(append(entry, put(entry, "b2", rows=50)))
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
        loaded = found.load()
        held = {entry for entry, _ in loaded.pending}
        assert promised <= held
        assert held == set(range(1, max(held) + 1))
        assert loaded.last_entry == max(held)
        assert all(each.parcel.batch.num_rows == 50 for each in found.entries(sorted(held)))


# --- no disk ---


def test_without_a_disk_promises_are_refused_and_the_rest_is_taken() -> None:
    answers = Answers()
    diskless = Diskless()
    diskless.start(answers.on_stored, answers.on_failed)
    diskless.append(append(1, PutFacts((Fact("b2", 1, "links"),))))
    diskless.append(append(2, put(1)))
    diskless.append(append(3, SUBSCRIPTION))
    diskless.flush()
    diskless.close()
    assert answers.stored == [1]
    assert set(answers.failed) == {2, 3}
    assert "broker.data_dir" in answers.failed[2]
    assert diskless.load().epoch > 1_700_000_000
    assert diskless.load().pending == ()
    assert diskless.entries([1]) == []
    assert diskless.heading(1) is None
    assert diskless.assigned("a", [1, 2]) == [None, None]


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
    assert told.getMessage().endswith(f"other users of this machine: chmod 700 {tmp_path}")


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
