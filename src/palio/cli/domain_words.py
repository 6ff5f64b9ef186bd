"""Domains in words: what one attribute may be for an alternative to hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palio.model.domains import ABSENT, ANYTHING, PRESENT, Domain
from palio.model.expressions import Literal
from palio.model.filters import Constraint
from palio.model.merging import constraints_of
from palio.model.operators import Op
from palio.model.printing import show_scalar
from palio.model.values import coordinate, lowest

__all__ = ["in_words"]

_SHOWN_MEMBERS: Final = 12
"""Members of a list that are shown; the rest is counted."""

_PHRASES: Final[dict[Op, str]] = {
    Op.EXISTS: "any value",
    Op.ABSENT: "missing",
    Op.EQ: "exactly {}",
    Op.IN: "one of {}",
    Op.GT: "above {}",
    Op.GE: "at least {}",
    Op.LT: "below {}",
    Op.LE: "at most {}",
    Op.PREFIX: "starting with {}",
    Op.NOT_PREFIX: "not starting with {}",
    Op.SUFFIX: "ending with {}",
    Op.NOT_SUFFIX: "not ending with {}",
    Op.CONTAINS: "containing {}",
    Op.NOT_CONTAINS: "not containing {}",
    Op.LIKE: "like {}",
    Op.NOT_LIKE: "not like {}",
    Op.CIDR: "an address in {}",
    Op.NOT_CIDR: "no address in {}",
    Op.NE: "other than {}",
    Op.NOT_IN: "other than {}",
}
"""The words for each operator, in the order in which several are said."""

_ORDER: Final = {op: place for place, op in enumerate(_PHRASES)}


def in_words(name: str, domain: Domain, constraints: Sequence[Constraint]) -> str:
    """The values that a domain admits in words, given the constraints that it comes from.

    They are said as they were written, unless the same can be said with fewer.

    >>> import palio
    >>> (one,) = palio.parse("price >= 1 AND price < 5").conjunctions
    >>> in_words("price", one.domains["price"], one.constraints)
    'a number at least 1 and below 5'
    """
    if domain.is_empty:
        return "nothing: no value can be all of this"
    for known, words in _WHOLE:
        if domain == known:
            return words
    exact = constraints_of(name, domain)
    return phrase(constraints if exact is None or len(exact) >= len(constraints) else exact)


_WHOLE: Final = ((ANYTHING, "anything, or missing"), (PRESENT, "any value"), (ABSENT, "missing"))


def phrase(constraints: Sequence[Constraint]) -> str:
    """Several constraints on one attribute as one phrase."""
    telling = [each for each in constraints if not _is_free(each)]
    telling.sort(key=lambda each: _ORDER[each.op])
    words = " and ".join(map(_phrase, telling))
    noun = "" if any(each.op in _SELF_TELLING for each in telling) else _noun(constraints)
    return f"{noun} {words}".strip()


_SELF_TELLING: Final = frozenset({Op.EQ, Op.IN, Op.CIDR, Op.EXISTS, Op.ABSENT})
"""Operators after which it is needless to say what kind of value it is."""


def _is_free(constraint: Constraint) -> bool:
    """Whether it says no more than what kind of value it is: `name STARTS WITH ''`."""
    operand = constraint.operand
    return (
        constraint.op in (Op.GE, Op.PREFIX)
        and isinstance(operand, Literal)
        and coordinate(operand.value) == lowest(operand.kind)
    )


def _phrase(constraint: Constraint) -> str:
    operand = constraint.operand
    if operand is None:
        return _PHRASES[constraint.op]
    if isinstance(operand, tuple):
        shown = ", ".join(map(show_scalar, operand[:_SHOWN_MEMBERS]))
        if len(operand) > _SHOWN_MEMBERS:
            shown += f" and {len(operand) - _SHOWN_MEMBERS} more"
    else:
        shown = show_scalar(operand)
    return _PHRASES[constraint.op].format(shown) + " in any case" * constraint.ignore_case


def _noun(constraints: Sequence[Constraint]) -> str:
    """The kind of value that the constraints are about, if a constant tells it."""
    for each in constraints:
        first = each.operand[0] if isinstance(each.operand, tuple) else each.operand
        if isinstance(first, Literal):
            return first.kind.noun
    return ""
