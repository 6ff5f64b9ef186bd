"""Which values of the data model CESQL sees as a given String, or as one that a pattern matches.

CESQL sees the bytes `b"hi"` as `aGk=` and the float 5.5 as `5.5`. So `ext = 'aGk='` is true of a
string and of those bytes; a filter that means the same has to name both.
"""

from __future__ import annotations

import string
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from palio.errors import InvalidEvent
from palio.language.cesql.patterns import like, segments
from palio.language.cesql.values import text_of
from palio.model.values import Kind, Value, canonical, checked, is_nan, kind_of

__all__ = ["only_strings_match", "seen_as"]


def seen_as(text: str) -> tuple[Value, ...] | None:
    """All values whose text this is, the string first; None where the model cannot name just these.

    To the model 5 and 5.0 are one number, to CESQL they are two texts; and nothing equals NaN.

    >>> seen_as("IBM.N"), seen_as("aGk="), seen_as("5")
    (('IBM.N',), ('aGk=', b'hi'), None)
    """
    others = [value for value in _readings(text) if text_of(value) == text]
    if any(_is_ambiguous(value) for value in others):
        return None
    return (text, *others)


def _readings(text: str) -> Iterator[Value]:
    """The values that a text could stand for; the caller checks whether it does."""
    yield from (True, False)
    with suppress(InvalidEvent, ValueError):
        yield checked(int(text))
    with suppress(ValueError):
        yield float(text)
    with suppress(ValueError):
        yield b64decode(text, validate=True)
    with suppress(InvalidEvent, ValueError):
        yield checked(datetime.fromisoformat(text))


def _is_ambiguous(value: Value) -> bool:
    if kind_of(value) is not Kind.NUMBER:
        return False
    return is_nan(value) or isinstance(canonical(value), int)


_ALPHABETS: Final = (
    frozenset(string.digits + "+-.einfa"),  # numbers, nan and inf among them
    frozenset(string.digits + "-:.TZ"),  # timestamps
    frozenset(string.ascii_letters + string.digits + "+/="),  # bytes
)
"""The characters of the texts of each kind of value that has too many texts to try."""


def only_strings_match(pattern: str) -> bool:
    """Whether a LIKE pattern certainly matches the text of no value but strings.

    >>> only_strings_match("com.example.%"), only_strings_match("%commerce%")
    (True, False)
    """
    if like("true", pattern) or like("false", pattern):
        return False
    required = {
        character
        for segment in segments(pattern)
        for literal in segment
        for character in literal or ""
    }
    return not any(required <= alphabet for alphabet in _ALPHABETS)
