"""Variables and their values: looking them up, checking them, putting them in their place.

One rule: a value is accepted exactly where the text with the constant in the variable's place would
be. So what a bound filter prints is read by every broker that it is sent to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palio.errors import InvalidBinding, InvalidFilter, InvalidInput, LimitExceeded
from palio.model.expressions import (
    Arithmetic,
    Call,
    Literal,
    Scalar,
    Variable,
    check_kind,
    literal,
)
from palio.model.limits import MAX_IN_VALUES, check_limit
from palio.model.operators import MEMBERSHIP, STRING_ONLY, Op, simplest
from palio.model.values import (
    Bindings,
    Kind,
    Value,
    check_operand_size,
    checked,
    is_nan,
    kind_of,
)


def scalar_value(name: str, values: Bindings) -> Value:
    """The current value of a variable that stands for one value."""
    value = _bound(name, values)
    if isinstance(value, tuple | list | set | frozenset):
        raise InvalidBinding(f"parameter :{name} is a collection; only IN takes one", name=name)
    return usable(name, value)


def collection(operand: Any, ignore_case: bool, values: Bindings) -> list[Value]:
    """The members that a variable after IN stands for; a single value is a list of one."""
    assert isinstance(operand, Variable)
    name = operand.name
    value = _bound(name, values)
    if not isinstance(value, tuple | list | set | frozenset):
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray):
            raise InvalidBinding(
                f"parameter :{name} is of type {type(value).__name__}; pass a list of its members",
                name=name,
            )
        value = (value,)
    if not value:
        raise InvalidBinding(f"parameter :{name} is empty: nothing could be in it", name=name)
    check_limit(f"the collection of parameter :{name}", "MAX_IN_VALUES", MAX_IN_VALUES, len(value))
    members = [usable(name, member) for member in value]
    check_one_kind({kind_of(member) for member in members}, name)
    check_bound(Op.IN, ignore_case, name, members[0])
    return members


def _bound(name: str, values: Bindings) -> Any:
    try:
        return values[name]
    except KeyError:
        raise unbound(name) from None


def unbound(name: str) -> InvalidBinding:
    """The error for a variable without a value."""
    return InvalidBinding(f"parameter :{name} has no value; pass {{{name!r}: ...}}", name=name)


def usable(name: str, value: object) -> Value:
    """A value of a parameter as the model has it, or `InvalidBinding`."""
    if value is None:
        raise InvalidBinding(
            f"parameter :{name} is null, and a comparison with null is never true", name=name
        )
    try:
        safe = checked(value)
        check_operand_size(safe)
    except InvalidInput as error:
        raise InvalidBinding(f"parameter :{name}: {error}", name=name) from None
    if is_nan(safe):
        raise InvalidBinding(f"parameter :{name} is NaN, which satisfies no comparison", name=name)
    return safe


def unusable(text: str, names: Iterable[str], values: Bindings, problem: str) -> InvalidBinding:
    """The error for values that leave a condition without a meaning: which ones, and where."""
    given = sorted(name for name in names if name in values)
    shown = ", ".join(f":{name} = {values[name]!r:.40}" for name in given)
    return InvalidBinding(f"parameter {shown} in {text:.200}: {problem}", name=given[0])


def check_one_kind(kinds: set[Kind], name: str) -> None:
    """Refuse a parameter that makes an IN list mix kinds."""
    if len(kinds) > 1:
        nouns = " and ".join(kind.noun for kind in sorted(kinds))
        raise InvalidBinding(f"parameter :{name} makes an IN list that mixes {nouns}", name=name)


def check_bound(op: Op, ignore_case: bool, name: str, value: Value | None) -> None:
    """Refuse a parameter that the operator cannot use."""
    if value is None:
        return
    try:
        check_kind(op, kind_of(value), ignore_case)
        if op in STRING_ONLY:
            simplest(op, value)
    except (InvalidFilter, LimitExceeded) as error:
        raise InvalidBinding(f"parameter :{name}: {error}", name=name) from None


def substitute(expression: Scalar, values: Bindings) -> Scalar:
    """An expression with those variables that have a value replaced by it."""
    match expression:
        case Variable(name):
            return literal(scalar_value(name, values)) if name in values else expression
        case Arithmetic(operator, left, right):
            return Arithmetic(
                operator,
                _number(operator, left, substitute(left, values)),
                _number(operator, right, substitute(right, values)),
            )
        case Call(function, arguments):
            return Call(function, tuple(substitute(argument, values) for argument in arguments))
        case _:
            return expression


def _number(operator: str, before: Scalar, after: Scalar) -> Scalar:
    """An operand of arithmetic after binding; it must be a number."""
    match before, after:
        case Variable(name), Literal(kind) if kind is not Kind.NUMBER:
            raise InvalidBinding(
                f"parameter :{name}: {operator} needs numbers, not {kind.noun}", name=name
            )
        case _:
            return after


def substitute_operand(
    op: Op,
    operand: Scalar | tuple[Scalar, ...] | None,
    ignore_case: bool,
    values: Bindings,
) -> Scalar | tuple[Scalar, ...] | None:
    """An operand likewise, the new constants checked by the rules that matching applies."""
    if operand is None:
        return None
    if isinstance(operand, tuple):
        if all(isinstance(item, Literal) for item in operand):
            return operand  # nobody needs to check thousands of constants again
        return _substitute_members(operand, ignore_case, values)
    if op in MEMBERSHIP and isinstance(operand, Variable):
        if operand.name not in values:
            return operand
        return tuple(literal(item) for item in collection(operand, ignore_case, values))
    replaced = substitute(operand, values)
    if isinstance(operand, Variable) and isinstance(replaced, Literal):
        check_bound(op, ignore_case, operand.name, replaced.value)
    return replaced


def _substitute_members(
    operand: tuple[Scalar, ...], ignore_case: bool, values: Bindings
) -> tuple[Scalar, ...]:
    members = tuple(substitute(item, values) for item in operand)
    kinds: set[Kind] = {item.kind for item in operand if isinstance(item, Literal)}
    for before, after in zip(operand, members, strict=True):
        if isinstance(before, Variable) and isinstance(after, Literal):
            check_bound(Op.IN, ignore_case, before.name, after.value)
            kinds.add(after.kind)
            check_one_kind(kinds, before.name)
    return members
