"""The part of an expression that reduces to constraints of the model, exactly.

For an event an expression is true, false or in error. `reduced` says of "true" and of "false" when
it is so, in conditions of the model whose truth is True exactly then. What does not reduce is a
`Condition`, which is evaluated as CESQL says.

- `a AND b` is true when both are; it is false when `a` is, or when `a` is *defined* (not in error)
  and `b` is false: after an error on its left CESQL does not look further, where SQL would. `a OR
  b` is `NOT (NOT a AND NOT b)`, errors and all.
- A comparison casts. An attribute that CloudEvents defines as a string is a String or an error, so
  its tests reduce. An extension may be of any type, so that a test of it reduces only as far as
  sightings.py can tell which values it is true of; when it is false is then left to CESQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

import msgspec

from palio.errors import LimitExceeded
from palio.language.cesql.conditions import Condition, is_boolean, names_in, nodes_in
from palio.language.cesql.evaluation import evaluate
from palio.language.cesql.functions import FUNCTIONS
from palio.language.cesql.outcomes import Value
from palio.language.cesql.patterns import ANY_ONE, segments
from palio.language.cesql.sightings import only_strings_match, seen_as
from palio.language.cesql.syntax import (
    Attribute,
    Call,
    Comparison,
    Exists,
    Expression,
    In,
    Like,
    Literal,
    Logical,
    Not,
    Rest,
)
from palio.language.cesql.values import REQUIRED_ATTRIBUTES, STRING_ATTRIBUTES, text_of
from palio.model import expressions as model
from palio.model.expressions import All, AnyOf, Boolean, Test
from palio.model.limits import MAX_CONSTRAINTS, MAX_DEPTH, MAX_IN_VALUES
from palio.model.operators import Op
from palio.model.values import Value as AttributeValue
from palio.model.values import kind_of

__all__ = ["FALSE", "TRUE", "Reduced", "When", "inverse", "reduced"]

TRUE: Final = All(())
FALSE: Final = AnyOf(())

_NOTHING: Final[frozenset[Test]] = frozenset()


class When(msgspec.Struct, frozen=True):
    """A condition of the model, how large it is, and which guards hold whenever it is true."""

    condition: Boolean
    leaves: int = 1
    depth: int = 1
    implies: frozenset[Test] = _NOTHING


class Reduced(msgspec.Struct, frozen=True):
    """When an expression is true, when it is false, and guards that together say when either.

    A guard is the test that an attribute is there, or that it is a string. `defined` is None where
    no such guards are known.
    """

    true: When
    false: When
    defined: frozenset[Test] | None = None

    def inverted(self) -> Reduced:
        """The same of the negation."""
        return Reduced(self.false, self.true, self.defined)


def reduced(expression: Expression) -> Reduced:
    """When an expression, used as a Boolean, is true and when it is false.

    >>> from palio.language.cesql import parse
    >>> from palio.model.filters import reduce
    >>> either = reduced(parse("source LIKE '%.example' OR subject = 'a'"))
    >>> print(reduce(either.true.condition))
    source STARTS WITH '' AND subject = 'a' OR source ENDS WITH '.example'
    """
    if not is_boolean(expression):
        return reduced(Call("BOOL", (expression,)))
    if _constant(expression) is not None:
        return _whole(expression)
    match expression:
        case Exists(name):
            return _exact(_present(name), _NOTHING)
        case Not(operand):
            return reduced(operand).inverted()
        case Logical(first, rest):
            return _logical(first, rest)
        case Comparison(left, ((("=" | "!=") as symbol, right),)):
            found = _equality(left, right)
            return found if symbol == "=" else found.inverted()
        case Like(Attribute(name), pattern, negated):
            found = _like(name, pattern)
            return found.inverted() if negated else found
        case In(Attribute(name), members, negated):
            found = _membership(name, members)
            return found.inverted() if negated else found
        case _:
            return _whole(expression)


_ALWAYS: Final = Reduced(When(TRUE), When(FALSE), _NOTHING)


def _constant(expression: Expression) -> Value | None:
    """The value of an expression that reads no attribute; None if it reads one or is in error."""
    if isinstance(expression, Literal):
        return expression.value
    if names_in(expression) - REQUIRED_ATTRIBUTES or any(
        isinstance(node, Attribute) for node in nodes_in(expression)
    ):
        return None
    value, error = evaluate(expression, {})
    return value if error is None else None


def _exact(check: Test, defined: frozenset[Test]) -> Reduced:
    """A test that is false in the model exactly when it is false in CESQL."""
    return Reduced(_when(check), _when(inverse(check)), defined)


def _partly(expression: Expression, true: When, defined: frozenset[Test] | None) -> Reduced:
    """An expression of which only its being true reduces."""
    return Reduced(true, When(Condition(expression).inverted()), defined)


def _whole(expression: Expression, defined: frozenset[Test] | None = None) -> Reduced:
    """An expression that does not reduce, unless it is a constant."""
    constant = _constant(expression)
    if constant is not None:
        return _ALWAYS if constant else _ALWAYS.inverted()
    return _partly(expression, When(Condition(expression)), defined)


# --- tests of one attribute ---


def _equality(left: Expression, right: Expression) -> Reduced:
    """`left = right`: the left operand is cast to the type of the right one."""
    constant = _constant(right)
    if isinstance(left, Attribute) and isinstance(constant, str):
        return _equals(left.name, constant)
    constant = _constant(left)
    if isinstance(right, Attribute) and right.name in STRING_ATTRIBUTES and constant is not None:
        return _equals(right.name, text_of(constant))
    return _whole(Comparison(left, (("=", right),)))


def _equals(name: str, text: str) -> Reduced:
    if name in STRING_ATTRIBUTES:
        return _exact(_test(name, Op.EQ, text), _IS_STRING[name])
    expression = Comparison(Attribute(name), (("=", Literal(text)),))
    values = seen_as(text)
    if values is None:
        return _whole(expression, _is_present(name))
    true = _any([_when(_test(name, Op.EQ, value)) for value in values])
    return _partly(expression, true, _is_present(name))


def _like(name: str, pattern: str) -> Reduced:
    if name not in STRING_ATTRIBUTES and not only_strings_match(pattern):
        return _whole(Like(Attribute(name), pattern), _is_present(name))
    check = _test(name, Op.LIKE, _in_our_spelling(pattern))
    if name in STRING_ATTRIBUTES:
        return _exact(check, _IS_STRING[name])
    return _partly(Like(Attribute(name), pattern), _when(check), _is_present(name))


def _in_our_spelling(pattern: str) -> str:
    """A pattern as the model's LIKE reads it, where a backslash escapes whatever follows it."""
    return "%".join("".join(map(_escaped, segment)) for segment in segments(pattern))


def _escaped(part: str | None) -> str:
    return "_" if part is ANY_ONE else re.sub(r"([%_\\])", r"\\\1", part)


def _membership(name: str, members: tuple[Expression, ...]) -> Reduced:
    """`name IN (members)`: the members are cast to the type of the attribute's value."""
    if len(members) > MAX_IN_VALUES:
        raise LimitExceeded(
            "an IN list", limit="MAX_IN_VALUES", maximum=MAX_IN_VALUES, actual=len(members)
        )
    expression = In(Attribute(name), members)
    constants = [_constant(member) for member in members]
    if None in constants:
        return _whole(expression)
    if name in STRING_ATTRIBUTES:
        texts = [text_of(constant) for constant in constants if constant is not None]
        return _exact(_in(name, texts), _IS_STRING[name])
    seen: list[AttributeValue] = []
    for constant in constants:
        values = seen_as(constant) if isinstance(constant, str) and _only_text(constant) else None
        if values is None:
            return _whole(expression)
        seen += values
    by_kind = groupby(sorted(seen, key=kind_of), key=kind_of)
    return _partly(expression, _any([_when(_in(name, group)) for _, group in by_kind]), None)


def _only_text(text: str) -> bool:
    """Whether it is no Integer and no Boolean, and so an error as member for a value of these."""
    return not any(function.body(text) for function in _CASTABLE)


_CASTABLE: Final = (*FUNCTIONS["IS_INT"], *FUNCTIONS["IS_BOOL"])


def _test(name: str, op: Op, operand: AttributeValue) -> Test:
    return model.test(model.Attribute(name), op, model.literal(operand))


def _in(name: str, members: Iterable[AttributeValue]) -> Test:
    return model.test(model.Attribute(name), Op.IN, tuple(map(model.literal, members)))


def _present(name: str) -> Test:
    return Test(model.Attribute(name), Op.EXISTS)


def _is_present(name: str) -> frozenset[Test]:
    return frozenset((_present(name),))


_IS_STRING: Final = {
    name: frozenset((_test(name, Op.PREFIX, ""),)) for name in sorted(STRING_ATTRIBUTES)
}
"""The guard that each of these attributes is a string: it starts with nothing."""


def inverse(check: Test) -> Test:
    """The test that is true exactly where one is false."""
    return Test(check.subject, check.op.negation, check.operand, check.ignore_case)


def _when(check: Test) -> When:
    """A single test, which holds only of an attribute that is there, of the kind of its operand."""
    assert isinstance(check.subject, model.Attribute)
    name = check.subject.name
    if check.op is Op.ABSENT:
        return When(check)
    if check.op is Op.EXISTS or name not in STRING_ATTRIBUTES:
        return When(check, implies=_is_present(name))
    return When(check, implies=_IS_STRING[name])


# --- AND, OR and XOR ---

_Text: TypeAlias = Callable[[], Expression]
"""The expression that is being reduced, built only if it is needed after all."""


def _logical(first: Expression, rest: Rest) -> Reduced:
    """A run from left to right, each stretch of one operator taken together."""
    stretches = [(symbol, len(list(group))) for symbol, group in groupby(each for each, _ in rest)]
    if len(stretches) > MAX_DEPTH:
        return _whole(Logical(first, rest))
    left, taken = reduced(first), 0
    for symbol, length in stretches:
        operands = [reduced(operand) for _, operand in rest[taken : taken + length]]
        taken += length
        left = _stretch(symbol, [left, *operands], partial(Logical, first, rest[:taken]))
    return left


def _stretch(symbol: str, operands: list[Reduced], text: _Text) -> Reduced:
    if symbol == "XOR":
        return _whole(text())
    if symbol == "AND":
        return _conjoined(operands, text)
    denied = [each.inverted() for each in operands]
    return _conjoined(denied, lambda: Not(text())).inverted()


def _conjoined(operands: list[Reduced], text: _Text) -> Reduced:
    true = _all([each.true for each in operands])
    false = _some_false(operands)
    return Reduced(
        true if _is_small(true) else When(Condition(text())),
        false if false is not None else When(Condition(text()).inverted()),
        _defined(operands),
    )


def _some_false(operands: list[Reduced]) -> When | None:
    """When one operand of AND is false and those before it are defined; None if that is too much.

    The rule says that those before it are true. But if one of these were false, so were the whole.
    """
    alternatives: list[When] = []
    guards: dict[Test, When] = {}
    conditions: list[When] = []
    leaves = 0
    for each in operands:
        wanted = [when for guard, when in guards.items() if guard not in each.false.implies]
        alternative = _all([*wanted, *conditions, each.false])
        leaves += alternative.leaves
        if leaves > MAX_CONSTRAINTS or alternative.depth >= MAX_DEPTH:
            return None
        alternatives.append(alternative)
        if each.defined is None:
            conditions.append(each.true)
        else:
            guards |= {guard: _when(guard) for guard in each.defined}
    return _any(alternatives)


def _defined(operands: list[Reduced]) -> frozenset[Test] | None:
    """The guards of the first operand, if they are those of all others, too."""
    first = operands[0].defined
    if first is None:
        return None
    every = all(each.defined is not None and each.defined <= first for each in operands)
    return first if every else None


def _is_small(when: When) -> bool:
    return when.leaves <= MAX_CONSTRAINTS and when.depth < MAX_DEPTH


def _all(parts: Sequence[When]) -> When:
    if len(parts) == 1:
        return parts[0]
    implied = frozenset[Test]().union(*(each.implies for each in parts))
    return _combined(All(tuple(each.condition for each in parts)), parts, implied)


def _any(parts: Sequence[When]) -> When:
    if len(parts) == 1:
        return parts[0]
    implied = parts[0].implies.intersection(*(each.implies for each in parts))
    return _combined(AnyOf(tuple(each.condition for each in parts)), parts, implied)


def _combined(condition: Boolean, parts: Sequence[When], implied: frozenset[Test]) -> When:
    return When(
        condition,
        sum(each.leaves for each in parts),
        1 + max(each.depth for each in parts),
        implied,
    )
