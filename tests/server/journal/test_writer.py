from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from palio.node.operations import Ack, Discard, Operation, Retarget
from palio.server.counters import JournalCounters
from palio.server.journal.disk_space import FileIdentity
from palio.server.journal.format import connect, create_or_check
from palio.server.journal.reading import load_operations
from palio.server.journal.watermark import Note, Watermark
from palio.server.journal.writer import MAX_GROUP, Writer
from tests.server.helpers import append, put


@pytest.fixture
def counters() -> JournalCounters:
    return JournalCounters()


@pytest.fixture
def writer(tmp_path: Path, counters: JournalCounters) -> Iterator[Writer]:
    connection = connect(tmp_path / "journal")
    create_or_check(connection, tmp_path / "journal", "b1")
    mark = Watermark(tmp_path / "mark")
    found = Writer(connection, counters, mark, FileIdentity([tmp_path / "journal"]))
    yield found
    found.stop()
    connection.close()
    mark.close()


@pytest.mark.parametrize(
    ("appends", "commits"), [(MAX_GROUP - 1, 1), (MAX_GROUP, 1), (MAX_GROUP + 1, 2)]
)
def test_a_transaction_takes_no_more_than_its_limit(
    writer: Writer, counters: JournalCounters, appends: int, commits: int
) -> None:
    for ticket in range(1, appends + 1):
        writer.append(append(ticket, put(ticket, rows=1)))
    assert counters.waiting == appends
    stored: list[int] = []
    writer.start(stored.extend, lambda _, __: None, lambda: None)
    writer.stop()
    assert stored == list(range(1, appends + 1))
    assert (counters.commits, counters.appends, counters.waiting) == (commits, appends, 0)
    assert counters.commit_s > 0


def test_whoever_waits_returns_after_the_answers(writer: Writer) -> None:
    stored: list[int] = []
    writer.start(stored.extend, lambda _, __: None, lambda: None)
    for ticket in range(1, 21):
        writer.append(append(ticket, put(ticket)))
        writer.flush()
        assert stored[-1] == ticket


def test_a_writer_that_never_began_or_has_stopped_holds_nobody_up(writer: Writer) -> None:
    writer.flush()
    writer.start(lambda _: None, lambda _, __: None, lambda: None)
    writer.stop()
    writer.flush()
    writer.stop()
    assert not any(each.name == "palio journal" for each in threading.enumerate())


class Failing:
    """A scribe that fails while it is told to, and says what it wrote."""

    def __init__(self, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.tries: list[int] = []
        """By try, how many operations it had."""
        scribe = writer._scribe
        write, finish = scribe.write, scribe.finish

        def counting(operation: Operation) -> None:
            self.tries[-1] += 1
            write(operation)

        def failing() -> Note:
            self.tries.append(0)
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")
            return finish()

        self.tries.append(0)
        monkeypatch.setattr(scribe, "write", counting)
        monkeypatch.setattr(scribe, "finish", failing)
        monkeypatch.setattr(scribe, "try_room", lambda _: None)


class Heard:
    """What a writer answered, in order."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int]] = []
        self.writable = threading.Event()

    def start(self, writer: Writer) -> None:
        writer.start(
            lambda tickets: self.answers.extend(("stored", each) for each in tickets),
            lambda ticket, _: self.answers.append(("failed", ticket)),
            self.writable.set,
        )


def test_a_refusal_refuses_all_that_was_appended_before_it_was_known(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.server.journal.writer.PROBE_S", 1_000.0)
    disk, heard = Failing(writer, monkeypatch), Heard()
    heard.start(writer)
    writer.append(append(1, put(1)))
    writer.flush()
    disk.is_full = True
    writer.append(append(2, put(2)))
    writer.flush()
    disk.is_full = False
    tries = len(disk.tries)
    for ticket in (3, 4):
        writer.append(append(ticket, put(ticket)))
    writer.append(append(5, put(5), term=1))
    writer.flush()
    assert heard.answers == [
        ("stored", 1),
        *(("failed", each) for each in (2, 3, 4)),
        ("stored", 5),
    ]
    assert len(disk.tries) == tries + 1, "what is of an older term is not tried"
    assert not heard.writable.is_set()


def test_a_disk_that_refuses_is_tried_until_it_takes_writes(
    writer: Writer, counters: JournalCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palio.server.journal.writer.PROBE_S", 0.01)
    disk, heard = Failing(writer, monkeypatch), Heard()
    disk.is_full = True
    heard.start(writer)
    writer.append(append(1, put(1)))
    writer.flush()
    for ticket in range(2, 50):  # however much else it has to do
        writer.append(append(ticket, put(ticket)))
        writer.flush()
    assert not heard.writable.wait(0.1)
    assert len(disk.tries) > 3
    disk.is_full = False
    assert heard.writable.wait(20)
    assert counters.commits == 1
    heard.writable.clear()
    assert not heard.writable.wait(0.1), "it is said once"


def test_what_lets_go_is_written_before_what_comes_with_it(writer: Writer, tmp_path: Path) -> None:
    """What an owner has dealt with does not follow it elsewhere."""
    heard = Heard()
    heard.start(writer)
    writer.append(append(1, put(1, "b1", "ann/d")))
    retarget = Retarget("ann/d", 2, "b2", 2, 1, ())
    writer.append(append(2, retarget, released=(Ack("ann/d", 1), Discard((1,)))))
    writer.flush()
    with closing(connect(tmp_path / "journal")) as other:
        assert [type(each) for each in load_operations(other)] == []


def test_an_append_of_nothing_is_answered_behind_those_before(
    writer: Writer, counters: JournalCounters
) -> None:
    heard = Heard()
    writer.append(append(1, put(1)))
    heard.start(writer)
    writer.append(append(2))
    writer.flush()
    writer.append(append(3))
    writer.flush()
    assert heard.answers == [("stored", 1), ("stored", 2), ("stored", 3)]
    assert counters.commits in (1, 2)


def test_where_the_file_is_gone_everything_is_refused_and_told_once(
    writer: Writer, counters: JournalCounters, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored: list[int] = []
    failed: dict[int, str] = {}
    writer.start(stored.extend, failed.__setitem__, lambda: None)
    writer.append(append(1, put(1)))
    writer.flush()
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    for ticket in range(2, 12):
        writer.append(append(ticket, put(ticket)))
        writer.flush()
    assert stored == [1]
    assert set(failed) == set(range(2, 12))
    assert all("was removed or moved away" in each for each in failed.values())
    assert counters.failures == 10
    assert [each.getMessage() for each in caplog.records] == ["journal_write_failed"]
