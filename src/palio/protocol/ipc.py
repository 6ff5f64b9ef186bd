"""What the head of an Arrow message says, read before Arrow makes anything of its body.

The head is a flatbuffer (Message.fbs of Arrow); a table of it is a signed distance to its vtable,
which holds a 16-bit place for each field, 0 for one that is absent. An offset that leads elsewhere
than Arrow's own reader would follow is refused by that reader, which verifies all of them.
"""

from __future__ import annotations

import struct
from typing import Any, Final

__all__ = ["check_batch_message", "is_compressed"]

_U32: Final = struct.Struct("<I").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_U16: Final = struct.Struct("<H").unpack_from

_CONTINUES: Final = 0xFFFF_FFFF
_PREFIX_BYTES: Final = 8
"""Before the head of a message: `_CONTINUES` and the head's length."""

_DICTIONARY: Final = 2
_BATCH: Final = 3

_KIND, _HEADER = 6, 8
"""Where the vtable of a message has its kind, and its table of that kind."""

_DICTIONARY_BATCH: Final = 6
_BUFFERS, _COMPRESSION = 8, 10
"""Where the vtable of a batch has the places of its buffers, and its compression."""


def is_compressed(head: Any, start: int = 0) -> bool:
    """Whether the body that belongs to a head is to be inflated.

    >>> import pyarrow as pa
    >>> is_compressed(pa.record_batch({"x": [1]}).serialize().to_pybytes(), 8)
    False
    """
    root = start + _U32(head, start)[0]
    kind_at = _place(head, root, _KIND)
    kind = head[kind_at] if kind_at else 0
    if kind not in (_BATCH, _DICTIONARY):
        return False
    batch = _table(head, root, _HEADER)
    if kind == _DICTIONARY:
        batch = _table(head, batch, _DICTIONARY_BATCH)
    return _place(head, batch, _COMPRESSION) > 0


def check_batch_message(message: bytes) -> None:
    """Refuse (`ValueError`) a batch message whose body would become more than it is.

    That is one that is compressed, and one of whose buffers several are the same bytes.
    """
    if _U32(message)[0] != _CONTINUES:
        raise ValueError("a batch in a form of Arrow before 0.15")
    root = _PREFIX_BYTES + _U32(message, _PREFIX_BYTES)[0]
    batch = _table(message, root, _HEADER)
    if _place(message, batch, _COMPRESSION):
        raise ValueError("a batch that is compressed; Palio's frames are not")
    buffers = _table(message, batch, _BUFFERS)
    count = 2 * _U32(message, buffers)[0]
    taken = sum(struct.unpack_from(f"<{count}q", message, buffers + 4)[1::2])
    if taken > len(message):
        raise ValueError(f"a batch whose buffers overlap: {taken} bytes out of {len(message)}")


def _place(data: Any, table: int, field: int) -> int:
    """Where a table's field is; 0 if it is absent."""
    vtable = table - _I32(data, table)[0]
    if field >= _U16(data, vtable)[0]:
        return 0
    offset: int = _U16(data, vtable + field)[0]
    return table + offset if offset else 0


def _table(data: Any, table: int, field: int) -> int:
    """Where the table or vector is that a field refers to."""
    place = _place(data, table, field)
    if not place:
        raise ValueError("a head of Arrow without what it is about")
    target: int = place + _U32(data, place)[0]
    return target
