"""What a journal loads is what its operations made in memory, whatever was played before."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import pytest

from palio.errors import JournalDamaged
from palio.node import streams
from palio.node.durable import DurableEvents
from palio.node.operations import (
    Ack,
    CaughtUp,
    Claim,
    Cursor,
    Forgotten,
    Numbered,
    Open,
    Put,
    Release,
    Renew,
    Target,
)
from palio.protocol.messages import Share
from palio.node.log import Write as Append
from palio.server.journal.tables import LogTables
from tests.conftest import seeds
from tests.node import durable_world
from tests.node.durable_world import Disk, World
from tests.node.events import parcel

STEPS: Final = 500


class JournalDisk(Disk):
    """A disk whose brokers start from the tables of a database."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.tables: LogTables | None = None

    def start(self, name: str) -> DurableEvents:
        if self.tables is None:
            self.tables = LogTables(self.connection, name)
            self.tables.create()
        fold = super().start(name)
        loaded = [*self.tables.load()]
        left = self.parcels.keys() - self.tables.entries()
        loaded += [Put(entry, None, 0, ()) for entry in left]
        events = DurableEvents(name, 1, loaded, self, last_offset=self.tables.last_offset)
        assert state(events) == state(fold)
        assert events.is_ready == fold.is_ready
        return events

    def write(self, write: Append) -> bool:
        is_written = super().write(write)
        assert self.tables is not None
        if is_written:
            self.connection.execute("BEGIN")
            for each in (*write.released, *write.operations):
                self.tables.write(each)
            self.tables.finish()
            self.connection.execute("COMMIT")
        return is_written


def state(events: DurableEvents) -> Any:
    """All durable state of a broker."""
    queues = events.queues
    homes = {
        home: (
            stream.log,
            stream.base,  # the order of shares means nothing
            [(offset, item.entry, sorted(item.shares)) for offset, item in stream.line],
        )
        for home, stream in queues.streams.items()
        if stream.log or stream.line
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
    found = LogTables(connection, "b1")
    found.create()
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
    found.finish()
    return connection, found


def test_what_is_over_is_no_more_and_what_is_used_is_remembered() -> None:
    connection, found = tables()
    assert found.entries() == {1, 3}
    found.write(Ack("ann/d", 0, (1,)))
    found.write(Release("b2", 5, 3))
    found.finish()
    again = LogTables(connection, "b1")
    again.finish()
    kinds = [type(each) for each in again.load()]
    assert kinds == [CaughtUp, Open, Renew, Release, Cursor, Numbered, Numbered]
    assert again.last_offset == 3


@pytest.mark.parametrize("table", ["waiting", "streams", "cursors", "claims", "publishers", "log"])
def test_a_row_that_is_not_what_was_written_is_found(table: str) -> None:
    connection, found = tables()
    connection.execute(f"UPDATE {table} SET sum = sum + 1")
    with pytest.raises(JournalDamaged, match=f"in {table}"):
        list(found.load())


def test_publishers_are_remembered_in_the_order_of_what_they_said() -> None:
    _, found = tables()
    said = [each for each in found.load() if isinstance(each, Numbered)]
    assert said == [Numbered("q", 1), Numbered("p", 11)]
    found.write(Forgotten(("q",)))
    assert [each for each in found.load() if isinstance(each, Numbered)] == said[1:]


def test_another_log_has_nothing_of_the_streams() -> None:
    _, found = tables()
    found.write(CaughtUp(4))
    loaded = list(found.load())
    assert CaughtUp(4) in loaded
    assert Release("b2", 5, 0) in loaded
    assert not any(isinstance(each, Cursor) for each in loaded)
