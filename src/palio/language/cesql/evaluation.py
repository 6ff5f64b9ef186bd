"""Evaluation: the value of an expression for an event, and the first error on the way.

The rules, with CESQL 1.0's sections:

1. Operands are evaluated from left to right. AND and OR do not evaluate the right one when the
   left one decides (3.4.2), nor IN its further members after an equal one.
2. The first error ends the evaluation (4.1). An operator that met one in an operand has the zero
   value of its own type: `missing = 2` is false, `1 / missing` is 0 (3.2), `NOT missing` is false.
3. The operator or function that itself errs has the value that its definition prescribes, else the
   zero value: `ABS(-2147483648)` is 2147483647. A type not known counts as Boolean (3.2).
4. Operands are cast by 3.7: the left one of `=` to the type of the right one, the members of
   IN to the type of its left operand, all others to what the operator takes.
5. A result beyond 32 bits is a `math` error with the value 0: 3.3 has the kind, and no section a
   value that would be "obvious".
6. A text of more than `MAX_COMPUTED_CHARS` that an attribute has, or that a function makes, is a
   `generic` error, but where `LENGTH` takes it: evaluation has a bound.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from palio.errors import InvalidInput
from palio.language.cesql import functions, syntax
from palio.language.cesql.parsing import parse
from palio.language.cesql.values import (
    INTEGER_MAX,
    INTEGER_MIN,
    Error,
    Failed,
    Result,
    Type,
    Value,
    attribute,
    cast,
    exists,
    too_long,
)
from palio.model.functions import is_too_long
from palio.model.operators import is_like

_REMEMBERED_TEXTS: Final = 256
_REMEMBERED_CHARS: Final = 2_000
"""Texts up to this length are remembered parsed: what is in use is short, and memory is bounded."""


def evaluate(expression: str | syntax.Expression, event: Mapping[str, Any]) -> Result:
    """The value of an expression for an event, with the first error if there was one. Never raises.

    `event` holds the context attributes by name; None counts as absent.

    >>> evaluate("source LIKE '%.example' AND int(hop) < 8", {"source": "a.example", "hop": "5"})
    Result(value=True, error=None)
    >>> evaluate("sequence + 1", {}).error
    Error(kind='missingAttribute', message="the event has no attribute 'sequence'")
    """
    if isinstance(expression, str):
        try:
            expression = _parsed(expression)
        except InvalidInput as error:
            return Result(False, Error("parse", str(error)))
    try:
        return Result(_value(expression, event))
    except _CallFailed as failed:
        own = failed.value if failed.call is expression else None
        value = type_of(expression)() if own is None else own
        return Result(value, failed.error)
    except Failed as failed:
        return Result(type_of(expression)(), failed.error)


def type_of(node: syntax.Expression) -> Type:
    """The type of an expression as far as its text shows: Boolean where it does not (CESQL 3.2)."""
    match node:
        case syntax.Literal(value):
            return type(value)
        case syntax.Arithmetic() | syntax.Negate():
            return int
        case syntax.Call(name, arguments):
            function = functions.find(name, len(arguments))
            return bool if function is None else function.returns
        case _:
            return bool


class _CallFailed(Failed):
    """A function's own failure, which may come with a value of its own."""

    def __init__(self, failed: Failed, call: syntax.Call) -> None:
        super().__init__(failed.error.kind, failed.error.message, failed.value)
        self.call = call


def _parsed(text: str) -> syntax.Expression:
    return _remembered(text) if len(text) <= _REMEMBERED_CHARS else parse(text)


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _remembered(text: str) -> syntax.Expression:
    return parse(text)


def _value(node: syntax.Expression, event: Mapping[str, Any]) -> Value:
    value = _EVALUATORS[type(node)](node, event)
    if is_too_long(value) and not isinstance(node, syntax.Literal):
        raise too_long(len(value))
    return value


def _not(node: syntax.Not, event: Mapping[str, Any]) -> Value:
    return not cast(_value(node.operand, event), bool)


def _negate(node: syntax.Negate, event: Mapping[str, Any]) -> Value:
    return _within_32_bits(-_integer(_value(node.operand, event)))


def _logical(node: syntax.Logical, event: Mapping[str, Any]) -> Value:
    left = cast(_value(node.first, event), bool)
    for connective, operand in node.rest:
        if left is _DECIDED_BY.get(connective):
            continue
        right = cast(_value(operand, event), bool)
        left = left is not right if connective == "XOR" else right
    return left


_DECIDED_BY: Final = {"AND": False, "OR": True}
"""The left operand that makes the right one irrelevant."""


def _comparison(node: syntax.Comparison, event: Mapping[str, Any]) -> Value:
    left = _value(node.first, event)
    for symbol, operand in node.rest:
        right = _value(operand, event)
        if symbol in _EQUALITIES:
            left = _EQUALITIES[symbol](cast(left, type(right)), right)
        else:
            left = _ORDERS[symbol](_integer(left), _integer(right))
    return left


_EQUALITIES: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
}
_ORDERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _arithmetic(node: syntax.Arithmetic, event: Mapping[str, Any]) -> Value:
    left = _value(node.first, event)
    for symbol, operand in node.rest:
        right = _value(operand, event)
        left = _within_32_bits(_OPERATIONS[symbol](_integer(left), _integer(right)))
    return left


def _divide(left: int, right: int) -> int:
    """Rounded towards zero, unlike Python's."""
    if right == 0:
        raise Failed("math", f"division of {left} by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    """With the sign of the dividend, unlike Python's."""
    if right == 0:
        raise Failed("math", f"remainder of {left} divided by zero")
    remainder = abs(left) % abs(right)
    return remainder if left >= 0 else -remainder


_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}


def _like(node: syntax.Like, event: Mapping[str, Any]) -> Value:
    text = cast(_value(node.operand, event), str)
    assert isinstance(text, str)
    return is_like(text, syntax.our_pattern(node.pattern)) is not node.negated


def _in(node: syntax.In, event: Mapping[str, Any]) -> Value:
    left = _value(node.operand, event)
    target = type(left)
    is_member = any(cast(_value(member, event), target) == left for member in node.members)
    return is_member is not node.negated


def _call(node: syntax.Call, event: Mapping[str, Any]) -> Value:
    function = functions.find(node.name, len(node.arguments))
    if function is None:
        raise Failed("missingFunction", functions.missing(node.name, len(node.arguments)))
    arguments = []
    for place, argument in enumerate(node.arguments):
        if function.any_length:
            value = _EVALUATORS[type(argument)](argument, event)
        else:
            value = _value(argument, event)
        parameter = function.parameter(place)
        arguments.append(value if parameter is None else cast(value, parameter))
    try:
        return function.body(*arguments)
    except Failed as failed:
        raise _CallFailed(failed, node) from None


def _integer(value: Value) -> int:
    number = cast(value, int)
    assert isinstance(number, int)
    return number


def _within_32_bits(number: int) -> int:
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise Failed("math", f"{number} does not fit 32 bits")
    return number


_EVALUATORS: Final[Mapping[type[syntax.Expression], Callable[[Any, Mapping[str, Any]], Value]]] = {
    syntax.Literal: lambda node, event: node.value,
    syntax.Attribute: lambda node, event: attribute(event, node.name),
    syntax.Exists: lambda node, event: exists(event, node.name),
    syntax.Not: _not,
    syntax.Negate: _negate,
    syntax.Logical: _logical,
    syntax.Comparison: _comparison,
    syntax.Arithmetic: _arithmetic,
    syntax.Like: _like,
    syntax.In: _in,
    syntax.Call: _call,
}
