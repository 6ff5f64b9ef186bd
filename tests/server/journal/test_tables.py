"""What a journal loads is what its operations made in memory, whatever was played before."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from palio.errors import JournalDamaged
from palio.node import streams
from palio.node.durable import DurableEvents
from palio.node.effects import Entry
from palio.node.operations import (
    Ack,
    Append,
    CaughtUp,
    Claim,
    Cursor,
    Discard,
    Forgotten,
    Numbered,
    Open,
    Operation,
    Place,
    Put,
    Release,
    Renew,
    Target,
)
from palio.protocol.messages import Share
from palio.server.counters import JournalCounters
from palio.server.journal.format import create_or_check, read_about
from palio.server.journal.reading import JournalReader, load_operations
from palio.server.journal.scribe import LogTables, Scribe
from tests.conftest import seeds
from tests.node import durable_world
from tests.node.durable_world import Disk, World
from tests.node.events import parcel

STEPS: Final = 500


NOWHERE: Final = Path("memory")


class JournalDisk(Disk):
    """A disk whose brokers start from a journal, and read their events from it."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.reader = JournalReader(self.connection, NOWHERE, JournalCounters())
        self.scribe: Scribe | None = None

    def start(self, name: str) -> DurableEvents:
        if self.scribe is None:
            create_or_check(self.connection, NOWHERE, name)
            self.scribe = Scribe(self.connection)
        fold = super().start(name)
        stored = self.reader.load(0)
        last = stored.last_offset
        events = DurableEvents(name, 1, stored.operations, self, last_offset=last)
        assert state(events) == state(fold)
        assert events.is_ready == fold.is_ready
        return events

    def write(self, write: Append) -> bool:
        is_written = super().write(write)
        assert self.scribe is not None
        if is_written:
            self.connection.execute("BEGIN")
            for each in (*write.released, *write.operations):
                self.scribe.write(each)
            self.scribe.finish()
            self.connection.execute("COMMIT")
        return is_written

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        return self.reader.entries(numbers)


def state(events: DurableEvents) -> Any:
    """All durable state of a broker."""
    queues = events.queues
    homes = {
        home: (
            stream.log,
            stream.base,  # the order of shares means nothing
            [(offset, item.entry, sorted(item.shares)) for offset, item in stream.entries],
        )
        for home, stream in queues.streams.items()
        if stream.log or stream.entries
    }
    here = {subject: list(line) for subject, line in queues.here.items() if line}
    return (
        here,
        homes,
        queues.cursors,
        list(queues.published.items()),
        {claim.subject: claim for claim in events.claims},
        events.streams.log_number,
    )


@pytest.fixture(autouse=True)
def _journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_world, "Disk", JournalDisk)
    monkeypatch.setattr(streams, "WINDOW_BYTES", 3 * parcel({"n": 1}).held_bytes)


@pytest.mark.parametrize("seed", seeds(8, nightly=2_000))
def test_brokers_go_on_with_what_their_journals_have(seed: int) -> None:
    world = World(seed)
    for step in range(STEPS):
        world.step()
        if step % 50 == 49:
            world.crash(world.random.choice(list(world.brokers.values())))
    world.settle()
    world.check()


def tables() -> tuple[sqlite3.Connection, LogTables]:
    """Something waits here and in a stream, of which a part is stored."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_or_check(connection, NOWHERE, "b1")
    found = LogTables(connection, "b1")
    for operation in (
        CaughtUp(3),
        Open(Claim("ann/d", 1, "b1")),
        Renew("b2", 5),
        Cursor("b3", 1, 7),
        Numbered("p", 9),
        Numbered("q", 1),
        Numbered("p", 11),
        Put(1, None, 0, (Target("b1", 1, (Share("ann/d", 1, b"\x01"),)),)),
        Put(2, None, 0, (Target("b2", 2, (Share("bob/d", 1, None),)),)),
        Put(3, None, 0, (Target("b2", 3, (Share("bob/d", 1, None),)),)),
        Release("b2", 5, 2),
        Release("b2", 4, 3),
    ):
        found.write(operation)
    return connection, found


def loaded(connection: sqlite3.Connection, kind: type[Operation]) -> list[Operation]:
    return [each for each in load_operations(connection) if isinstance(each, kind)]


def test_what_is_over_is_no_more_and_what_is_used_is_remembered() -> None:
    connection, found = tables()
    assert loaded(connection, Place) == [
        Place("b1", 1, 1, (Share("ann/d", 1, b"\x01"),)),
        Place("b2", 3, 3, (Share("bob/d", 1, None),)),
    ]
    found.write(Ack("ann/d", 0, (1,)))
    found.write(Release("b2", 5, 3))
    kinds = [type(each) for each in load_operations(connection)]
    assert kinds == [Open, Renew, Release, Cursor, Numbered, Numbered]
    assert (found.log, found.last_offset) == (3, 3)


def test_an_entry_that_nobody_waits_for_is_told() -> None:
    """As where a broker has stopped before it had discarded it."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_or_check(connection, NOWHERE, "b1")
    scribe = Scribe(connection)
    for entry in (1, 2):
        target = Target("b1", entry, (Share("ann/d", 1, None),))
        scribe.write(Put(entry, parcel({"n": entry}), 0, (target,)))
    scribe.write(Ack("ann/d", 1))
    assert loaded(connection, Put) == [Put(1, None, 0, ())]
    scribe.write(Discard((1,)))
    assert not loaded(connection, Put)


@pytest.mark.parametrize("table", ["waiting", "streams", "cursors", "claims", "publishers"])
def test_a_row_that_is_not_what_was_written_is_found(table: str) -> None:
    connection, _ = tables()
    connection.execute(f"UPDATE {table} SET sum = sum + 1")
    with pytest.raises(JournalDamaged, match=f"in {table}"):
        list(load_operations(connection))


def test_publishers_are_remembered_in_the_order_of_what_they_said() -> None:
    connection, found = tables()
    said = loaded(connection, Numbered)
    assert said == [Numbered("q", 1), Numbered("p", 11)]
    found.write(Forgotten(("q",)))
    assert loaded(connection, Numbered) == said[1:]


def test_another_log_has_nothing_of_the_streams() -> None:
    connection, found = tables()
    found.write(CaughtUp(4))
    assert found.log == 4
    assert loaded(connection, Release) == [Release("b2", 5, 0)]
    assert not loaded(connection, Cursor)
    assert read_about(connection, "log") == 0, "it is written as the transaction ends"
