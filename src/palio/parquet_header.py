"""What a Parquet file's header says of its columns, compared with its schema before Arrow does.

Arrow compares some of it when a column of a row group is asked about, and ends the process where
they differ: its exception has nobody to go to. So before anybody asks, `check_header` reads what
Arrow would compare (types, and the sizes of `SizeStatistics`) and raises an error.

A header is a structure of Thrift in its compact protocol. All but the way to these is passed over:

    FileMetaData 4: row groups -> RowGroup 1: columns -> ColumnChunk 3: meta_data
    -> ColumnMetaData 1: type, 16: size_statistics
    -> 1: bytes of texts, 2: repetition, 3: definition levels
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from palio.errors import InvalidInput

__all__ = ["check_header"]

MAX_NESTING: Final = 64
"""Structures within structures: Thrift's own limit."""

MOST_KNOWN: Final = 256
"""Headers that are known to be in order, by a checksum of 32 bytes."""

_in_order: Final[dict[bytes, None]] = {}

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
    """Refuse a file whose header says of a column what its schema does not allow.

    `metadata` is what Arrow has read of it. A header that was in order is not read again for each
    row group that somebody asks for.
    """
    data = _header_of(path)
    header = _Header(data, metadata)
    known = sha256(repr(header.levels).encode() + data).digest()
    if known in _in_order:
        return
    try:
        header.check()
    except (IndexError, _Contradiction) as error:
        what = str(error) if isinstance(error, _Contradiction) else "it ends too early"
        raise InvalidInput(f"cannot read {str(path)!r:.200}: of its header, {what}") from None
    if len(_in_order) >= MOST_KNOWN:
        _in_order.clear()
    _in_order[known] = None


class _Contradiction(Exception):
    """What is wrong with a header."""


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
            (each.path, each.max_repetition_level, each.max_definition_level, each.physical_type)
            for each in (schema.column(at) for at in range(len(schema)))
        ]
        """What the schema says of each column."""

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
        said = self._zigzag() if type_ in _INTEGERS else -1
        if said != _PHYSICAL.index(physical):
            raise _Contradiction(
                f"column {path!r:.100} is said to be of type {said}, and {physical}"
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
        """Read each item of a list, whatever its type is said to be, as Arrow does: how many."""
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
            for each in types:
                self._skip(each, depth + 1, is_item=True)
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
