"""CESQL's types, errors and casts, and how an event's attributes are seen (CESQL 3.1 to 3.3, 3.7).

Every CESQL operator and function is total: where it errs it still returns a value. `Result`
carries both. Inside the evaluator an error travels as the exception `Failed`, because evaluation
stops at the first one ("fail fast", CESQL 4.1, which 1.2 asks of an engine that filters).

An attribute of a type that CESQL lacks is seen as a String, in the canonical form of CloudEvents:
bytes in base64, a timestamp in RFC 3339 (UTC, `Z`). What CloudEvents lacks too is seen likewise: a
float as the shortest decimal that reads back, an integer beyond 32 bits as its digits.

CESQL assumes a valid, type-checked CloudEvent (section 1). So an attribute that CloudEvents
defines as a string and that is none makes a `generic` error; it is not cast.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from palio.model.functions import is_too_long
from palio.model.limits import MAX_COMPUTED_CHARS
from palio.model.values import Value as AttributeValue
from palio.model.values import checked

Value: TypeAlias = bool | int | str
"""The three types of CESQL: Boolean, Integer (32 bits, signed) and String."""

Type: TypeAlias = type[bool] | type[int] | type[str]
"""A CESQL type is the Python type of its values; calling it makes its zero value (CESQL 3.1)."""

INTEGER_MIN: Final = -(2**31)
INTEGER_MAX: Final = 2**31 - 1

REQUIRED_ATTRIBUTES: Final = frozenset({"id", "source", "specversion", "type"})
"""The attributes of every CloudEvent: `EXISTS` is always true of them (CESQL 3.4.4)."""

STRING_ATTRIBUTES: Final = REQUIRED_ATTRIBUTES | {"datacontenttype", "dataschema", "subject"}
"""The attributes that CloudEvents itself defines as strings (`time` is a timestamp)."""

_SCALARS: Final = (bool, int, float, str, bytes, bytearray, memoryview, datetime)
_INTEGER_TEXT: Final = re.compile(r"[+-]?0*([0-9]{1,10})")
_TYPE_NAMES: Final[Mapping[type, str]] = {bool: "Boolean", int: "Integer", str: "String"}
_SHOWN_CHARS: Final = 60


ErrorKind: TypeAlias = Literal[
    "parse",
    "math",
    "cast",
    "missingFunction",
    "functionEvaluation",
    "missingAttribute",
    "generic",
]
"""The error types of CESQL 3.3, spelled as its conformance tests spell them."""


class Error(NamedTuple):
    """The first error of an evaluation: its kind for programs, a message for people."""

    kind: ErrorKind
    message: str


class Result(NamedTuple):
    """The value of an expression, and the error that occurred on the way or None.

    >>> from palio.language import cesql
    >>> value, error = cesql.evaluate("5 / 0", {})
    >>> value, error.kind
    (0, 'math')
    """

    value: Value
    error: Error | None = None

    @property
    def matches(self) -> bool:
        """True if an event with this result passes a filter: true, and no error (CESQL 1.2)."""
        return self.value is True and self.error is None


class Failed(Exception):
    """An error on its way up.

    `value` is what the failing operator itself returns, or None for the zero value of its type.
    """

    def __init__(self, kind: ErrorKind, message: str, value: Value | None = None) -> None:
        super().__init__(message)
        self.error = Error(kind, message)
        self.value = value


def attribute(event: Mapping[str, Any], name: str) -> Value:
    """The value of an attribute, as CESQL sees it.

    >>> attribute({"myext": b"hi"}, "myext")
    'aGk='
    """
    raw = event.get(name)
    if type(raw) is str:
        return raw
    if raw is None:
        raise Failed("missingAttribute", f"the event has no attribute {name!r}")
    if not isinstance(raw, _SCALARS) and not hasattr(raw, "item"):  # which scalars of numpy have
        raise Failed("generic", f"attribute {name!r} is {type(raw).__name__}, not a single value")
    try:
        value = checked(raw)
    except ValueError as error:  # InvalidEvent, or an integer too long to be shown
        raise Failed("generic", f"attribute {name!r}: {error}") from None
    if type(value) is str:
        return value
    if is_too_long(value):
        raise too_long(len(value))
    if name in STRING_ATTRIBUTES:
        raise Failed(
            "generic",
            f"attribute {name!r} is {type(value).__name__}, but CloudEvents defines it as a string",
        )
    if type(value) is bool or (type(value) is int and INTEGER_MIN <= value <= INTEGER_MAX):
        return value
    return text_of(value)


def too_long(length: int) -> Failed:
    """The error of a text that nothing is computed with."""
    return Failed(
        "generic",
        f"a text of {length} characters; MAX_COMPUTED_CHARS = {MAX_COMPUTED_CHARS} is the most",
    )


def exists(event: Mapping[str, Any], name: str) -> bool:
    """Evaluate `EXISTS name`: null is absent, and a CloudEvent has its required attributes."""
    return name in REQUIRED_ATTRIBUTES or event.get(name) is not None


def text_of(value: AttributeValue) -> str:
    """The String that an attribute's value, or a CESQL value, is seen as.

    >>> text_of(True), text_of(9.5), text_of(datetime(2024, 5, 17, 8, 30, tzinfo=UTC))
    ('true', '9.5', '2024-05-17T08:30:00Z')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
    return repr(value)


def cast(value: Value, target: Type) -> Value:
    """A value as another type (CESQL 3.7), or `Failed` with kind `cast`.

    >>> cast("-007", int), cast(2, bool), cast(True, str)
    (-7, True, 'true')
    """
    source = type(value)
    return value if source is target else _CASTS[source, target](value)


def _string_to_integer(value: str) -> int:
    digits = _INTEGER_TEXT.fullmatch(value)
    if digits is not None:
        number = -int(digits[1]) if value[0] == "-" else int(digits[1])
        if INTEGER_MIN <= number <= INTEGER_MAX:
            return number
    raise _cannot_cast(value, int)


def _string_to_boolean(value: str) -> bool:
    lowered = value.lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    raise _cannot_cast(value, bool)


def _cannot_cast(value: str, target: Type) -> Failed:
    shown = value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "..."
    return Failed("cast", f"the String {shown!r} is no {_TYPE_NAMES[target]}")


_CASTS: Final[Mapping[tuple[type, Type], Callable[[Any], Value]]] = {
    (bool, int): int,
    (bool, str): text_of,
    (int, bool): bool,
    (int, str): text_of,
    (str, bool): _string_to_boolean,
    (str, int): _string_to_integer,
}
