"""JSON from outside, read in bounded time: its parts are counted before it is read.

A JSON reader reads a document whole, in one go. Four megabytes of empty lists are a million objects
and take half a second to make and to let go of.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from palio.errors import LimitExceeded
from palio.model.limits import MAX_JSON_PARTS

__all__ = ["check_parts", "read_json"]

_MARKS: Final = b",[{"
"""Each part of a document but the first has one of these before it; in a text they mean nothing."""

_IS_MARK: Final = np.isin(np.arange(256, dtype=np.uint8), np.frombuffer(_MARKS, np.uint8))
_QUOTE: Final = ord('"')


def read_json(document: bytes) -> Any:
    """What a document says; `ValueError` or `RecursionError` if it is no JSON, and of the former
    `LimitExceeded` if it has too many values.

    >>> read_json(b'{"x": [1, 2]}')
    {'x': [1, 2]}
    """
    check_parts(document)
    return json.loads(document.decode())  # in UTF-8 as RFC 8259 wants it, since so it was counted


def check_parts(document: bytes) -> None:
    """Refuse (`LimitExceeded`) a document of more than `MAX_JSON_PARTS` values.

    >>> check_parts(b'{"x": [1, 2]}')
    """
    if len(document) <= MAX_JSON_PARTS:
        return
    if sum(map(document.count, (b",", b"[", b"{"))) <= MAX_JSON_PARTS:
        return
    count = _parts(document)
    if count > MAX_JSON_PARTS:
        raise LimitExceeded(
            "a JSON document's number of values",
            limit="MAX_JSON_PARTS",
            maximum=MAX_JSON_PARTS,
            actual=count,
        )


def _parts(document: bytes) -> int:
    """Marks outside of texts. Without what is escaped, every quote begins or ends a text."""
    bare = np.frombuffer(document.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    is_inside = np.cumsum(bare == _QUOTE, dtype=np.uint8) & 1
    return int(np.count_nonzero(_IS_MARK[bare] & (is_inside == 0)))
