"""`Archive`: events in Parquet files, each exactly once, whatever happens to who writes them.

```
  DIR/$day=2026-01-31/NAME-SEGMENT-000.parquet   finished: one day (UTC) and one shape
  DIR/_staging/NAME/SEGMENT.staged               what was taken since, not in Parquet yet
```

Where there are very many shapes at once, the rare ones share files (`MAX_SHAPES`).

1. *Staging.* Events are appended to the newest segment and synced; only then may they be
   acknowledged. Each record has its length and checksum: what a crash tore off was not acknowledged
   and comes again.
2. *Rolling.* A segment that is large or old enough is never appended to again: a new one is begun,
   and the old one is written as Parquet under names that follow from its content alone, each under
   another name first, synced and renamed. Only then is it deleted. A crash in between is mended by
   writing the same files again, over themselves.
3. *Twice.* What was staged and not acknowledged is delivered again. It is known by publisher and
   number, which are read from the newest files when an archive is opened.
"""

from __future__ import annotations

import os
import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from palio import files
from palio.errors import FileDamaged, InvalidInput, PalioError
from palio.model.events import PUBLISHER, SEQ, TIME, check_times, conform, timestamp_type
from palio.model.untrusted import read_stream
from palio.parquet import pieces
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Parcel

DAY: Final = "$day"
"""What directories are called by: `$day=2026-01-31`, which common readers take for a column.

No attribute begins with `$`, so that it never hides one.
"""

STAGING: Final = "_staging"
"""Readers of Parquet pass over names that begin with `_`."""

ROW_GROUP_ROWS: Final = 1 << 16
"""Small enough that a filter on time skips most of a day, large enough to compress well."""

REMEMBERED: Final = 4 * (WINDOW_BYTES // 16)
"""Events that are recognised when they come again.

A broker has no more than WINDOW_BYTES on their way, and an event's number and time alone take 16;
the rest is for acknowledgements that a broker took and lost when it crashed.
"""

REMEMBERED_FILES: Final = 1_000
"""Files that are looked into for them, however few events they have."""

MAX_SHAPES: Final = 32
"""Shapes of a segment that get files of their own, the most frequent; the others share some."""

MAX_CELLS: Final = 1 << 22
"""Rows times columns of such a shared table, most of them nulls: at most 32 MiB of them."""

_SYSTEM: Final = {PUBLISHER: pa.utf8(), SEQ: pa.int64(), TIME: timestamp_type()}

_HEAD: Final = struct.Struct("<II")
"""Of a record: the length of what follows, and its CRC-32."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]{0,99}")

Numbers = npt.NDArray[np.int64]


class Recent:
    """The numbers of the last events, by publisher: at least `most` of them, at most twice that.

    >>> recent = Recent(most=10)
    >>> recent.add("p", np.array([1, 2, 5]))
    >>> recent.fresh("p", np.array([2, 3])).tolist()
    [False, True]
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._count = 0
        self._new: dict[str, _Known] = {}
        self._old: dict[str, _Known] = {}

    def fresh(self, publisher: str, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Return a mask of the numbers that were not added before."""
        unknown = np.ones(len(numbers), np.bool_)
        for generation in (self._new, self._old):
            history = generation.get(publisher)
            if history is not None and len(numbers) and numbers.min() <= history.last:
                unknown &= ~np.isin(numbers, history.together())
        return unknown

    def add(self, publisher: str, numbers: Numbers) -> None:
        """Remember numbers, and forget the oldest where there are too many."""
        if not len(numbers):
            return
        if self._count >= self._most:
            self._old, self._new, self._count = self._new, {}, 0
        history = self._new.setdefault(publisher, _Known())
        history.arrays.append(numbers)
        history.last = max(history.last, int(numbers.max()))
        self._count += len(numbers)


class _Known:
    """Numbers of one publisher, as they came: they are compared only when some come again."""

    __slots__ = ("arrays", "last")

    def __init__(self) -> None:
        self.arrays: list[Numbers] = []
        self.last = 0

    def together(self) -> Numbers:
        self.arrays[:] = [np.concatenate(self.arrays)]
        return self.arrays[0]


class Archive:
    """A directory that is being written to, by one process at a time under each name."""

    def __init__(self, path: str | Path, name: str = "archive") -> None:
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r:.120} cannot name files; use up to 100 letters, digits, dots and _"
            )
        self.path = Path(path)
        self.name = name
        self.staged_bytes = 0
        """Bytes in the segment that is not in Parquet yet..."""
        self.staged_at: float | None = None
        """...and when the first of them came, by the monotonic clock; None if there are none."""
        self.events = 0
        """Events taken since it was opened."""
        self.files = 0
        """Parquet files written since then."""
        files.make_directory(self.path)
        self._staging = files.make_inside(files.make_inside(self.path, STAGING), name)
        for folder in (self.path.parent, self.path, self._staging.parent):
            _sync_directory(folder)
        self._lock = self._locked()
        self._recent = Recent()
        self._segment = -1
        self._recover()

    def _locked(self) -> int:
        lock = files.locked(self._staging / "lock", wait=False)
        if lock is None:
            raise InvalidInput(
                f"another process writes to the archive {str(self.path)!r} as {self.name!r}; "
                "stop it, or take another --name"
            )
        return lock

    # --- opening ---

    def _recover(self) -> None:
        segments = self._segments()
        for sealed in segments[:-1]:
            self._write_parts(sealed)
        for file in _newest(self.path, self.name):
            self._remember_file(file)
        if not segments:
            self._begin()
            return
        self._number = int(segments[-1].stem, 16)
        self._segment = files.open_own(segments[-1])
        whole = 0
        for end, publisher, batch in _records(segments[-1]):
            self._recent.add(publisher, batch.column(SEQ).to_numpy())
            whole = end
        os.ftruncate(self._segment, whole)
        os.lseek(self._segment, 0, os.SEEK_END)
        self.staged_bytes = whole
        self.staged_at = time.monotonic() if whole else None

    def _segments(self) -> list[Path]:
        return sorted(self._staging.glob("*.staged"))

    def _begin(self) -> None:
        """Begin a segment. Its number is new even if the staging directory was cleared."""
        latest = max((int(segment.stem, 16) for segment in self._segments()), default=0)
        self._number = max(time.time_ns(), latest + 1)
        path = self._staging / f"{self._number:016x}.staged"
        self._segment = files.open_new(path)
        _sync_directory(self._staging)
        self.staged_bytes, self.staged_at = 0, None

    def _remember_file(self, file: Path) -> None:
        for piece in pieces(file, columns=[PUBLISHER, SEQ]):
            publishers = piece.column(PUBLISHER)
            for publisher in publishers.unique():
                rows = piece.filter(pc.equal(publishers, publisher))
                self._recent.add(str(publisher.as_py()), rows.column(SEQ).to_numpy())

    # --- taking ---

    def add(self, parcels: Iterable[Parcel]) -> int:
        """Take events, on the disk when this returns; how many of them were new."""
        by_shape: dict[tuple[str, pa.Schema], list[pa.RecordBatch]] = {}
        count = 0
        for parcel in parcels:
            numbers = parcel.batch.column(SEQ).to_numpy()
            fresh = self._recent.fresh(parcel.publisher, numbers)
            batch = parcel.batch if fresh.all() else parcel.batch.filter(pa.array(fresh))
            if batch.num_rows:
                self._recent.add(parcel.publisher, numbers[fresh])
                by_shape.setdefault((parcel.publisher, batch.schema), []).append(batch)
                count += batch.num_rows
        if count:
            records = [
                _record(publisher, _joined(batches)) for (publisher, _), batches in by_shape.items()
            ]
            self._append(b"".join(records))
        self.events += count
        return count

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._segment, view) :]
            os.fdatasync(self._segment)
        except OSError as error:
            os.ftruncate(self._segment, self.staged_bytes)
            self.close()
            raise PalioError(
                f"cannot write to the archive {str(self.path)!r}: {error}; what was not written "
                "was not acknowledged and comes again"
            ) from None
        self.staged_bytes += len(data)
        if self.staged_at is None:
            self.staged_at = time.monotonic()

    # --- rolling ---

    def roll(self) -> list[Path]:
        """Write what is staged as Parquet; the files."""
        if not self.staged_bytes:
            return []
        os.close(self._segment)
        sealed = self._staging / f"{self._number:016x}.staged"
        self._begin()
        return self._write_parts(sealed)

    def _write_parts(self, sealed: Path) -> list[Path]:
        """Write a segment that nothing is added to any more, and delete it."""
        written = []
        for number, (day, table) in enumerate(_parts(_records(sealed))):
            folder = files.make_inside(self.path, f"{DAY}={day}")
            target = folder / f"{self.name}-{sealed.stem}-{number:03}.parquet"
            _write(table, target)
            written.append(target)
        for folder in {file.parent for file in written}:
            _sync_directory(folder)
        _sync_directory(self.path)
        sealed.unlink()
        _sync_directory(self._staging)
        self.files += len(written)
        return written

    def close(self) -> None:
        """Close the files. Staged events stay there for the next process that opens the archive."""
        if self._segment >= 0:
            os.close(self._segment)
            os.close(self._lock)
            self._segment = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def part_files(path: Path) -> list[Path]:
    """The finished files of an archive, in order of their days."""
    return sorted(path.glob(f"{DAY}=*/*.parquet"))


def as_events(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    """A batch of a file in the model's types. `ValueError` if it is none of events, or lacks some
    system columns.

    >>> as_events(pa.record_batch({"$seq": pa.array([1], pa.int8())}), "$seq").schema
    $seq: int64
    """
    events = conform(batch)
    for name in names:
        if name not in events.schema.names or events.schema.field(name).type != _SYSTEM[name]:
            raise ValueError(f"it has no column {name} of type {_SYSTEM[name]}")
        if events.column(name).null_count:
            raise ValueError(f"an event has no {name}")
    check_times(events)
    return events


def _newest(path: Path, name: str) -> list[Path]:
    """The files that hold the last events that were taken under a name, oldest first."""
    files = [file for file in part_files(path) if file.name.rsplit("-", 2)[0] == name]
    files.sort(key=lambda file: file.name)
    taken: list[Path] = []
    count = 0
    while files and count < REMEMBERED and len(taken) < REMEMBERED_FILES:
        taken.append(files.pop())
        count += pq.read_metadata(taken[-1]).num_rows
    return taken[::-1]


# --- records ---


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _record(publisher: str, batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata({PUBLISHER: publisher})
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch.replace_schema_metadata({PUBLISHER: publisher}))
    body = sink.getvalue().to_pybytes()
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _records(path: Path) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """The whole records of a segment: where each ends, whose it is, and its events."""
    data = path.read_bytes()
    start = 0
    while start + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, start)
        start += _HEAD.size
        body = data[start : start + length]
        start += length
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        try:
            schema, batches = read_stream(body)
            publisher = (schema.metadata or {})[PUBLISHER.encode()].decode()
            batch = as_events(next(batches).replace_schema_metadata(), SEQ, TIME)
        except (ValueError, KeyError, StopIteration) as error:
            raise FileDamaged(
                f"{path}: the record that ends at byte {start} is not what was written: {error}; "
                "remove the file, which loses what is staged in it"
            ) from None
        yield start, publisher, batch


# --- Parquet ---


def _parts(records: Iterable[tuple[int, str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.Table]]:
    """Events by day and shape, in order of time; the same for the same records."""
    by_shape: dict[tuple[Any, ...], list[pa.Table]] = {}
    for _, publisher, batch in records:
        names = sorted(set(batch.schema.names) - {SEQ, TIME})
        publishers: pa.Array[Any] = pa.repeat(pa.scalar(publisher, pa.utf8()), batch.num_rows)
        columns = [publishers, *(batch.column(name) for name in (SEQ, TIME, *names))]
        table = pa.table(columns, names=[PUBLISHER, SEQ, TIME, *names])
        shape = tuple((field.name, str(field.type)) for field in table.schema)
        by_shape.setdefault(shape, []).append(table)
    together = [pa.concat_tables(by_shape[shape]) for shape in sorted(by_shape)]
    parts = [part for table in _few(together) for part in _by_day(table)]
    yield from sorted(parts, key=lambda part: part[0])


def _few(tables: list[pa.Table]) -> list[pa.Table]:
    """Tables of a shape each, the small ones among very many put together: a null is as good as an
    attribute that is not there.

    A publisher of a thousand kinds of events would otherwise have a thousand files written.
    """
    if len(tables) <= MAX_SHAPES:
        return tables
    tables = sorted(tables, key=lambda table: -table.num_rows)
    groups: list[_Group] = []
    for table in tables[MAX_SHAPES - 1 :]:
        if not any(group.takes(table) for group in groups):
            groups.append(_Group(table))
    return [*tables[: MAX_SHAPES - 1], *(group.table() for group in groups)]


class _Group:
    """Tables that become one, which has the columns of all."""

    def __init__(self, first: pa.Table) -> None:
        self._tables = [first]
        self._types = {field.name: field.type for field in first.schema}
        self._rows = first.num_rows

    def takes(self, table: pa.Table) -> bool:
        """Take another one, if no column has two types and not too much of it is nulls."""
        types = {field.name: field.type for field in table.schema}
        both = self._types | types
        rows = self._rows + table.num_rows
        if any(self._types.get(name, type_) != type_ for name, type_ in types.items()):
            return False
        if rows * len(both) > MAX_CELLS:
            return False
        self._tables.append(table)
        self._types, self._rows = both, rows
        return True

    def table(self) -> pa.Table:
        """All rows."""
        system = [PUBLISHER, SEQ, TIME]
        names = system + sorted(self._types.keys() - set(system))
        return pa.concat_tables(self._tables, promote_options="default").select(names)


def _by_day(together: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    table = together.sort_by([(name, "ascending") for name in (TIME, PUBLISHER, SEQ)])
    days = table.column(TIME).cast(pa.timestamp("us", "UTC")).to_numpy().astype("datetime64[D]")
    starts = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(days)]
    for start, end in pairwise(starts):
        yield str(days[start]), table.slice(start, end - start)


def _write(table: pa.Table, target: Path) -> None:
    """Write a file that is there as a whole or not at all."""
    with files.replaced(target, files.file_mode_in(target.parent)) as file:
        pq.write_table(
            table, file, compression="zstd", row_group_size=ROW_GROUP_ROWS, write_statistics=True
        )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
