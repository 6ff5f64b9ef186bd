"""The functions of CESQL (3.5), and the casting functions that its conformance tests call.

`find` selects a function by its name and its number of arguments. The evaluation casts the
arguments to the parameters' types before it calls the body. A body that fails raises `Failed`, with
the value that CESQL prescribes beside the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from palio.language.cesql.values import (
    INTEGER_MAX,
    INTEGER_MIN,
    Failed,
    Type,
    Value,
    cast,
    too_long,
)
from palio.model.limits import MAX_COMPUTED_CHARS

_WHITESPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode's White_Space property; `str.strip()` also strips U+001C to U+001F, which lack it."""


class Function(msgspec.Struct, frozen=True):
    """One overload of a function."""

    name: str
    parameters: tuple[Type | None, ...]
    """The types of its fixed parameters; None accepts any type."""
    returns: Type
    body: Callable[..., Value]
    variadic: Type | None = None
    """The type of each argument after the fixed ones; None: it accepts no such arguments."""
    any_length: bool = False
    """Whether it accepts texts of more than `MAX_COMPUTED_CHARS`."""

    def accepts(self, count: int) -> bool:
        """Check whether it accepts that number of arguments."""
        fixed = len(self.parameters)
        return count == fixed or (self.variadic is not None and count > fixed)

    def parameter(self, index: int) -> Type | None:
        """Return the type to which an argument is cast; None: any type."""
        return self.parameters[index] if index < len(self.parameters) else self.variadic


def find(name: str, count: int) -> Function | None:
    """Return the overload of a name (in upper case) that accepts that number of arguments.

    >>> find("SUBSTRING", 3).parameters == (str, int, int), find("SUBSTRING", 1)
    (True, None)
    """
    return next(
        (candidate for candidate in FUNCTIONS.get(name, ()) if candidate.accepts(count)), None
    )


def missing(name: str, count: int) -> str:
    """Return the error's text for a call that matches no overload."""
    overloads = FUNCTIONS.get(name)
    if overloads is None:
        return f"there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}"
    arities = " or ".join(
        f"{len(overload.parameters)}{' or more' if overload.variadic else ''}"
        for overload in overloads
    )
    return f"{name} takes {arities} arguments, not {count}"


def _absolute(number: int) -> int:
    if number == INTEGER_MIN:
        raise Failed("math", f"ABS({number}) does not fit 32 bits", INTEGER_MAX)
    return abs(number)


def _left(text: str, count: int) -> str:
    if count < 0:
        raise Failed("functionEvaluation", f"LEFT of {count} characters", text)
    return text[:count]


def _right(text: str, count: int) -> str:
    if count < 0:
        raise Failed("functionEvaluation", f"RIGHT of {count} characters", text)
    return text[max(0, len(text) - count) :]


def _substring(text: str, position: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise Failed("functionEvaluation", f"SUBSTRING of length {length}", "")
    if abs(position) > len(text):
        raise Failed(
            "functionEvaluation", f"SUBSTRING from {position} of {len(text)} characters", ""
        )
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start:] if length is None else text[start : start + length]


def _is(target: Type) -> Callable[[Value], bool]:
    def castable(value: Value) -> bool:
        try:
            cast(value, target)
        except Failed:
            return False
        return True

    return castable


def _to(target: Type) -> Callable[[Value], Value]:
    return lambda value: cast(value, target)


def _join(delimiter: str, *texts: str) -> str:
    length = sum(map(len, texts)) + len(delimiter) * (len(texts) - 1)
    if length > MAX_COMPUTED_CHARS:
        raise too_long(length)
    return delimiter.join(texts)


def _by_name(*functions: Function) -> Mapping[str, tuple[Function, ...]]:
    named: dict[str, tuple[Function, ...]] = {}
    for function in functions:
        named[function.name] = (*named.get(function.name, ()), function)
    return named


_ANY: Final[tuple[Any, ...]] = (None,)

FUNCTIONS: Final = _by_name(
    Function("ABS", (int,), int, _absolute),
    Function("BOOL", _ANY, bool, _to(bool)),
    Function("CONCAT", (), str, lambda *texts: _join("", *texts), variadic=str),
    Function("CONCAT_WS", (str,), str, _join, variadic=str),
    Function("INT", _ANY, int, _to(int)),
    Function("IS_BOOL", _ANY, bool, _is(bool)),
    Function("IS_INT", _ANY, bool, _is(int)),
    Function("LEFT", (str, int), str, _left),
    Function("LENGTH", (str,), int, len, any_length=True),
    Function("LOWER", (str,), str, str.lower),
    Function("RIGHT", (str, int), str, _right),
    Function("STRING", _ANY, str, _to(str)),
    Function("SUBSTRING", (str, int), str, _substring),
    Function("SUBSTRING", (str, int, int), str, _substring),
    Function("TRIM", (str,), str, lambda text: text.strip(_WHITESPACE)),
    Function("UPPER", (str,), str, str.upper),
)
"""The overloads of every function, by its name in upper case."""
