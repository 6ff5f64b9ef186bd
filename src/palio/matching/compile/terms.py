"""Turn subscriptions into templates: constants of filters become terms that can be compiled.

A table's numeric comparisons become arrays of cuts at once; every other constraint is worked out
once for each distinct constant. Conjunctions with residuals become rows of *guards*: their matches
count only where the residuals hold as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from palio.errors import InvalidBinding, InvalidInput
from palio.matching.compile.ranges import (
    HIGH_ENDS,
    LOW_ENDS,
    DomainChoice,
    Range,
    RowTemplate,
    ranges_of,
)
from palio.matching.layers import Longs
from palio.matching.subscriptions import (
    RANGES,
    Column,
    Subscription,
    Table,
    Use,
    is_number,
)
from palio.model.constraints import Constraint, Residual, domain_of
from palio.model.domains import Domain
from palio.model.expressions import Literal, Variable
from palio.model.filters import Conjunction
from palio.model.values import Bindings


@dataclass(frozen=True)
class Guard:
    """Conditions without variables that a row's matches must meet, and the filter it belongs to."""

    key: int
    residuals: tuple[Residual, ...]
    destination: int
    place: int
    """Which conjunction of the filter (of the skeleton, in a table) it comes from."""


def bound_residuals(conjunction: Conjunction, values: Bindings) -> tuple[Residual, ...]:
    """The residuals with values in place of variables; those whose value is null are dropped."""
    return tuple(
        residual.substitute(values)
        for residual in conjunction.residuals
        if residual.variables <= values.keys()
    )


def single_templates(
    subscriptions: Mapping[int, Subscription], guards: list[Guard]
) -> tuple[list[RowTemplate], list[RowTemplate]]:
    """Templates of single filters: rows of the keys, and rows of guards (added to the list).

    All conjunctions go into one template: a small set is compiled at every match after a change, so
    that what counts here is the work for each filter.
    """
    plain, guarded = _Gathered(), _Gathered()
    for key, subscription in subscriptions.items():
        comparisons = subscription.comparisons
        if comparisons is not None:
            plain.add_comparisons(key, *comparisons)
            continue
        for place, conjunction in enumerate(subscription.filter.conjunctions):
            values = subscription.values
            if conjunction.residuals:
                residuals = bound_residuals(conjunction, values)
                guards.append(Guard(key, residuals, subscription.destination, place))
                guarded.add(len(guards) - 1, conjunction, values)
            else:
                plain.add(key, conjunction, values)
    return plain.templates(), guarded.templates()


class _Gathered:
    """Constraints of many conjunctions: comparisons of numbers in flat lists, the rest by name."""

    def __init__(self) -> None:
        self.owners: list[int] = []
        self.counts: list[int] = []
        self.uses: list[Use] = []
        self.numbers: list[int | float] = []
        self.others: dict[str, tuple[list[int], list[int], dict[Constraint, int]]] = {}

    def add_comparisons(
        self, owner: int, uses: Sequence[Use], numbers: Sequence[int | float]
    ) -> None:
        """The next row, which is comparisons with numbers and nothing else."""
        self.owners.append(owner)
        self.counts.append(len(uses))
        self.uses += uses
        self.numbers += numbers

    def add(self, owner: int, conjunction: Conjunction, values: Bindings) -> None:
        """The next row. A number for a variable is taken as it is: it was checked before."""
        row, uses = len(self.owners), len(self.uses)
        self.owners.append(owner)
        for constraint in conjunction.constraints:
            operand = constraint.operand
            value: Any = None
            if isinstance(operand, Literal):
                value = operand.value
            elif isinstance(operand, Variable):
                value = values[operand.name]
            if constraint.op in RANGES and is_number(value):
                self.uses.append((constraint.name, constraint.op))
                self.numbers.append(value)
                continue
            rows, choice, distinct = self.others.setdefault(constraint.name, ([], [], {}))
            rows.append(row)
            bound = constraint.substitute(values) if values else constraint
            choice.append(distinct.setdefault(bound, len(distinct)))
        self.counts.append(len(self.uses) - uses)

    def templates(self) -> list[RowTemplate]:
        """All rows as one template."""
        if not self.owners:
            return []
        terms: list[Range | DomainChoice] = list(self._ranges())
        for name, (rows, choice, distinct) in self.others.items():
            domains = [domain_of(constraint) for constraint in distinct]
            terms.append(DomainChoice(name, domains, np.array(choice), np.array(rows)))
        return [RowTemplate(np.array(self.owners, np.int64), terms)]

    def _ranges(self) -> Iterator[Range]:
        """A term for each operator and type of number."""
        numbers = np.array(self.numbers)
        of_type = [(numbers, np.arange(len(numbers)))]
        if numbers.dtype != np.int64:  # integers must not go through floats
            types = np.array([type(number) is int for number in self.numbers], np.bool_)
            of_type = [
                (np.array([self.numbers[place] for place in places.tolist()], dtype), places)
                for dtype, places in (
                    (np.int64, np.flatnonzero(types)),
                    (np.float64, np.flatnonzero(~types)),
                )
            ]
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        numbered = {use: place for place, use in enumerate(dict.fromkeys(self.uses))}
        uses = np.array([numbered[use] for use in self.uses], np.int64)
        names = tuple(name for name, _ in numbered)
        for op in {op for _, op in numbered}:
            of_op = np.array([entry is op for _, entry in numbered])[uses]
            for values, places in of_type:
                here = of_op[places]
                if here.any():
                    some, chosen = values[here], places[here]
                    low = LOW_ENDS[op](some) if op in LOW_ENDS else None
                    high = HIGH_ENDS[op](some) if op in HIGH_ENDS else None
                    yield Range(names, low, high, rows[chosen], which=uses[chosen])


def table_templates(
    table: Table, guards: list[Guard]
) -> tuple[list[RowTemplate], list[RowTemplate]]:
    """Templates of a table: one for each conjunction of its skeleton."""
    plain: list[RowTemplate] = []
    guarded: list[RowTemplate] = []
    for number, conjunction in enumerate(table.skeleton.conjunctions):
        terms = [
            term for constraint in conjunction.constraints for term in _terms(constraint, table)
        ]
        if not conjunction.residuals:
            plain.append(RowTemplate(table.keys, terms))
            continue
        first = len(guards)
        for place, key in enumerate(table.keys.tolist()):
            residuals = bound_residuals(conjunction, table.subscription(place).values)
            guards.append(Guard(key, residuals, int(table.destinations[place]), number))
        guarded.append(RowTemplate(np.arange(first, len(guards)), terms))
    return plain, guarded


def _terms(constraint: Constraint, table: Table) -> list[Range | DomainChoice]:
    names = sorted(constraint.variables)
    if not names:
        everywhere = np.zeros(len(table.keys), np.int64)
        return [DomainChoice(constraint.name, (domain_of(constraint),), everywhere)]
    columns = [table.columns[name] for name in names]
    rows: Longs | None = None
    for column in columns:
        if column.rows is not None:
            here = column.rows.astype(np.int64)
            rows = here if rows is None else np.intersect1d(rows, here, assume_unique=True)
    kept = [_taken(column, rows) for column in columns]
    if not len(kept[0]):
        return []
    first = kept[0]
    if isinstance(constraint.operand, Variable) and first.type in (pa.int64(), pa.float64()):
        numbers = first.to_numpy()
        if first.type == pa.float64() and bool(np.isnan(numbers).any()):
            raise InvalidBinding(
                f"column {names[0]!r} holds NaN, which satisfies no comparison", name=names[0]
            )
        ranges = ranges_of(constraint.name, constraint.op, numbers, rows)
        if ranges is not None:
            return [ranges]
    return [_choice(constraint, names, kept, rows)]


def _taken(column: Column, rows: Longs | None) -> Any:
    """The values of some rows, all of which have one."""
    if rows is None or (column.rows is not None and len(column.rows) == len(rows)):
        return column.values
    places = rows if column.rows is None else np.searchsorted(column.rows, rows)
    return column.values.take(pa.array(places, pa.int64()))


def _choice(
    constraint: Constraint, names: list[str], columns: list[Any], rows: Longs | None
) -> DomainChoice:
    """The domain for every distinct combination of the constants."""
    choice = np.zeros(len(columns[0]), np.int64)
    distinct: list[list[Any]] = []
    for column in columns:
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_pylist()
        choice = choice * len(values) + encoded.indices.to_numpy()
        distinct.append(values)
    used, choice = np.unique(choice, return_inverse=True)
    domains = []
    for number in used.tolist():
        values, combination = {}, number
        for name, members in zip(reversed(names), reversed(distinct), strict=True):
            combination, place = divmod(combination, len(members))
            values[name] = members[place]
        domains.append(_bound_domain(constraint, values))
    return DomainChoice(constraint.name, domains, choice, rows)


def _bound_domain(constraint: Constraint, values: dict[str, Any]) -> Domain:
    bound = constraint.substitute(values)
    operand = bound.operand
    if isinstance(operand, tuple) and not all(isinstance(item, Literal) for item in operand):
        raise InvalidInput(f"{constraint} has a variable without a column")
    return domain_of(bound)
