"""Arithmetic and the small set of functions that residual expressions may use.

The rules are Spark SQL's where it has one, except that all errors of Spark under
ANSI mode are unknown here: a filter must have an answer for every event. Integers stay within int64
or become unknown; `/` is always a division of floats; `%` takes the sign of the dividend.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeGuard

import msgspec

from palio.errors import InvalidFilter
from palio.model.limits import MAX_COMPUTED_CHARS
from palio.model.values import INT64_MAX, INT64_MIN, Kind, Value, kind_of


class TextTooLong(Exception):
    """A text on the way is too long to compute with: the result is unknown."""


def is_too_long(value: object) -> TypeGuard[str | bytes]:
    """Check whether a value is a text (or bytes) that no residual computes with.

    >>> is_too_long("a" * 4_096), is_too_long("a" * 4_097)
    (False, True)
    """
    return isinstance(value, _TEXTS) and len(value) > MAX_COMPUTED_CHARS


_TEXTS: Final = (str, bytes)

CASE_COST: Final = 64
"""The cost of a change of case, in the units of `MAX_RESIDUAL_COST`: each letter is looked up, and
the slowest take 20 ns."""

_TRIM_COST: Final = 28


def arithmetic(symbol: str, left: Value | None, right: Value | None) -> Value | None:
    """`left symbol right` on numbers; None (unknown) for anything that has no answer.

    >>> arithmetic("*", 3, 1.5), arithmetic("/", 1, 0), arithmetic("%", -7, 3)
    (4.5, None, -1)
    """
    if not _is_number(left) or not _is_number(right):
        return None
    if symbol == "/" or isinstance(left, float) or isinstance(right, float):
        return _float_arithmetic(symbol, float(left), float(right))  # type: ignore[arg-type]
    if symbol == "%":
        return None if right == 0 else _remainder(left, right)  # type: ignore[arg-type]
    return _within_int64(_WHOLE[symbol](left, right))


_WHOLE: Final[dict[str, Callable[[Any, Any], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _remainder(left: int, right: int) -> int:
    size = abs(left) % abs(right)
    return -size if left < 0 else size


def _float_arithmetic(symbol: str, left: float, right: float) -> Value | None:
    if symbol in ("/", "%"):
        if right == 0.0:
            return None
        if symbol == "%":
            return None if math.isinf(left) else math.fmod(left, right)
        return left / right
    return float(_WHOLE[symbol](left, right))


def _is_number(value: Value | None) -> bool:
    return type(value) is int or isinstance(value, float)


def _within_int64(value: int) -> int | None:
    return value if INT64_MIN <= value <= INT64_MAX else None


class Function(msgspec.Struct, frozen=True):
    """A function: how many arguments, of which kinds, what it costs, and the work itself.

    `kinds` has the kind expected of each argument (None: any); the last one repeats.
    An argument that is unknown or of another kind makes the result unknown, unless `total`. A text
    may have `MAX_COMPUTED_CHARS`; a single one `any_length`, where nothing is made of it.
    """

    name: str
    kinds: tuple[Kind | None, ...]
    arity: tuple[int, int]
    work: Callable[..., Value | None]
    result: Kind | None
    cost: int = 2
    total: bool = False
    any_length: bool = False

    def apply(self, arguments: Sequence[Value | None]) -> Value | None:
        """The function's value; None where an argument does not fit, `TextTooLong` where one is a
        text that it cannot take.
        """
        if not self.total:
            takes_any = self.any_length and len(arguments) == 1
            for place, argument in enumerate(arguments):
                expected = self.kinds[min(place, len(self.kinds) - 1)]
                if argument is None or (expected is not None and kind_of(argument) is not expected):
                    return None
                if not takes_any and is_too_long(argument):
                    raise TextTooLong
        return self.work(*arguments)

    def check(self, count: int) -> None:
        """Refuse a wrong number of arguments."""
        least, most = self.arity
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise InvalidFilter(f"{self.name} takes {wanted} arguments, not {count}")


def _to_whole(rounded: Callable[[float], int]) -> Callable[[Any], Value | None]:
    def work(number: int | float) -> Value | None:
        if isinstance(number, int):
            return number
        return None if not math.isfinite(number) else _within_int64(rounded(number))

    return work


def _half_away(number: float) -> int:
    whole = math.floor(abs(number))
    up = abs(number) - whole >= 0.5
    return int(math.copysign(whole + up, number))


def _absolute(number: int | float) -> Value | None:
    return _within_int64(abs(number)) if isinstance(number, int) else abs(number)


def _root(number: int | float) -> Value | None:
    return math.sqrt(number) if number >= 0 else None


def _length(text: Value) -> Value | None:
    return len(text) if isinstance(text, str | bytes) else None


def _substring(text: str, start: int | float, length: int | float | None = None) -> Value | None:
    """SQL's: places count from 1, a negative start from the end."""
    if isinstance(start, float) or isinstance(length, float):
        return None
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(0, first) : max(0, last)]


def _concat(*texts: str) -> str:
    if len(texts) > 1 and sum(map(len, texts)) > MAX_COMPUTED_CHARS:
        raise TextTooLong
    return "".join(texts)  # a single one is not copied


def _coalesce(*arguments: Value | None) -> Value | None:
    return next((argument for argument in arguments if argument is not None), None)


_MANY: Final = 64
_STRING: Final = (Kind.STRING,)
_NUMBER: Final = (Kind.NUMBER,)
_ONE: Final = (1, 1)

FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        Function("ABS", _NUMBER, _ONE, _absolute, Kind.NUMBER),
        Function("CEIL", _NUMBER, _ONE, _to_whole(math.ceil), Kind.NUMBER),
        Function("COALESCE", (None,), (1, _MANY), _coalesce, None, total=True),
        Function("CONCAT", _STRING, (1, _MANY), _concat, Kind.STRING, 4, any_length=True),
        Function("FLOOR", _NUMBER, _ONE, _to_whole(math.floor), Kind.NUMBER),
        Function("LENGTH", (None,), _ONE, _length, Kind.NUMBER, any_length=True),
        Function("LOWER", _STRING, _ONE, str.lower, Kind.STRING, CASE_COST),
        Function("ROUND", _NUMBER, _ONE, _to_whole(_half_away), Kind.NUMBER),
        Function("SQRT", _NUMBER, _ONE, _root, Kind.NUMBER),
        Function("SUBSTRING", (Kind.STRING, Kind.NUMBER), (2, 3), _substring, Kind.STRING, 4),
        Function("TRIM", _STRING, _ONE, lambda text: text.strip(" "), Kind.STRING, _TRIM_COST),
        Function("UPPER", _STRING, _ONE, str.upper, Kind.STRING, CASE_COST),
    )
}
"""Every function by name. An expression that calls anything else is refused when it is read."""
