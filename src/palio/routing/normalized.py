"""`NormalizedFilter`: the properties of a filter that routing needs often, computed once.

A broker measures each filter, compares it with others and tests events by it. Filters are
immutable, so equal ones share one normalized form. Most filters are *plain*: a single conjunction
that restricts each attribute to one interval of one kind. For these, to cover is to compare bounds,
and matching needs no three-valued logic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.model.advertisements import Advertisement
from palio.model.constraints import Constraint, domain_of
from palio.model.domains import Domain
from palio.model.filters import Conjunction
from palio.model.limits import Effort
from palio.model.merging import merged
from palio.model.values import TOP, Kind, coordinate, kind_of, successor

Interval: TypeAlias = tuple[Kind, Any, Any]
"""A kind and a half-open interval of its coordinates."""

Plain: TypeAlias = dict[str, Interval]
"""The interval of each restricted attribute."""

Point: TypeAlias = tuple[str, Kind, Any]
"""An attribute, and the kind and coordinate of its one value."""

Bounds: TypeAlias = tuple[float, float]
"""Least and greatest admitted coordinate, measured."""

Key: TypeAlias = str | Point
"""A search key of boxes: an attribute, or one value of it."""

Stated: TypeAlias = Any
"""A filter without variables, or an advertisement. A table holds one of the two."""

Test: TypeAlias = Callable[[Mapping[str, Any]], bool]

ANY_KIND: Final = -1
"""The kind of a side that admits several kinds, or absence."""

_MARK_BITS: Final = 63
"""Bits of a signed word without its sign."""

SIDE: Final = 5
"""Columns of a side as the kernel has it: name, kind, value, low, high."""

_EXACT: Final = (1 << 52) - 1
"""Whole numbers up to this are exact as floats."""

_TEXT_BYTES: Final = 6
"""Leading bytes of a string that fit a float64 exactly (48 of 53 bits)."""

_REMEMBERED: Final = 1 << 16
"""Filters, and constraints, whose forms are cached."""


def measure(coordinate: Any) -> float:
    """Map a coordinate to a float: monotone, not injective.

    >>> measure("ab") < measure("b") < measure(TOP)
    True
    """
    if coordinate is TOP:
        return math.inf
    if isinstance(coordinate, str):
        coordinate = coordinate[:_TEXT_BYTES].encode()  # UTF-8 sorts as its code points do
    if isinstance(coordinate, bytes):
        return float(int.from_bytes(coordinate[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")))
    return float(coordinate)


class Side(NamedTuple):
    """A bound on one attribute of a box: its admitted values lie between two measured bounds."""

    name: str
    kind: int
    bounds: Bounds
    point: Point | None = None
    """The single admitted value, if there is only one."""


class Box:
    """A conjunction as the covering index files it and searches for it."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides
        points = [(side.point, side.bounds) for side in sides if side.point is not None]
        names = [(side.name, side.bounds) for side in sides]
        self.keys: list[tuple[Key, Bounds]] = [*points, *names]
        """The search keys of all sides, with bounds: single values first, as they are rarer."""

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """A row for each side as the kernel compares it; a value of 0 stands for several."""
        sides = [
            (_number(name), kind, 0 if point is None else _number(point), *bounds)
            for name, kind, bounds, point in self.sides
        ]
        return np.array(sides).reshape(len(sides), SIDE)

    @cached_property
    def mark(self) -> int:
        """A bit for each attribute; two attributes may share one."""
        mark = 0
        for side in self.sides:
            mark |= 1 << hash(side.name) % _MARK_BITS
        return mark


def _number(key: Key) -> int:
    """Return a number, never 0, for an attribute or a value.

    Equal numbers of two keys only make a needless candidate. Hashes differ between processes, so
    these numbers are never saved or sent.
    """
    return hash(key) & _EXACT | 1


class NormalizedFilter:
    """A filter without variables as routing sees it.

    >>> import palio
    >>> wide, narrow = form_of(palio.parse("a > 1")), form_of(palio.parse("a > 5 AND b = 2"))
    >>> narrow.plain["b"][:2], wide.covers(narrow), narrow.covers(wide)
    ((<Kind.NUMBER: 1>, 2), True, False)
    """

    def __init__(self, filter: Stated) -> None:
        self.filter = filter
        self.plain: Plain | None = None
        """The intervals of a plain filter."""
        if isinstance(filter, Advertisement):  # routing needs no more of it
            self.breadth = filter.breadth
            return
        self.breadth = sum(len(conjunction.constraints) for conjunction in filter.conjunctions)
        """Number of constraints: wide filters have few, roughly."""
        if len(filter.conjunctions) == 1:
            self.plain = _plain(filter.conjunctions[0])

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """Boxes such that each alternative of a covered filter lies in one of them."""
        if self.plain is not None:
            return (Box([_side(name, *interval) for name, interval in self.plain.items()]),)
        alternatives = [
            conjunction
            for conjunction in self.filter.conjunctions
            if not conjunction.is_contradiction
        ]
        if len(alternatives) > 1:
            # `a < 5 OR a >= 5` covers `a > 1`, which lies in neither alternative: add their unions.
            unions = merged(alternatives, Effort())
            alternatives = list(dict.fromkeys((*alternatives, *unions)))
        return tuple(
            Box([_side_of(name, domain) for name, domain in conjunction.domains.items()])
            for conjunction in alternatives
        )

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The attributes that the filter fixes to one value, if it is plain."""
        return tuple(
            [
                (name, kind, low)
                for name, (kind, low, high) in (self.plain or {}).items()
                if successor(kind, low) == high
            ]
        )

    @cached_property
    def test(self) -> Test:
        """A test of whether an event matches, as fast as possible."""
        if self.plain is None:
            matches: Test = self.filter.matches
            return matches
        return _test_of([(name, *interval) for name, interval in self.plain.items()])

    @cached_property
    def rest(self) -> Test:
        """A test of events that have the first of the points: it is not tested again."""
        first = self.points[0][0]
        return _test_of(
            [(name, *interval) for name, interval in (self.plain or {}).items() if name != first]
        )

    def covers(self, other: NormalizedFilter) -> bool | None:
        """Return whether this covers another filter; None if intervals alone do not decide it."""
        ours, theirs = self.plain, other.plain
        if ours is None or theirs is None:
            return None
        for name, (kind, low, high) in ours.items():
            inner = theirs.get(name)
            if inner is None or inner[0] is not kind or inner[1] < low or high < inner[2]:
                return False
        return True


@lru_cache(_REMEMBERED)
def form_of(filter: Stated) -> NormalizedFilter:
    """Return the one form of all filters, or advertisements, equal to this one."""
    return NormalizedFilter(filter)


def _plain(conjunction: Conjunction) -> Plain | None:
    """Return the intervals of a conjunction; None if it has others, or contradicts itself."""
    if conjunction.residuals:
        return None
    plain: Plain = {}
    for constraint in conjunction.constraints:
        interval = _interval_of(constraint)
        if interval is None:
            return None
        earlier = plain.get(constraint.name)
        if earlier is not None:
            if earlier[0] is not interval[0]:
                return None
            low, high = max(earlier[1], interval[1]), min(earlier[2], interval[2])
            if not low < high:
                return None
            interval = (earlier[0], low, high)
        plain[constraint.name] = interval
    return plain


@lru_cache(_REMEMBERED)
def _interval_of(constraint: Constraint) -> Interval | None:
    domain = domain_of(constraint)
    if domain.absent or len(domain.kinds) != 1:
        return None
    ((kind, values),) = domain.kinds.items()
    if values.tests or values.nan or len(values.spans) != 1:
        return None
    return kind, *values.spans[0]


@lru_cache(_REMEMBERED)
def _side(name: str, kind: Kind, low: Any, high: Any) -> Side:
    """Make the side of a box for an interval."""
    point = (name, kind, low) if successor(kind, low) == high else None
    return Side(name, kind, (measure(low), measure(high)), point)


def _side_of(name: str, domain: Domain) -> Side:
    """Make the side of a box for a domain."""
    kinds = [(kind, values) for kind, values in domain.kinds.items() if not values.is_empty]
    if domain.absent or len(kinds) != 1 or not kinds[0][1].spans:
        return Side(name, ANY_KIND, (-math.inf, math.inf))
    ((kind, values),) = kinds
    side = _side(name, kind, values.spans[0][0], values.spans[-1][1])
    return side._replace(point=None) if values.nan else side  # NaN has no coordinate


def _always(_event: Mapping[str, Any]) -> bool:
    return True


def _test_of(sides: list[tuple[str, Kind, Any, Any]]) -> Test:
    if not sides:
        return _always
    if len(sides) == 1:
        return _single_test(*sides[0])

    def inside(event: Mapping[str, Any]) -> bool:
        for name, kind, low, high in sides:
            value = event.get(name)
            if value is None or kind_of(value) is not kind:
                return False
            position = coordinate(value)
            if not low <= position or not position < high:  # so NaN is outside
                return False
        return True

    return inside


def _single_test(name: str, kind: Kind, low: Any, high: Any) -> Test:
    """Return the test of one attribute without a loop: most filters have only one."""

    def inside(event: Mapping[str, Any]) -> bool:
        value = event.get(name)
        if value is None or kind_of(value) is not kind:
            return False
        return bool(low <= coordinate(value) < high)  # so NaN is outside

    return inside
