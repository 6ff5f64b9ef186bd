"""The head of an Arrow message, read before Arrow makes anything of what it refers to.

The head is a flatbuffer (Message.fbs, Schema.fbs of Arrow). A table of it is a signed distance to
its vtable, which holds a 16-bit place for each field, 0 for one that is absent. Arrow's own reader
verifies that all offsets stay within the head, and refuses those that do not. It does not mind that
many offsets lead to the same bytes, of which it makes one copy for each: so a small message would
take any amount of memory. `check_message` counts first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from palio.model.limits import MAX_ATTRIBUTES, check_limit

SYSTEM_COLUMNS: Final = 2
"""Number and time, which a broker adds to what was published."""

SCHEMA: Final = 1
DICTIONARY: Final = 2
BATCH: Final = 3

_U32: Final = struct.Struct("<I").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_U16: Final = struct.Struct("<H").unpack_from
_I16: Final = struct.Struct("<h").unpack_from
_I64: Final = struct.Struct("<q").unpack_from

_CONTINUES: Final = 0xFFFF_FFFF
_PREFIX_BYTES: Final = 8
"""Before the head of a message: `_CONTINUES` and the head's length."""

_OFFSET_BYTES: Final = 4
"""Of an element of a vector of tables or texts."""

# The places of fields in the vtables of Arrow's tables.
_KIND, _HEADER, _BODY_BYTES, _MESSAGE_PAIRS = 6, 8, 10, 12
_ENDIANNESS, _FIELDS, _SCHEMA_PAIRS = 4, 6, 8
_NAME, _TYPE_KIND, _TYPE, _CHILDREN, _FIELD_PAIRS = 4, 8, 10, 14, 16
_ZONE: Final = 6
_DICTIONARY_BATCH, _IS_DELTA = 6, 8
_BUFFERS, _COMPRESSION = 8, 10
_KEY, _VALUE = 4, 6

_TIMESTAMP: Final = 10
_FLAT: Final = frozenset({*range(1, 12), 15, 18, 19, 20, 23, 24})
"""Types of one value: all but lists, structs, unions, maps and runs."""


class CheckedMessage(NamedTuple):
    """A message that becomes no more than its own bytes."""

    kind: int
    end: int
    """Where the next message begins."""


def check_message(data: Any, start: int = 0) -> CheckedMessage | None:
    """Refuse (`ValueError`) a message of which Arrow would make more than its bytes.

    That is one that is compressed, whose buffers are the same bytes several times, or whose names
    or metadata are. Returns None for the mark that ends a stream.

    >>> import pyarrow as pa
    >>> check_message(pa.record_batch({"x": [1]}).serialize().to_pybytes()).kind == BATCH
    True
    """
    try:
        return _checked(data, start)
    except (struct.error, IndexError):
        raise ValueError("a head of Arrow that is cut off, or leads nowhere") from None


def _checked(data: Any, start: int) -> CheckedMessage | None:
    if _U32(data, start)[0] != _CONTINUES:
        raise ValueError("a message in a form of Arrow before 0.15, or no message of Arrow")
    length: int = _U32(data, start + 4)[0]
    body_at = start + _PREFIX_BYTES + length
    if length == 0:
        return None
    head = bytes(data[body_at - length : body_at])
    root = _U32(head, 0)[0]
    kind = head[_place(head, root, _KIND)]
    body_place = _place(head, root, _BODY_BYTES)
    body: int = _I64(head, body_place)[0] if body_place else 0
    if body < 0 or body_at + body > len(data):
        raise ValueError(f"a message of {body} bytes, of which {len(data) - body_at} are there")
    left = length
    for size in _copied(head, root, kind):
        left -= size
        if left < 0:
            raise ValueError(f"a head of {length} bytes whose names or metadata overlap")
    if kind != SCHEMA:
        _check_buffers(head, root, kind, body)
    return CheckedMessage(kind, body_at + body)


def _copied(head: bytes, root: int, kind: int) -> Iterator[int]:
    """The sizes of what Arrow copies out of a head, and of the offsets that lead there."""
    yield from _pairs(head, root, _MESSAGE_PAIRS)
    if kind != SCHEMA:
        return
    schema = _table(head, root, _HEADER)
    endianness = _place(head, schema, _ENDIANNESS)
    if endianness and _I16(head, endianness)[0]:
        raise ValueError("a schema of big-endian numbers; send them little-endian")
    yield from _pairs(head, schema, _SCHEMA_PAIRS)
    columns = _count(head, schema, _FIELDS)
    if columns > MAX_ATTRIBUTES + SYSTEM_COLUMNS:
        check_limit("an event's number of attributes", "MAX_ATTRIBUTES", MAX_ATTRIBUTES, columns)
    for field in _tables(head, schema, _FIELDS):
        type_kind = head[_place(head, field, _TYPE_KIND)]
        if type_kind not in _FLAT or _count(head, field, _CHILDREN):
            name = _text(head, field, _NAME)
            raise ValueError(
                f"column {name!r:.60} is of a type with parts; an attribute is one value"
            )
        yield _OFFSET_BYTES + _text_bytes(head, field, _NAME)
        if type_kind == _TIMESTAMP:
            yield _text_bytes(head, _table(head, field, _TYPE), _ZONE)
        yield from _pairs(head, field, _FIELD_PAIRS)


def _pairs(head: bytes, table: int, field: int) -> Iterator[int]:
    """The sizes of keys and values of metadata."""
    for pair in _tables(head, table, field):
        yield _OFFSET_BYTES + _text_bytes(head, pair, _KEY) + _text_bytes(head, pair, _VALUE)


def _check_buffers(head: bytes, root: int, kind: int, body: int) -> None:
    """Refuse a batch, or a dictionary, whose body would become more than it is."""
    if kind not in (BATCH, DICTIONARY):
        raise ValueError(f"a message of kind {kind}, which is neither schema nor batch")
    batch = _table(head, root, _HEADER)
    if kind == DICTIONARY:
        if _place(head, batch, _IS_DELTA):  # Arrow joins it to the others before it validates it
            raise ValueError("a dictionary in parts; send each whole")
        batch = _table(head, batch, _DICTIONARY_BATCH)
    if _place(head, batch, _COMPRESSION):
        raise ValueError("a batch that is compressed; send it uncompressed")
    buffers = _table(head, batch, _BUFFERS)
    lengths = struct.unpack_from(f"<{2 * _U32(head, buffers)[0]}q", head, buffers + 4)[1::2]
    if any(length < 0 for length in lengths):
        raise ValueError("a batch with a buffer of less than no bytes")
    if sum(lengths) > body:
        raise ValueError(f"a batch whose buffers overlap: {sum(lengths)} bytes out of {body}")


def _place(data: bytes, table: int, field: int) -> int:
    """The place of a table's field; 0 if it is absent."""
    vtable = table - _I32(data, table)[0]
    if field >= _U16(data, vtable)[0]:
        return 0
    offset: int = _U16(data, vtable + field)[0]
    return table + offset if offset else 0


def _table(data: bytes, table: int, field: int) -> int:
    """The place of the table, vector or text that a field refers to."""
    place = _place(data, table, field)
    if not place:
        raise ValueError("a head of Arrow without what it is about")
    target: int = place + _U32(data, place)[0]
    return target


def _count(head: bytes, table: int, field: int) -> int:
    """The number of elements of a vector, or of bytes of a text; 0 if it is absent."""
    count: int = _U32(head, _table(head, table, field))[0] if _place(head, table, field) else 0
    return count


_text_bytes: Final = _count


def _tables(head: bytes, table: int, field: int) -> Iterator[int]:
    """The places of the tables of a vector."""
    count = _count(head, table, field)
    first = _table(head, table, field) + 4 if count else 0
    for place in range(first, first + 4 * count, 4):
        yield place + _U32(head, place)[0]


def _text(head: bytes, table: int, field: int) -> str:
    at = _table(head, table, field) + 4
    return head[at : at + _count(head, table, field)].decode(errors="replace")
