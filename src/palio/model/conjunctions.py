"""Conjunctions: constraints and residuals that must all hold, the alternatives of a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

from palio.model.canonical import Leaf, constraint_key, gathered
from palio.model.constraints import Constraint, Residual, domain_of
from palio.model.domains import Domain
from palio.model.normal_form import settled
from palio.model.operators import Op
from palio.model.values import NO_VALUES, Bindings

_NO_NAMES: Final[frozenset[str]] = frozenset()


_name: Final = attrgetter("name")


class Conjunction:
    """Constraints and residuals that must all hold. Build it with `Conjunction.of`."""

    __slots__ = ("__dict__", "_hash", "_variables", "constraints", "residuals")

    def __init__(
        self, constraints: tuple[Constraint, ...], residuals: tuple[Residual, ...] = ()
    ) -> None:
        self.constraints = constraints
        self.residuals = residuals
        self._hash = hash((constraints, residuals))
        self._variables: frozenset[str] | None = None

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
        if len({constraint.name for constraint in constraints}) == len(constraints):
            constraints.sort(key=_name)  # nothing to gather, and nothing else decides the order
        else:
            constraints = gathered(constraints, Op.NE, Op.NOT_IN)
            constraints.sort(key=constraint_key)
        if len(residuals) > 1:
            residuals = sorted(set(residuals), key=str)
        return cls(tuple(constraints), tuple(residuals))

    @property
    def parts(self) -> tuple[Leaf, ...]:
        """Constraints and residuals together."""
        return (*self.constraints, *self.residuals)

    @property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        if self._variables is None:  # kept beside `__dict__`, which few conjunctions then need
            names = _NO_NAMES
            for part in self.parts:
                names = names | part.variables or _NO_NAMES
            self._variables = names
        return self._variables

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """The values that the constraints admit, by attribute (no entry: any value).

        Only for a conjunction without variables in its constraints: bind them first.
        """
        domains: dict[str, Domain] = {}
        for constraint in self.constraints:
            domain = domain_of(constraint)
            earlier = domains.get(constraint.name)
            domains[constraint.name] = domain if earlier is None else earlier.intersect(domain)
        return domains

    @cached_property
    def is_contradiction(self) -> bool:
        """True if its constraints certainly admit no event."""
        return any(domain.is_empty for domain in self.domains.values())

    @cached_property
    def intervals(self) -> int:
        """The number of intervals of values that its constraints come to."""
        return sum(domain.intervals for domain in self.domains.values())

    @cached_property
    def text_tests(self) -> int:
        """The number of tests of texts that are no intervals."""
        return sum(domain.text_tests for domain in self.domains.values())

    @cached_property
    def weight(self) -> float:
        """The cost that it adds to a comparison (`palio.model.limits`)."""
        return 1 + sum(domain.weight for domain in self.domains.values())

    def truth(self, event: Mapping[str, Any], values: Bindings = NO_VALUES) -> bool | None:
        """True, False, or None for unknown: the AND of all parts."""
        truth = True
        for part in self.parts:
            result = part.truth(event, values)
            if result is False:
                return False
            if result is None:
                truth = False
        return True if truth else None

    def covers(self, other: Conjunction) -> bool:
        """Check whether all events that satisfy the other one certainly satisfy this one.

        Only for conjunctions without variables.
        """
        inner = other.domains
        for name, domain in self.domains.items():
            narrower = inner.get(name)
            if narrower is None or not domain.includes(narrower):
                return other.is_contradiction
        if self.residuals and not set(self.residuals) <= set(other.residuals):
            return other.is_contradiction
        return True

    def substitute(self, values: Bindings) -> Conjunction | None:
        """With those variables that have a value replaced by it; None if that makes it false."""
        if not self.variables:
            return self
        parts: list[Leaf] = [constraint.substitute(values) for constraint in self.constraints]
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
        return " AND ".join(map(str, self.parts)) or "TRUE"

    def __repr__(self) -> str:
        return f"Conjunction({self})"
