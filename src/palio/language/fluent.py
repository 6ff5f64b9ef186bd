"""Filters as Python expressions: `(attr.price < param.limit) & attr.symbol.isin("IBM", "MSFT")`.

These build the very objects that parsing text builds; nothing here is a second kind of filter.

>>> from palio import attr, param
>>> str((attr.price < param.limit) & attr.symbol.isin("IBM", "MSFT"))
"price < :limit AND symbol IN ('IBM', 'MSFT')"
"""

from __future__ import annotations

import re
from typing import Any, Final

from palio.errors import InvalidFilter
from palio.language import hints
from palio.model.expressions import (
    All,
    Arithmetic,
    Attribute,
    Call,
    Literal,
    Scalar,
    Variable,
    check_depth,
    literal,
    test,
)
from palio.model.filters import Filter, reduce
from palio.model.functions import FUNCTIONS
from palio.model.limits import MAX_IN_VALUES, check_limit
from palio.model.operators import Op
from palio.model.values import Kind, check_name


class Term:
    """A value in an expression: an attribute, a parameter, or something computed from them.

    Comparing it gives a `Filter`; arithmetic gives another term. A further attribute access extends
    an attribute's dotted name: `attr.data.price`; `attr["data.contains"]` takes any name at all.
    """

    __slots__ = ("_scalar",)

    def __init__(self, scalar: Scalar) -> None:
        self._scalar = scalar

    def __getattr__(self, name: str) -> Term:
        if name.startswith("_") or not isinstance(self._scalar, Attribute):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return attr[f"{self._scalar.name}.{name}"]

    def __lt__(self, other: object) -> Filter:
        return self._compared(Op.LT, other)

    def __le__(self, other: object) -> Filter:
        return self._compared(Op.LE, other)

    def __gt__(self, other: object) -> Filter:
        return self._compared(Op.GT, other)

    def __ge__(self, other: object) -> Filter:
        return self._compared(Op.GE, other)

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]  # a filter, not a verdict
        return self._compared(Op.EQ, other)

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]  # likewise
        return self._compared(Op.NE, other)

    __hash__ = None  # type: ignore[assignment]  # equality builds a filter, so terms cannot be keys

    def __invert__(self) -> Filter:
        return ~(self == True)  # noqa: E712  # the filter "is true", negated

    def isin(self, *members: object, ignore_case: bool = False) -> Filter:
        """One of several values: `attr.symbol.isin("IBM", "MSFT")`, or of a list or parameter."""
        if len(members) == 1 and isinstance(members[0], Term):
            scalar = members[0]._scalar  # a parameter may be a collection
            operand = scalar if isinstance(scalar, Variable) else (scalar,)
            return self._tested(Op.IN, operand, ignore_case)
        if len(members) == 1 and isinstance(members[0], list | tuple | set | frozenset):
            members = tuple(members[0])
        check_limit("an IN list", "MAX_IN_VALUES", MAX_IN_VALUES, len(members))
        return self._tested(Op.IN, tuple(_scalar(member) for member in members), ignore_case)

    def between(self, low: object, high: object) -> Filter:
        """Within two bounds, both included."""
        subject = self._scalar
        return reduce(
            All((test(subject, Op.GE, _scalar(low)), test(subject, Op.LE, _scalar(high))))
        )

    def startswith(self, prefix: object, *, ignore_case: bool = False) -> Filter:
        """Text (or bytes) that starts with a prefix."""
        return self._tested(Op.PREFIX, _scalar(prefix), ignore_case)

    def endswith(self, suffix: object, *, ignore_case: bool = False) -> Filter:
        """Text (or bytes) that ends with a suffix."""
        return self._tested(Op.SUFFIX, _scalar(suffix), ignore_case)

    def contains(self, piece: object, *, ignore_case: bool = False) -> Filter:
        """Text (or bytes) with a piece somewhere in it."""
        return self._tested(Op.CONTAINS, _scalar(piece), ignore_case)

    def like(self, pattern: object, *, ignore_case: bool = False) -> Filter:
        """SQL's LIKE: `%` any text, `_` one character, a backslash takes the next one literally."""
        return self._tested(Op.LIKE, _scalar(pattern), ignore_case)

    def equals(self, text: object, *, ignore_case: bool = False) -> Filter:
        """Equality; with `ignore_case` by Unicode case folding."""
        return self._tested(Op.EQ, _scalar(text), ignore_case)

    def in_cidr(self, block: object) -> Filter:
        """An IP address within a block: `attr.source_ip.in_cidr("10.0.0.0/8")`."""
        return self._tested(Op.CIDR, _scalar(block), False)

    def exists(self) -> Filter:
        """Present, with any value."""
        return self._tested(Op.EXISTS, None, False)

    def is_null(self) -> Filter:
        """Absent."""
        return self._tested(Op.ABSENT, None, False)

    def __add__(self, other: object) -> Term:
        return _arithmetic("+", self, other)

    def __radd__(self, other: object) -> Term:
        return _arithmetic("+", other, self)

    def __sub__(self, other: object) -> Term:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: object) -> Term:
        return _arithmetic("-", other, self)

    def __mul__(self, other: object) -> Term:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: object) -> Term:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: object) -> Term:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: object) -> Term:
        return _arithmetic("/", other, self)

    def __mod__(self, other: object) -> Term:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: object) -> Term:
        return _arithmetic("%", other, self)

    def __neg__(self) -> Term:
        return _arithmetic("-", 0, self)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no truth value; compare it, and combine filters with & | ~")

    def __repr__(self) -> str:
        from palio.model.printing import show_scalar

        return f"<{show_scalar(self._scalar)}>"

    def _compared(self, op: Op, other: object) -> Filter:
        return self._tested(op, _scalar(other), False)

    def _tested(self, op: Op, operand: Any, ignore_case: bool) -> Filter:
        return reduce(test(self._scalar, op, operand, ignore_case))


class _Names:
    """`attr.price`, `attr["unit price"]`, and `param` likewise."""

    __slots__ = ("_make",)

    def __init__(self, make: Any) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Term:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Term:
        check_name(name, InvalidFilter)
        return Term(self._make(name))


def _variable(name: str) -> Variable:
    if not _PARAMETER.fullmatch(name):
        raise InvalidFilter(f"{name!r} is no parameter name; use letters, digits and underscores")
    return Variable(name)


_PARAMETER: Final = re.compile(r"[^\W\d]\w*")  # as the lexer reads it

attr: Final = _Names(Attribute)
"""Attributes by name."""

param: Final = _Names(_variable)
"""Parameters by name."""


def call(function: str, *arguments: object) -> Term:
    """A function of the language: `call("LENGTH", attr.name) > 3`."""
    signature = FUNCTIONS.get(function.upper())
    if signature is None:
        hint = hints.of_function(function) or f"there are {', '.join(sorted(FUNCTIONS))}"
        raise InvalidFilter(f"unknown function {function!r}; {hint}")
    signature.check(len(arguments))
    called = Call(signature.name, tuple(_scalar(argument) for argument in arguments))
    check_depth(called)
    return Term(called)


def _scalar(value: object) -> Scalar:
    return value._scalar if isinstance(value, Term) else literal(value)


def _arithmetic(symbol: str, left: object, right: object) -> Term:
    operands = (_scalar(left), _scalar(right))
    for operand in operands:
        if isinstance(operand, Literal) and operand.kind is not Kind.NUMBER:
            raise InvalidFilter(f"{symbol} needs numbers, not {operand.kind.noun}")
    computed = Arithmetic(symbol, *operands)
    check_depth(computed)
    return Term(computed)
