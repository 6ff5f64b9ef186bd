"""Reads Parquet files whose headers were altered, one after another.

Run as a program, since what Arrow does not check may end it: `damaged_parquet.py FOLDER MODE SEED
STEP`. It alters one byte in STEP of a header and prints what became of each file.
"""

from __future__ import annotations

import random
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from palio.errors import PalioError
from palio.language.parsing import parse_filter
from palio.parquet import matching_groups, opened, pieces

MEMORY_BYTES: Final = 6 << 30
"""A file of some kilobytes needs no more, mapped libraries included."""

ROWS: Final = 60

TABLE: Final = pa.table(
    {
        "n": list(range(ROWS)),
        "s": [f"t{each % 7}" if each % 5 else None for each in range(ROWS)],
        "l": [["a", "b"], None, []] * (ROWS // 3),
        "st": [{"a": "q", "b": 1}, None] * (ROWS // 2),
        "at": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
    }
)

WRITTEN: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "delta": {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED"}},
    "int96": {"use_deprecated_int96_timestamps": True, "store_schema": False},
    "indexed": {"write_page_index": True, "write_page_checksum": True, "data_page_version": "2.0"},
}
"""Ways of writing it."""


def header_bytes(data: bytes) -> int:
    """How long the header is."""
    return int.from_bytes(data[-8:-4], "little")


def groups_of(path: Path) -> list[int]:
    """The row groups in which some filter may match, by statistics of each type."""
    text = "n < 5 AND s > 'a' AND at > TIMESTAMP '1970-01-01T00:00:00Z'"
    with opened(path) as file:
        return matching_groups(file, parse_filter(text), TABLE.column_names)


def main(folder: Path, mode: str, seed: int, step: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    draw = random.Random(seed)
    path = folder / f"{mode}.parquet"
    pq.write_table(TABLE, path, row_group_size=ROWS // 2, **WRITTEN[mode])
    data = path.read_bytes()
    jobs: tuple[Callable[[], object], ...] = (
        lambda: sum(each.num_rows for each in pieces(path)),
        lambda: groups_of(path),
    )
    said: Counter[str] = Counter()
    first = len(data) - 8 - header_bytes(data)
    for place in range(first + seed % step, len(data) - 4, step):
        changed = bytearray(data)
        changed[place] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        print(f"{place}:", end=" ", flush=True)  # noqa: T201  # read by the test
        for job in jobs:
            try:
                job()
                said["read"] += 1
            except PalioError as error:
                said[type(error).__name__] += 1
    print("\n" + " ".join(sorted(said)))  # noqa: T201  # read by the test


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
