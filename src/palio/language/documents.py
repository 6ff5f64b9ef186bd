"""JSON documents of foreign dialects: read, checked, and spoken of by path in errors."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeAlias

from palio.errors import InvalidFilter, LimitExceeded, ParseError
from palio.model.expressions import Literal, literal
from palio.model.limits import MAX_DEPTH, MAX_NAME_CHARS, MAX_TEXT_CHARS, MAX_TOKENS
from palio.model.values import INT64_MAX, INT64_MIN

__all__ = ["Json", "at", "attribute_name", "constant", "read_document", "shown", "wrong"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value as `read_document` returns it."""


def read_document(document: object) -> Json:
    """A dialect's JSON text, or the objects that such a text stands for, checked to be JSON.

    A key that occurs twice is refused: its writer means both, and JSON readers keep one.
    """
    if isinstance(document, str):
        document = _parsed(document)
    return _Checker().checked(document, "$", 0)


def _parsed(text: str) -> object:
    if len(text) > MAX_TEXT_CHARS:
        raise LimitExceeded(
            "a JSON text", limit="MAX_TEXT_CHARS", maximum=MAX_TEXT_CHARS, actual=len(text)
        )
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
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        twice = next(key for key, count in keys.items() if count > 1)
        raise InvalidFilter(f"the key {shown(twice)} occurs twice in one JSON object; keep one")
    return found


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
            return [self.checked(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
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
    if len(name) > MAX_NAME_CHARS:
        raise LimitExceeded(
            f"the attribute name {name[:20]!r}...",
            limit="MAX_NAME_CHARS",
            maximum=MAX_NAME_CHARS,
            actual=len(name),
        )
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
    """The error for what stands at a path of the document."""
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
