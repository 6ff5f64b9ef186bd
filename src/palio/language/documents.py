"""Reads untrusted JSON in bounded time. Two functions read it, with different limits.

`read_document` reads filters of foreign dialects, from text or from Python objects. It limits the
length of a text, then checks the result: its depth, its size, and that it is JSON. The other
functions here make the dialects' errors, which name the path of the faulty part.

`read_json` reads any other document, from bytes. It counts the values before it parses them: four
megabytes of empty lists would make a million objects, and block the loop for half a second.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from palio.errors import InvalidFilter, LimitExceeded, ParseError
from palio.model.expressions import Literal, literal
from palio.model.limits import (
    MAX_DEPTH,
    MAX_JSON_PARTS,
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    MAX_TOKENS,
    check_limit,
)
from palio.model.values import INT64_MAX, INT64_MIN

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value as `read_document` returns it."""


def read_document(document: object) -> Json:
    """Read a JSON text, or check and copy the Python objects that it stands for.

    A key that occurs twice is an error: its writer means both, and Python would drop one.
    """
    if isinstance(document, str):
        document = _parse(document)
    return _Checker().copy(document, "$", 0)


def _parse(text: str) -> object:
    check_limit("a JSON text", "MAX_TEXT_CHARS", MAX_TEXT_CHARS, len(text))
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ParseError(
            f"not JSON: {error.msg}",
            text=text,
            line=error.lineno,
            column=error.colno,
            offending=text[error.pos : error.pos + 1],
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except InvalidFilter:
        raise
    except ValueError:  # Python limits the digits of an integer that it converts
        raise InvalidFilter("a number in the JSON text has too many digits") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        repeated = next(key for key, count in keys.items() if count > 1)
        raise InvalidFilter(f"the key {quoted(repeated)} occurs twice in one JSON object; keep one")
    return document


def _too_deep() -> LimitExceeded:
    return LimitExceeded("the nesting of a JSON document", limit="MAX_DEPTH", maximum=MAX_DEPTH)


_CONTAINER_TOKENS: Final = 2
"""A list or an object becomes about this number of tokens of Palio's own language."""


class _Checker:
    """Copies a document, and raises an error if it is not finite JSON within the limits."""

    def __init__(self) -> None:
        # Objects have the limit of texts: a text has at least one character for each value.
        self._values_left = MAX_TEXT_CHARS
        self._containers_left = MAX_TOKENS // _CONTAINER_TOKENS

    def copy(self, value: object, path: str, depth: int) -> Json:
        self._values_left -= 1
        if self._values_left < 0:
            raise LimitExceeded(
                "the size of a JSON document", limit="MAX_TEXT_CHARS", maximum=MAX_TEXT_CHARS
            )
        if isinstance(value, Mapping):
            self._enter(depth)
            return {
                self._key(key, path): self.copy(inner, member_path(path, str(key)), depth + 1)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            self._enter(depth)
            return [self.copy(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise error_at(path, f"{quoted(value)} is no JSON value")

    def _enter(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise _too_deep()
        self._containers_left -= 1
        if self._containers_left < 0:
            raise LimitExceeded(
                "the lists and objects of a JSON document, each counted twice",
                limit="MAX_TOKENS",
                maximum=MAX_TOKENS,
            )

    def _key(self, key: object, path: str) -> str:
        if not isinstance(key, str):
            raise error_at(path, f"the key {quoted(key)} is no string")
        return key


def attribute_name(name: str, path: str) -> str:
    """Return a key that is valid as an attribute's name; else raise `InvalidFilter`."""
    if not name:
        raise error_at(path, "an attribute's name is empty")
    check_limit(f"the attribute name {name[:20]!r}...", "MAX_NAME_CHARS", MAX_NAME_CHARS, len(name))
    constant(name, path)  # raises an error for text that is not valid Unicode
    return name


def constant(value: str | int | float, path: str) -> Literal:
    """Convert a JSON string, number or boolean to a constant of a filter."""
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        hint = "write it as a string, or with an exponent"
        raise error_at(path, "an integer beyond 64 bits", hint)
    try:
        return literal(value)
    except LimitExceeded:
        raise
    except InvalidFilter as error:
        raise error_at(path, str(error)) from None


def error_at(path: str, problem: str, hint: str = "") -> InvalidFilter:
    """Create the error for the part of a document at a path."""
    return InvalidFilter(f"at {path}: {problem}" + (f"; {hint}" if hint else ""))


def member_path(path: str, key: str) -> str:
    """Return the path of an object's member: `$.detail.state`, `$["odd key"]`."""
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{quoted(key)}]"


_PLAIN_KEY: Final = re.compile(r"[\w$-]{1,80}")


def quoted(value: object) -> str:
    """Quote a part of a document in an error: as JSON if it is JSON, and cut to 60 characters."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."


_QUOTED_CHARS: Final = 60


# --- documents as bytes ---

_MARKS: Final = b",[{"
"""Characters before a value. Each value but the first follows one of them, outside of strings."""

_IS_MARK: Final = np.isin(np.arange(256, dtype=np.uint8), np.frombuffer(_MARKS, np.uint8))
_QUOTE: Final = ord('"')


def read_json(document: bytes) -> Any:
    """Read a document.

    Raises `ValueError` or `RecursionError` if it is not JSON, and `LimitExceeded` (a `ValueError`)
    if it has too many values.

    >>> read_json(b'{"x": [1, 2]}')
    {'x': [1, 2]}
    """
    check_parts(document)
    # `json.loads` of bytes would also accept UTF-16, in which the count assumes other characters.
    return json.loads(document.decode())


def check_parts(document: bytes) -> None:
    """Raise `LimitExceeded` if a document has more than `MAX_JSON_PARTS` values.

    >>> check_parts(b'{"x": [1, 2]}')
    """
    # Two cheap upper bounds come first: each value has at least one byte, and one mark.
    if len(document) <= MAX_JSON_PARTS:
        return
    if sum(map(document.count, (b",", b"[", b"{"))) <= MAX_JSON_PARTS:
        return
    count = _count_marks(document)
    check_limit("a JSON document's number of values", "MAX_JSON_PARTS", MAX_JSON_PARTS, count)


def _count_marks(document: bytes) -> int:
    """Count the marks outside of strings."""
    # With escape sequences removed, every quote begins or ends a string.
    unescaped = np.frombuffer(document.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    is_in_string = np.cumsum(unescaped == _QUOTE, dtype=np.uint8) & 1
    return int(np.count_nonzero(_IS_MARK[unescaped] & (is_in_string == 0)))
