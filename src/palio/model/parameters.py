"""Refuses values of parameters that are valid but probably mistakes, where a program passes them.

A broker accepts every value with which the filter is valid (`binding.py`). With three kinds of such
values a subscription would receive nothing, and nobody would notice why: a single value where `IN`
takes a list, a number written as a text where order counts, and a value of another kind than the
one that it replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from palio.errors import InvalidBinding
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Test, Variable
from palio.model.filters import Filter
from palio.model.operators import MEMBERSHIP, ORDER, Op
from palio.model.patterns import Pattern
from palio.model.values import Bindings, Kind, kind_of

_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.IGNORECASE)

_NUMBER_CHARS: Final = 40
"""Characters of the longest number that people write."""

_Leaf: TypeAlias = "Constraint | Residual"


def check_given(filter: Filter | Pattern, values: Bindings) -> None:
    """Refuse values that a filter cannot use, or that are probably mistakes.

    >>> import palio
    >>> check_given(palio.parse("symbol IN :names"), {"names": "IBM"})
    Traceback (most recent call last):
    palio.errors.InvalidBinding: parameter :names is one value where IN takes a list; pass ['IBM']
    """
    filter.bind(values)
    for leaf, op, name in _compared(filter):
        value = values[name]
        if op in MEMBERSHIP and not isinstance(value, tuple | list | set | frozenset):
            raise InvalidBinding(
                f"parameter :{name} is one value where {op.value} takes a list; "
                f"pass [{value!r:.80}]",
                name=name,
            )
        if op in ORDER and _is_written_number(value):
            raise InvalidBinding(
                f"parameter :{name} is the text {value!r}, and no number is above or below a text; "
                f"pass a number, or, where texts are meant, write it into the filter: "
                f"{leaf.substitute({name: value})!s:.200}",
                name=name,
            )


def check_kept(before: Bindings, after: Bindings) -> None:
    """Refuse values of another kind than those that they replace.

    >>> check_kept({"limit": 5}, {"limit": 7.5})
    >>> check_kept({"limit": 5}, {"limit": "high"})
    Traceback (most recent call last):
    palio.errors.InvalidBinding: parameter :limit is a number, and 'high' is a string; ...
    """
    for name, value in after.items():
        if name not in before or value is before[name]:
            continue
        was, is_now = _kind(before[name]), _kind(value)
        if was is not is_now:
            raise InvalidBinding(
                f"parameter :{name} is {was.noun}, and {value!r:.40} is {is_now.noun}; "
                "with replace() the filter may take values of another kind",
                name=name,
            )


def _compared(filter: Filter | Pattern) -> Iterator[tuple[_Leaf, Op, str]]:
    """Yield the conditions that compare with a variable alone: each with its operator, and the
    variable's name.
    """
    for step in filter.steps if isinstance(filter, Pattern) else (filter,):
        for conjunction in step.conjunctions:
            for leaf in conjunction.parts:
                test = leaf if isinstance(leaf, Constraint) else leaf.condition
                if isinstance(test, Constraint | Test) and isinstance(test.operand, Variable):
                    yield leaf, test.op, test.operand.name


def _is_written_number(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= _NUMBER_CHARS
        and _NUMBER.fullmatch(value) is not None
    )


def _kind(value: object) -> Kind:
    """Return the kind of a value, or of the first member of a collection."""
    return kind_of(
        next(iter(value)) if isinstance(value, tuple | set | frozenset | list) else value
    )
