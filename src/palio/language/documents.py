"""Untrusted JSON: parsed in bounded time; filters of foreign dialects, named by path in errors.

A JSON parser reads a document in one go. Four megabytes of empty lists are a million objects and
take half a second to create and free. So the parts of a document are counted before it is parsed.
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
    """A dialect's JSON text, or the objects that such a text means, checked to be JSON.

    A key that occurs twice is refused: its writer means both, and JSON readers keep one.
    """
    if isinstance(document, str):
        document = _parsed(document)
    return _Checker().checked(document, "$", 0)


def _parsed(text: str) -> object:
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
    except ValueError:  # Python's guard against converting endless digits
        raise InvalidFilter("a number in the JSON text has too many digits") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        twice = next(key for key, count in keys.items() if count > 1)
        raise InvalidFilter(f"the key {shown(twice)} occurs twice in one JSON object; keep one")
    return document


def _too_deep() -> LimitExceeded:
    return LimitExceeded("the nesting of a JSON document", limit="MAX_DEPTH", maximum=MAX_DEPTH)


_CONTAINER_TOKENS: Final = 2
"""A list or an object becomes about this number of tokens of our own language."""


class _Checker:
    """Copies a document, so that nothing but finite JSON within the limits gets further."""

    def __init__(self) -> None:
        self._left = MAX_TEXT_CHARS  # a text of that many characters holds no more values
        self._containers = MAX_TOKENS // _CONTAINER_TOKENS

    def checked(self, value: object, path: str, depth: int) -> Json:
        self._left -= 1
        if self._left < 0:
            raise LimitExceeded(
                "the size of a JSON document", limit="MAX_TEXT_CHARS", maximum=MAX_TEXT_CHARS
            )
        if isinstance(value, Mapping):
            self._enter(depth)
            return {
                self._key(key, path): self.checked(inner, at(path, str(key)), depth + 1)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            self._enter(depth)
            return [self.checked(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise wrong(path, f"{shown(value)} is no JSON value")

    def _enter(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise _too_deep()
        self._containers -= 1
        if self._containers < 0:
            raise LimitExceeded(
                "the lists and objects of a JSON document, each counted twice",
                limit="MAX_TOKENS",
                maximum=MAX_TOKENS,
            )

    def _key(self, key: object, path: str) -> str:
        if not isinstance(key, str):
            raise wrong(path, f"the key {shown(key)} is no string")
        return key


def attribute_name(name: str, path: str) -> str:
    """A key as the name of an attribute."""
    if not name:
        raise wrong(path, "an attribute's name is empty")
    check_limit(f"the attribute name {name[:20]!r}...", "MAX_NAME_CHARS", MAX_NAME_CHARS, len(name))
    constant(name, path)  # what is no text is no name
    return name


def constant(value: str | int | float, path: str) -> Literal:
    """A JSON string, number or boolean as a constant of a filter."""
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise wrong(path, "an integer beyond 64 bits", "write it as a string, or with an exponent")
    try:
        return literal(value)
    except LimitExceeded:
        raise
    except InvalidFilter as error:
        raise wrong(path, str(error)) from None


def wrong(path: str, problem: str, hint: str = "") -> InvalidFilter:
    """The error for the part at a path of the document."""
    return InvalidFilter(f"at {path}: {problem}" + (f"; {hint}" if hint else ""))


def at(path: str, key: str) -> str:
    """The path of a member: `$.detail.state`, `$["odd key"]`."""
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{shown(key)}]"


_PLAIN_KEY: Final = re.compile(r"[\w$-]{1,80}")


def shown(value: object) -> str:
    """A part of a document as an error shows it: JSON where it is, and short."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


_SHOWN_CHARS: Final = 60


# --- documents as bytes ---

_MARKS: Final = b",[{"
"""Each part of a document but the first has one of these before it; in a text they mean nothing."""

_IS_MARK: Final = np.isin(np.arange(256, dtype=np.uint8), np.frombuffer(_MARKS, np.uint8))
_QUOTE: Final = ord('"')


def read_json(document: bytes) -> Any:
    """Read a document; `ValueError` or `RecursionError` if it is no JSON, and of the former
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
    check_limit("a JSON document's number of values", "MAX_JSON_PARTS", MAX_JSON_PARTS, count)


def _parts(document: bytes) -> int:
    """Marks outside of texts. Without what is escaped, every quote begins or ends a text."""
    bare = np.frombuffer(document.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    is_inside = np.cumsum(bare == _QUOTE, dtype=np.uint8) & 1
    return int(np.count_nonzero(_IS_MARK[bare] & (is_inside == 0)))
