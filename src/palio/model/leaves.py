"""The leaves of a condition: each test as a constraint, as a residual, or decided at once.

A test of one attribute against constants or variables is a constraint. Constants are folded and
the attribute comes to the left: `2 + 3 > price` is `price < 5`. A test of constants alone has a
verdict. All others are residuals.
"""

from __future__ import annotations

from typing import Any, Final

from palio.errors import InvalidFilter, LimitExceeded
from palio.model.binding import unusable
from palio.model.canonical import Leaf
from palio.model.constraints import Constraint, Residual
from palio.model.evaluation import evaluate, test_truth
from palio.model.expressions import (
    Arithmetic,
    Call,
    Foreign,
    Literal,
    Scalar,
    Test,
    Variable,
    is_plain,
    literal,
    test,
)
from palio.model.functions import TextTooLong, is_too_long
from palio.model.limits import MAX_COMPUTED_CHARS, MAX_RESIDUAL_COST
from palio.model.operators import Op
from palio.model.printing import show_scalar
from palio.model.values import NO_VALUES, Bindings, is_nan

__all__ = ["leaf_of", "settled", "simplify"]

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
        check = simplify(check)
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


def simplify(check: Test) -> Test:
    """Constants folded, the attribute on the left: `2 + 3 > price` is `price < 5`.

    >>> from palio.model.expressions import Arithmetic, Attribute
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
            return all(_is_constant(each) for each in arguments)
        case tuple():
            return all(_is_constant(each) for each in expression)
        case _:
            return False


def _is_fixed(expression: object) -> bool:
    return isinstance(expression, Literal | Variable)
