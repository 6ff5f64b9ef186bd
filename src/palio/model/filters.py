"""Filters: `Constraint` -> `Conjunction` -> `Filter`, immutable, compared by structure.

A filter is a disjunction of conjunctions of constraints on single attributes, plus *residual*
conditions that do not reduce to constraints. Canonical form, kept by the `of` constructors and
relied on everywhere:

- a conjunction's constraints are sorted and distinct, and `x != 1 AND x != 2` is `x NOT IN (1, 2)`;
- a filter's conjunctions are sorted and distinct, none contains another (absorption), and
  `x = 1 OR x = 2` is `x IN (1, 2)`.

Each of these steps is a law of three-valued logic, so a filter and its negation stay exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from palio.errors import InvalidFilter
from palio.model import html
from palio.model.binding import unbound
from palio.model.canonical import Clause, absorbed, conjunction_key, gathered, spread
from palio.model.conjunctions import Conjunction
from palio.model.constraints import Constraint, Residual, domain_of
from palio.model.explaining import Explanation, explain
from palio.model.expressions import Boolean
from palio.model.normal_form import clauses_of, product
from palio.model.operators import Op
from palio.model.sizes import Meter, check_growth, check_size, longest
from palio.model.values import NO_VALUES, Bindings

__all__ = [
    "FALSE",
    "TRUE",
    "Conjunction",
    "Constraint",
    "Filter",
    "Residual",
    "UnreadFilter",
    "checked_filter",
    "domain_of",
    "reduce",
]

_NO_NAMES: Final[frozenset[str]] = frozenset()


class Filter:
    """A condition on events: a disjunction of conjunctions, immutable and hashable.

    Make one with `palio.parse`, from `palio.attr` expressions, or with `Filter.of`; combine filters
    with `&`, `|` and `~`. The empty disjunction is FALSE, the empty conjunction TRUE.

    >>> import palio
    >>> cheap = palio.parse("symbol = 'IBM' AND price < :limit")
    >>> cheap.matches({"symbol": "IBM", "price": 9.5}, {"limit": 10})
    True
    >>> sorted(cheap.variables)
    ['limit']
    """

    __slots__ = ("__dict__", "_hash", "_variables", "conjunctions")

    def __init__(self, conjunctions: tuple[Conjunction, ...]) -> None:
        self.conjunctions = conjunctions
        self._hash = hash(conjunctions)
        self._variables: frozenset[str] | None = None

    @classmethod
    def of(cls, conjunctions: Iterable[Conjunction]) -> Filter:
        """The canonical disjunction of some conjunctions."""
        kept = list(conjunctions)
        if len(kept) > 1:
            kept = _with_lists(kept)
            by_parts = {frozenset(spread(conjunction.parts)): conjunction for conjunction in kept}
            kept = [by_parts[parts] for parts in absorbed(by_parts)]
            kept.sort(
                key=lambda conjunction: conjunction_key(
                    conjunction.constraints, conjunction.residuals
                )
            )
        return cls(tuple(kept))

    @property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        if self._variables is None:  # kept beside `__dict__`, which few filters then need
            names = _NO_NAMES
            for conjunction in self.conjunctions:
                names = names | conjunction.variables or _NO_NAMES
            self._variables = names
        return self._variables

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes it reads."""
        names = {constraint.name for part in self.conjunctions for constraint in part.constraints}
        return frozenset(names).union(
            *(residual.attributes for part in self.conjunctions for residual in part.residuals)
        )

    def truth(self, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
        """True, False, or None for unknown, as in SQL."""
        truth = True
        for conjunction in self.conjunctions:
            result = conjunction.truth(event, values)
            if result is True:
                return True
            if result is None:
                truth = False
        return False if truth else None

    def matches(self, event: Mapping[str, Any], values: Bindings | None = None) -> bool:
        """Check whether an event matches: its truth is True, neither False nor unknown."""
        return self.truth(event, NO_VALUES if values is None else values) is True

    def explain(self, event: Mapping[str, Any], values: Bindings | None = None) -> Explanation:
        """Explain why an event matches or not: every constraint with its verdict and the reason."""
        values = NO_VALUES if values is None else values
        return explain(self.conjunctions, self.truth(event, values), event, values)

    def bind(self, values: Bindings) -> Filter:
        """The filter with all its variables replaced by constants.

        >>> import palio
        >>> str(palio.parse("price < :limit").bind({"limit": 10}))
        'price < 10'
        """
        for name in sorted(self.variables):
            if name not in values:
                raise unbound(name)
        return self.substitute(values)

    def substitute(self, values: Bindings) -> Filter:
        """The filter with those variables that have a value replaced by it, the others kept."""
        if not self.variables:
            return self
        meter = self._meter_for(values)
        left = []
        for conjunction in self.conjunctions:
            replaced = conjunction.substitute(values)
            if replaced is not None:
                left.append(replaced)
                if meter is not None:
                    meter.add(replaced)
        return Filter.of(left)

    def _meter_for(self, values: Bindings) -> Meter | None:
        """A meter of the size while values are put in; None where they cannot make it too large.

        Without it one collection, put in for a variable that occurs a thousand times, would cost
        minutes before the result is checked.
        """
        chars = longest(values)
        if chars is not None and self.size.has_room(chars):
            return None
        check_growth(self.conjunctions, values)
        return Meter()

    @cached_property
    def size(self) -> Meter:
        """Its size, unchecked."""
        meter = Meter()
        for conjunction in self.conjunctions:
            meter.count(conjunction)
        return meter

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return _built(product([self._clauses(), other._clauses()]))

    def __or__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return _checked(Filter.of((*self.conjunctions, *other.conjunctions)))

    def __invert__(self) -> Filter:
        """Matches where this one is false: neither true nor unknown."""
        return _built(
            product(
                [frozenset((leaf.inverted(),)) for leaf in conjunction.parts]
                for conjunction in self.conjunctions
            )
        )

    def _clauses(self) -> list[Clause]:
        return [frozenset(conjunction.parts) for conjunction in self.conjunctions]

    def __bool__(self) -> bool:
        raise TypeError(
            "a filter is neither true nor false; combine filters with & | ~ instead of "
            "and/or/not, write attr.x.between(a, b) for a < x < b, and call matches() to test"
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Filter)
            and self._hash == other._hash
            and self.conjunctions == other.conjunctions
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter, (self.conjunctions,)

    def __str__(self) -> str:
        return " OR ".join(map(str, self.conjunctions)) or "FALSE"

    def __repr__(self) -> str:
        return f"palio.parse({str(self)!r})"

    def _repr_html_(self) -> str:
        return html.code(self)


TRUE: Final = Filter((Conjunction(()),))
"""Matches every event."""

FALSE: Final = Filter(())
"""Matches no event."""


class UnreadFilter(Filter):
    """TRUE in the place of a `text` that could not be read, as it is of a newer grammar.

    >>> UnreadFilter("x RESEMBLES 'y'") == TRUE
    True
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(TRUE.conjunctions)
        self.text = text


def reduce(expression: Boolean) -> Filter:
    """The filter that a condition is.

    >>> from palio.model.expressions import Attribute, Not, literal, test
    >>> str(reduce(Not(test(Attribute("price"), Op.LT, literal(5)))))
    'price >= 5'
    """
    return _built(clauses_of(expression))


def _built(clauses: Iterable[Clause]) -> Filter:
    return _checked(Filter.of(Conjunction.of(clause) for clause in clauses))


def _checked(filter: Filter) -> Filter:
    check_size(filter.conjunctions)
    return filter


def _with_lists(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Alternatives that are one equality or list each, on one attribute, made one list."""
    lone = [
        conjunction.constraints[0]
        for conjunction in conjunctions
        if len(conjunction.constraints) == 1 and not conjunction.residuals
    ]
    if len(lone) < 2:
        return conjunctions
    rest = [
        conjunction
        for conjunction in conjunctions
        if len(conjunction.constraints) != 1 or conjunction.residuals
    ]
    return [Conjunction((constraint,)) for constraint in gathered(lone, Op.EQ, Op.IN)] + rest


def checked_filter(given: object) -> Filter:
    """The filter that was handed in; anything else, a pattern above all, is refused.

    A pattern has no relation to another: a wider one takes other events first.
    """
    if isinstance(given, Filter):
        return given
    raise InvalidFilter(f"a Filter is needed here, not a {type(given).__name__}")
