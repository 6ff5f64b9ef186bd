from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from palio.client import archive as module
from palio.client.archive import DAY, MAX_SHAPES, Archive, Recent, part_files
from palio.errors import FileDamaged, InvalidInput, PalioError, UnsafeFile
from palio.model.events import PUBLISHER, SEQ, TIME, stamped, to_batch
from palio.protocol.messages import Parcel
from tests.modes import modes_below, umask

NOON_US: Final = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
DAY_US: Final = 86_400_000_000


def parcel(
    first: int, count: int, publisher: str = "p", at_us: int = NOON_US, **attributes: Any
) -> Parcel:
    values = {"x": 1.5, **attributes}
    batch = pa.record_batch({name: [value] * count for name, value in values.items()})
    return Parcel(publisher, stamped(batch, first, at_us))


def held(path: Path) -> list[tuple[str, int]]:
    """Publisher and number of all events in finished files."""
    found = []
    for file in part_files(path):
        table = pq.ParquetFile(file).read([PUBLISHER, SEQ])
        found += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(found)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path) as opened:
        yield opened


def test_events_get_their_publisher_number_and_time(archive: Archive) -> None:
    assert archive.add([parcel(7, 2, name="IBM")]) == 2
    (file,) = archive.roll()
    assert file.parent.name == f"{DAY}=2026-01-01"
    assert pq.ParquetFile(file).read().to_pylist() == [
        {
            PUBLISHER: "p",
            SEQ: seq,
            TIME: datetime(2026, 1, 1, 12, tzinfo=UTC),
            "name": "IBM",
            "x": 1.5,
        }
        for seq in (7, 8)
    ]


def test_days_and_shapes_go_to_files_of_their_own(archive: Archive, tmp_path: Path) -> None:
    midnight = NOON_US + DAY_US // 2
    archive.add([parcel(1, 1, at_us=midnight - 1), parcel(2, 1, at_us=midnight)])
    archive.add([parcel(3, 1, y=True), parcel(4, 1, x="text")])
    files = archive.roll()
    days = sorted((file.parent.name[-2:], pq.read_metadata(file).num_rows) for file in files)
    assert days == [("01", 1), ("01", 1), ("01", 1), ("02", 1)]
    assert [seq for _, seq in held(tmp_path)] == [1, 2, 3, 4]


def test_attributes_in_another_order_are_the_same_shape(archive: Archive) -> None:
    for first, event in enumerate(({"a": 1, "b": 2}, {"b": 3, "a": 4})):
        archive.add([Parcel("p", stamped(to_batch(event), first, NOON_US))])
    assert len(archive.roll()) == 1


def test_events_without_attributes(archive: Archive, tmp_path: Path) -> None:
    archive.add([Parcel("p", stamped(to_batch({}), 1, NOON_US))])
    archive.roll()
    assert held(tmp_path) == [("p", 1)]


def test_a_file_is_in_order_of_time(archive: Archive) -> None:
    archive.add([parcel(5, 2, "q", NOON_US + 5), parcel(9, 1, "q", NOON_US), parcel(1, 1, "p")])
    (file,) = archive.roll()
    table = pq.ParquetFile(file).read([PUBLISHER, SEQ])
    assert table.column(SEQ).to_pylist() == [1, 9, 5, 6]


def test_common_readers_find_the_day(archive: Archive, tmp_path: Path) -> None:
    archive.add([parcel(1, 3)])
    archive.roll()
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert set(table.column(DAY).to_pylist()) == {"2026-01-01"}


def test_what_comes_again_is_left_out(archive: Archive, tmp_path: Path) -> None:
    archive.add([parcel(1, 10)])
    assert archive.add([parcel(6, 10), parcel(1, 3, "q")]) == 8
    archive.roll()
    assert archive.add([parcel(1, 16)]) == 1
    archive.roll()
    assert held(tmp_path) == [("p", seq) for seq in range(1, 17)] + [("q", n) for n in (1, 2, 3)]


def test_numbers_need_not_grow(archive: Archive) -> None:
    archive.add([parcel(10, 5)])
    assert archive.add([parcel(1, 9)]) == 9


def test_what_is_staged_outlives_the_process(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.add([parcel(1, 10)])
    with Archive(tmp_path) as archive:
        assert archive.staged_at is not None
        assert archive.add([parcel(1, 12)]) == 2
        archive.roll()
    assert held(tmp_path) == [("p", seq) for seq in range(1, 13)]


def test_what_is_in_files_is_known_again(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.add([parcel(1, 5)])
        archive.roll()
        archive.add([parcel(6, 5)])
        archive.roll()
    with Archive(tmp_path) as archive:
        assert archive.add([parcel(1, 10)]) == 0
        assert archive.roll() == []


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 200])
def test_a_torn_record_is_left_out(tmp_path: Path, cut: int) -> None:
    with Archive(tmp_path) as archive:
        archive.add([parcel(1, 5)])
        whole = archive.staged_bytes
        archive.add([parcel(6, 5)])
    (segment,) = tmp_path.rglob("*.staged")
    os.truncate(segment, whole + cut)
    with Archive(tmp_path) as archive:
        assert archive.staged_bytes == whole
        assert archive.add([parcel(1, 10)]) == 5
        archive.roll()
    assert held(tmp_path) == [("p", seq) for seq in range(1, 11)]


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.add([parcel(1, 5)])
        whole = archive.staged_bytes
        archive.add([parcel(6, 5)])
    (segment,) = tmp_path.rglob("*.staged")
    data = bytearray(segment.read_bytes())
    data[whole + 40] ^= 1
    segment.write_bytes(data)
    with Archive(tmp_path) as archive:
        assert archive.add([parcel(1, 10)]) == 5


@pytest.mark.parametrize("change", ["an offset", "no number", "no stream", "no publisher"])
def test_a_record_altered_under_a_right_checksum_is_told(tmp_path: Path, change: str) -> None:
    with Archive(tmp_path) as archive:
        archive.add([parcel(1, 3, s="ab")])
    (segment,) = tmp_path.rglob("*.staged")
    body = segment.read_bytes()[8:]
    offsets, far = struct.pack("<4i", 0, 2, 4, 6), struct.pack("<4i", 0, 2, 4, 10**8)
    changed = {
        "an offset": body.replace(offsets, far),
        "no number": body.replace(b"$seq", b"$sEq"),
        "no stream": body[:-100] + bytes(100),
        "no publisher": body.replace(b"$publisher", b"$pUblisher"),
    }[change]
    assert changed != body
    segment.write_bytes(struct.pack("<II", len(changed), zlib.crc32(changed)) + changed)
    with pytest.raises(FileDamaged, match=rf"{segment.name}: the record .* remove the file"):
        Archive(tmp_path)


class Crash(Exception):
    """The process is gone."""


@pytest.mark.parametrize("step", range(13))
def test_a_crash_while_files_are_written_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """It stops before the n-th change to the disk; whoever opens it next finishes the work."""
    parcels: Sequence[Parcel] = [parcel(1, 3), parcel(4, 3, y=1), parcel(7, 3, at_us=0)]
    left = step

    def counted(function: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return function(*arguments, **options)

        return run

    archive = Archive(tmp_path)
    archive.add(parcels)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", counted(os.fsync))
        patched.setattr(Path, "replace", counted(Path.replace))
        patched.setattr(Path, "unlink", counted(Path.unlink))
        try:
            archive.roll()
            archive.add([parcel(10, 1)])
        except Crash:
            pass
    os.close(archive._lock)
    with Archive(tmp_path) as again:
        again.add([*parcels, parcel(10, 1)])
        again.roll()
    assert held(tmp_path) == [("p", seq) for seq in range(1, 11)]
    assert not list(tmp_path.rglob("*.unfinished"))
    assert len(list(tmp_path.rglob("*.staged"))) == 1


def test_two_processes_cannot_write_under_one_name(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="another process"):
        Archive(tmp_path)
    with Archive(tmp_path, "other") as other:
        other.add([parcel(1, 1)])
        other.roll()
    assert archive.add([parcel(1, 1)]) == 1


@pytest.mark.parametrize("name", ["", "a/b", "a-b", ".a", "a" * 101])
def test_names_that_cannot_name_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name files"):
        Archive(tmp_path, name)


def test_the_longest_name(tmp_path: Path) -> None:
    with Archive(tmp_path, "a" * 100) as archive:
        archive.add([parcel(1, 3)])
        archive.roll()
    (file,) = part_files(tmp_path)
    assert "a" * 100 in file.name


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path)
    archive.add([parcel(1, 5)])

    def full(descriptor: int, data: memoryview) -> int:
        written: int = write(descriptor, data[:10])
        monkeypatch.setattr(os, "write", refuse)
        return written

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    write = os.write
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(PalioError, match="No space left"):
        archive.add([parcel(6, 5)])
    monkeypatch.setattr(os, "write", write)
    with Archive(tmp_path) as again:
        assert again.add([parcel(1, 10)]) == 5


def test_numbers_are_forgotten_once_there_are_many_newer_ones() -> None:
    recent = Recent(most=4)
    for number in range(1, 9):
        recent.add("p", np.array([number]))
    assert recent.fresh("p", np.arange(1, 10)).tolist() == [False] * 8 + [True]
    recent.add("p", np.array([9]))
    assert recent.fresh("p", np.arange(1, 10)).tolist() == [True] * 4 + [False] * 5


def test_only_the_newest_files_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED_FILES", 2)
    with Archive(tmp_path) as archive:
        for first in (1, 2, 3):
            archive.add([parcel(first, 1)])
            archive.roll()
    with Archive(tmp_path) as archive:
        assert archive.add([parcel(1, 3)]) == 1


# --- many shapes ---


def kinds(first: int, count: int, value: Any = 1) -> list[Parcel]:
    """Events that have nothing in common but their system columns."""
    return [
        Parcel("p", stamped(pa.record_batch({f"a{n}": [value]}), n, NOON_US + n))
        for n in range(first, first + count)
    ]


def contents(path: Path) -> list[dict[str, Any]]:
    """All events of all files, without what they do not have."""
    found = [row for file in part_files(path) for row in pq.ParquetFile(file).read().to_pylist()]
    bare = [{name: value for name, value in row.items() if value is not None} for row in found]
    return sorted(bare, key=lambda row: int(row[SEQ]))


@pytest.mark.parametrize(
    ("count", "files"), [(MAX_SHAPES - 1, MAX_SHAPES - 1), (MAX_SHAPES, MAX_SHAPES)]
)
def test_a_few_shapes_have_a_file_each(archive: Archive, count: int, files: int) -> None:
    archive.add(kinds(0, count))
    assert len(archive.roll()) == files


def test_very_many_shapes_share_files(archive: Archive, tmp_path: Path) -> None:
    archive.add([*kinds(0, 300), *kinds(2_000, 1, "text"), parcel(5_000, 9)])
    archive.add([Parcel("p", stamped(pa.record_batch({"a5": ["text"]}), 1_999, NOON_US))])
    assert len(archive.roll()) == MAX_SHAPES + 1  # an attribute of two types is in two
    found = contents(tmp_path)
    assert len(found) == 311
    assert [row[f"a{row[SEQ]}"] for row in found[:300]] == [1] * 300
    assert [set(row) - {PUBLISHER, SEQ, TIME} for row in found[300:302]] == [{"a5"}, {"a2000"}]
    assert max(pq.read_metadata(file).num_rows for file in part_files(tmp_path)) < 300


def test_a_shared_file_is_not_mostly_nulls_without_bound(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CELLS", 13 * 10)
    archive.add(kinds(0, 100))
    found = [pq.read_metadata(file) for file in archive.roll()]
    assert sum(each.num_rows for each in found) == 100
    assert len(found) == MAX_SHAPES - 1 + 7  # ten rows with ten columns and three of the system
    assert all(each.num_rows * each.num_columns <= 130 for each in found)


def test_shared_files_are_the_same_when_a_crash_has_them_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Archive(tmp_path) as archive:
        archive.add(kinds(0, 100))
        monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # the segment stays
        first = {file: file.read_bytes() for file in archive.roll()}
    monkeypatch.undo()
    with Archive(tmp_path):
        assert {file: file.read_bytes() for file in part_files(tmp_path)} == first


# --- other users of the machine ---


def written(path: Path, mask: int) -> None:
    with umask(mask), Archive(path) as opened:
        opened.add([parcel(1, 2)])
        opened.roll()
        opened.add([parcel(3, 2)])


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_an_archive_is_for_its_owner_only(tmp_path: Path, mask: int) -> None:
    written(tmp_path / "new" / "archive", mask)
    assert modes_below(tmp_path / "new") == ({0o700}, {0o600})


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_an_archive_in_a_directory_for_a_group_is_for_this_group(tmp_path: Path, mask: int) -> None:
    tmp_path.chmod(0o750)
    written(tmp_path, mask)
    assert modes_below(tmp_path)[0] == {0o750}
    (file,) = part_files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", [f"{DAY}=2026-01-01", "_staging", "_staging/archive"])
def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path, name: str) -> None:
    home, elsewhere = tmp_path / "archive", tmp_path / "elsewhere"
    (home / name).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (home / name).symlink_to(elsewhere)
    with pytest.raises(UnsafeFile, match=name.replace("$", r"\$")):
        written(home, 0o022)
    assert not list(elsewhere.iterdir())
