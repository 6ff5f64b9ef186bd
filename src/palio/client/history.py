"""`history`: the events of an archive that match a filter, in order of time.

Days do not overlap, so they are read one by one. The files of a day are merged: a piece of each is
in memory, and events before the earliest end of these pieces are sorted and yielded. The statistics
of Parquet's row groups skip some groups, and the matching engine decides exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.client.archive import DAY, as_events, part_files
from palio.errors import InvalidInput, LimitExceeded
from palio.matching.index import Index
from palio.model.constraints import Constraint
from palio.model.events import PUBLISHER, SEQ, TIME
from palio.model.filters import TRUE, Conjunction, Filter
from palio.model.operators import Op
from palio.parquet import PIECE_BYTES, matching_groups, named_errors, opened, pieces

PIECE_ROWS: Final = 1 << 16
"""Rows of a file that are read at once."""

DAY_BYTES: Final = 64 << 20
"""What is in memory of the files of a day, a piece of each, if their times overlap..."""

LEAST_PIECE_BYTES: Final = 1 << 16
"""...but a piece is no smaller, and larger if a single event is."""

MOMENT_BYTES: Final = 256 << 20
"""Events of one microsecond in a file: they are put in order before any of them is given on. A
publication, which has one time, fits into a frame of 16 MiB."""

Times = npt.NDArray[np.int64]


def history(
    path: str | Path,
    filter: Filter = TRUE,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[pa.RecordBatch]:
    """Archived events from `since` up to and without `until`, in order of publication time.

    Batches are of one shape, with the columns `$publisher`, `$seq` and `$time`. Events of one
    publisher and moment are in its order.
    """
    days: dict[str, list[Path]] = {
        folder.name.partition("=")[2]: list(files)
        for folder, files in groupby(part_files(Path(path)), key=lambda file: file.parent)
    }
    if not days:
        raise InvalidInput(f"there is no archive in {str(path)!r}: no {DAY}=*/*.parquet")
    first = "" if since is None else since.astimezone(UTC).date().isoformat()
    last = "9999-12-31" if until is None else until.astimezone(UTC).date().isoformat()
    return _of_days(
        [files for day, files in sorted(days.items()) if first <= day <= last],
        _Selection(filter, since, until),
    )


class _Selection:
    """The selection of a file's events by filter and time."""

    def __init__(self, filter: Filter, since: datetime | None, until: datetime | None) -> None:
        span = [
            Constraint.of(TIME, op, end.astimezone(UTC))
            for op, end in ((Op.GE, since), (Op.LT, until))
            if end is not None
        ]
        self._filter = Filter.of([Conjunction.of(span)]) & filter
        self._engine = Index()
        self._engine.add(0, self._filter)

    def pieces(self, path: Path, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """The wanted events of a file, in its order, so many bytes at a time."""
        with opened(path) as file:
            groups = matching_groups(file, self._filter, file.schema_arrow.names)
        for piece in pieces(path, groups=groups, most_rows=PIECE_ROWS, most_bytes=most_bytes):
            with named_errors(path):
                batch = as_events(piece, PUBLISHER, SEQ, TIME)
            rows = np.unique(self._engine.match(batch).rows)
            if len(rows):
                yield batch if len(rows) == batch.num_rows else batch.take(rows)


# --- merging ---


class _Cursor:
    """A position in a file, with the piece of it that is in memory."""

    def __init__(self, path: Path, selection: _Selection, most_bytes: int) -> None:
        self.begins = self._last = _first_time(path)
        self._path = path
        self._most_bytes = most_bytes
        self._selection = selection
        self._pieces: Iterator[pa.RecordBatch] | None = None
        self._table: pa.Table | None = None
        self._times: Times = np.empty(0, np.int64)
        self._is_last = False

    def fill(self) -> bool:
        """Read on until the piece ends later than it begins, or the file does; False at its end."""
        if self._pieces is None:
            self._pieces = self._selection.pieces(self._path, self._most_bytes)
        while not self._is_last and (not len(self._times) or self._times[0] == self._times[-1]):
            piece = next(self._pieces, None)
            if piece is None:
                self._is_last = True
                break
            self._check_order(_ticks(piece))
            tables = [] if self._table is None else [self._table]
            size = piece.nbytes + sum(table.nbytes for table in tables)
            if len(self._times) and size > MOMENT_BYTES:
                raise LimitExceeded(
                    f"events of one moment in {str(self._path)!r}",
                    limit="MOMENT_BYTES",
                    maximum=MOMENT_BYTES,
                    actual=size,
                )
            self._table = pa.concat_tables([*tables, pa.Table.from_batches([piece])])
            self._times = _ticks(self._table)
        return len(self._times) > 0

    def _check_order(self, times: Times) -> None:
        """Refuse a file in another order: to look for the events before a time would not end."""
        if (np.diff(times, prepend=self._last) < 0).any():
            raise InvalidInput(
                f"{str(self._path)!r:.200} is not in order of {TIME}; restore the file or remove it"
            )
        self._last = int(times[-1])

    @property
    def first(self) -> int:
        """The time of publication of the first event in memory."""
        return int(self._times[0])

    @property
    def known_until(self) -> float:
        """The time before which all events of the file are in memory."""
        return math.inf if self._is_last else float(self._times[-1])

    def take(self, before: float) -> pa.Table:
        """Take the events before a time out of the piece."""
        assert self._table is not None
        count = int(np.searchsorted(self._times, before))
        taken, self._table = self._table.slice(0, count), self._table.slice(count)
        self._times = self._times[count:]
        return taken


def _first_time(path: Path) -> int:
    """Return the time of publication of a file's first event."""
    with named_errors(path):
        first = next(pieces(path, columns=[TIME], most_rows=1), None)
        if first is None:
            raise ValueError("it holds no event; remove it")
        return int(_ticks(as_events(first, TIME))[0])


def _ticks(events: Any) -> Times:
    ticks: Times = events.column(TIME).cast(pa.int64()).to_numpy()
    return ticks


def _of_days(days: Sequence[Sequence[Path]], selection: _Selection) -> Iterator[pa.RecordBatch]:
    for files in days:
        most_bytes = min(PIECE_BYTES, max(LEAST_PIECE_BYTES, DAY_BYTES // len(files)))
        yield from _merged([_Cursor(file, selection, most_bytes) for file in files])


def _merged(cursors: list[_Cursor]) -> Iterator[pa.RecordBatch]:
    """The events of some files, each of which is in order of time."""
    closed = sorted(cursors, key=lambda cursor: -cursor.begins)
    opened: list[_Cursor] = []
    while closed or opened:
        opened = [cursor for cursor in opened if cursor.fill()]
        before = min((cursor.known_until for cursor in opened), default=math.inf)
        if closed and closed[-1].begins < before:
            before = closed[-1].begins
            if all(cursor.first >= before for cursor in opened):
                opened.append(closed.pop())
                continue
        yield from _in_order([cursor.take(before) for cursor in opened])


def _in_order(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of some tables by time, publisher and number, as batches of one shape."""
    filled = [table for table in tables if table.num_rows]
    if len(filled) < 2:  # a file is in order by itself
        for table in filled:
            yield from table.combine_chunks().to_batches()
        return
    by_shape: dict[pa.Schema, list[pa.Table]] = {}
    for table in filled:
        by_shape.setdefault(table.schema, []).append(table)
    shapes = [pa.concat_tables(pieces).combine_chunks() for pieces in by_shape.values()]
    places = pa.concat_tables(
        pa.table(
            {
                TIME: table.column(TIME),
                PUBLISHER: table.column(PUBLISHER),
                SEQ: table.column(SEQ),
                "shape": np.full(table.num_rows, shape),
                "row": np.arange(table.num_rows),
            }
        )
        for shape, table in enumerate(shapes)
    )
    places = places.sort_by([(name, "ascending") for name in (TIME, PUBLISHER, SEQ)])
    shape_of, row_of = (places.column(name).to_numpy() for name in ("shape", "row"))
    cuts = [0, *(np.flatnonzero(np.diff(shape_of)) + 1).tolist(), len(shape_of)]
    for start, end in pairwise(cuts):
        taken = shapes[shape_of[start]].take(pa.array(row_of[start:end]))
        yield from taken.to_batches()
