from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from palio.server.counters import JournalCounters
from palio.server.journal.format import connect, create_or_check
from palio.server.journal.mark import Mark
from palio.server.journal.presence import Presence
from palio.server.journal.writer import MAX_GROUP, Writer
from tests.server.helpers import append, put


@pytest.fixture
def counters() -> JournalCounters:
    return JournalCounters()


@pytest.fixture
def writer(tmp_path: Path, counters: JournalCounters) -> Iterator[Writer]:
    connection = connect(tmp_path / "journal")
    create_or_check(connection, tmp_path / "journal", "b1")
    mark, clock = Mark(tmp_path / "mark"), count().__next__
    presence = Presence([tmp_path / "journal"], clock=clock)
    found = Writer(connection, counters, mark, presence)
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
    writer.start(stored.extend, lambda _, __: None)
    writer.stop()
    assert stored == list(range(1, appends + 1))
    assert (counters.commits, counters.appends, counters.waiting) == (commits, appends, 0)
    assert counters.commit_s > 0


def test_whoever_waits_returns_after_the_answers(writer: Writer) -> None:
    stored: list[int] = []
    writer.start(stored.extend, lambda _, __: None)
    for ticket in range(1, 21):
        writer.append(append(ticket, put(ticket)))
        writer.flush()
        assert stored[-1] == ticket


def test_a_writer_that_never_began_or_has_stopped_holds_nobody_up(writer: Writer) -> None:
    writer.flush()
    writer.start(lambda _: None, lambda _, __: None)
    writer.stop()
    writer.flush()
    writer.stop()
    assert not any(each.name == "palio journal" for each in threading.enumerate())


def test_where_the_file_is_gone_everything_is_refused_and_told_once(
    writer: Writer, counters: JournalCounters, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored: list[int] = []
    failed: dict[int, str] = {}
    writer.start(stored.extend, failed.__setitem__)
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
    assert [each.getMessage() for each in caplog.records] == ["the journal is gone"]
