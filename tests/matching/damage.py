"""Loads saved indexes that were altered, file by file, and matches with what was loaded.

Run as a program, as a crash would end it: `damage.py PATH CASES SEED`. It tries so many cases of
each way, and prints each before it does, and what became of it. With `plain` a file is altered;
with `forge` the manifest is rewritten for it, as by a user who may write to the directory;
with `twist` the manifest itself says something else, under a checksum that is right.
"""

from __future__ import annotations

import random
import resource
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from palio.errors import PalioError
from palio.language.parsing import parse_filter
from palio.matching import warming
from palio.matching.index import Index
from palio.model.events import to_batches
from palio.model.filters import Filter

MANIFEST: Final = "index.msgpack"
TWISTS: Final = 2_000

Case: TypeAlias = tuple[str, str, bytes]
"""A file, what is done to it, and what it then holds."""

MEMORY_BYTES: Final = 4 << 30
"""An index of a few hundred kilobytes needs no more, mapped libraries included."""


def some_filter(number: int) -> Filter:
    """Filters of every kind that has arrays or texts of its own."""
    texts = (
        f"symbol = 'S{number % 40}' AND price < {number}",
        f"price BETWEEN {number} AND {number + 5} OR volume > {number}",
        f"name LIKE '%x{number % 7}' AND flag = true",
        f"at > TIMESTAMP '2026-01-01T00:00:{number % 60:02}Z' AND NOT volume = {number}",
        f"price * 2 > volume + {number} AND symbol STARTS WITH 'S{number % 9}'",
        f"symbol IN ('S{number}', 'T') AND EXISTS volume",
    )
    return parse_filter(texts[number % len(texts)])


def saved(home: Path) -> None:
    """An index with a part of each sort, tables with gaps, and texts."""
    index = Index()
    count = 300
    index.add_many(
        range(count),
        parse_filter("symbol = :s AND price < :p AND volume >= :v"),
        {
            "s": [f"S{each % 40}" for each in range(count)],
            "p": [each % 100 if each % 3 else None for each in range(count)],
            "v": [each % 50 for each in range(count)],
        },
        destinations=[each % 10 for each in range(count)],
    )
    for number in range(120):
        index.add(10_000 + number, some_filter(number), destination=number % 5)
    index.remove(7)
    index.merge()
    index.match(events())
    index.save(home)


def events() -> pa.RecordBatch:
    """Events that many of them match."""
    rows = [
        {
            "symbol": f"S{each % 40}",
            "price": each % 100,
            "volume": each % 60,
            "name": f"ax{each % 7}",
            "flag": each % 2 == 0,
        }
        for each in range(200)
    ]
    (batch,) = to_batches(rows)
    return batch


def answers(index: Index) -> list[Any]:
    """The answers of an index by each of its plans, and after a change."""
    batch = events()
    found = index.match(batch)
    said: list[Any] = [found.rows.tolist(), found.keys.tolist()]
    said += [index.match(batch.slice(at, 1)).keys.tolist() for at in range(10)]
    said.append([each.tolist() for each in index.counts(batch)])
    said.append(
        {destination: np.asarray(mask).tolist() for destination, mask in index.route(batch).items()}
    )
    index.add(99_999, parse_filter("price < 50 AND symbol = 'S1'"))
    index.merge()
    said.append(index.match(batch).keys.tolist())
    return said


def alterations(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """A file with half of what it holds made huge, negative or another, or cut short."""
    head = 128 if name.endswith(".npy") else 8
    middle = head + (len(data) - head) // 2
    yield "cut", data[:middle]
    yield "empty", b""
    yield "longer", data + data[head:]
    yield "zeros", data[:middle] + bytes(len(data) - middle)
    yield "ones", data[:middle] + b"\xff" * (len(data) - middle)
    yield "huge", data[:middle] + (b"\xff\xff\xff\x7f" * len(data))[: len(data) - middle]
    yield "large", data[:middle] + (b"\x00\x00\x00\x01" * len(data))[: len(data) - middle]
    yield "other type", data.replace(b"<i4", b"<u4", 1).replace(b"<i8", b"<f8", 1)
    yield "other shape", data.replace(b"'shape': (", b"'shape': (9", 1)
    for seed in range(3):
        changed = bytearray(data)
        places = np.random.default_rng(seed).integers(head, len(data), 6) if middle > head else ()
        for place in places:
            changed[place] ^= 1 << (place % 8)
        yield f"bits {seed}", bytes(changed)


def forged(home: Path, name: str) -> None:
    """Rewrite the manifest for a file that was altered."""
    (path,) = home.glob("*.msgpack")
    magic, number, _, body = msgspec.msgpack.decode(path.read_bytes())
    sums, meta = msgspec.msgpack.decode(body)
    data = (home / name).read_bytes()
    sums[name] = [len(data), zlib.crc32(data)]
    body = msgspec.msgpack.encode([sums, meta])
    path.write_bytes(msgspec.msgpack.encode([magic, number, zlib.crc32(body), body]))


def outcome(load: Callable[[], list[Any]], expected: list[Any]) -> str:
    """The outcome of reading an altered index."""
    try:
        return "same" if load() == expected else "other"
    except PalioError as error:
        return f"{type(error).__name__}: {error}"


NASTY: Final[tuple[Any, ...]] = (
    *(0, -1, 1, 2**31, 2**62, 2**63 - 1, 2**64 - 1, -(2**63), None, True, 1.5, "", "x", "x >", "("),
    *(
        "\0",
        "../x",
        "/etc/passwd",
        "x" * 300,
        b"\xff",
        [],
        {},
        ["a"],
        "LIKE",
        "IN CIDR",
        "IN",
        "a\\",
    ),
)


def twisted(draw: random.Random, value: Any) -> Any:
    """Something within a manifest, exchanged for what does not belong there."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(list(value))
        return value | {name: twisted(draw, value[name])}
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        return [*value[:place], twisted(draw, value[place]), *value[place + 1 :]]
    if isinstance(value, int) and draw.random() < 0.2:
        return value + draw.choice((1, -1, 1_000))
    return draw.choice(NASTY)


def twists(home: Path) -> Iterator[Case]:
    """A manifest that says something else, again and again."""
    magic, number, _, body = msgspec.msgpack.decode((home / MANIFEST).read_bytes())
    sums, meta = msgspec.msgpack.decode(body)
    for seed in range(TWISTS):
        draw = random.Random(seed)
        wrong = [sums, twisted(draw, meta)] if seed % 5 else [twisted(draw, sums), meta]
        body = msgspec.msgpack.encode(wrong)
        data = msgspec.msgpack.encode([magic, number, zlib.crc32(body), body])
        yield MANIFEST, f"twist {seed}", data


def altered(home: Path) -> Iterator[Case]:
    """One file altered, file by file."""
    for path in sorted(home.iterdir()):
        data = path.read_bytes()
        for name, changed in alterations(path.name, data):
            if changed != data:
                yield path.name, name, changed


def main(home: Path, count: int, seed: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warming.warm()
    expected = answers(Index.load(home))
    cases = [*altered(home)]
    forgeable = [case for case in cases if case[0] != MANIFEST]
    for way, those in (("plain", cases), ("forge", forgeable), ("twist", [*twists(home)])):
        for name, change, data in random.Random(seed).sample(those, min(count, len(those))):
            print(f"{way} {name}, {change}:", end=" ", flush=True)  # noqa: T201  # read by the test
            written = [(path, path.read_bytes()) for path in (home / name, home / MANIFEST)]
            (home / name).write_bytes(data)
            if way == "forge":
                forged(home, name)
            said = outcome(lambda: answers(Index.load(home)), expected)
            print(said.replace("\n", " "), flush=True)  # noqa: T201  # read by the test
            for path, before in written:
                path.write_bytes(before)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
