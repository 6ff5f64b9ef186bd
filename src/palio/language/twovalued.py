"""Negation in two-valued logic, for dialects whose filters are either true or false of an event.

Ours may also be unknown, so their `not` is not our NOT: at a leaf it asks for all that makes the
test *not true*: another value, no value, or a value of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from palio.model.expressions import (
    All,
    AnyOf,
    Arithmetic,
    Attribute,
    Boolean,
    Call,
    Literal,
    Not,
    Scalar,
    Test,
    literal,
    test,
)
from palio.model.limits import MAX_IN_VALUES, check_limit
from palio.model.operators import PRESENCE, Op
from palio.model.values import Kind


def not_true(name: str, checks: Iterable[Test], *, present: bool = False) -> Boolean:
    """True exactly where none of some tests of one attribute is true; never unknown.

    SQL's NOT leaves `x = 'a'` unknown when x is absent or no text. Here such an x passes, unless it
    has to be `present`. (NaN, which neither JSON nor CloudEvents has, passes no test of numbers and
    no negation of one.)

    >>> from palio.model.filters import reduce
    >>> str(reduce(not_true("x", [test(Attribute("x"), Op.EQ, literal("a"))])))
    "CONCAT(x) IS NULL OR x != 'a'"
    """
    absences: list[Boolean] = []
    kinds: dict[Kind, list[Test]] = {}
    for check in checks:
        if check.op in PRESENCE:
            absences.append(Not(check))
        else:
            kinds.setdefault(_kind(check), []).append(check)
    differing = [_differs(name, group) for group in kinds.values()]
    return All((*absences, AnyOf((*differing, _of_no_kind(kinds.keys(), name, present)))))


def _differs(name: str, checks: list[Test]) -> Boolean:
    """A value of the tests' kind that passes none of them; equalities are one list."""
    equal = [check.operand for check in checks if check.op is Op.EQ and not check.ignore_case]
    check_limit(
        f"the values that {name!r} must not have", "MAX_IN_VALUES", MAX_IN_VALUES, len(equal)
    )
    rest = [Not(check) for check in checks if check.op is not Op.EQ or check.ignore_case]
    listed = [test(Attribute(name), Op.NOT_IN, tuple(equal))] if equal else []  # type: ignore[arg-type]  # literals
    return All((*listed, *rest))


def _kind(check: Test) -> Kind:
    operand = check.operand[0] if isinstance(check.operand, tuple) else check.operand
    assert isinstance(operand, Literal)
    return operand.kind


def _of_no_kind(kinds: AbstractSet[Kind], name: str, present: bool) -> Boolean:
    """That an attribute is of none of some kinds; it may be absent unless it has to be `present`.

    Comparisons cannot test it, being unknown then. What can be computed from text or a number only
    is NULL of anything else; other kinds are excluded by naming all that remain.
    """
    subject = Attribute(name)
    there = [test(subject, Op.EXISTS)] if present else []
    if kinds <= _COMPUTED.keys():
        return All((*there, *(test(_COMPUTED[kind](subject), Op.ABSENT) for kind in kinds)))
    gone = [] if present else [test(subject, Op.ABSENT)]
    return AnyOf((*gone, *(_OF_KIND[kind](subject) for kind in Kind if kind not in kinds)))


_COMPUTED: Final[dict[Kind, Callable[[Attribute], Scalar]]] = {
    Kind.STRING: lambda subject: Call("CONCAT", (subject,)),
    Kind.NUMBER: lambda subject: Arithmetic("+", subject, literal(0)),
}
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_OF_KIND: Final[dict[Kind, Callable[[Attribute], Test]]] = {
    Kind.BOOL: lambda subject: test(subject, Op.IN, (literal(False), literal(True))),
    Kind.NUMBER: lambda subject: test(_COMPUTED[Kind.NUMBER](subject), Op.EXISTS),  # NaN too
    Kind.STRING: lambda subject: test(subject, Op.PREFIX, literal("")),
    Kind.BYTES: lambda subject: test(subject, Op.PREFIX, literal(b"")),
    Kind.TIME: lambda subject: test(subject, Op.GE, literal(_EARLIEST)),
}
