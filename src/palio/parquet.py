"""The one reader of Parquet: in pieces of bounded size, whatever a file unpacks to.

A column of Parquet may hold each text once and name it a million times: 14 kilobytes that are 20
gigabytes of events. So, whoever wrote a file:

1. Texts stay as they are stored, as places in a dictionary, until it is known how large some rows
   are without it. Only then are these unpacked, `PIECE_BYTES` of them at a time.
2. How many rows are decoded in one go follows from what the file says about its columns. An
   encoding in which a text continues the one before counts for all it may come to.
3. A row that is larger than any event, and a column of a row group that is larger than
   `MAX_COLUMN_BYTES`, are refused with a `LimitExceeded`.
4. A header that would end the process is refused before Arrow looks at it (parquet_header.py).

Row groups in which a filter can match nothing are passed over (`matching_groups`): their bounds are
a filter too, and both together contradict themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from palio.errors import InvalidEvent, InvalidInput, LimitExceeded, PalioError
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op
from palio.parquet_header import check_header

__all__ = [
    "MAX_COLUMN_BYTES",
    "MAX_ROW_BYTES",
    "PIECE_BYTES",
    "PIECE_ROWS",
    "matching_groups",
    "named_errors",
    "opened",
    "pieces",
]

PIECE_ROWS: Final = 1 << 16
"""Rows of a piece, if they are small."""

PIECE_BYTES: Final = 4 << 20
"""A piece is no larger, but for a single row: some dozens are under way when they are published."""

MAX_ROW_BYTES: Final = 16 << 20
"""No event is larger: it would not fit into a frame."""

MAX_COLUMN_BYTES: Final = 1 << 30
"""A column of a row group, as it is stored but not compressed. Common writers begin another row
group long before; reading one may take as much memory."""

_CONTINUED: Final = "DELTA_BYTE_ARRAY"
"""The encoding in which a text is the beginning of the one before, and what follows."""


@contextmanager
def named_errors(path: str | Path) -> Iterator[None]:
    """What Arrow says of a file that it cannot read, with the file's name."""
    try:
        yield
    except Exception as error:  # whatever parsers make of hostile bytes
        if isinstance(error, PalioError) and not isinstance(error, InvalidEvent):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidInput(f"cannot read {str(path)!r:.200}: {reason}") from None


@contextmanager
def opened(path: str | Path) -> Iterator[pq.ParquetFile]:
    """A file whose header is in order, of which INT96 is read as microseconds: in nanoseconds there
    would be nothing before 1677 or after 2262.
    """
    with named_errors(path), pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        check_header(path, file.metadata)
        yield file


def _packed(path: str | Path) -> pq.ParquetFile:
    """A file whose texts are read as places in dictionaries."""
    with opened(path) as file:
        metadata = file.metadata
    texts = {
        column.path
        for column in (metadata.schema.column(at) for at in range(metadata.num_columns))
        if column.physical_type == "BYTE_ARRAY"
    }
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in (group.column(at) for at in range(group.num_columns)):
            if any("DELTA" in each for each in column.encodings):  # Arrow reads these plain only
                texts.discard(column.path_in_schema)
    return pq.ParquetFile(
        path,
        metadata=metadata,
        read_dictionary=sorted(texts),
        coerce_int96_timestamp_unit="us",
    )


def pieces(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
    most_rows: int = PIECE_ROWS,
    most_bytes: int = PIECE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in order, in batches of the types of its columns.

    Of `columns`, which may be paths of fields, those that the file lacks are left out; a file that
    has none of them gives its first column, so that there are as many rows.
    """
    with named_errors(path), _packed(path) as file:
        wanted = None if columns is None else _present(file, columns)
        for group in range(file.num_row_groups) if groups is None else groups:
            step = _rows_at_once(file.metadata.row_group(group), wanted, most_rows, most_bytes)
            for batch in file.iter_batches(
                step, row_groups=[group], columns=wanted, use_threads=False
            ):
                batch.validate(full=True)  # before anything follows offsets, or reads a text
                yield from _split(batch, most_bytes)


def _present(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    leaves = [file.schema.column(at).path for at in range(len(file.schema))]
    return [each for each in columns if any(_is_within(leaf, [each]) for leaf in leaves)] or [
        *file.schema_arrow.names[:1]
    ]


def matching_groups(file: pq.ParquetFile, filter: Filter, attributes: Collection[str]) -> list[int]:
    """The row groups in which a filter may be true of an event, by the bounds of their columns.

    `attributes` are the columns that are attributes: others are absent, whatever is in them.
    """
    halves = {each.name for each in file.schema_arrow if pa.types.is_float16(each.type)}
    bounded = filter.attributes.intersection(attributes) - halves  # whose bounds are bytes
    absent = [Constraint.of(name, Op.ABSENT) for name in filter.attributes.difference(attributes)]
    found = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        bounds = [each for column in columns for each in _bounds(column, bounded)]
        both = Filter.of([Conjunction.of(absent + bounds)]) & filter
        if not all(each.is_contradiction for each in both.conjunctions):
            found.append(number)
    return found


def _bounds(column: Any, bounded: Collection[str]) -> list[Constraint]:
    """The least and the greatest value of a column, unless one is absent: that may be just what is
    asked for.
    """
    name, statistics = column.path_in_schema, column.statistics
    if name not in bounded or not statistics or statistics.null_count != 0:
        return []
    try:
        if not statistics.has_min_max:
            return []
        return [
            Constraint.of(name, Op.GE, statistics.min),
            Constraint.of(name, Op.LE, statistics.max),
        ]
    except (InvalidInput, pa.ArrowException, ValueError, OverflowError):
        return []  # of a type that is no attribute's, or beyond what the model holds


def _rows_at_once(group: Any, wanted: Sequence[str] | None, most_rows: int, most_bytes: int) -> int:
    """How many rows are decoded in one go."""
    row_bytes = 0.0
    for at in range(group.num_columns):
        column = group.column(at)
        if wanted is not None and not _is_within(column.path_in_schema, wanted):
            continue
        size = column.total_uncompressed_size
        if size > MAX_COLUMN_BYTES:
            raise LimitExceeded(
                f"column {column.path_in_schema!r:.100} of a row group, unpacked,",
                limit="MAX_COLUMN_BYTES",
                maximum=MAX_COLUMN_BYTES,
                actual=size,
            )
        row_bytes += size if _CONTINUED in column.encodings else size / max(1, group.num_rows)
    return max(1, min(most_rows, int(most_bytes / max(1.0, row_bytes))))


def _is_within(path: str, wanted: Sequence[str]) -> bool:
    return any(path == each or path.startswith(f"{each}.") for each in wanted)


def _split(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """A batch in parts of bounded size, unpacked."""
    size = sum(map(_unpacked_bytes, batch.columns))
    if size <= most_bytes or batch.num_rows == 1:
        if batch.num_rows == 1 and size > MAX_ROW_BYTES:
            raise LimitExceeded("a row", limit="MAX_ROW_BYTES", maximum=MAX_ROW_BYTES, actual=size)
        yield _unpacked(batch)
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half), most_bytes)
    yield from _split(batch.slice(half), most_bytes)


def _unpacked_bytes(array: Any) -> int:
    """How large an array is once its dictionaries are unpacked."""
    if isinstance(array, pa.DictionaryArray):
        texts: Any = array.dictionary
        lengths: Any = pc.binary_length(texts)
        total: Any = pc.sum(lengths.take(array.indices))  # as int64
        return 5 * len(array) + (total.as_py() or 0)
    if isinstance(array, pa.StructArray):
        return sum(map(_unpacked_bytes, array.flatten()))
    if isinstance(array, pa.MapArray):  # which is a list as well, and has no `flatten`
        offsets: Any = array.offsets
        first, end = offsets[0].as_py(), offsets[-1].as_py()
        parts = (array.keys.slice(first, end - first), array.items.slice(first, end - first))
        return 5 * len(array) + sum(map(_unpacked_bytes, parts))
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return 5 * len(array) + _unpacked_bytes(array.flatten())
    return int(array.nbytes)


def _unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _plain(type_: Any) -> pa.DataType:
    """A type without dictionaries."""
    if isinstance(type_, pa.DictionaryType):
        return _plain(type_.value_type)
    if isinstance(type_, pa.MapType):
        return pa.map_(_plain(type_.key_type), _plain(type_.item_type))
    if isinstance(type_, pa.FixedSizeListType):
        value = type_.value_field.with_type(_plain(type_.value_type))
        return pa.list_(value, type_.list_size)
    if isinstance(type_, pa.ListType):
        return pa.list_(type_.value_field.with_type(_plain(type_.value_type)))
    if isinstance(type_, pa.LargeListType):
        return pa.large_list(type_.value_field.with_type(_plain(type_.value_type)))
    if isinstance(type_, pa.StructType):
        return pa.struct([field.with_type(_plain(field.type)) for field in type_])
    found: pa.DataType = type_
    return found
