"""Values: five kinds, each a totally ordered universe in which every element has a successor.

For comparing, the types of attributes fall into five *kinds*: `int64` and `float64` are one numeric
order. Values of different kinds are never equal nor ordered.

Each kind is laid on a line of *coordinates* on which every value has a next one, so that every
ordered constraint is a half-open interval `[low, high)` of coordinates and no interval carries
flags for open or closed ends: `x <= 5` ends before `successor(5)`. That makes emptiness, adjacency
and containment exact, for floats beyond 2**53 too, and it is what the matching engine ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from palio.errors import InvalidEvent, InvalidInput, LimitExceeded
from palio.model.limits import MAX_NAME_CHARS, MAX_STRING_CHARS, check_limit

Value: TypeAlias = bool | int | float | str | bytes | datetime
"""The values that an attribute may have. `None` means absence and is not one."""

Bindings: TypeAlias = Mapping[str, "Value | frozenset[Value] | tuple[Value, ...] | list[Value]"]
"""Current values of a filter's variables; a variable after `IN` holds a collection."""

NO_VALUES: Final[Bindings] = MappingProxyType({})

RESERVED: Final = frozenset(
    [
        *("AND", "BETWEEN", "CONTAINS", "EXISTS", "FALSE", "ILIKE", "IN", "INFINITY", "IS"),
        *("LIKE", "NOT", "NULL", "OR", "THEN", "TRUE", "WITHIN", "XOR"),
    ]
)
"""The reserved words of the language: an attribute of such a name is written in double quotes."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_EXACT_IN_FLOAT: Final = 2**53
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
FIRST_TIME: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_TIME: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_CODE_POINT: Final = "\U0010ffff"


class Kind(IntEnum):
    """The kinds of value, in the fixed order used wherever kinds are sorted."""

    BOOL = 0
    NUMBER = 1
    STRING = 2
    BYTES = 3
    TIME = 4

    @property
    def noun(self) -> str:
        """Its name in messages: `a number`."""
        return _NOUNS[self]


_NOUNS: Final = {
    Kind.BOOL: "a boolean",
    Kind.NUMBER: "a number",
    Kind.STRING: "a string",
    Kind.BYTES: "bytes",
    Kind.TIME: "a timestamp",
}


class _Top:
    """Greater than every coordinate; the end of every universe."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "TOP"

    def __reduce__(self) -> str:
        return "TOP"


TOP: Final = _Top()

Coordinate: TypeAlias = bool | int | float | str | bytes | _Top
"""A place on a kind's line: the value itself, microseconds since 1970 for a timestamp, or `TOP`."""


def kind_of(value: object) -> Kind:
    """The kind of a canonical value.

    >>> kind_of(True).name, kind_of(1.5).name
    ('BOOL', 'NUMBER')
    """
    try:
        return _KINDS[type(value)]
    except KeyError:
        return kind_of(checked(value))


_KINDS: Final[dict[type, Kind]] = {
    bool: Kind.BOOL,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    bytes: Kind.BYTES,
    datetime: Kind.TIME,
}


def canonical(value: object) -> Value:
    """The one representation of a value: equal numbers become identical.

    A float that is a whole number within int64 becomes that integer, so -0.0 becomes 0. Used
    wherever values are compared for identity; arithmetic keeps the difference between 2 and 2.0
    (`checked`).

    >>> canonical(2.0), canonical(-0.0), canonical(0.5)
    (2, 0, 0.5)
    """
    safe = checked(value)
    return _whole_if_exact(safe) if type(safe) is float else safe


def checked(value: object) -> Value:
    """A value of one of the model's own types, or `InvalidEvent` if the model has no such value.

    Timestamps become UTC; scalars of numpy and subclasses become plain. NaN passes: it is a value
    that satisfies no comparison.
    """
    exact = type(value)
    if exact is float or exact is bool or exact is bytes:
        return value  # type: ignore[return-value]  # `exact is` does not narrow
    if exact is str:
        return _text(value)  # type: ignore[arg-type]  # likewise
    if exact is int:
        return _integer(value)  # type: ignore[arg-type]  # likewise
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _text(str.__str__(value))  # an enumeration's own `str` would give its name
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime):
        if value != value:  # noqa: PLR0124  # NaT of pandas, a datetime that is none
            raise InvalidEvent("NaT is no time; give None, or leave the attribute out")
        return _timestamp(value)
    plain = _plain_scalar(value)
    if plain is not None:
        return checked(plain)
    raise InvalidEvent(
        f"{value!r:.80} is of type {type(value).__name__}, which is no attribute type; "
        f"use bool, int, float, str, bytes or an aware datetime{_advice(value)}"
    )


_ADVICE: Final = {
    "dict": "name nested values with points: palio.model.flatten does",
    "Fraction": "float or str of it",
    "PurePath": "str of it",
    "timedelta": "its .total_seconds()",
}
"""Advice for values of a type that is none of ours: what to give instead."""


def _advice(value: object) -> str:
    for kind in type(value).__mro__:
        if kind.__name__ in _ADVICE:
            return f"; here {_ADVICE[kind.__name__]}"
    return ""


def _plain_scalar(value: object) -> object:
    """A value of another type that is one of ours: text for a UUID and a date, the value of an
    enumeration's member, the nearest float for a `Decimal`, so that filters compare it as a number,
    and a number of numpy. None for anything else.

    Not for dates of numpy: `item` of one in nanoseconds is a bare integer.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return math.nan if value.is_nan() else float(value)
    item = getattr(value, "item", None)
    if not callable(item) or getattr(value, "ndim", 0) != 0 or _is_numpy_date(value):
        return None
    plain = item()
    return plain if isinstance(plain, bool | int | float) and plain is not value else None


def _is_numpy_date(value: object) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m")


def _integer(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        shown = f"{value}" if value.bit_length() < 256 else f"of {value.bit_length()} bits"
        raise InvalidEvent(f"integer {shown} does not fit int64; use a float or a string")
    return value


def _whole_if_exact(value: float) -> int | float:
    return int(value) if value.is_integer() and INT64_MIN <= value <= INT64_MAX else value


def _text(value: str) -> str:
    if not _is_text(value):
        raise InvalidEvent(f"{value!r:.80} holds a lone surrogate and is not text")
    return value


def _is_text(value: str) -> bool:
    """Check whether it can be encoded; a string of Python may hold halves of characters."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _timestamp(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise InvalidEvent(
            f"timestamp {value.isoformat()} has no zone; attach one, e.g. tzinfo=datetime.UTC"
        )
    try:
        shifted = value.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent(
            f"timestamp {value.isoformat()} is outside years 1 to 9999 in UTC"
        ) from None
    if type(shifted) is datetime:
        return shifted.replace(fold=0) if shifted.fold else shifted
    if getattr(value, "nanosecond", 0):
        raise InvalidEvent(
            f"timestamp {value.isoformat()} is finer than a microsecond; round it first"
        )
    return datetime.combine(shifted.date(), shifted.time(), UTC)


def check_name(name: object, error: type[InvalidInput]) -> None:
    """Refuse, with this error, what is no name: names are text, not empty, of bounded length."""
    if not isinstance(name, str) or not name:
        raise error(f"{name!r:.80} is no attribute name; use a non-empty string")
    if len(name) > MAX_NAME_CHARS:
        raise LimitExceeded(
            f"the name {name[:20]!r}...",
            limit="MAX_NAME_CHARS",
            maximum=MAX_NAME_CHARS,
            actual=len(name),
        )
    if not _is_text(name):
        raise error(f"the name {name!r} holds a lone surrogate and is not text")


def check_operand_size(value: Value) -> None:
    """Refuse an operand longer than `MAX_STRING_CHARS`."""
    if isinstance(value, str | bytes):
        check_limit("a string operand", "MAX_STRING_CHARS", MAX_STRING_CHARS, len(value))


def is_nan(value: object) -> bool:
    """Check whether a value is the float NaN."""
    return isinstance(value, float) and math.isnan(value)


def coordinate(value: Value) -> Coordinate:
    """The coordinate of a canonical value on the line of its kind (NaN has none)."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    return value


def from_coordinate(kind: Kind, place: Coordinate) -> Value:
    """The value at a coordinate: the inverse of `coordinate`."""
    assert place is not TOP
    if kind is Kind.TIME:
        assert isinstance(place, int)
        return _EPOCH + place * _MICROSECOND
    return place  # type: ignore[return-value]  # only TOP is no value, and it was excluded


def lowest(kind: Kind) -> Coordinate:
    """The first coordinate of a kind."""
    return _LOWEST[kind]


_LOWEST: Final[dict[Kind, Coordinate]] = {
    Kind.BOOL: False,
    Kind.NUMBER: -math.inf,
    Kind.STRING: "",
    Kind.BYTES: b"",
    Kind.TIME: FIRST_TIME,
}


def successor(kind: Kind, place: Coordinate) -> Coordinate:
    """The next coordinate after one.

    The numeric universe is the union of int64 and float64, so the successor of 2**53 is the integer
    2**53 + 1, and that of 1 the next float.

    >>> successor(Kind.NUMBER, 2**53), successor(Kind.STRING, "a")
    (9007199254740993, 'a\\x00')
    """
    if kind is Kind.STRING:
        return place + "\0"  # type: ignore[operator]  # a str, by its kind
    if kind is Kind.NUMBER:
        return _next_number(place)  # type: ignore[arg-type]  # a number, by its kind
    if kind is Kind.BYTES:
        return place + b"\0"  # type: ignore[operator]  # bytes, by its kind
    if kind is Kind.BOOL:
        return TOP if place else True
    return TOP if place >= LAST_TIME else place + 1  # type: ignore[operator]  # microseconds


def _next_number(number: int | float) -> int | float | _Top:
    if number == math.inf:
        return TOP
    as_float = float(number)
    above = as_float if as_float > number else math.nextafter(as_float, math.inf)
    if abs(as_float) < _EXACT_IN_FLOAT:
        return _whole_if_exact(above)
    whole = math.floor(number) + 1 if number >= INT64_MIN else INT64_MIN
    return whole if whole <= INT64_MAX and whole < above else _whole_if_exact(above)


def past_prefix(text: str) -> str | _Top:
    """The first string that is greater than every string that starts with `text`.

    >>> past_prefix("ab")
    'ac'
    """
    stripped = text.rstrip(_LAST_CODE_POINT)
    if not stripped:
        return TOP
    code = ord(stripped[-1]) + 1
    if 0xD800 <= code <= 0xDFFF:  # surrogates are not text; the next code point that is
        code = 0xE000
    return stripped[:-1] + chr(code)


def past_prefix_bytes(data: bytes) -> bytes | _Top:
    """`past_prefix` for bytes."""
    stripped = data.rstrip(b"\xff")
    if not stripped:
        return TOP
    return stripped[:-1] + bytes([stripped[-1] + 1])
