"""Domains: the set of all states of one attribute that a conjunction lets through.

An attribute may be absent, or hold a value of one of the five kinds. A `Domain` holds for each of
these what it admits: for a kind, a union of half-open intervals of coordinates (values.py) narrowed
by text tests (texts.py). Relations between filters are set relations between domains.

Which answers are exact: `intersect` always; `includes` may err to False, `is_empty` to False and
`union` to None ("not expressible"), and only where text tests are involved.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from palio.model.operators import TEXT_TESTS, Op, like_parts
from palio.model.texts import (
    TextTest,
    contradict,
    excludes,
    fragments_of_prefix,
    implies,
    proves,
)
from palio.model.values import (
    TOP,
    Coordinate,
    Kind,
    coordinate,
    from_coordinate,
    lowest,
    past_prefix,
    past_prefix_bytes,
    successor,
)

Spans: TypeAlias = tuple[tuple[Any, Any], ...]
"""Half-open intervals of coordinates, ascending, never empty, never touching."""

_NO_TESTS: Final[frozenset[TextTest]] = frozenset()


class KindSet(msgspec.Struct, frozen=True):
    """Values of one kind: those in the spans that pass every test. NaN has a flag of its own."""

    spans: Spans
    tests: frozenset[TextTest] = _NO_TESTS
    nan: bool = False

    @property
    def is_empty(self) -> bool:
        """Certainly no value (a contradiction between tests may go unseen)."""
        if self.nan:
            return False
        if not self.tests:
            return not self.spans
        return _contradictory(self.tests) or all(
            _none_passes(low, high, self.tests) for low, high in self.spans
        )


class Domain(msgspec.Struct, frozen=True):
    """The values that an attribute may have: absence, and a set for each kind (none is empty).

    >>> point(Kind.NUMBER, 5).includes(EMPTY), PRESENT.includes(ABSENT)
    (True, False)
    """

    absent: bool
    kinds: dict[Kind, KindSet]

    @property
    def is_empty(self) -> bool:
        """Certainly nothing at all is admitted."""
        return not self.absent and all(kind_set.is_empty for kind_set in self.kinds.values())

    @property
    def has_present(self) -> bool:
        """Possibly some value is admitted."""
        return any(not kind_set.is_empty for kind_set in self.kinds.values())

    @property
    def intervals(self) -> int:
        """The number of intervals of values of all kinds."""
        return sum(len(kind_set.spans) for kind_set in self.kinds.values())

    @property
    def text_tests(self) -> int:
        """The number of tests of texts that are no intervals."""
        return sum(len(kind_set.tests) for kind_set in self.kinds.values())

    @property
    def weight(self) -> float:
        """The cost that it adds to a comparison (`palio.model.limits`): a text test counts 8, and
        eight intervals for one.
        """
        return self.intervals / 8 + 8 * self.text_tests

    def includes(self, other: Domain) -> bool:
        """Check whether everything in `other` is certainly in this domain."""
        if other.absent and not self.absent:
            return False
        mine = self.kinds
        for kind, theirs in other.kinds.items():
            own = mine.get(kind)
            if own is None:
                if not theirs.is_empty:
                    return False
            elif own is not theirs and not _includes(kind, own, theirs):
                return False
        return True

    def intersect(self, other: Domain) -> Domain:
        """Exactly what both admit."""
        shared = {
            kind: _intersect(kind, own, other.kinds[kind])
            for kind, own in self.kinds.items()
            if kind in other.kinds
        }
        return Domain(self.absent and other.absent, shared)

    def disjoint(self, other: Domain) -> bool:
        """Check whether certainly nothing is in both."""
        return self.intersect(other).is_empty

    def union(self, other: Domain) -> Domain | None:
        """Exactly what either admits, or None where that cannot be expressed."""
        if self.includes(other):
            return self
        if other.includes(self):
            return other
        kinds: dict[Kind, KindSet] = {}
        for kind in Kind:
            own, theirs = self.kinds.get(kind), other.kinds.get(kind)
            if own is None or theirs is None:
                only = own or theirs
                if only is not None:
                    kinds[kind] = only
                continue
            if own.tests != theirs.tests:
                return None
            spans = union_spans(own.spans + theirs.spans)
            kinds[kind] = KindSet(spans, own.tests, own.nan or theirs.nan)
        return Domain(self.absent or other.absent, kinds)

    def without_absent(self) -> Domain:
        """The same values, presence required."""
        return Domain(False, self.kinds) if self.absent else self


def full(kind: Kind) -> Spans:
    """All values of a kind (NaN apart)."""
    return ((lowest(kind), TOP),)


ANYTHING: Final = Domain(True, {k: KindSet(full(k), nan=k is Kind.NUMBER) for k in Kind})
"""No constraint at all: absent, or any value."""

PRESENT: Final = Domain(False, ANYTHING.kinds)
"""`EXISTS`: any value, NaN included."""

ABSENT: Final = Domain(True, {})
"""`IS NULL`."""

EMPTY: Final = Domain(False, {})
"""Nothing: a contradiction."""


def of_spans(kind: Kind, spans: Spans) -> Domain:
    """Present, of this kind, within these spans."""
    return Domain(False, {kind: KindSet(spans)})


def of_test(kind: Kind, test: TextTest, spans: Spans | None = None) -> Domain:
    """Present, of this kind, passing a text test."""
    return Domain(False, {kind: KindSet(spans or full(kind), frozenset((test,)))})


def point(kind: Kind, place: Coordinate) -> Domain:
    """Exactly one value."""
    return of_spans(kind, ((place, successor(kind, place)),))


def points(kind: Kind, places: Iterable[Any]) -> Spans:
    """The spans of a finite set of coordinates, neighbours joined."""
    return union_spans(tuple((place, successor(kind, place)) for place in places))


def prefix_spans(prefix: str | bytes) -> Spans:
    """All texts (or bytes) that start with a prefix: one interval."""
    end = past_prefix(prefix) if isinstance(prefix, str) else past_prefix_bytes(prefix)
    return ((prefix, end),)


def of_operator(op: Op, operand: Any, ignore_case: bool = False) -> Domain:
    """The values that `attribute op operand` admits; the operand is a literal, a tuple, or None.

    This is the set behind `palio.model.operators.holds`, and a property test holds the two
    together.
    """
    if op is Op.EXISTS:
        return PRESENT
    if op is Op.ABSENT:
        return ABSENT
    if isinstance(operand, tuple):
        kind = operand[0].kind
        if ignore_case:
            members = tuple(literal.value for literal in operand)
            return of_test(kind, TextTest(Op.IN, members, True, op is Op.NOT_IN))
        spans = points(kind, (coordinate(literal.value) for literal in operand))
        return of_spans(kind, complement(kind, spans) if op is Op.NOT_IN else spans)
    kind, place = operand.kind, coordinate(operand.value)
    ignore_case = ignore_case and operand.value != ""  # nothing has no case
    positive = op.negation if op.is_negative else op
    if ignore_case or op in TEXT_TESTS:
        test = TextTest(positive, operand.value, ignore_case, op.is_negative)
        return of_test(kind, test, _like_spans(test))
    spans = _SPANS[positive](kind, place)
    return of_spans(kind, complement(kind, spans) if op.is_negative else spans)


def _like_spans(test: TextTest) -> Spans | None:
    """A LIKE that starts with a literal run is within the interval of that prefix."""
    if test.op is not Op.LIKE or test.negated or test.ignore_case:
        return None
    first = like_parts(test.operand)[0]  # type: ignore[arg-type]  # LIKE operands are str
    return prefix_spans(first) if first else None


_SPANS: Final[dict[Op, Callable[[Kind, Any], Spans]]] = {
    Op.EQ: lambda kind, place: ((place, successor(kind, place)),),
    Op.LT: lambda kind, place: _ordered(lowest(kind), place),
    Op.LE: lambda kind, place: ((lowest(kind), successor(kind, place)),),
    Op.GT: lambda kind, place: _ordered(successor(kind, place), TOP),
    Op.GE: lambda kind, place: ((place, TOP),),
    Op.PREFIX: lambda _, place: prefix_spans(place),
}
"""The spans of each positive operator that is intervals."""


def _ordered(low: Any, high: Any) -> Spans:
    return ((low, high),) if low < high else ()


def complement(kind: Kind, spans: Spans) -> Spans:
    """All values of a kind outside the spans (NaN in neither)."""
    gaps = []
    start: Any = lowest(kind)
    for low, high in spans:
        if start < low:
            gaps.append((start, low))
        start = high
    if start is not TOP:
        gaps.append((start, TOP))
    return tuple(gaps)


def union_spans(spans: Spans) -> Spans:
    """Sorted, joined where they overlap or touch."""
    joined: list[tuple[Any, Any]] = []
    for low, high in sorted(spans, key=_low):
        if joined and low <= joined[-1][1]:
            if joined[-1][1] < high:
                joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def intersect_spans(one: Spans, other: Spans) -> Spans:
    """The spans that lie in both."""
    if len(one) == 1 and len(other) == 1:
        (a, b), (c, d) = one[0], other[0]
        low, high = max(a, c), (min(d, b))
        return ((low, high),) if low < high else ()
    shared = []
    i = j = 0
    while i < len(one) and j < len(other):
        low = max(one[i][0], other[j][0])
        high = min(other[j][1], one[i][1])
        if low < high:
            shared.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(shared)


def spans_include(outer: Spans, inner: Spans) -> bool:
    """Check whether every inner span is within one outer span."""
    if len(outer) == 1:
        low, high = outer[0]
        return not inner or (low <= inner[0][0] and inner[-1][1] <= high)
    for low, high in inner:
        at = bisect_right(outer, low, key=_low) - 1
        if at < 0 or not high <= outer[at][1]:
            return False
    return True


def finite_members(kind: Kind, spans: Spans) -> list[Any] | None:
    """The coordinates in the spans when each span is a single value, else None."""
    if all(successor(kind, low) == high for low, high in spans):
        return [low for low, _ in spans]
    return None


def _low(span: tuple[Any, Any]) -> Any:
    return span[0]


def _includes(kind: Kind, outer: KindSet, inner: KindSet) -> bool:
    if inner.nan and not outer.nan:
        return False
    if not spans_include(outer.spans, inner.spans) and not _stays_out(kind, inner, outer.spans):
        return inner.is_empty
    if not outer.tests:
        return True
    return all(_passes(kind, inner, test) for test in outer.tests) or inner.is_empty


def _stays_out(kind: Kind, inner: KindSet, spans: Spans) -> bool:
    """Check whether the tests of a set certainly admit nothing outside some spans."""
    if not inner.tests:
        return False
    outside = intersect_spans(inner.spans, complement(kind, spans))
    return all(_none_passes(low, high, inner.tests) for low, high in outside)


def _none_passes(low: Any, high: Any, tests: frozenset[TextTest]) -> bool:
    """Check whether certainly no text in `[low, high)` passes all tests."""
    kind = Kind.STRING if isinstance(low, str) else Kind.BYTES
    if successor(kind, low) == high:
        return not all(test.holds(low) for test in tests)
    prefix = common_prefix(low, high)
    prefix_test = TextTest(Op.PREFIX, prefix)
    return bool(prefix) and any(implies(prefix_test, test.inverted()) for test in tests)


def _passes(kind: Kind, inner: KindSet, wanted: TextTest) -> bool:
    """Check whether every text of a set certainly passes a test."""
    if any(implies(test, wanted) for test in inner.tests):
        return True
    members = finite_members(kind, inner.spans)
    if members is not None:
        return all(
            wanted.holds(from_coordinate(kind, member))
            for member in members
            if all(test.holds(member) for test in inner.tests)
        )
    return all(_span_passes(low, high, wanted) for low, high in inner.spans)


def _span_passes(low: Any, high: Any, wanted: TextTest) -> bool:
    prefix = common_prefix(low, high)
    if not prefix:
        return False
    if wanted.negated:
        positive = wanted.inverted()
        test = TextTest(Op.PREFIX, prefix)
        return positive.op is not Op.CIDR and excludes(test, positive)
    return proves(fragments_of_prefix(prefix), wanted)


def common_prefix(low: Any, high: Any) -> Any:
    """The longest prefix that every text in `[low, high)` has (empty if there is none)."""
    if high is TOP:
        return low[:0]
    past: Any = past_prefix if isinstance(low, str) else past_prefix_bytes
    # What holds of a prefix holds of a shorter one, so the longest is found by halving.
    longest = bisect_left(range(1, len(low) + 1), True, key=lambda size: past(low[:size]) < high)
    return low[:longest]


def _intersect(kind: Kind, one: KindSet, other: KindSet) -> KindSet:
    spans = intersect_spans(one.spans, other.spans)
    tests = one.tests | other.tests if one.tests and other.tests else one.tests or other.tests
    if tests and spans:
        members = finite_members(kind, spans)
        if members is not None:  # a finite set answers its tests at once
            kept = [member for member in members if all(test.holds(member) for test in tests)]
            spans, tests = points(kind, kept), _NO_TESTS
    return KindSet(spans, tests, one.nan and other.nan)


@lru_cache(maxsize=8192)
def _contradictory(tests: frozenset[TextTest]) -> bool:
    ordered = sorted(tests, key=lambda test: (test.op, str(test.operand)))
    return any(
        contradict(one, other)
        for place, one in enumerate(ordered)
        for other in ordered[place + 1 :]
    )
