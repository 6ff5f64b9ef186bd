"""Constraints and residuals: the leaves of a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from palio.errors import InvalidFilter
from palio.model import domains
from palio.model.binding import substitute, substitute_operand, unusable
from palio.model.domains import Domain
from palio.model.evaluation import computed_truth, decide
from palio.model.expressions import (
    Attribute,
    Foreign,
    Literal,
    Scalar,
    Test,
    Variable,
    attributes_of,
    cost_of,
    literal,
    test,
    variables_of,
)
from palio.model.limits import MAX_STRING_CHARS
from palio.model.operators import MEMBERSHIP, ORDER, Op
from palio.model.printing import show_comparison, show_name, show_test
from palio.model.values import (
    INT64_MAX,
    INT64_MIN,
    NO_VALUES,
    Bindings,
    Kind,
    check_name,
    checked,
)

COMPARISONS: Final = ORDER | {Op.EQ, Op.NE}
"""Operators that take a number or a text as it is."""

Operand: TypeAlias = "Literal | Variable | tuple[Literal | Variable, ...] | None"
"""A constant, a variable, a list of them after IN, or nothing after IS NULL."""


class Constraint(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One test of one attribute against constants or variables.

    Build it with `Constraint.of`, which checks operand and operator and takes plain values. Nothing
    that it holds leads back to it, so the garbage collector need not visit it.

    >>> str(Constraint.of("price", "<", 5)), str(Constraint.of("price", "<", Variable("limit")))
    ('price < 5', 'price < :limit')
    """

    name: str
    op: Op
    operand: Operand = None
    ignore_case: bool = False

    @classmethod
    def of(
        cls, name: str, op: Op | str, operand: object = None, ignore_case: bool = False
    ) -> Constraint:
        """A checked constraint in canonical spelling."""
        check_name(name, InvalidFilter)
        op = _operator(op)
        given: Any = operand
        if op in MEMBERSHIP and not isinstance(operand, Variable):
            given = tuple(_as_operand(item) for item in _listed(op, operand))
        elif op not in (Op.EXISTS, Op.ABSENT):
            given = _as_operand(operand)
        return cls.from_test(test(Attribute(name), op, given, ignore_case))

    @classmethod
    def from_test(cls, check: Test) -> Constraint:
        """The constraint that a test of a bare attribute is."""
        assert isinstance(check.subject, Attribute)
        operand: Any = check.operand
        return cls(check.subject.name, check.op, operand, check.ignore_case)

    def as_test(self) -> Test:
        """The same as a node of the syntax tree."""
        return Test(Attribute(self.name), self.op, self.operand, self.ignore_case)

    @property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        operand = self.operand
        if type(operand) is Literal:  # nearly all are
            return _NO_NAMES
        if isinstance(operand, Variable):
            return frozenset((operand.name,))
        if isinstance(operand, tuple):
            return frozenset(
                variable.name for variable in operand if isinstance(variable, Variable)
            )
        return _NO_NAMES

    def truth(self, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
        """True, False, or None for unknown."""
        value = event.get(self.name)
        if value is not None:
            value = checked(value)
        return decide(value, self.op, self.operand, self.ignore_case, event, values)

    def inverted(self) -> Constraint:
        """True where this one is false, unknown where it is unknown."""
        return Constraint(self.name, self.op.negation, self.operand, self.ignore_case)

    def substitute(self, values: Bindings) -> Constraint:
        """With those variables that have a value replaced by it."""
        plain = self._plainly_substituted(values)
        if plain is not None:
            return plain
        operand: Any = substitute_operand(self.op, self.operand, self.ignore_case, values)
        if operand is self.operand:
            return self
        return Constraint.from_test(test(Attribute(self.name), self.op, operand, self.ignore_case))

    def _plainly_substituted(self, values: Bindings) -> Constraint | None:
        """The same for what most filters are: a comparison with a number or a text that every
        comparison can use as it is; None for anything else.
        """
        operand = self.operand
        if not isinstance(operand, Variable) or self.ignore_case or self.op not in COMPARISONS:
            return None
        value: Any = values.get(operand.name)
        kind = type(value)
        if kind is int and INT64_MIN <= value <= INT64_MAX:
            return Constraint(self.name, self.op, Literal(Kind.NUMBER, value), False)
        if kind is str and len(value) <= MAX_STRING_CHARS and value.isascii():
            return Constraint(self.name, self.op, Literal(Kind.STRING, value), False)
        return None

    def __str__(self) -> str:
        return show_comparison(show_name(self.name), self.op, self.operand, self.ignore_case)


_NO_NAMES: Final[frozenset[str]] = frozenset()


def _operator(op: Op | str) -> Op:
    try:
        return Op(op)
    except ValueError:
        names = ", ".join(op.value for op in Op)
        raise InvalidFilter(f"{op!r:.40} is no operator; there are {names}") from None


def _listed(op: Op, operand: object) -> Iterable[object]:
    if isinstance(operand, str | bytes) or not isinstance(operand, Iterable):
        raise InvalidFilter(f"{op.value} takes a list of values, not {operand!r:.40}")
    return operand


def _as_operand(value: object) -> Scalar:
    return value if isinstance(value, Variable | Literal) else literal(value)


class Residual:
    """A condition that does not reduce to constraints: `bid > ask * 1.01`.

    Identity is the canonical text. It is evaluated last, on what the constraints left.
    """

    __slots__ = ("_text", "_variables", "condition")

    def __init__(self, condition: Test | Foreign) -> None:
        self.condition = condition
        self._variables: frozenset[str] | None = None
        self._text = condition.text if isinstance(condition, Foreign) else show_test(condition)

    @property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        if self._variables is None:
            check = self.condition
            self._variables = _NO_NAMES if isinstance(check, Foreign) else variables_of(check)
        return self._variables

    @property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes it reads."""
        condition = self.condition
        return condition.attributes if isinstance(condition, Foreign) else attributes_of(condition)

    @property
    def cost(self) -> int:
        """The cost of one evaluation, in the units of `MAX_RESIDUAL_COST`."""
        condition = self.condition
        return condition.cost if isinstance(condition, Foreign) else cost_of(condition)

    def truth(self, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
        """True, False, or None for unknown."""
        if isinstance(self.condition, Foreign):
            return self.condition.truth(event)
        return computed_truth(self.condition, event, values)

    def inverted(self) -> Residual:
        """True where this one is false, unknown where it is unknown."""
        condition = self.condition
        if isinstance(condition, Foreign):
            return Residual(condition.inverted())
        return Residual(
            Test(condition.subject, condition.op.negation, condition.operand, condition.ignore_case)
        )

    def substitute(self, values: Bindings) -> Residual:
        """With those variables that have a value replaced by it."""
        condition = self.substituted(values)
        return self if condition is self.condition else Residual(condition)

    def substituted(self, values: Bindings) -> Test | Foreign:
        """The condition of that."""
        check = self.condition
        if isinstance(check, Foreign) or not self.variables:
            return check
        subject = substitute(check.subject, values)
        operand = substitute_operand(check.op, check.operand, check.ignore_case, values)
        try:
            return test(subject, check.op, operand, check.ignore_case)
        except InvalidFilter as error:
            raise unusable(self._text, self.variables, values, str(error)) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Residual) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Residual, (self.condition,)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Residual({self._text})"


def domain_of(constraint: Constraint) -> Domain:
    """The values that a constraint without variables admits."""
    return domains.of_operator(constraint.op, constraint.operand, constraint.ignore_case)
