"""The one reader of Parquet: in pieces of bounded size, whatever a file unpacks to.

A column of Parquet may hold each text once and name it a million times: 14 kilobytes that are 20
gigabytes of events. So, for files of any origin:

1. Texts stay as they are stored, as places in a dictionary, until it is known how large some rows
   are without it. Only then are these unpacked, `PIECE_BYTES` of them at a time.
2. The number of rows decoded at once follows from the file's statistics of its columns. An
   encoding in which a text continues the one before counts for all it may come to.
3. A row that is larger than any event, and a column of a row group that is larger than
   `MAX_COLUMN_BYTES`, are refused with a `LimitExceeded`.
4. A header that would end the process is refused before Arrow looks at it.

Row groups in which a filter can match nothing are passed over (`matching_groups`): their bounds are
a filter too, and both together contradict themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from palio.bounded import Bounded
from palio.errors import InvalidEvent, InvalidInput, LimitExceeded, PalioError
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op

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
    """Raise Arrow's errors about a file that it cannot read with the file's name."""
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
            # Arrow reads these plain only.
            if any("DELTA" in encoding for encoding in column.encodings):
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
    return [column for column in columns if any(_is_within(leaf, [column]) for leaf in leaves)] or [
        *file.schema_arrow.names[:1]
    ]


def matching_groups(file: pq.ParquetFile, filter: Filter, attributes: Collection[str]) -> list[int]:
    """The row groups in which a filter may be true of an event, by the bounds of their columns.

    `attributes` are the columns that are attributes: others are absent, whatever is in them.
    """
    halves = {field.name for field in file.schema_arrow if pa.types.is_float16(field.type)}
    bounded = filter.attributes.intersection(attributes) - halves  # whose bounds are bytes
    absent = [Constraint.of(name, Op.ABSENT) for name in filter.attributes.difference(attributes)]
    groups = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        bounds = [bound for column in columns for bound in _bounds(column, bounded)]
        both = Filter.of([Conjunction.of(absent + bounds)]) & filter
        if not all(conjunction.is_contradiction for conjunction in both.conjunctions):
            groups.append(number)
    return groups


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
    """Return the number of rows to decode at once."""
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
    return any(path == name or path.startswith(f"{name}.") for name in wanted)


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
    """Return the size of an array with its dictionaries unpacked."""
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
    plain: pa.DataType = type_
    return plain


# --- the header, compared with the schema before Arrow does ---
#
# Arrow compares some of it when a column of a row group is asked about, and ends the process where
# they differ: its exception has nobody to go to. So before anybody asks, `check_header` reads what
# Arrow would compare (types, and the sizes of `SizeStatistics`) and raises an error.
#
# A header is a structure of Thrift in its compact protocol. All but the way to these is passed
# over:
#
#     FileMetaData 4: row groups -> RowGroup 1: columns -> ColumnChunk 3: meta_data
#     -> ColumnMetaData 1: type, 16: size_statistics
#     -> 1: bytes of texts, 2: repetition, 3: definition levels


MAX_NESTING: Final = 64
"""Structures within structures: Thrift's own limit."""

MOST_KNOWN: Final = 256
"""Headers that are known to be in order, by a checksum of 32 bytes."""

_in_order: Final = Bounded[bytes, None](MOST_KNOWN)

_TAIL_BYTES: Final = 8
"""The length of the header, and `PAR1`, at the end of the file."""

_BINARY: Final = 8
_LISTS: Final = (9, 10)
_MAP: Final = 11
_STRUCT: Final = 12
_FIXED: Final = {3: 1, 7: 8, 13: 16}
"""Types of a fixed number of bytes: a byte, a double, a UUID."""
_BOOLEANS: Final = (1, 2)
_INTEGERS: Final = (4, 5, 6)

_PHYSICAL: Final = (
    *("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY"),
    "FIXED_LEN_BYTE_ARRAY",
)
"""Types of columns by their numbers."""


def check_header(path: str | Path, metadata: Any) -> None:
    """Refuse a file whose header contradicts its schema.

    `metadata` is what Arrow has read of it. A header that was in order is not read again for each
    row group that somebody asks for.
    """
    data = _header_of(path)
    header = _Header(data, metadata)
    digest = sha256(repr(header.levels).encode() + data).digest()
    if digest in _in_order:
        return
    try:
        header.check()
    except (IndexError, _Contradiction) as error:
        problem = str(error) if isinstance(error, _Contradiction) else "it ends too early"
        raise InvalidInput(f"cannot read {str(path)!r:.200}: of its header, {problem}") from None
    _in_order[digest] = None


class _Contradiction(Exception):
    """The fault of a header."""


def _header_of(path: str | Path) -> bytes:
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - _TAIL_BYTES - length))
        return file.read(length)


class _Header:
    """Walks through a header, each byte once."""

    def __init__(self, data: bytes, metadata: Any) -> None:
        self._data = data
        self._at = 0
        schema = metadata.schema
        self.levels = [
            (
                column.path,
                column.max_repetition_level,
                column.max_definition_level,
                column.physical_type,
            )
            for column in (schema.column(at) for at in range(len(schema)))
        ]
        """Path, levels and type of each column by the schema."""

    def check(self) -> None:
        """Raise what is wrong."""
        self._fields({4: self._row_groups})

    def _row_groups(self, type_: int) -> None:
        self._each(type_, lambda _: self._fields({1: self._column_chunks}))

    def _column_chunks(self, type_: int) -> None:
        self._each(type_, self._column_chunk)

    def _column_chunk(self, number: int) -> None:
        if number >= len(self.levels):
            raise _Contradiction(f"a row group has more columns than its schema, {number + 1}")
        self._fields({3: lambda type_: self._column(type_, number)})

    def _column(self, type_: int, number: int) -> None:
        self._struct(
            type_,
            {
                1: lambda type_: self._physical(type_, number),
                16: lambda type_: self._sizes(type_, number),
            },
        )

    def _physical(self, type_: int, number: int) -> None:
        path, _, _, physical = self.levels[number]
        declared = self._zigzag() if type_ in _INTEGERS else -1
        if declared != _PHYSICAL.index(physical):
            raise _Contradiction(
                f"column {path!r:.100} has type {declared} in the header, {physical} in the schema"
            )

    def _sizes(self, type_: int, number: int) -> None:
        path, repetition, definition, physical = self.levels[number]

        def of_texts(type_: int) -> None:
            if physical != "BYTE_ARRAY":
                raise _Contradiction(f"column {path!r:.100} counts bytes of texts, and has none")
            self._skip(type_)

        def levels(most: int) -> Callable[[int], None]:
            def of(type_: int) -> None:
                count = self._each(type_, lambda _: self._varint())
                if count not in (0, most + 1):
                    raise _Contradiction(f"column {path!r:.100} has {count} levels, not {most + 1}")

            return of

        self._struct(type_, {1: of_texts, 2: levels(repetition), 3: levels(definition)})

    # --- the compact protocol ---

    def _fields(self, wanted: dict[int, Callable[[int], None]], depth: int = 0) -> None:
        """The fields of a structure: those that are wanted are handed their type."""
        for number, type_ in self._field_heads():
            if number in wanted:
                wanted[number](type_)
            else:
                self._skip(type_, depth + 1)

    def _struct(self, type_: int, wanted: dict[int, Callable[[int], None]]) -> None:
        if type_ == _STRUCT:
            self._fields(wanted)
        else:
            self._skip(type_)

    def _field_heads(self) -> Iterator[tuple[int, int]]:
        number = 0
        while head := self._byte():
            step, type_ = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            if not type_:
                return
            yield number, type_

    def _each(self, type_: int, read: Callable[[int], Any]) -> int:
        """Read each item of a list of any declared type, as Arrow does, and count them."""
        if type_ not in _LISTS:
            self._skip(type_)
            return 0
        count, _ = self._list_head()
        for place in range(count):
            read(place)
        return count

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        return (head >> 4 if head < 0xF0 else self._varint()), head & 15

    def _skip(self, type_: int, depth: int = 0, *, is_item: bool = False) -> None:
        if depth > MAX_NESTING:
            raise _Contradiction(f"structures are nested deeper than {MAX_NESTING}")
        if type_ in _INTEGERS:
            self._varint()
        elif type_ in _BOOLEANS:
            self._at += is_item
        elif type_ in _FIXED:
            self._at += _FIXED[type_]
        elif type_ == _BINARY:
            size = self._varint()
            self._at += size
        elif type_ in _LISTS:
            count, own = self._list_head()
            self._skip_items(count, (own,), depth)
        elif type_ == _MAP:
            count = self._varint()
            types = self._byte() if count else 0
            self._skip_items(count, (types >> 4, types & 15), depth)
        elif type_ == _STRUCT:
            self._fields({}, depth)
        else:
            raise _Contradiction(f"something is of type {type_}, which there is not")

    def _skip_items(self, count: int, types: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for kind in types:
                self._skip(kind, depth + 1, is_item=True)
            if self._at > len(self._data):
                raise IndexError

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
