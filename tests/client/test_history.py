from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.client import history as module
from palio.client.archive import DAY, Archive, part_files
from palio.client.history import history
from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse_filter
from palio.model.events import PUBLISHER, SEQ, TIME, stamped, timestamp_type, to_batches
from palio.protocol.messages import Parcel

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US: Final = int(NOON.timestamp()) * 1_000_000
HOUR_US: Final = 3_600_000_000

EVENTS: Final[list[dict[str, Any]]] = [
    {"x": 1, "name": "IBM"},
    {"x": 2.5},
    {"x": 3, "name": "HAL"},
    {"name": "IBM", "flag": True},
    {"x": float("nan")},
    {"at": NOON},
    {},
]


def write(path: Path, *segments: Sequence[tuple[str, int, int, dict[str, Any]]]) -> None:
    """An archive of events given as publisher, number, time and attributes."""
    with Archive(path) as archive:
        for segment in segments:
            archive.add(
                Parcel(publisher, stamped(batch, seq, time_us))
                for publisher, seq, time_us, event in segment
                for batch in to_batches([event])
            )
            archive.roll()


def read(path: Path, filter: str = "TRUE", **span: Any) -> list[tuple[str, int]]:
    return [
        (row[PUBLISHER], row[SEQ])
        for batch in history(path, parse_filter(filter), **span)
        for row in batch.to_pylist()
    ]


def test_events_come_in_order_of_time_over_days_files_and_shapes(tmp_path: Path) -> None:
    events = [
        ("p" if n % 3 else "q", n, NOON_US + n * HOUR_US, EVENTS[n % len(EVENTS)])
        for n in range(60)
    ]
    write(tmp_path, events[::3], events[1::3], events[2::3])
    assert [seq for _, seq in read(tmp_path)] == list(range(60))


@pytest.mark.parametrize("piece_rows", [1, 2, 3, 100])
def test_any_size_of_the_pieces_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    draw = np.random.default_rng(7)
    times = np.sort(draw.integers(0, 12, 80))
    events = [
        (("p", "q")[n % 2], n, NOON_US + int(time), {draw.choice(["x", "y"]): 1})
        for n, time in enumerate(times)
    ]
    cut = [events[place::4] for place in range(4)]
    write(tmp_path, *cut)
    monkeypatch.setattr(module, "PIECE_ROWS", piece_rows)
    expected = sorted(events, key=lambda each: (each[2], each[0], each[1]))
    assert read(tmp_path) == [(publisher, seq) for publisher, seq, _, _ in expected]


def test_batches_have_one_shape_and_the_system_columns(tmp_path: Path) -> None:
    write(tmp_path, [("p", 1, NOON_US, {"x": 1}), ("p", 2, NOON_US + 1, {"y": "a"})])
    first, second = history(tmp_path)
    assert first.schema.names == [PUBLISHER, SEQ, TIME, "x"]
    assert second.schema.names == [PUBLISHER, SEQ, TIME, "y"]


@pytest.mark.parametrize(
    ("since_h", "until_h", "expected"),
    [
        (None, None, range(48)),
        (5, None, range(5, 48)),
        (None, 5, range(5)),
        (11, 14, range(11, 14)),
    ],
)
def test_a_span_of_time(
    tmp_path: Path, since_h: int | None, until_h: int | None, expected: range
) -> None:
    """It begins at `since` and ends before `until`."""
    write(tmp_path, [("p", n, NOON_US + n * HOUR_US, {"x": n}) for n in range(48)])
    since, until = (
        None if hours is None else NOON + timedelta(hours=hours) for hours in (since_h, until_h)
    )
    assert [seq for _, seq in read(tmp_path, since=since, until=until)] == list(expected)


def test_days_outside_the_span_are_not_opened(tmp_path: Path) -> None:
    write(tmp_path, [("p", n, NOON_US + n * 24 * HOUR_US, {"x": n}) for n in range(3)])
    part_files(tmp_path)[0].write_bytes(b"not opened")
    assert len(read(tmp_path, since=NOON + timedelta(hours=13))) == 2


def test_files_are_opened_when_their_time_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So memory holds a piece of those that overlap, not of all files of a day."""
    write(tmp_path, *([("p", n, NOON_US + n, {"x": n})] for n in range(5)))
    opened = []
    pieces = module._Selection.pieces

    def noted(self: Any, path: Path, most_bytes: int) -> Any:
        opened.append(path)
        return pieces(self, path, most_bytes)

    monkeypatch.setattr(module._Selection, "pieces", noted)
    for count, _ in enumerate(history(tmp_path), 1):
        assert len(opened) == count


def test_no_archive(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no archive"):
        history(tmp_path)
    with pytest.raises(InvalidInput, match="no archive"):
        history(tmp_path / "elsewhere")


def test_system_columns_may_be_asked_for(tmp_path: Path) -> None:
    write(tmp_path, [("p", n, NOON_US + n, {"x": n}) for n in range(5)])
    assert read(tmp_path, "`$seq` >= 3") == [("p", 3), ("p", 4)]
    assert read(tmp_path, "`$publisher` = 'p' AND x < 1") == [("p", 0)]
    assert read(tmp_path, "`$publisher` = 'q'") == []


FILTERS: Final = (
    "x < 3",
    "x >= 2.5",
    "x = 3 OR name = 'IBM'",
    "x IN (1, 2, 3)",
    "name IN ('IBM', 'HAL') AND x > 1",
    "name > 'HAL'",
    "flag = TRUE",
    "flag IS NULL AND x IS NOT NULL",
    "x IS NULL",
    "NOT x = 1",
    "name STARTS WITH 'I'",
    "LENGTH(name) = 3 AND x >= 1",
    "at >= TIMESTAMP '2026-01-01T12:00:00Z'",
    "x < 0",
    "TRUE",
    "FALSE",
)


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_leaves_what_it_matches(tmp_path: Path, text: str) -> None:
    events = [EVENTS[n % len(EVENTS)] for n in range(20)]
    write(tmp_path, [("p", n, NOON_US + n, event) for n, event in enumerate(events)])
    filter = parse_filter(text)
    expected = [("p", n) for n, event in enumerate(events) if filter.matches(event)]
    assert read(tmp_path, text) == expected


# --- files from elsewhere ---


def bomb(path: Path, count: int, step_us: int) -> None:
    """An archive of one text that is stored once, and of events that all have it."""
    folder = path / f"{DAY}=2026-01-01"
    folder.mkdir(parents=True)
    none = np.zeros(count, np.int32)
    columns = {
        PUBLISHER: pa.DictionaryArray.from_arrays(none, pa.array(["p"])),
        SEQ: pa.array(np.arange(count)),
        TIME: pa.array(NOON_US + step_us * np.arange(count), timestamp_type()),
        "s": pa.DictionaryArray.from_arrays(none, pa.array(["x" * 20_000])),
    }
    pq.write_table(pa.table(columns), folder / "a-1-000.parquet")


BOMB_ROWS: Final = 30_000

READ: Final = r"""
import re, sys
from pathlib import Path
from palio.client.history import history
from palio.language.parsing import parse_filter
rows = sum(each.num_rows for each in history(sys.argv[1], parse_filter(sys.argv[2])))
# What getrusage calls the most counts the process that this one was forked from, too.
peak_kib = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]
print(rows, int(peak_kib) // 1024)
"""


@pytest.mark.parametrize(("text", "expected"), [("s = 'q'", 0), ("EXISTS s", BOMB_ROWS)])
def test_a_file_that_unpacks_to_gigabytes_is_read_in_pieces(
    tmp_path: Path, text: str, expected: int
) -> None:
    """600 MB of text, and a process that has loaded Arrow takes 100 MiB or more by itself."""
    bomb(tmp_path, BOMB_ROWS, step_us=1)
    read = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path), text],
        check=True,
        capture_output=True,
        text=True,
    )
    rows, peak_mib = map(int, read.stdout.split())
    assert rows == expected
    assert peak_mib < 450


def test_events_of_one_moment_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb(tmp_path, 1_000, step_us=0)
    assert sum(each.num_rows for each in history(tmp_path)) == 1_000
    monkeypatch.setattr(module, "MOMENT_BYTES", 10 << 20)
    with pytest.raises(LimitExceeded, match=r"events of one moment in .* MOMENT_BYTES"):
        list(history(tmp_path))


def rewritten(home: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A finished file of an archive that was changed by somebody else."""
    (path,) = part_files(home)
    pq.write_table(change(pq.ParquetFile(path).read()), path)
    return path


@pytest.mark.parametrize("at", [[3, 2, 1], [1, 3, 2], [2, 2, 1]])
def test_a_file_that_is_not_in_order_of_time_is_refused(tmp_path: Path, at: list[int]) -> None:
    """To merge it would never end: events before a time are looked for by halving."""
    write(tmp_path, [("p", n, NOON_US + n, {"x": n}) for n in range(3)])
    times: Any = pa.array([NOON_US + each for each in at]).cast(timestamp_type())
    path = rewritten(tmp_path, lambda table: table.set_column(2, TIME, times))
    with pytest.raises(InvalidInput, match=rf"{path.name}' is not in order of \$time; restore"):
        list(history(tmp_path))


def test_nor_is_one_whose_later_pieces_are_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", 2)
    write(tmp_path, [("p", n, NOON_US + n, {"x": n}) for n in range(4)])
    times: Any = pa.array([NOON_US + each for each in (5, 6, 1, 2)]).cast(timestamp_type())
    path = rewritten(tmp_path, lambda table: table.set_column(2, TIME, times))
    for text in ("TRUE", "x > 1"):
        with pytest.raises(InvalidInput, match=path.name):
            list(history(tmp_path, parse_filter(text)))


NO_TEXT: Any = pa.array([b"p", b"\xff", b"p"]).view(pa.utf8())
FAR: Any = pa.array([1, 2, 2**60]).cast(timestamp_type())

CHANGES: Final[dict[str, Callable[[pa.Table], pa.Table]]] = {
    "no column": lambda table: table.drop_columns([PUBLISHER]),
    "no time": lambda table: table.drop_columns([TIME]),
    "another type": lambda table: table.set_column(1, SEQ, table[SEQ].cast(pa.float64())),
    "a null": lambda table: table.set_column(0, PUBLISHER, pa.array([None, "p", "p"])),
    "no text": lambda table: table.set_column(0, PUBLISHER, NO_TEXT),
    "a far time": lambda table: table.set_column(2, TIME, FAR),
    "no events": lambda table: table[:0],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_no_archive_has_written_is_told_by_name(tmp_path: Path, change: str) -> None:
    write(tmp_path, [("p", n, NOON_US + n, {"x": n}) for n in range(3)])
    path = rewritten(tmp_path, CHANGES[change])
    with pytest.raises(InvalidInput, match=path.name):
        list(history(tmp_path))
