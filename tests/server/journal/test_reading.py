from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

from palio.errors import JournalDamaged
from palio.model.events import stamped, to_batches
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.node.effects import Heading
from palio.node.loss_markers import LossMarker
from palio.server.counters import JournalCounters
from palio.server.journal.format import connect, create_or_check, payload_checksum
from palio.server.journal.reading import JournalReader
from palio.server.journal.scribe import Scribe
from tests.server.helpers import flip, parcel, put

PAIR: Final = Shape.of(pa.record_batch({"x": [1], "s": ["a"]}).schema)

ROOT: Final = Path(__file__).parents[3]


def write(path: Path, *parcels: Parcel, first: int = 1) -> None:
    with closing(connect(path)) as connection:
        create_or_check(connection, path, "b1")
        scribe = Scribe(connection)
        for entry, each in enumerate(parcels, start=first):
            scribe.write(put(entry)._replace(parcel=each, wall_us=9))


@contextmanager
def reading(path: Path) -> Iterator[JournalReader]:
    with closing(connect(path)) as connection:
        yield JournalReader(connection, path, JournalCounters())


def lone(seq: int, **values: Any) -> Parcel:
    """An event that was published by itself."""
    (whole,) = to_batches([{"x": 1, **values}])
    found = Parcel.of("alice", stamped(whole, seq, 1_700_000_000_000_001))
    assert found.event is not None
    return found


def test_an_event_by_itself_comes_back_as_its_values(tmp_path: Path) -> None:
    values = {"s": "a'\u1e9e", "b": b"\xff\xff", "f": float("inf"), "t": True, "i": -(2**63)}
    with_null = Parcel.lone("p", PAIR, (1, None)).stamped("p", 1, 0)
    parcels = [lone(1, **values), lone(2), with_null]
    write(tmp_path / "j", *parcels)
    with reading(tmp_path / "j") as found:
        for before, entry in zip(parcels, found.entries([1, 2, 3]), strict=True):
            assert entry.parcel.values == before.values
            assert entry.parcel.batch.equals(before.batch)
        assert found.heading(2) == Heading("alice", 2, 2, 9)


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path / "j", parcel(400, 2), parcel(500, 1), first=4)
    with reading(tmp_path / "j") as found:
        (four, five) = found.entries([5, 4, 77])
        assert (four.entry, four.wall_us) == (4, 9)
        assert four.parcel.publisher == "alice"
        assert four.parcel.batch.equals(parcel(400, 2).batch)
        assert five.parcel.batch.num_rows == 1


def test_a_notice_has_no_numbers_of_its_own(tmp_path: Path) -> None:
    notice = LossMarker("b1 7", 12, "ann/1", 5, 9, 3)
    write(tmp_path / "j", notice.parcel)
    with reading(tmp_path / "j") as found:
        (entry,) = found.entries([1])
        assert LossMarker.of(entry.parcel) == notice
        assert found.heading(1) == Heading("*", 0, 0, 9)


@pytest.mark.parametrize("values", [(1,), (1, 2, 3), ("a", "b"), 7])
def test_values_of_another_shape_are_told(tmp_path: Path, values: Any) -> None:
    write(tmp_path / "j", Parcel.lone("p", PAIR, (1, "a")).stamped("p", 1, 0))
    payload = msgspec.msgpack.encode(values)
    with closing(sqlite3.connect(tmp_path / "j")) as connection, connection:
        (schema,) = connection.execute("SELECT schema FROM shapes").fetchone()
        sums = payload_checksum(1, schema, payload)
        connection.execute("UPDATE entries SET payload = ?, payload_sum = ?", (payload, sums))
    with reading(tmp_path / "j") as found, pytest.raises(JournalDamaged):
        found.entries([1])


def test_events_that_changed_on_the_disk_are_not_served(tmp_path: Path) -> None:
    file = tmp_path / "j"
    write(file, parcel(1, 500), parcel(2_000, 500))
    payload = bytes(memoryview(parcel(2_000, 500).payload))[1_000:1_400]
    flip(file, bytes(file.read_bytes()).index(payload) + 7)
    counters = JournalCounters()
    with closing(connect(file)) as connection:
        found = JournalReader(connection, file, counters)
        assert found.entries([1])[0].parcel.batch.num_rows == 500
        with pytest.raises(JournalDamaged, match=r"entry 2 .* events 2000 to 2499 of 'alice'"):
            found.entries([1, 2])
        assert counters.damaged == 1
        assert found.heading(2) == Heading("alice", 2_000, 2_499, 9)
        assert found.heading(3) is None


def test_what_is_told_of_an_entry_is_checked_too(tmp_path: Path) -> None:
    write(tmp_path / "j", lone(1))
    with closing(sqlite3.connect(tmp_path / "j")) as connection, connection:
        connection.execute("UPDATE entries SET last_seq = 9")
    with reading(tmp_path / "j") as found:
        assert found.heading(1) is None
        with pytest.raises(JournalDamaged, match="entry 1 is not what was written"):
            found.entries([1])


SHORTENED: Final = """
import os, sys
from contextlib import closing
from pathlib import Path
from palio.errors import JournalDamaged
from palio.server.counters import JournalCounters
from palio.server.journal.format import connect
from palio.server.journal.reading import JournalReader

path = Path(sys.argv[1])
with closing(connect(path)) as connection:
    reader = JournalReader(connection, path, JournalCounters())
    whole = reader.entry

    def shorten(row):
        os.truncate(path, 100_000)
        return whole(row)

    reader.entry = shorten
    try:
        reader.entries(list(range(1, 101)))
    except JournalDamaged:
        print("told")
"""


def test_a_page_that_cannot_be_read_is_told_and_ends_nothing(tmp_path: Path) -> None:
    """A mapped file would end the process with a signal."""
    path = tmp_path / "j"
    write(path, *(parcel(100 * each, 90) for each in range(1, 101)))
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    command = [sys.executable, "-c", SHORTENED, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (found.stdout, found.returncode) == ("told\n", 0), found.stderr
