"""Filters: `Constraint` -> `Conjunction` -> `Filter`, immutable and compared by structure (DESIGN
3).

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
from typing import TYPE_CHECKING, Any, Final

from palio.model.binding import unbound
from palio.model.canonical import (
    Leaf,
    absorbed,
    conjunction_key,
    constraint_key,
    gathered,
    spread,
)
from palio.model.constraints import Constraint, Residual, domain_of
from palio.model.domains import Domain
from palio.model.operators import Op
from palio.model.printing import show_conjunction, show_filter
from palio.model.sizes import Meter, check_growth, longest
from palio.model.values import NO_VALUES, Bindings

if TYPE_CHECKING:
    from palio.model.explaining import Explanation

__all__ = ["FALSE", "TRUE", "Conjunction", "Constraint", "Filter", "Residual", "domain_of"]

_NO_NAMES: Final[frozenset[str]] = frozenset()


class Conjunction:
    """Constraints and residuals that must all hold. Build it with `Conjunction.of`."""

    __slots__ = ("__dict__", "_hash", "constraints", "residuals")

    def __init__(
        self, constraints: tuple[Constraint, ...], residuals: tuple[Residual, ...] = ()
    ) -> None:
        self.constraints = constraints
        self.residuals = residuals
        self._hash = hash((constraints, residuals))

    @classmethod
    def of(cls, parts: Iterable[Constraint | Residual]) -> Conjunction:
        """The canonical conjunction of some parts.

        >>> a, b = Constraint.of("x", "!=", 2), Constraint.of("x", "!=", 1)
        >>> str(Conjunction.of([a, b]))
        'x NOT IN (1, 2)'
        """
        constraints: list[Constraint] = []
        residuals: list[Residual] = []
        for part in parts:
            if isinstance(part, Residual):
                residuals.append(part)
            else:
                constraints.append(part)
        if len(constraints) > 1:
            constraints = gathered(constraints, Op.NE, Op.NOT_IN)
            constraints.sort(key=constraint_key)
        if len(residuals) > 1:
            residuals = sorted(set(residuals), key=str)
        return cls(tuple(constraints), tuple(residuals))

    @property
    def parts(self) -> tuple[Leaf, ...]:
        """Constraints and residuals together."""
        return (*self.constraints, *self.residuals)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        return _NO_NAMES.union(*(part.variables for part in self.parts))

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """What the constraints admit, attribute by attribute (no entry: anything).

        Only for a conjunction without variables in its constraints: bind them first.
        """
        found: dict[str, Domain] = {}
        for constraint in self.constraints:
            domain = domain_of(constraint)
            known = found.get(constraint.name)
            found[constraint.name] = domain if known is None else known.intersect(domain)
        return found

    @cached_property
    def is_contradiction(self) -> bool:
        """Whether its constraints certainly admit no event."""
        return any(domain.is_empty for domain in self.domains.values())

    @cached_property
    def intervals(self) -> int:
        """How many intervals of values its constraints come to."""
        return sum(each.intervals for each in self.domains.values())

    @cached_property
    def text_tests(self) -> int:
        """How many tests of texts that are no intervals."""
        return sum(each.text_tests for each in self.domains.values())

    @cached_property
    def weight(self) -> float:
        """What it adds to a comparison (`palio.model.effort`)."""
        return 1 + sum(each.weight for each in self.domains.values())

    def truth(self, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
        """True, False, or None for unknown: the AND of all parts."""
        known = True
        for part in self.parts:
            result = part.truth(event, values)
            if result is False:
                return False
            if result is None:
                known = False
        return True if known else None

    def substitute(self, values: Bindings) -> Conjunction | None:
        """With those variables that have a value replaced by it; None if that makes it false."""
        if not self.variables:
            return self
        from palio.model.normal_form import settled

        parts: list[Leaf] = [each.substitute(values) for each in self.constraints]
        for residual in self.residuals:
            part = settled(residual, values) if residual.variables else residual
            if part is False:
                return None
            if part is not True:
                parts.append(part)
        return Conjunction.of(parts)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Conjunction)
            and self._hash == other._hash
            and self.constraints == other.constraints
            and self.residuals == other.residuals
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Conjunction, (self.constraints, self.residuals)

    def __str__(self) -> str:
        return show_conjunction(self)

    def __repr__(self) -> str:
        return f"Conjunction({self})"


class Filter:
    """What a subscriber wants to hear: a DNF, immutable and hashable.

    Make one with `palio.parse`, from `palio.attr` expressions, or with `Filter.of`; combine filters
    with `&`, `|` and `~`. The empty disjunction is FALSE, the empty conjunction TRUE.

    >>> import palio
    >>> cheap = palio.parse("symbol = 'IBM' AND price < :limit")
    >>> cheap.matches({"symbol": "IBM", "price": 9.5}, {"limit": 10})
    True
    >>> sorted(cheap.variables)
    ['limit']
    """

    __slots__ = ("__dict__", "_hash", "conjunctions")

    def __init__(self, conjunctions: tuple[Conjunction, ...]) -> None:
        self.conjunctions = conjunctions
        self._hash = hash(conjunctions)

    @classmethod
    def of(cls, conjunctions: Iterable[Conjunction]) -> Filter:
        """The canonical disjunction of some conjunctions."""
        kept = list(conjunctions)
        if len(kept) > 1:
            kept = _with_lists(kept)
            by_parts = {frozenset(spread(each.parts)): each for each in kept}
            kept = [by_parts[parts] for parts in absorbed(by_parts)]
            kept.sort(key=lambda each: conjunction_key(each.constraints, each.residuals))
        return cls(tuple(kept))

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        return _NO_NAMES.union(*(each.variables for each in self.conjunctions))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes it reads."""
        names = {each.name for part in self.conjunctions for each in part.constraints}
        return frozenset(names).union(
            *(each.attributes for part in self.conjunctions for each in part.residuals)
        )

    def truth(self, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
        """True, False, or None for unknown, as SQL would say."""
        known = True
        for conjunction in self.conjunctions:
            result = conjunction.truth(event, values)
            if result is True:
                return True
            if result is None:
                known = False
        return False if known else None

    def matches(self, event: Mapping[str, Any], values: Bindings | None = None) -> bool:
        """Whether an event matches: its truth is True, neither False nor unknown."""
        return self.truth(event, NO_VALUES if values is None else values) is True

    def explain(self, event: Mapping[str, Any], values: Bindings | None = None) -> Explanation:
        """Why an event matches or not: every constraint with its verdict and the reason."""
        from palio.model.explaining import explain

        return explain(self, event, NO_VALUES if values is None else values)

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
        for each in self.conjunctions:
            replaced = each.substitute(values)
            if replaced is not None:
                left.append(replaced)
                if meter is not None:
                    meter.add(replaced)
        return Filter.of(left)

    def _meter_for(self, values: Bindings) -> Meter | None:
        """What watches the size while values are put in; None where they cannot make it too large.

        Without it one collection, put in for a variable that occurs a thousand times, would cost
        minutes before anybody looked at the result.
        """
        chars = longest(values)
        if chars is not None and self.size.has_room(chars):
            return None
        check_growth(self.conjunctions, values)
        return Meter()

    @cached_property
    def size(self) -> Meter:
        """How large it is, unchecked."""
        meter = Meter()
        for each in self.conjunctions:
            meter.count(each)
        return meter

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        from palio.model.normal_form import conjoin

        return conjoin(self, other)

    def __or__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        from palio.model.normal_form import disjoin

        return disjoin(self, other)

    def __invert__(self) -> Filter:
        from palio.model.normal_form import negate

        return negate(self)

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
        return show_filter(self)

    def __repr__(self) -> str:
        return f"palio.parse({str(self)!r})"


TRUE: Final = Filter((Conjunction(()),))
"""Matches every event."""

FALSE: Final = Filter(())
"""Matches no event."""


def _with_lists(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Alternatives that are one equality or list each, on one attribute, made one list."""
    lone = [
        each.constraints[0]
        for each in conjunctions
        if len(each.constraints) == 1 and not each.residuals
    ]
    if len(lone) < 2:
        return conjunctions
    rest = [each for each in conjunctions if len(each.constraints) != 1 or each.residuals]
    return [Conjunction((each,)) for each in gathered(lone, Op.EQ, Op.IN)] + rest
