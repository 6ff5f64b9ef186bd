"""The evaluation of tests and scalar expressions in SQL's three-valued logic.

A missing attribute, operands of different kinds, NaN, a division by zero and an overflow make a
test *unknown*. This is the definition that normal forms, domains and engines are checked against.

Where a test computes, its work is bounded: a text of more than `MAX_COMPUTED_CHARS` that it has to
compare, or to make another of, ends it, and the whole test is unknown: neither COALESCE nor IS NULL
takes a text that is too long for one that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

from palio.model.binding import check_bound, check_one_kind, collection, scalar_value
from palio.model.expressions import (
    Arithmetic,
    Attribute,
    Call,
    Literal,
    Scalar,
    Test,
    Variable,
    is_plain,
)
from palio.model.functions import FUNCTIONS, TextTooLong, arithmetic, is_too_long
from palio.model.operators import (
    AFFIX,
    MEMBERSHIP,
    PRESENCE,
    STRING_ONLY,
    Op,
    fold,
    holds,
    is_usable,
)
from palio.model.values import NO_VALUES, Bindings, Kind, Value, checked, is_nan, kind_of


def test_truth(check: Test, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
    """The truth of one test."""
    if not is_plain(check):
        return computed_truth(check, event, values)
    subject = evaluate(check.subject, event, values)
    return decide(subject, check.op, check.operand, check.ignore_case, event, values)


def computed_truth(
    check: Test, event: Mapping[str, Any], values: Bindings = NO_VALUES
) -> bool | None:
    """The truth of a test that computes."""
    read = evaluate if check.op in PRESENCE else _short
    try:
        subject = read(check.subject, event, values)
        return decide(subject, check.op, check.operand, check.ignore_case, event, values)
    except TextTooLong:
        return None


def decide(
    subject: Value | None,
    op: Op,
    operand: Scalar | tuple[Scalar, ...] | None,
    ignore_case: bool,
    event: Mapping[str, Any],
    values: Bindings,
) -> bool | None:
    """`subject op operand`, once the subject's value is known."""
    if op is Op.EXISTS:
        return subject is not None
    if op is Op.ABSENT:
        return subject is None
    if op in MEMBERSHIP:
        truth = _member_of(subject, _members(operand, ignore_case, event, values), ignore_case)
        return truth if op is Op.IN or truth is None else not truth
    assert operand is not None and not isinstance(operand, tuple)
    right = _short(operand, event, values)
    if isinstance(operand, Variable):
        check_bound(op, ignore_case, operand.name, right)
    return compare(subject, op, right, ignore_case)


def _members(
    operand: Any, ignore_case: bool, event: Mapping[str, Any], values: Bindings
) -> list[Value | None]:
    """The members of an IN list, whose variables must be of the kind of its literals."""
    if not isinstance(operand, tuple):
        return list(collection(operand, ignore_case, values))
    kinds = {member.kind for member in operand if isinstance(member, Literal)}
    for member in operand:
        if isinstance(member, Variable):
            value = scalar_value(member.name, values)
            check_bound(Op.IN, ignore_case, member.name, value)
            kinds.add(kind_of(value))
            check_one_kind(kinds, member.name)
    return [_short(member, event, values) for member in operand]


def compare(
    subject: Value | None, op: Op, operand: Value | None, ignore_case: bool = False
) -> bool | None:
    """`subject op operand`, unknown where it has no answer."""
    if subject is None or operand is None or is_nan(subject) or is_nan(operand):
        return None
    kind = kind_of(subject)
    if kind is not kind_of(operand):
        return None
    if ignore_case:
        if kind is not Kind.STRING:
            return None
        operand = fold(operand)  # type: ignore[arg-type]  # a string, by its kind
    if op in AFFIX and kind not in (Kind.STRING, Kind.BYTES):
        return None
    if op in STRING_ONLY and (kind is not Kind.STRING or not is_usable(op, str(operand))):
        return None
    return holds(op, subject, operand, ignore_case)


def _member_of(
    subject: Value | None, members: list[Value | None], ignore_case: bool
) -> bool | None:
    """SQL's IN: the OR of equalities."""
    if ignore_case:
        subject, *members = [_folded(member) for member in (subject, *members)]
    results = [compare(subject, Op.EQ, member) for member in members]
    return True if True in results else None if None in results else False


def _folded(value: Value | None) -> Value | None:
    return fold(value) if isinstance(value, str) else None


def evaluate(
    expression: Scalar, event: Mapping[str, Any], values: Bindings = NO_VALUES
) -> Value | None:
    """The value of a scalar expression, None where it has none.

    >>> from palio.model.expressions import literal
    >>> evaluate(Arithmetic("/", literal(1), Attribute("n")), {"n": 4})
    0.25
    """
    match expression:
        case Literal():
            return expression.value  # type: ignore[no-any-return]  # a canonical value
        case Attribute(name):
            value = event.get(name)
            return value if value is None or type(value) in _TEXTS else checked(value)
        case Variable(name):
            return scalar_value(name, values)
        case Arithmetic(operator, left, right):
            return arithmetic(
                operator, evaluate(left, event, values), evaluate(right, event, values)
            )
        case Call(function, arguments):
            return FUNCTIONS[function].apply(
                [evaluate(argument, event, values) for argument in arguments]
            )
        case _:
            assert_never(expression)


def _short(expression: Scalar, event: Mapping[str, Any], values: Bindings) -> Value | None:
    """The value of an expression to compare; constants have limits of their own."""
    value = evaluate(expression, event, values)
    if type(expression) in _OF_EVENTS and is_too_long(value):
        raise TextTooLong
    return value


_OF_EVENTS: Final = frozenset({Attribute, Call})
_TEXTS: Final = frozenset({str, bytes})
