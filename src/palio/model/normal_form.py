"""From a syntax tree to the alternatives of a filter, without ever expanding too much.

The alternatives are the disjunctive normal form. NOT is pushed to the leaves, where each operator
has its exact negation; XOR and products of disjunctions are multiplied out step by step, dropping
duplicates and absorbed alternatives as they arise. Every step is a law of Kleene's logic, so
unknown stays unknown. The work is counted: a text that would need millions of alternatives is
refused after a bounded number of small steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from palio.errors import LimitExceeded
from palio.model.canonical import Clause, absorbed, gathered
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import (
    All,
    AnyOf,
    Boolean,
    Exclusive,
    Foreign,
    Not,
    Test,
    check_depth,
)
from palio.model.leaves import leaf_of
from palio.model.limits import MAX_CONJUNCTIONS
from palio.model.operators import Op

__all__ = ["clauses_of", "product"]

_MAX_WORK: Final = 256 * MAX_CONJUNCTIONS
"""Leaves of all clauses that one normalization may form: 50 milliseconds at the worst."""


def clauses_of(expression: Boolean) -> list[Clause]:
    """The alternatives of a condition, each with the parts that must all hold.

    >>> from palio.model.expressions import Attribute, Not, Op, literal, test
    >>> (clause,) = clauses_of(Not(test(Attribute("price"), Op.LT, literal(5))))
    >>> [str(leaf) for leaf in clause]
    ['price >= 5']
    """
    check_depth(expression)
    return _clauses(expression, False, _Budget())


def product(factors: Iterable[list[Clause]]) -> list[Clause]:
    """All choices of one clause from each factor; `LimitExceeded` where that is too much work."""
    return _product(list(factors), _Budget())


class _Budget:
    """Counts the leaves of all clauses formed, and remembers what is needed more than once."""

    __slots__ = ("known", "left")

    def __init__(self) -> None:
        self.left = _MAX_WORK
        self.known: dict[tuple[int, bool], list[Clause]] = {}

    def once(self, expression: Boolean, negated: bool) -> list[Clause]:
        """The clauses of an operand of XOR, of which each is asked for twice, and so its own."""
        key = (id(expression), negated)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = _clauses(expression, negated, self)
        return found

    def spend(self, leaves: int) -> None:
        self.left -= leaves
        if self.left < 0:
            raise self.exhausted()

    def exhausted(self) -> LimitExceeded:
        return LimitExceeded(
            "a filter multiplied out into alternatives",
            limit="MAX_CONJUNCTIONS",
            maximum=MAX_CONJUNCTIONS,
        )


def _clauses(expression: Boolean, negated: bool, budget: _Budget) -> list[Clause]:
    """The alternatives of a condition, or of its negation."""
    match expression:
        case Test():
            return _leaf(expression, negated)
        case Foreign():
            return [frozenset((Residual(expression.inverted() if negated else expression),))]
        case Not(part):
            return _clauses(part, not negated, budget)
        case All(parts) | AnyOf(parts):
            inner = [_clauses(part, negated, budget) for part in parts]
            if isinstance(expression, All) is not negated:
                return _product(inner, budget)
            return _sum(inner, budget)
        case Exclusive(left, right):
            straight = [budget.once(left, False), budget.once(right, False)]
            inverse = [budget.once(left, True), budget.once(right, True)]
            if negated:  # both or neither
                pairs = [straight, inverse]
            else:
                pairs = [[straight[0], inverse[1]], [inverse[0], straight[1]]]
            return _sum([_product(pair, budget) for pair in pairs], budget)
        case _:
            assert_never(expression)


def _sum(parts: list[list[Clause]], budget: _Budget) -> list[Clause]:
    """All alternatives of all parts, equalities on one attribute gathered into lists."""
    whole = [clause for part in parts for clause in part]
    budget.spend(sum(map(len, whole)))
    lone: list[Constraint] = []
    rest: list[Clause] = []
    for clause in whole:
        leaf = next(iter(clause)) if len(clause) == 1 else None
        if isinstance(leaf, Constraint):
            lone.append(leaf)
        else:
            rest.append(clause)
    return absorbed([*(frozenset((leaf,)) for leaf in gathered(lone, Op.EQ, Op.IN)), *rest])


def _product(factors: list[list[Clause]], budget: _Budget) -> list[Clause]:
    """All choices of one clause from each factor.

    Factors without a leaf in common multiply without anything to absorb, so their product is
    counted before a single clause of it is formed.
    """
    common: Clause = frozenset().union(*(factor[0] for factor in factors if len(factor) == 1))
    result = [common]
    seen = set(common)
    for factor in sorted((each for each in factors if len(each) != 1), key=len):
        leaves = {leaf for clause in factor for leaf in clause}
        independent = seen.isdisjoint(leaves)
        formed = len(result) * len(factor)
        if independent and formed > MAX_CONJUNCTIONS:
            raise budget.exhausted()
        budget.spend(len(factor) * sum(map(len, result)) + formed)
        product = (one | other for one in result for other in factor)
        result = list(product) if independent else absorbed(product)
        if len(result) > MAX_CONJUNCTIONS:
            raise budget.exhausted()
        seen |= leaves
    return result


def _leaf(check: Test, negated: bool) -> list[Clause]:
    """The clauses of one test: none if it is false, the empty one if it is true."""
    if negated:
        check = Test(check.subject, check.op.negation, check.operand, check.ignore_case)
    leaf = leaf_of(check)
    if isinstance(leaf, bool):
        return [frozenset()] if leaf else []
    return [frozenset((leaf,))]
