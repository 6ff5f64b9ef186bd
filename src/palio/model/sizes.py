"""The size of a filter: its text must stay one that every broker reads.

Filters travel between brokers as their canonical text. So each operation that makes a filter
(parsing, combining, binding, narrowing) is refused with `LimitExceeded` where its text would be
refused: here are the limits of conjunctions, parts, constants, tokens and characters, counted
without printing. Counts of tokens and characters are upper bounds; only where the characters might
be too many is the text of each distinct part measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Final

from palio.errors import LimitExceeded
from palio.model.conjunctions import Conjunction
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import (
    Arithmetic,
    Call,
    Foreign,
    Literal,
    Scalar,
    Test,
    Variable,
    walk,
)
from palio.model.limits import (
    MAX_CONJUNCTIONS,
    MAX_CONSTANTS,
    MAX_CONSTRAINTS,
    MAX_RESIDUAL_COST,
    MAX_TEXT_CHARS,
    MAX_TEXT_TESTS,
    MAX_TOKENS,
    check_limit,
)
from palio.model.operators import NEGATIVE, TEXT_TESTS, Op
from palio.model.values import Bindings

LONG_LIST: Final = 32
"""Constants of a list beyond which the lexer takes the list as one token."""

_CONSTRAINT_CHARS: Final = 40
"""`NOT STARTS WITH`, `IGNORE CASE`, `AND`, and the spaces between them."""

_SCALAR_CHARS: Final = 48
"""`TIMESTAMP '...'` is the longest constant that is no string, with a comma after it."""


def check_size(conjunctions: Iterable[Conjunction]) -> None:
    """Refuse a filter that is larger than the limits allow, or whose text is."""
    meter = Meter()
    for conjunction in conjunctions:
        meter.add(conjunction)


def longest(values: Bindings) -> int | None:
    """Characters of the longest of some values; None if one is of more tokens than a variable."""
    most = 0
    for value in values.values():
        if type(value) is int:
            continue
        if isinstance(value, str | bytes):
            most = max(most, len(value))
        elif isinstance(value, tuple | list | set | frozenset) or _is_minus_infinity(value):
            return None
    return most


def check_growth(conjunctions: Iterable[Conjunction], values: Bindings) -> None:
    """Refuse values that would be too much in all the places they are put in, before they are."""
    constants = chars = 0
    for conjunction in conjunctions:
        for part in conjunction.parts:
            for name in part.variables:
                value = values.get(name)
                if isinstance(value, str | bytes):
                    chars += len(value)
                elif isinstance(value, tuple | list | set | frozenset):
                    constants += len(value)
        for limit, maximum, actual in (
            ("MAX_CONSTANTS", MAX_CONSTANTS, constants),
            ("MAX_TEXT_CHARS", MAX_TEXT_CHARS, chars),
        ):
            check_limit("a filter with its values", limit, maximum, actual)


class Meter:
    """Adds up the conjunctions of one filter, and refuses the one that is too much.

    >>> import palio
    >>> meter = Meter()
    >>> for conjunction in palio.parse("a = 1 OR b = 2 AND c < 3").conjunctions:
    ...     meter.add(conjunction)
    >>> meter.parts, meter.tokens
    (3, 12)
    """

    __slots__ = ("_costs", "_seen", "chars", "constants", "cost", "parts", "tests", "tokens")

    def __init__(self) -> None:
        self.parts = self.constants = self.tokens = self.chars = self.cost = 0
        self.tests = 0
        """Tests of text on one attribute, where there are most."""
        # Tokens of each residual, which is evaluated once, however often it occurs.
        self._costs: dict[Residual, int] = {}
        self._seen: list[Conjunction] = []

    def add(self, conjunction: Conjunction) -> None:
        """Count one more conjunction; `LimitExceeded` if it is too much."""
        self.count(conjunction)
        self._check()

    def count(self, conjunction: Conjunction) -> None:
        """Count one more conjunction."""
        self._seen.append(conjunction)
        self.parts += len(conjunction.constraints) + len(conjunction.residuals)
        tests: dict[str, int] = {}
        for constraint in conjunction.constraints:
            self._add_constraint(constraint)
            if constraint.ignore_case or constraint.op in TEXT_TESTS:
                tests[constraint.name] = tests.get(constraint.name, 0) + 1
        if tests:
            self.tests = max(self.tests, *tests.values())
        for residual in conjunction.residuals:
            self._add_residual(residual)

    def has_room(self, chars: int) -> bool:
        """Check whether the text is within the limit even if every constant in it were so long."""
        return self.chars + 2 * chars * self.tokens <= MAX_TEXT_CHARS

    def _add_constraint(self, constraint: Constraint) -> None:
        operand = constraint.operand
        self.tokens += 4 + (constraint.op in _TWO_WORDS) + constraint.ignore_case
        self.chars += _CONSTRAINT_CHARS + 2 * len(constraint.name)
        if isinstance(operand, tuple):
            self.constants += len(operand)
            if len(operand) <= LONG_LIST or not all(type(item) is Literal for item in operand):
                self.tokens += 3 * len(operand)
            self.chars += sum(map(_chars, operand))
        elif operand is not None:
            self.tokens += _is_two(operand)
            self.chars += _chars(operand)

    def _add_residual(self, residual: Residual) -> None:
        tokens = self._costs.get(residual)
        if tokens is None:
            tokens = self._costs[residual] = _tokens(residual)
            self.cost += residual.cost
        self.tokens += tokens
        self.chars += len(str(residual)) + len(" AND ")

    def _check(self) -> None:
        if self.chars > MAX_TEXT_CHARS:
            self.chars = self._measured()
        for quantity, limit, maximum, actual in (
            ("number of alternatives", "MAX_CONJUNCTIONS", MAX_CONJUNCTIONS, len(self._seen)),
            ("number of constraints", "MAX_CONSTRAINTS", MAX_CONSTRAINTS, self.parts),
            ("tests of one text", "MAX_TEXT_TESTS", MAX_TEXT_TESTS, self.tests),
            ("number of listed constants", "MAX_CONSTANTS", MAX_CONSTANTS, self.constants),
            ("cost of residuals", "MAX_RESIDUAL_COST", MAX_RESIDUAL_COST, self.cost),
            ("number of words and signs", "MAX_TOKENS", MAX_TOKENS, self.tokens),
            ("text", "MAX_TEXT_CHARS", MAX_TEXT_CHARS, self.chars),
        ):
            if actual > maximum:
                raise LimitExceeded(
                    f"a filter's {quantity}", limit=limit, maximum=maximum, actual=actual
                )

    def _measured(self) -> int:
        """The very number of characters so far; each distinct part is printed once."""
        lengths: dict[object, int] = {}
        total = 0
        for conjunction in self._seen:
            for part in conjunction.parts:
                if part not in lengths:
                    lengths[part] = len(str(part)) + len(" AND ")
                total += lengths[part]
        return total


_TWO_WORDS: Final = frozenset({*(NEGATIVE - {Op.NE}), Op.EXISTS})
"""Operators of one token more than the others: `NOT IN`, `IS NOT NULL`."""


def _is_two(node: object) -> bool:
    """Check whether its text is two tokens: `-INFINITY`."""
    return isinstance(node, Literal) and node.value == -math.inf


def _chars(scalar: Scalar) -> int:
    """The largest number of characters it may have, with the comma after it."""
    if type(scalar) is Literal:
        value = scalar.value
        if type(value) is str:
            return len(value) + value.count("'") + 4
        if type(value) is int:
            return len(repr(value)) + 2
        return 2 * len(value) + 5 if isinstance(value, bytes) else _SCALAR_CHARS
    if isinstance(scalar, Variable):
        return max(_SCALAR_CHARS, len(scalar.name) + 3)
    return _SCALAR_CHARS


def _tokens(residual: Residual) -> int:
    """The largest number of tokens it may have, with the AND after it."""
    condition = residual.condition
    if isinstance(condition, Foreign):
        return condition.weight + 2
    total = 6  # `NOT STARTS WITH`, the parentheses of a list, `IGNORE CASE`, `AND`
    for node in walk(condition):
        match node:
            case Call():
                total += 4  # its name, parentheses, and a comma after it
            case Arithmetic():
                total += 4  # its sign, parentheses, and a comma after it
            case Test():
                pass
            case _:
                total += 2 + _is_two(node)
    return total


def _is_minus_infinity(value: object) -> bool:
    """Check numbers only: an array, which is refused later, compares to an array."""
    return isinstance(value, Real) and value == -math.inf
