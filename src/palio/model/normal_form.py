"""From a syntax tree to a filter in disjunctive normal form, without ever expanding too much.

NOT is pushed to the leaves, where each operator has its exact negation; XOR and products of
disjunctions are multiplied out step by step, dropping duplicates and absorbed alternatives as they
arise. Every step is a law of Kleene's logic, so unknown stays unknown. The work is counted: a text
that would need millions of alternatives is refused after a bounded number of small steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, assert_never

from palio.errors import InvalidFilter, LimitExceeded
from palio.model.binding import unusable
from palio.model.canonical import Clause, Leaf, absorbed, gathered
from palio.model.evaluation import evaluate, test_truth
from palio.model.expressions import (
    All,
    AnyOf,
    Arithmetic,
    Attribute,
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
    literal,
    test,
)
from palio.model.filters import Conjunction, Constraint, Filter, Residual
from palio.model.limits import MAX_CONJUNCTIONS, MAX_RESIDUAL_COST
from palio.model.operators import Op
from palio.model.sizes import check_size
from palio.model.values import NO_VALUES, Bindings, is_nan

__all__ = ["conjoin", "disjoin", "leaf_of", "negate", "reduce", "settled", "simplify"]

_MAX_WORK: Final = 256 * MAX_CONJUNCTIONS
"""Leaves of all clauses that one normalization may form: 50 milliseconds at the worst."""

_MIRRORED: Final = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.LE: Op.GE,
    Op.GT: Op.LT,
    Op.GE: Op.LE,
}


def reduce(expression: Boolean) -> Filter:
    """The filter that a condition is.

    >>> from palio.model.expressions import Attribute, Not, literal, test
    >>> str(reduce(Not(test(Attribute("price"), Op.LT, literal(5)))))
    'price >= 5'
    """
    check_depth(expression)
    budget = _Budget()
    return _built(_clauses(expression, False, budget))


def conjoin(one: Filter, other: Filter) -> Filter:
    """Both must match."""
    return _built(_product([_of_filter(one), _of_filter(other)], _Budget()))


def disjoin(one: Filter, other: Filter) -> Filter:
    """Either must match."""
    return _checked(Filter.of((*one.conjunctions, *other.conjunctions)))


def negate(filter_: Filter) -> Filter:
    """Must be false: not true and not unknown."""
    factors = [
        [frozenset((leaf.inverted(),)) for leaf in each.parts] for each in filter_.conjunctions
    ]
    return _built(_product(factors, _Budget()))


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


def _built(clauses: Iterable[Clause]) -> Filter:
    return _checked(Filter.of(Conjunction.of(clause) for clause in clauses))


def _checked(filter_: Filter) -> Filter:
    check_size(filter_.conjunctions)
    return filter_


def _of_filter(filter_: Filter) -> list[Clause]:
    return [frozenset(each.parts) for each in filter_.conjunctions]


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


def settled(residual: Residual, values: Bindings) -> Leaf | bool:
    """What a residual becomes when variables of it take values.

    A constraint (`:x + 1 < price`), a verdict (`:x < :y`), or another residual. Values that leave
    constants without a meaning (`price / :zero`, `:word < 5`) are refused, as their text would be.
    """
    check = residual.substitute(values).condition
    if isinstance(check, Foreign):
        return residual
    try:
        return leaf_of(check)
    except InvalidFilter as error:
        raise unusable(str(residual), residual.variables, values, str(error)) from None


def leaf_of(check: Test) -> Leaf | bool:
    """A test as a constraint or a residual; its verdict where it is of constants alone.

    >>> str(leaf_of(test(literal(5), Op.GT, Attribute("price"))))
    'price < 5'
    """
    clauses = _leaf(check, False)
    return next(iter(clauses[0]), True) if clauses else False


def _leaf(check: Test, negated: bool) -> list[Clause]:
    """A test as a constraint where it is one, as a residual otherwise."""
    if negated:
        check = Test(check.subject, check.op.negation, check.operand, check.ignore_case)
    if not _is_reduced(check):
        check = simplify(check)
        if _is_constant(check.subject) and _is_constant(check.operand):
            return _decided(check)
    if _is_reduced(check):
        return [frozenset((Constraint.from_test(check),))]
    if isinstance(check.operand, tuple) and len(check.operand) > MAX_RESIDUAL_COST:
        raise LimitExceeded(
            "a list that something computed is looked for in",
            limit="MAX_RESIDUAL_COST",
            maximum=MAX_RESIDUAL_COST,
            actual=len(check.operand),
        )
    return [frozenset((Residual(check),))]


def _is_reduced(check: Test) -> bool:
    """Whether it compares an attribute with constants or variables, and so is a constraint."""
    if type(check.subject) is not Attribute:
        return False
    operand = check.operand
    if isinstance(operand, tuple):
        return all(isinstance(each, Literal | Variable) for each in operand)
    return operand is None or isinstance(operand, Literal | Variable)


def _decided(check: Test) -> list[Clause]:
    """A test of constants alone."""
    result = test_truth(check, {})
    if result is None:
        raise InvalidFilter(
            f"{Residual(check)} compares constants that cannot be compared; it is never true"
        )
    return [frozenset()] if result else []


def simplify(check: Test) -> Test:
    """Constants folded, the attribute on the left: `2 + 3 > price` is `price < 5`.

    >>> from palio.model.expressions import Arithmetic
    >>> five = Arithmetic("+", literal(2), literal(3))
    >>> simplify(Test(five, Op.GT, Attribute("price"))) == test(
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
            expression = Call(function, tuple(_folded(each) for each in arguments))
        case _:
            return expression
    if not _is_constant(expression):
        return expression
    value = evaluate(expression, {}, NO_VALUES)
    if value is None or is_nan(value):
        from palio.model.printing import show_scalar

        raise InvalidFilter(f"{show_scalar(expression)} has no value")
    return literal(value)


def _is_constant(expression: object) -> bool:
    match expression:
        case None | Literal():
            return True
        case Arithmetic(_, left, right):
            return _is_constant(left) and _is_constant(right)
        case Call(_, arguments):
            return all(_is_constant(each) for each in arguments)
        case tuple():
            return all(_is_constant(each) for each in expression)
        case _:
            return False


def _is_fixed(expression: object) -> bool:
    return isinstance(expression, Literal | Variable)
