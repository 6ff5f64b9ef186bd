"""`NormalizedFilter`: all that routing asks of a filter again and again, worked out once.

A filter that travels is met by every broker on its way, and at each it is measured, compared and
tried on events. Filters are immutable, so all of them share one answer. Most filters are *plain*: a
single conjunction that holds each attribute to one interval of one kind. Covering is then a
comparison of bounds, and matching needs no three-valued logic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

from palio.model.advertisements import Advertisement
from palio.model.constraints import Constraint, domain_of
from palio.model.domains import Domain
from palio.model.filters import Conjunction
from palio.model.limits import Effort
from palio.model.merging import merged
from palio.model.values import TOP, Kind, coordinate, kind_of, successor

__all__ = [
    "ANY_KIND",
    "Bounds",
    "Box",
    "NormalizedFilter",
    "Plain",
    "Point",
    "Sides",
    "Stated",
    "Test",
    "Token",
    "form_of",
    "measure",
]

Token: TypeAlias = tuple[str, int, Any]
"""Attribute, kind, and the value if there is only one."""

Bounds: TypeAlias = tuple[tuple[float, float], ...]
"""Least and greatest admitted places, measured."""

Sides: TypeAlias = dict[Token, tuple[float, float]]
"""For each token the bounds of what is admitted there."""

Interval: TypeAlias = tuple[Kind, Any, Any]
"""A kind and a half-open interval of its coordinates."""

Plain: TypeAlias = dict[str, Interval]
"""For each attribute the interval it is held to."""

Point: TypeAlias = tuple[str, Kind, Any]
"""An attribute, and the kind and coordinate of its one value."""

Stated: TypeAlias = Any
"""A filter without variables, or an advertisement, as a peer stated it; a table holds one kind."""

Test: TypeAlias = Callable[[Mapping[str, Any]], bool]

ANY_KIND: Final = -1
"""The kind of a token that says only that the attribute is restrained."""

_TEXT_BYTES: Final = 6
"""Leading bytes of a string that fit a float64 exactly (48 of 53 bits)."""

_REMEMBERED: Final = 1 << 16
"""Filters, and constraints, whose forms are kept at hand."""


def measure(place: Any) -> float:
    """A coordinate on a line of floats: monotone, not injective.

    >>> measure("ab") < measure("b") < measure(TOP)
    True
    """
    if place is TOP:
        return math.inf
    if isinstance(place, str):
        place = place[:_TEXT_BYTES].encode()
    if isinstance(place, bytes):
        return float(int.from_bytes(place[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")))
    return float(place)


class Box:
    """A conjunction as an index over domains files it and looks it up."""

    __slots__ = ("bounds", "given", "options", "ranged", "sides", "telling")

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        by_name: dict[str, list[Token]] = {}
        for token in sides:
            by_name.setdefault(token[0], []).append(token)
        telling: list[Token] = []
        given = dict(sides)
        for name in sorted(by_name):
            tokens = by_name[name]
            said = [token for token in tokens if token[2] is not None] or tokens.copy()
            telling += said
            anything: Token = (name, ANY_KIND, None)
            if anything not in given:
                given[anything] = sides[said[0]]
                tokens.append(anything)
        self.telling = tuple(telling)
        """Of each attribute, by name, the token that says most."""
        self.ranged = tuple(
            [token for token in telling if token[2] is None and token[1] != ANY_KIND]
        )
        """Those of them that leave bounds to compare, which are `bounds`."""
        self.bounds: Bounds = tuple([sides[token] for token in self.ranged])
        self.given = given
        """Bounds by each token that what holds this box may have."""
        self.options = tuple([by_name[name] for name in sorted(by_name)])
        """These tokens again, attribute by attribute, by name."""


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
        """Its intervals, if it is plain."""
        if isinstance(filter, Advertisement):  # no more is asked of it
            self.breadth = filter.breadth
            return
        self.breadth = sum(len(each.constraints) for each in filter.conjunctions)
        """Its number of constraints: wide filters have few, roughly."""
        if len(filter.conjunctions) == 1:
            self.plain = _plain(filter.conjunctions[0])

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """Boxes such that whatever it covers lies, alternative by alternative, in one of them."""
        if self.plain is not None:
            sides: Sides = {}
            for name, interval in self.plain.items():
                sides.update(_sides(name, interval))
            return (Box(sides),)
        parts = [each for each in self.filter.conjunctions if not each.is_contradiction]
        if len(parts) > 1:
            parts = list(dict.fromkeys((*parts, *merged(parts, Effort()))))
        return tuple(_box_of(part) for part in parts)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The attributes that must have one value for it to match, if it is plain."""
        return tuple(
            [
                (name, kind, low)
                for name, (kind, low, high) in (self.plain or {}).items()
                if successor(kind, low) == high
            ]
        )

    @cached_property
    def test(self) -> Test:
        """Whether an event matches, as fast as that can be said."""
        if self.plain is None:
            matches: Test = self.filter.matches
            return matches
        return _test_of([(name, *interval) for name, interval in self.plain.items()])

    @cached_property
    def rest(self) -> Test:
        """Whether an event matches of which it is known that it has the first of the points."""
        first = self.points[0][0]
        return _test_of(
            [(name, *interval) for name, interval in (self.plain or {}).items() if name != first]
        )

    def covers(self, other: NormalizedFilter) -> bool | None:
        """Whether it covers another one; None if that cannot be said by intervals alone."""
        mine, theirs = self.plain, other.plain
        if mine is None or theirs is None:
            return None
        for name, (kind, low, high) in mine.items():
            known = theirs.get(name)
            if known is None or known[0] is not kind or known[1] < low or high < known[2]:
                return False
        return True


@lru_cache(_REMEMBERED)
def form_of(filter: Stated) -> NormalizedFilter:
    """The one form of all filters (or advertisements) equal to this one."""
    return NormalizedFilter(filter)


def _plain(conjunction: Conjunction) -> Plain | None:
    if conjunction.residuals:
        return None
    found: Plain = {}
    for constraint in conjunction.constraints:
        interval = _interval_of(constraint)
        if interval is None:
            return None
        known = found.get(constraint.name)
        if known is not None:
            if known[0] is not interval[0]:
                return None
            low, high = max(known[1], interval[1]), min(known[2], interval[2])
            if not low < high:
                return None
            interval = (known[0], low, high)
        found[constraint.name] = interval
    return found


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
def _sides(name: str, interval: Interval) -> Sides:
    """The sides of a box on an attribute that must lie in an interval."""
    kind, low, high = interval
    bounds = (measure(low), measure(high))
    sides: Sides = {(name, int(kind), None): bounds}
    if successor(kind, low) == high:
        sides[name, int(kind), low] = bounds
    return sides


def _box_of(conjunction: Conjunction) -> Box:
    """The box of a conjunction that is no contradiction."""
    return Box(
        {
            token: bounds
            for name, domain in conjunction.domains.items()
            for token, bounds in _tokens(name, domain)
        }
    )


def _tokens(name: str, domain: Domain) -> Iterator[tuple[Token, tuple[float, float]]]:
    kinds = [(kind, values) for kind, values in domain.kinds.items() if not values.is_empty]
    if domain.absent or len(kinds) != 1 or not kinds[0][1].spans:
        yield (name, ANY_KIND, None), (-math.inf, math.inf)
        return
    ((kind, values),) = kinds
    (low, _), (_, high) = values.spans[0], values.spans[-1]
    bounds = (measure(low), measure(high))
    yield (name, int(kind), None), bounds
    if not values.nan and successor(kind, low) == high:
        yield (name, int(kind), low), bounds


def _always(_event: Mapping[str, Any]) -> bool:
    return True


def _test_of(sides: list[tuple[str, Kind, Any, Any]]) -> Test:
    if not sides:
        return _always
    if len(sides) == 1:
        return _lone_test(*sides[0])

    def inside(event: Mapping[str, Any]) -> bool:
        for name, kind, low, high in sides:
            value = event.get(name)
            if value is None or kind_of(value) is not kind:
                return False
            place = coordinate(value)
            if not low <= place or not place < high:  # so NaN is outside
                return False
        return True

    return inside


def _lone_test(name: str, kind: Kind, low: Any, high: Any) -> Test:
    """What `_test_of` says of one attribute: most events are asked about no more."""

    def inside(event: Mapping[str, Any]) -> bool:
        value = event.get(name)
        if value is None or kind_of(value) is not kind:
            return False
        place = coordinate(value)
        return bool(low <= place < high)  # of NaN neither

    return inside
