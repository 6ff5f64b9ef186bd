"""Merging: fewer filters that accept exactly the same events (siena 5; parametric 4).

Two conjunctions that differ in one attribute merge perfectly when the union of their domains there
is again expressible by constraints: an interval, a list, an interval without some points, a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from palio.model.domains import (
    ABSENT,
    ANYTHING,
    PRESENT,
    Domain,
    complement,
    finite_members,
    full,
    prefix_spans,
)
from palio.model.filters import Conjunction, Constraint, Filter, checked_filter
from palio.model.limits import MAX_IN_VALUES, Effort
from palio.model.operators import Op
from palio.model.values import TOP, Kind, from_coordinate, lowest, successor


def merge(filters: Iterable[Filter]) -> Filter:
    """One filter that matches exactly what any of these matches, as small as merging gets it.

    >>> import palio
    >>> str(
    ...     palio.merge([palio.parse("a = 1 AND p < 5"), palio.parse("a = 1 AND p >= 5 AND p < 9")])
    ... )
    'a = 1 AND p < 9'
    """
    checked = map(checked_filter, filters)
    return Filter.of(merged([conjunction for one in checked for conjunction in one.conjunctions]))


def merged(conjunctions: Iterable[Conjunction], effort: Effort | None = None) -> list[Conjunction]:
    """Conjunctions with the same union, covered ones dropped and perfect merges made.

    Conjunctions with variables are left as they are: what they admit changes. So are those that are
    left when the effort is spent.
    """
    effort = effort or Effort(math.inf)
    fixed: list[Conjunction] = []
    moving: list[Conjunction] = []
    for alternative in dict.fromkeys(conjunctions):
        (moving if alternative.variables else fixed).append(alternative)
    pending = [conjunction for conjunction in fixed if not conjunction.is_contradiction]
    done: list[Conjunction] = []
    while pending:
        candidate = pending.pop()
        partner = _partner(candidate, done, effort)
        if partner is None:
            done.append(candidate)
        else:
            place, whole = partner
            del done[place]
            pending.append(whole)
    done.reverse()
    return [*done, *moving]


def _partner(
    candidate: Conjunction, others: Sequence[Conjunction], effort: Effort
) -> tuple[int, Conjunction] | None:
    for place, other in enumerate(others):
        if not effort.compare(candidate, other):
            return None
        whole = _perfect(candidate, other)
        if whole is not None:
            return place, whole
    return None


def _perfect(one: Conjunction, other: Conjunction) -> Conjunction | None:
    """The conjunction that is exactly the union of two, if there is one."""
    if one.covers(other):
        return one
    if other.covers(one):
        return other
    if one.residuals != other.residuals:
        return None
    mine, theirs = one.domains, other.domains
    names = [
        name
        for name in {**mine, **theirs}
        if mine.get(name, ANYTHING) != theirs.get(name, ANYTHING)
    ]
    if len(names) != 1:
        return None
    (name,) = names
    if _are_apart(mine.get(name, ANYTHING), theirs.get(name, ANYTHING)):
        return None
    union = mine.get(name, ANYTHING).union(theirs.get(name, ANYTHING))
    constraints = None if union is None else constraints_of(name, union)
    if constraints is None:
        return None
    same = [constraint for constraint in one.constraints if constraint.name != name]
    return Conjunction.of([*same, *constraints, *one.residuals])


def _are_apart(one: Domain, other: Domain) -> bool:
    """Check whether two intervals are so far apart that no constraints state both: most are."""
    mine, theirs = one.kinds, other.kinds
    if one.absent or other.absent or len(mine) != 1 or mine.keys() != theirs.keys():
        return False
    ((kind, values),) = mine.items()
    others = theirs[kind]
    if values.tests or others.tests or len(values.spans) != 1 or len(others.spans) != 1:
        return False
    (first, second) = sorted((values.spans[0], others.spans[0]), key=lambda span: span[0])
    if not first[1] < second[0] or successor(kind, first[1]) == second[0]:
        return False
    return bool(successor(kind, first[0]) != first[1]) or successor(kind, second[0]) != second[1]


def constraints_of(name: str, domain: Domain) -> list[Constraint] | None:
    """Constraints on one attribute that admit exactly a domain, or None if no conjunction does.

    >>> from palio.model.domains import of_spans
    >>> [str(each) for each in constraints_of("x", of_spans(Kind.NUMBER, ((1, 5),)))]
    ['x >= 1', 'x < 5']
    """
    if domain == ANYTHING:
        return []
    if domain == PRESENT:
        return [Constraint(name, Op.EXISTS)]
    if domain == ABSENT:
        return [Constraint(name, Op.ABSENT)]
    if domain.absent or len(domain.kinds) != 1:
        return None
    ((kind, values),) = domain.kinds.items()
    if values.nan:
        return None
    tests = [
        Constraint.of(
            name,
            test.op.negation if test.negated else test.op,
            test.operand,
            test.ignore_case,
        )
        for test in sorted(values.tests)
    ]
    ordered = _of_spans(name, kind, values.spans)
    if ordered is None:
        return None
    if tests and values.spans == full(kind):
        ordered = []
    return ordered + tests


def _of_spans(name: str, kind: Kind, spans: Any) -> list[Constraint] | None:
    if not spans:
        return None
    members = finite_members(kind, spans)
    if members is not None and len(members) <= MAX_IN_VALUES:
        return [Constraint.of(name, Op.IN, [from_coordinate(kind, member) for member in members])]
    low, high = spans[0][0], spans[-1][1]
    constraints = _of_interval(name, kind, low, high)
    holes = [
        (low_hole, high_hole)
        for low_hole, high_hole in complement(kind, spans)
        if low < high_hole and low_hole < high
    ]
    if not holes:
        return constraints
    excluded = finite_members(kind, tuple(holes))
    if excluded is None or len(excluded) > MAX_IN_VALUES:
        return None
    values = [from_coordinate(kind, coordinate) for coordinate in excluded]
    if (low, high) == full(kind)[0]:
        constraints = []
    return [*constraints, Constraint.of(name, Op.NOT_IN, values)]


def _of_interval(name: str, kind: Kind, low: Any, high: Any) -> list[Constraint]:
    """The fewest constraints for `[low, high)`."""
    if kind in (Kind.STRING, Kind.BYTES) and prefix_spans(low) == ((low, high),):
        return [Constraint.of(name, Op.PREFIX, low)]
    constraints = []
    if low != lowest(kind) or (high is TOP):
        constraints.append(_bound(name, kind, low, Op.GE, Op.GT))
    if high is not TOP:
        constraints.append(_bound(name, kind, high, Op.LT, Op.LE))
    return constraints


def _bound(name: str, kind: Kind, place: Any, at: Op, beside: Op) -> Constraint:
    """`>= place`, or `> p` where place is the successor of a simpler p; for an end likewise."""
    before = _predecessor(kind, place)
    if before is not None and len(repr(before)) < len(repr(place)):
        return Constraint.of(name, beside, from_coordinate(kind, before))
    return Constraint.of(name, at, from_coordinate(kind, place))


def _predecessor(kind: Kind, place: Any) -> Any:
    """A coordinate whose successor this is, where there is one worth trying."""
    if kind is Kind.NUMBER:
        before = math.nextafter(float(place), -math.inf)
        if successor(kind, before) == place:
            return int(before) if before.is_integer() and abs(before) < 2**63 else before
    elif (kind is Kind.STRING and place.endswith("\0")) or (
        kind is Kind.BYTES and place.endswith(b"\0")
    ):
        return place[:-1]
    return None
