"""From a syntax tree to the alternatives of a filter, without ever expanding too much.

The alternatives are the disjunctive normal form. NOT is pushed to the leaves, where each operator
has its exact negation; XOR and products of disjunctions are multiplied out step by step, dropping
duplicates and absorbed alternatives as they arise. Every step is a law of Kleene's logic, so
unknown stays unknown. The work is counted: a text that would need millions of alternatives is
refused after a bounded number of small steps.

Each leaf is a test. One of a single attribute against constants or variables is a constraint, for
which constants are folded and the attribute comes to the left: `2 + 3 > price` is `price < 5`. A
test of constants alone has a verdict, and all others are residuals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, assert_never

from palio.errors import InvalidFilter, LimitExceeded
from palio.model.binding import unusable
from palio.model.canonical import Clause, Leaf, absorbed, gathered
from palio.model.constraints import Constraint, Residual
from palio.model.evaluation import evaluate, test_truth
from palio.model.expressions import (
    All,
    AnyOf,
    Arithmetic,
    Boolean,
    Call,
    Exclusive,
    Foreign,
    Literal,
    Not,
    Scalar,
    Test,
    Variable,
    check_depth,
    is_plain,
    literal,
    test,
)
from palio.model.functions import TextTooLong, is_too_long
from palio.model.limits import MAX_COMPUTED_CHARS, MAX_CONJUNCTIONS, MAX_RESIDUAL_COST
from palio.model.operators import Op
from palio.model.printing import show_scalar
from palio.model.values import NO_VALUES, Bindings, is_nan

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
        meaning = self.known.get(key)
        if meaning is None:
            meaning = self.known[key] = _clauses(expression, negated, self)
        return meaning

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
    for factor in sorted((factor_ for factor_ in factors if len(factor_) != 1), key=len):
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


# --- leaves ---

_MIRRORED: Final = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.LE: Op.GE,
    Op.GT: Op.LT,
    Op.GE: Op.LE,
}


def settled(residual: Residual, values: Bindings) -> Leaf | bool:
    """A residual after some of its variables took values.

    A constraint (`:x + 1 < price`), a verdict (`:x < :y`), or another residual. Values that leave
    constants without a meaning (`price / :zero`, `:word < 5`) are refused, as their text would be.
    """
    check = residual.substituted(values)
    if isinstance(check, Foreign):
        return residual
    try:
        return leaf_of(check)
    except InvalidFilter as error:
        raise unusable(str(residual), residual.variables, values, str(error)) from None


def leaf_of(check: Test) -> Leaf | bool:
    """A test as a constraint or a residual; its verdict where it is of constants alone.

    >>> from palio.model.expressions import Attribute
    >>> str(leaf_of(test(literal(5), Op.GT, Attribute("price"))))
    'price < 5'
    """
    if not is_plain(check):
        check = _simplified(check)
        if _is_constant(check.subject) and _is_constant(check.operand):
            return _decided(check)
    if is_plain(check):
        return Constraint.from_test(check)
    if isinstance(check.operand, tuple) and len(check.operand) > MAX_RESIDUAL_COST:
        raise LimitExceeded(
            "a list that something computed is looked for in",
            limit="MAX_RESIDUAL_COST",
            maximum=MAX_RESIDUAL_COST,
            actual=len(check.operand),
        )
    return Residual(check)


def _decided(check: Test) -> bool:
    """The verdict of a test of constants alone."""
    result = test_truth(check, {})
    if result is None:
        raise InvalidFilter(
            f"{Residual(check)} compares constants that cannot be compared; it is never true"
        )
    return result


def _simplified(check: Test) -> Test:
    """Constants folded, the attribute on the left: `2 + 3 > price` is `price < 5`.

    >>> from palio.model.expressions import Arithmetic, Attribute
    >>> five = Arithmetic("+", literal(2), literal(3))
    >>> _simplified(Test(five, Op.GT, Attribute("price"))) == test(
    ...     Attribute("price"), Op.LT, literal(5)
    ... )
    True
    """
    subject = _folded(check.subject)
    operand: Any = check.operand
    if isinstance(operand, tuple):
        operand = tuple(map(_folded, operand))
        if subject == check.subject and operand == check.operand:
            return check  # nothing was computed, and sorting a long list again would cost
    elif operand is not None:
        operand = _folded(operand)
        if check.op in _MIRRORED and _is_fixed(subject) and not _is_fixed(operand):
            return test(operand, _MIRRORED[check.op], subject, check.ignore_case)
    return test(subject, check.op, operand, check.ignore_case)


def _folded(expression: Scalar) -> Scalar:
    """An expression with its constant parts computed."""
    match expression:
        case Arithmetic(operator, left, right):
            expression = Arithmetic(operator, _folded(left), _folded(right))
        case Call(function, arguments):
            expression = Call(function, tuple(_folded(argument) for argument in arguments))
        case _:
            return expression
    if not _is_constant(expression):
        return expression
    try:
        value = evaluate(expression, {}, NO_VALUES)
        if is_too_long(value):
            raise TextTooLong
    except TextTooLong:
        raise LimitExceeded(
            "a text that a filter computes", limit="MAX_COMPUTED_CHARS", maximum=MAX_COMPUTED_CHARS
        ) from None
    if value is None or is_nan(value):
        raise InvalidFilter(f"{show_scalar(expression)} has no value")
    return literal(value)


def _is_constant(expression: object) -> bool:
    match expression:
        case None | Literal():
            return True
        case Arithmetic(_, left, right):
            return _is_constant(left) and _is_constant(right)
        case Call(_, arguments):
            return all(_is_constant(argument) for argument in arguments)
        case tuple():
            return all(_is_constant(item) for item in expression)
        case _:
            return False


def _is_fixed(expression: object) -> bool:
    return isinstance(expression, Literal | Variable)
