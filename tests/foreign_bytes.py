"""Reads what honest ends wrote, altered at random, through each door by which bytes come in.

Run as a program, since what Arrow does not check may end it: `foreign_bytes.py FOLDER SEED CASES
DOOR...`. Where there are checksums they are made right again. Each case is printed before it is
tried. It is read, or refused by an error of Palio's own; anything else ends the program.
"""

from __future__ import annotations

import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from palio.client.archive import STAGING, Archive, part_files
from palio.client.history import history
from palio.errors import InvalidEvent, JournalDamaged, PalioError
from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.model.events import check_times, rows, stamped
from palio.node.effects import Entry
from palio.node.loss_markers import LossMarker
from palio.node.operations import (
    Ack,
    Claim,
    Cursor,
    Numbered,
    Open,
    Operation,
    PutFacts,
    PutSubscription,
    Renew,
)
from palio.node.queues import Queues
from palio.protocol.legal_parcels import check_stamps, stream_batches
from palio.protocol.messages import Fact, Parcel, Publish
from palio.protocol.wire import HEAD, Decoder, Encoder, framed
from palio.server.journal.format import ROWS, checksum, payload_checksum
from palio.server.journal.journal import FILE, Journal
from tests.matching import damage
from tests.protocol.test_legal_parcels import MIXED, stream
from tests.server.helpers import append, put
from tests.spark import test_versions

MEMORY_BYTES: Final = 4 << 30
"""What is altered has some kilobytes, and needs no more; mapped libraries are in it."""

PATIENCE_S: Final = 20
"""A case takes milliseconds."""

MANY: Final = 100_000
"""Rows, of files that have some hundreds."""

RECORD: Final = struct.Struct("<II")
"""Before a record of a segment: its length and its checksum."""

NASTY: Final = (0, 1, -1, 7, 8, 255, 4_096, 10**8, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))

PLAIN: Final = pa.record_batch(
    {
        "s": ["a", None, "é" * 40, ""],
        "b": [b"\0\xff", b"", None, b"x" * 30],
        "f": [1.5, None, float("nan"), float("inf")],
        "n": [1, 2, None, -(2**63)],
        "q": [True, None, False, True],
        "t": pa.array([0, None, 1_700_000_000_000_000, -1], pa.timestamp("us", "UTC")),
    }
)
"""Events in the model's types, several and one."""


def mutated(draw: random.Random, data: bytes) -> bytes:
    """Some bytes flipped, some numbers made nasty, some pieces moved, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place = draw.randrange(len(changed) or 1)
        match draw.randrange(8):
            case 0 | 1 | 2 if changed:
                changed[place] ^= 1 << draw.randrange(8)
            case 3 if changed:
                changed[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 4 | 5:
                size = draw.choice((2, 4, 8))
                number = draw.choice(NASTY) % (1 << 8 * size)
                place -= place % size
                changed[place : place + size] = number.to_bytes(size, "little")
            case 6:
                start = draw.randrange(len(changed) or 1)
                changed[place : place + 8] = changed[start : start + draw.choice((0, 8, 64))]
            case _ if draw.random() < 0.3:
                del changed[place:]
    return bytes(changed)


def assert_sound(batch: pa.RecordBatch) -> None:
    """Nothing of a batch leads elsewhere, whatever is done with it."""
    batch.validate(full=True)
    batch.take(np.arange(batch.num_rows)).validate(full=True)
    with suppress(InvalidEvent):  # of a time that Python has not: a broker looks for it next
        check_times(batch)
        assert len(batch.to_pydict()) == batch.num_columns


# --- the doors: each takes a folder and gives what alters and reads once ---

Case = Callable[[random.Random], object]


def arrow_stream(_: Path) -> Case:
    """A body of Arrow over HTTP."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["a" * 9, "b" * 9])
    more = pa.DictionaryArray.from_arrays(pa.array([3, 1], pa.int8()), [*"abcd"])
    one, two = (pa.record_batch({"x": each, "y": [1, 2]}) for each in (texts, more))
    honest = [
        stream(MIXED, MIXED[1:]),
        stream(PLAIN),
        stream(one, two),
        stream(one, pa.record_batch({"x": texts.take(pa.array([1, 0])), "y": [1, 2]})),
        stream(one, two, deltas=True),
        stream(pa.record_batch({"w": pa.array([b"1234", None], pa.binary(4))})),
    ]

    def case(draw: random.Random) -> None:
        for batch in stream_batches(mutated(draw, draw.choice(honest))):
            assert_sound(batch)

    return case


def frames(_: Path) -> Case:
    """Events on a connection: a shape and a batch, or an event as its values."""

    def frame(*parts: Any) -> bytes:
        return b"".join(map(bytes, parts))

    def case(draw: random.Random) -> None:
        batch = draw.choice((PLAIN, PLAIN[:1], stamped(PLAIN, 5, 10**15)))
        data = frame(*Encoder().encode(Publish(Parcel.of("p", batch), 1)))
        decoder, which, place = Decoder("peer"), draw.randrange(2), 0
        while place < len(data):
            size, kind, _ = HEAD.unpack_from(data, place)
            body = data[place + HEAD.size : place + HEAD.size + size]
            place += HEAD.size + size
            if draw.random() < 0.1 or which == (place == len(data)):
                body = mutated(draw, body)
            for message in decoder.feed(framed(kind, body)):
                if isinstance(message, Publish):
                    assert_sound(message.parcel.batch)
                    assert message.parcel.batch.nbytes <= max(len(body), 4_096)
                    assert all(not field.metadata for field in message.parcel.shape.schema)

    return case


def journal(folder: Path) -> Case:
    """A row of a journal."""
    notice = LossMarker("b2 5", 7, "ann/1", 3, 9, 4).parcel
    lone = Parcel.of("", PLAIN[:1]).stamped("alice", 9, 10**15)
    many = Parcel("", PLAIN).stamped("alice", 20, 10**15)
    here = "b1", "alice/all"
    written: list[Operation] = [
        *(put(1), put(2)._replace(parcel=lone), put(3, *here)._replace(parcel=many)),
        *(put(4)._replace(parcel=notice), Renew("b2", 5), Cursor("b3", 1, 7), Numbered("p", 9)),
        Open(Claim("alice/all", 1, "b1")),
        PutSubscription("alice/all", "alice", "x > :low", b"\x81\xa3low\x01", 60.0),
        PutFacts((Fact("b2", 1, "links", ("b1",)),)),
    ]
    with closing(Journal(folder / "sound", "b1")) as sound:
        sound.start(lambda _: None, lambda _, __: None, lambda: None)
        sound.append(append(1, *written, released=(Ack("alice/all", 0, (), b"here"),)))
    honest = (folder / "sound" / FILE).read_bytes()
    home = folder / "altered"

    def case(draw: random.Random) -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        (home / FILE).write_bytes(honest)
        with closing(sqlite3.connect(home / FILE, isolation_level=None)) as connection:
            alter_row(draw, connection)
        with closing(Journal(home, "b1")) as found:
            for number in range(1, 5):
                read_entry(found, number)
            queues = Queues("b1")
            for operation in found.load().operations:
                queues.apply(operation)

    return case


def read_entry(found: Journal, number: int) -> None:
    """An entry is what a broker can have kept, or an error that names it."""
    found.heading(number)
    entries: list[Entry] = []
    with suppress(JournalDamaged):
        entries += found.entries([number])
    for entry in entries:
        assert_sound(entry.parcel.batch)
        assert len(entry.parcel.rows) == len(entry.parcel)
        if LossMarker.of(entry.parcel) is None:
            check_stamps(entry.parcel)


TABLES: Final = ("shapes", *(table for table in ROWS if table != "records"))
"""Of a journal, beside `entries`, whose rows are altered most."""


def alter_row(draw: random.Random, connection: sqlite3.Connection) -> None:
    """Alter one value of one row, and make all checksums right."""
    table = draw.choice((*["entries"] * 7, *TABLES))
    every = {
        each: [[*row] for row in connection.execute(f"SELECT * FROM {each}")]
        for each in (*TABLES, "entries")
    }
    row = draw.choice(every[table])
    place = len(row) - 1 if table == "entries" and draw.random() < 0.6 else draw.randrange(len(row))
    row[place] = altered(draw, row[place])
    with suppress(TypeError):  # a sum over what has none is never right
        for shape in every["shapes"]:
            shape[2] = zlib.crc32(shape[1])
        schemas = {number: schema for number, schema, _ in every["shapes"]}
        for entry in every["entries"]:
            entry[6] = checksum(*entry[:6])
            entry[7] = payload_checksum(entry[0], schemas.get(entry[5], b""), entry[8])
        for each in TABLES[1:]:
            for fields in every[each]:
                fields[-1] = checksum(*fields[:-1])
    for each in (table, "entries"):
        connection.execute(f"DELETE FROM {each}")
        places = ", ".join("?" * len(every[each][0]))
        with suppress(sqlite3.IntegrityError, OverflowError):  # which is no row for SQLite either
            connection.executemany(f"INSERT OR IGNORE INTO {each} VALUES ({places})", every[each])


def altered(draw: random.Random, value: Any) -> Any:
    """Another value in the place of one, most often of its type."""
    if draw.random() < 0.15:
        return draw.choice((None, 0, -1, 2**62, 1.5, "", "x", "[[], 5]", b"", b"\xff" * 9))
    if isinstance(value, bytes):
        return mutated(draw, value)
    if isinstance(value, str):
        return mutated(draw, value.encode()).decode(errors="replace")
    return value if value is None else draw.choice((value + 1, -value, 2**63 - 1))


def archived(home: Path) -> None:
    """An archive of two files of a day and some events that are staged."""
    with Archive(home) as archive:
        for first in (1, 5, 9):
            for batch in (PLAIN, PLAIN.select(["n", "s"])):
                archive.add(
                    [Parcel("p", stamped(batch, first + batch.num_columns * 100, 10**15 + first))]
                )
            if first < 9:
                archive.roll()


def staged(folder: Path) -> Case:
    """What an archive has taken and not written as Parquet yet."""
    archived(folder / "archive")
    (segment,) = (folder / "archive" / STAGING / "archive").glob("*.staged")
    data = segment.read_bytes()

    def case(draw: random.Random) -> None:
        length, _ = RECORD.unpack_from(data)
        body = mutated(draw, data[RECORD.size : RECORD.size + length])
        rest = data[RECORD.size + length :]
        home = folder / "altered"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(folder / "archive", home)
        target = home / STAGING / "archive" / segment.name
        target.write_bytes(RECORD.pack(len(body), zlib.crc32(body)) + body + rest)
        with Archive(home) as archive:
            archive.roll()
        read_history(home)

    return case


def parquet(folder: Path) -> Case:
    """A finished file of an archive."""
    archived(folder / "archive")
    paths = part_files(folder / "archive")

    def case(draw: random.Random) -> None:
        path = draw.choice(paths)
        honest = path.read_bytes()
        path.write_bytes(mutated(draw, honest))
        try:
            read_history(folder / "archive")
        finally:
            path.write_bytes(honest)

    return case


def read_history(home: Path) -> None:
    """All events of an archive, as `palio replay` prints them."""
    for text in ("TRUE", "n > 0 AND s LIKE 'a%'", "t > TIMESTAMP '2020-01-01T00:00:00Z'"):
        read = 0
        for batch in history(home, parse_filter(text)):
            assert_sound(batch)
            read += len([*rows(batch)])
            assert read < MANY, "it does not end"


def index(folder: Path) -> Case:
    """A file of a saved index, listed with its checksum by the manifest."""
    home = folder / "index"
    damage.saved(home)
    return directory(home, lambda: damage.answers(Index.load(home)))


def subscription_set(folder: Path) -> Case:
    """A file of a compiled set of subscriptions."""
    home = folder / "set"
    test_versions.saved(test_versions.ROWS, home)
    return directory(home, lambda: test_versions.read_all(home))


def directory(home: Path, read: Callable[[], object]) -> Case:
    paths = sorted(path for path in home.iterdir() if path.is_file())
    manifest = next(path for path in paths if path.suffix == ".msgpack")

    def case(draw: random.Random) -> None:
        path = draw.choice(paths)
        before = path.read_bytes(), manifest.read_bytes()
        path.write_bytes(mutated(draw, before[0]))
        if path != manifest:
            damage.forged(home, path.name)
        try:
            read()
        finally:
            path.write_bytes(before[0])
            manifest.write_bytes(before[1])

    return case


def filters(folder: Path) -> Case:
    """Filters in a file, which are parsed when they are asked for."""
    one = Index()
    for number in range(50):
        one.add(number, parse_filter(f"x = {number} AND s = :s"), {"s": f"s{number}"})
    home = folder / "filters"
    one.save(home)
    (path,) = home.glob("*.arrow")
    honest = path.read_bytes()

    def case(draw: random.Random) -> None:
        path.write_bytes(mutated(draw, honest))
        damage.forged(home, path.name)
        found = Index.load(home)
        for number in range(50):
            with suppress(KeyError):  # it is another's now
                found.subscription(number).filter.matches({"x": 1}, {"s": "s1"})

    return case


DOORS: Final[dict[str, Callable[[Path], Case]]] = {
    each.__name__: each
    for each in (arrow_stream, frames, journal, staged, parquet, index, subscription_set, filters)
}


def main(folder: Path, seed: int, count: int, names: Iterable[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for name in names:
        home = folder / name
        home.mkdir()
        case = DOORS[name](home)
        outcomes: Counter[str] = Counter()
        for number in range(seed, seed + count):
            print(f"{name} {number}", flush=True)  # noqa: T201  # read by the test
            signal.alarm(PATIENCE_S)
            try:
                case(random.Random(number))
                outcomes["read"] += 1
            except PalioError as error:
                outcomes[type(error).__name__] += 1
        signal.alarm(0)
        print(f"{name}: {dict(outcomes)}")  # noqa: T201  # read by the test


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] or DOORS)
