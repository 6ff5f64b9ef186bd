"""Expressions: the syntax tree of a filter's text, and its meaning in three-valued logic.

One tree serves two purposes. `normal_form.py` reduces what it can of it to constraints; what cannot
be reduced rides along as a residual (filters.py), evaluated by the same `evaluate`. Its meaning is
that of SQL's logic, in which a missing attribute, operands of different kinds, NaN, a division by
zero and an overflow make a test *unknown*.

Booleans: `Test`, `Not`, `All`, `AnyOf`, `Exclusive`. Scalars: `Literal`, `Attribute`, `Variable`,
`Arithmetic`, `Call`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from palio.errors import InvalidEvent, InvalidFilter, LimitExceeded
from palio.model.functions import CASE_COST, FUNCTIONS
from palio.model.limits import MAX_COMPUTED_CHARS, MAX_DEPTH, MAX_IN_VALUES, check_limit
from palio.model.operators import (
    AFFIX,
    CASELESS,
    MEMBERSHIP,
    ORDER,
    PRESENCE,
    STRING_ONLY,
    Op,
    find_cost,
    fold,
    like_cost,
    simplest,
)
from palio.model.values import (
    INT64_MAX,
    INT64_MIN,
    Kind,
    canonical,
    check_operand_size,
    checked,
    is_nan,
    kind_of,
)


class Literal(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A constant. The kind is part of its identity, so that `1` and `true` differ.

    Its value holds nothing: the garbage collector need not visit a filter's 10,000 of them.
    """

    kind: Kind
    value: Any


class Variable(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A bind parameter, `:limit`."""

    name: str


class Slot(Variable, frozen=True, cache_hash=True):
    """A literal lifted out of a text: a variable whose kind is known (language/templates.py)."""

    kind: Kind


class Attribute(msgspec.Struct, frozen=True, cache_hash=True):
    """The value of an event's attribute."""

    name: str


class Arithmetic(msgspec.Struct, frozen=True, cache_hash=True):
    """`left operator right`, with the operator one of + - * / %."""

    operator: str
    left: Scalar
    right: Scalar


class Call(msgspec.Struct, frozen=True, cache_hash=True):
    """A function of `palio.model.functions.FUNCTIONS`, by its upper-case name."""

    function: str
    arguments: tuple[Scalar, ...]


Scalar: TypeAlias = Literal | Variable | Attribute | Arithmetic | Call


class Test(msgspec.Struct, frozen=True, cache_hash=True):
    """`subject op operand`; the operand is a tuple after IN, None after IS NULL."""

    subject: Scalar
    op: Op
    operand: Scalar | tuple[Scalar, ...] | None = None
    ignore_case: bool = False


class Not(msgspec.Struct, frozen=True):
    """Negation: unknown stays unknown."""

    part: Boolean


class All(msgspec.Struct, frozen=True):
    """AND of any number of parts."""

    parts: tuple[Boolean, ...]


class Between(All, frozen=True):
    """`subject BETWEEN low AND high`: the AND of its bounds, but one test of an advertisement."""


class AnyOf(msgspec.Struct, frozen=True):
    """OR of any number of parts."""

    parts: tuple[Boolean, ...]


class Exclusive(msgspec.Struct, frozen=True):
    """XOR of two parts: unknown if either is."""

    left: Boolean
    right: Boolean


class Foreign(ABC):
    """A condition of another language that did not reduce, kept whole.

    The dialect's own package subclasses this; identity is the canonical text, which is a condition
    of our language too (`CESQL '...'`), so that a filter with a foreign part still prints and
    parses back.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def text(self) -> str:
        """The condition as our language writes it."""

    @property
    @abstractmethod
    def attributes(self) -> frozenset[str]:
        """The attributes it reads."""

    @property
    @abstractmethod
    def weight(self) -> int:
        """The cost of reading its text, in tokens of our language (`MAX_TOKENS`)."""

    @property
    @abstractmethod
    def cost(self) -> int:
        """The cost of one evaluation, in the units of `MAX_RESIDUAL_COST`."""

    @abstractmethod
    def truth(self, event: Mapping[str, Any]) -> bool | None:
        """Its truth for an event; None where it has none, as after an error."""

    @abstractmethod
    def inverted(self) -> Foreign:
        """The condition that is true where this one is false, and unknown where it is unknown."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


Boolean: TypeAlias = Test | Not | All | AnyOf | Exclusive | Foreign


def literal(value: object) -> Literal:
    """A constant of a filter, checked.

    >>> literal(1) == literal(True)
    False
    """
    if value is None:
        raise InvalidFilter("a comparison with null is never true; use IS NULL or IS NOT NULL")
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return Literal(Kind.NUMBER, value)
    try:
        safe = checked(value)
    except InvalidEvent as error:
        raise InvalidFilter(str(error)) from None
    if is_nan(safe):
        raise InvalidFilter("NaN satisfies no comparison and cannot be a constant of a filter")
    check_operand_size(safe)
    return Literal(kind_of(safe), safe)


def test(
    subject: Scalar,
    op: Op,
    operand: Scalar | tuple[Scalar, ...] | None = None,
    ignore_case: bool = False,
) -> Test:
    """A `Test` in its one canonical spelling, its operand's kind checked against the operator.

    >>> test(Attribute("n"), Op.IN, (literal(1),)) == test(Attribute("n"), Op.EQ, literal(1))
    True
    """
    if type(subject) is not Attribute or type(operand) is not Literal:
        check_depth(subject, *(operand if isinstance(operand, tuple) else (operand,)))
    if op in PRESENCE:
        return Test(subject, op)
    ignore_case = ignore_case and op not in CASELESS
    if isinstance(operand, tuple):
        return _membership(subject, op, operand, ignore_case)
    assert operand is not None
    if isinstance(operand, Literal):
        check_kind(op, operand.kind, ignore_case)
        value = canonical(operand.value)
        if ignore_case:
            value = _folded(value)  # type: ignore[arg-type]  # a string, as was checked
        op, value = simplest(op, value)
        ignore_case = ignore_case and not (op in AFFIX and value == "")  # nothing has no case
        operand = Literal(operand.kind, value)
    return Test(subject, op, operand, ignore_case)


def _membership(subject: Scalar, op: Op, members: tuple[Scalar, ...], ignore_case: bool) -> Test:
    """An IN list: one kind, no duplicates, sorted; a list of one member is an equality."""
    if op not in MEMBERSHIP:
        raise InvalidFilter(f"{op.value} takes one operand, not a list")
    literals = {
        Literal(member.kind, canonical(member.value)) if type(member.value) is float else member
        for member in members
        if isinstance(member, Literal)
    }
    others = {member for member in members if not isinstance(member, Literal)}
    check_limit("an IN list", "MAX_IN_VALUES", MAX_IN_VALUES, len(literals) + len(others))
    kinds = sorted({member.kind for member in literals})
    if len(kinds) > 1:
        nouns = " and ".join(kind.noun for kind in kinds)
        raise InvalidFilter(f"an IN list mixes {nouns}; use OR between lists of one kind each")
    if ignore_case:
        for kind in kinds:
            check_kind(op, kind, ignore_case)
        literals = {Literal(literal.kind, _folded(literal.value)) for literal in literals}
    if not literals and not others:
        raise InvalidFilter("an IN list is empty: nothing could be in it")
    constants = sorted(literals, key=lambda literal: literal.value)
    ordered: list[Scalar] = [*constants, *sorted(others, key=repr)]
    if len(ordered) == 1:
        return Test(subject, Op.EQ if op is Op.IN else Op.NE, ordered[0], ignore_case)
    return Test(subject, op, tuple(ordered), ignore_case)


def _folded(text: str) -> str:
    """An operand as it is compared when case is ignored; some letters become two or three."""
    folded = fold(text)
    check_operand_size(folded)
    return folded


def check_kind(op: Op, kind: Kind, ignore_case: bool) -> None:
    """Refuse a constant of a kind that the operator cannot use."""
    if op in AFFIX and kind not in (Kind.STRING, Kind.BYTES):
        raise InvalidFilter(f"{op.value} needs a string or bytes, not {kind.noun}")
    if op in STRING_ONLY and kind is not Kind.STRING:
        raise InvalidFilter(f"{op.value} needs a string, not {kind.noun}")
    if ignore_case and kind is not Kind.STRING:
        raise InvalidFilter(f"IGNORE CASE needs a string, not {kind.noun}")


def check_depth(*expressions: Boolean | Scalar | None) -> None:
    """Refuse nesting beyond `MAX_DEPTH`, level by level: it guards every recursion.

    Conditions and the values in their tests are nested each for themselves.
    """
    level = [
        expression
        for expression in expressions
        if expression is not None and type(expression) in _NESTED
    ]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise LimitExceeded("a filter's nesting", limit="MAX_DEPTH", maximum=MAX_DEPTH)
        level = [child for node in level for child in _children(node) if type(child) in _NESTED]


_NESTED: Final = frozenset({Not, All, Between, AnyOf, Exclusive, Arithmetic, Call})


def walk(expression: Boolean | Scalar) -> Iterator[Boolean | Scalar]:
    """An expression and everything in it, parents first."""
    yield expression
    for child in _children(expression):
        yield from walk(child)


def _children(expression: Boolean | Scalar) -> tuple[Boolean | Scalar, ...]:
    match expression:
        case Test(subject, _, operand):
            rest = operand if isinstance(operand, tuple) else () if operand is None else (operand,)
            return (subject, *rest)
        case Not(part):
            return (part,)
        case All(parts) | AnyOf(parts):
            return parts
        case Exclusive(left, right) | Arithmetic(_, left, right):
            return (left, right)
        case Call(_, arguments):
            return arguments
        case _:
            return ()


def is_plain(check: Test) -> bool:
    """Check whether it compares an attribute with constants or variables, and computes nothing."""
    if type(check.subject) is not Attribute:
        return False
    operand = check.operand
    if isinstance(operand, tuple):
        return all(isinstance(item, Literal | Variable) for item in operand)
    return operand is None or isinstance(operand, Literal | Variable)


def variables_of(expression: Boolean | Scalar) -> frozenset[str]:
    """Names of the variables in an expression."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Variable))


def attributes_of(expression: Boolean | Scalar) -> frozenset[str]:
    """Names of the attributes in an expression."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Attribute))


def cost_of(check: Test) -> int:
    """The cost of one evaluation of a test: its nodes, functions by their own weight, and what its
    operator does with the longest texts that are computed with.
    """
    operand = check.operand
    cost = sum(
        FUNCTIONS[node.function].cost if isinstance(node, Call) else 1 for node in walk(check)
    )
    constant = operand.value if isinstance(operand, Literal) else None
    if check.op in (Op.LIKE, Op.NOT_LIKE):
        cost += like_cost(constant)
    elif check.op in (Op.CONTAINS, Op.NOT_CONTAINS):
        cost += find_cost(constant)
    elif check.op in ORDER and isinstance(operand, Attribute | Call):
        cost += _ORDER_COST
    if check.ignore_case:
        cost += CASE_COST
        cost += sum(map(_fold_cost, operand if isinstance(operand, tuple) else (operand,)))
    return cost + CASE_COST * (check.op in CASELESS)


_ORDER_COST: Final = 2
"""Texts are compared letter by letter, and two of an event may differ in the last."""


def _fold_cost(operand: Scalar | None) -> int:
    """The cost of folding an operand, constants by their length."""
    if isinstance(operand, Literal):
        return len(str(operand.value)) * CASE_COST // MAX_COMPUTED_CHARS
    return CASE_COST
