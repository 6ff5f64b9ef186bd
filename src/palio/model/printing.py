"""Canonical text: what `str` of a filter, a constraint or an expression gives, and parses back to
it.

Attribute names are bare where the grammar allows it and quoted otherwise; parentheses are only
where precedence needs them.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from palio.model.operators import Op
from palio.model.values import RESERVED

if TYPE_CHECKING:
    from palio.model.expressions import Scalar, Test

_BARE_NAME: Final = re.compile(r"[^\W\d][\w$]*(?:\.\w[\w$]*)*|\$\w+")
_UNITS: Final = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
    ("us", timedelta(microseconds=1)),
)


def show_name(name: str) -> str:
    """An attribute's name as the grammar reads it.

    >>> show_name("data.price"), show_name("unit price"), show_name("and")
    ('data.price', '"unit price"', '"and"')
    """
    if _BARE_NAME.fullmatch(name) and name.upper() not in RESERVED:
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def show_value(value: Any) -> str:
    """A constant as the grammar reads it.

    >>> show_value("it's"), show_value(True), show_value(b"\\x01")
    ("'it''s'", 'TRUE', "X'01'")
    """
    if type(value) is int:
        return repr(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat().replace('+00:00', 'Z')}'"
    if isinstance(value, float) and abs(value) == float("inf"):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


def show_duration(duration: timedelta) -> str:
    """A duration in the largest unit that keeps it whole: `30s`.

    >>> show_duration(timedelta(minutes=2)), show_duration(timedelta(seconds=90))
    ('2m', '90s')
    """
    for unit, size in _UNITS:
        if duration % size == timedelta(0):
            return f"{duration // size}{unit}"
    raise AssertionError("a timedelta is a whole number of microseconds")


def show_test(check: Test) -> str:
    """A test of any expression: `bid > ask * 1.01`."""
    return show_comparison(show_scalar(check.subject), check.op, check.operand, check.ignore_case)


def show_comparison(subject: str, op: Op, operand: Any, ignore_case: bool) -> str:
    """A test of something that is printed already: `price < 5`."""
    if operand is None:
        return f"{subject} {op.value}"
    if type(operand) is tuple:
        shown = f"({', '.join(map(_show_operand, operand))})"
    else:
        shown = _show_operand(operand)
    return f"{subject} {op.value} {shown}{' IGNORE CASE' if ignore_case else ''}"


def _show_operand(expression: Scalar) -> str:
    """The text of an operand, or of one of thousands in a list: most are constants."""
    value = getattr(expression, "value", None)
    return show_scalar(expression) if value is None else show_value(value)


_PRECEDENCE: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_ATOM: Final = 3


def show_scalar(expression: Scalar) -> str:
    """A scalar expression."""
    return _scalar(expression)[0]


def _scalar(expression: Scalar) -> tuple[str, int]:
    """The text of an expression and its precedence."""
    from palio.model.expressions import Arithmetic, Attribute, Call, Literal, Variable

    match expression:
        case Literal():
            return show_value(expression.value), _ATOM
        case Variable(name):
            return f":{name}", _ATOM
        case Attribute(name):
            return show_name(name), _ATOM
        case Call(function, arguments):
            return (
                f"{function}({', '.join(show_scalar(argument) for argument in arguments)})",
                _ATOM,
            )
        case Arithmetic(operator, left, right):
            own = _PRECEDENCE[operator]
            left_text, left_level = _scalar(left)
            right_text, right_level = _scalar(right)
            if left_level < own:
                left_text = f"({left_text})"
            if right_level <= own:  # operators of one level associate to the left
                right_text = f"({right_text})"
            return f"{left_text} {operator} {right_text}", own


def shown_without(record: Any, *secrets: str) -> str:
    """The `repr` of a dataclass, a named tuple or a struct without some fields.

    >>> from typing import NamedTuple
    >>> class Door(NamedTuple):
    ...     url: str
    ...     token: str
    >>> shown_without(Door("palio://localhost", "eyJh..."), "token")
    "Door(url='palio://localhost', token=...)"
    """
    names: tuple[str, ...] = type(record).__match_args__
    fields = [
        f"{name}=..." if name in secrets and value else f"{name}={value!r}"
        for name, value in ((name, getattr(record, name)) for name in names)
    ]
    return f"{type(record).__name__}({', '.join(fields)})"
