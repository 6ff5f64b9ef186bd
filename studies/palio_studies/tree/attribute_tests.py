"""Elementary tests in a fixed total order, and conjunctions as paths of results (gryphon 2, 3).

A conjunction becomes a `Path`: a sequence of steps, each a test with the result it asks for. The
model's domains do the static analysis: `x = 5 AND x < 10` is one step, because the equality decides
the inequality. The tests of one attribute, in their order:

    Value     which value is it?              one edge a value: the equality version's only test
    Cut       is it below this coordinate?    a range is two: below its end, not below its start

Results are exclusive, so an event follows at most one edge of a node besides `*`; no result at all
(absent, another kind, NaN) follows only `*`. Cuts come in the order of a digest and not of their
coordinates: implied results (`Cut.implied`) make the cuts of an attribute a search tree, and a
fixed pseudo-random order keeps such a tree shallow whatever the constants, as in a treap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from palio.errors import NotSupported
from palio.model.domains import Domain
from palio.model.filters import Conjunction
from palio.model.limits import check_limit
from palio.model.printing import show_name, show_value
from palio.model.values import TOP, Kind, from_coordinate, lowest, successor

MAX_BRANCHES: Final = 16
"""Paths that one conjunction may become: `x IN (1, 2, 3)` is three."""


class Star(Enum):
    """The type of `STAR`, the edge of those that do not care about a node's test."""

    STAR = "*"


STAR: Final = Star.STAR

Result: TypeAlias = Any
"""What a test says of a value: a label, True, False, or None for nothing; `STAR` on an edge."""


class ValueSource(NamedTuple):
    """What a test reads of an event: an attribute's label, or its coordinate if of some kind."""

    attribute: str
    kind: Kind | None


def label(kind: Kind, place: Any) -> Result:
    """A coordinate as a result of `Value`: equal only to the same value of the same kind.

    >>> label(Kind.NUMBER, 1), label(Kind.BOOL, True)
    (1, (<Kind.BOOL: 0>, True))
    """
    return (kind, place) if kind in _TAGGED else place


_TAGGED: Final = frozenset({Kind.BOOL, Kind.TIME})
"""Kinds whose coordinates look like numbers to Python."""


def of_label(result: Result) -> tuple[Kind, Any]:
    """The kind and coordinate of a label: the inverse of `label`."""
    if isinstance(result, tuple):
        return result
    if isinstance(result, str):
        return Kind.STRING, result
    return (Kind.BYTES if isinstance(result, bytes) else Kind.NUMBER), result


def show_label(result: Result) -> str:
    """A label as a filter writes the value."""
    return show_value(from_coordinate(*of_label(result)))


class ElementaryTest(ABC):
    """A test of one attribute. Two tests are the same when their places in the order are."""

    __slots__ = ("order", "source")

    def __init__(self, source: ValueSource, order: tuple[Any, ...]) -> None:
        self.source = source
        self.order = order

    @abstractmethod
    def result(self, value: Any) -> Result:
        """The result for what the source reads of an event; None if there is none."""

    def implied(self, bounds: Mapping[ValueSource, Bounds]) -> Result:
        """The result that the ranges of a path imply; `STAR` if they do not decide it."""
        del bounds
        return STAR

    def result_for(self, known: Result) -> Result:
        """The result for an attribute whose label is known."""
        kind, place = of_label(known)
        return self.result(place) if kind is self.source.kind else None

    def show(self, result: Result) -> str:
        """An edge's result for people."""
        return {True: "yes", False: "no", STAR: "*"}[result]

    def __str__(self) -> str:
        return show_name(self.source.attribute)


class Value(ElementaryTest):
    """Which value an attribute has: the test of the equality version (gryphon 3)."""

    __slots__ = ()

    def result(self, value: Any) -> Result:
        """The label itself."""
        return value

    def result_for(self, known: Result) -> Result:
        """The label itself."""
        return known

    def show(self, result: Result) -> str:
        """The value as a filter writes it."""
        return "*" if result is STAR else show_label(result)


class Cut(ElementaryTest):
    """Whether an attribute of some kind lies below a coordinate."""

    __slots__ = ("place",)

    def __init__(self, source: ValueSource, order: tuple[Any, ...], place: Any) -> None:
        super().__init__(source, order)
        self.place = place

    def result(self, value: Any) -> Result:
        """True below, False above, None where the kind is another one (or NaN)."""
        if value is None:
            return None
        if value < self.place:
            return True
        return False if value >= self.place else None

    def implied(self, bounds: Mapping[ValueSource, Bounds]) -> Result:
        """True or False where a path's range lies on one side of the cut."""
        return self.decide(bounds.get(self.source, UNBOUNDED))

    def decide(self, bounds: Bounds) -> Result:
        """The side on which a range lies, `STAR` if it straddles the cut."""
        low, high = bounds
        if high is not None and high <= self.place:
            return True
        return False if low is not None and low >= self.place else STAR

    def __str__(self) -> str:
        return f"{super().__str__()} < {_shown(self.source.kind, self.place)}"


class Bounds(NamedTuple):
    """The cuts of a range `[low, high)`; None where it has no cut."""

    low: Any = None
    high: Any = None

    def narrowed(self, test: ElementaryTest, result: Result) -> Bounds:
        """What is left of the range by the result of a cut; other tests and `*` leave all of it."""
        if not isinstance(test, Cut) or result is STAR:
            return self
        low, high = self
        if result:
            return self if high is not None and high <= test.place else Bounds(low, test.place)
        return self if low is not None and low >= test.place else Bounds(test.place, high)


UNBOUNDED: Final = Bounds()


def _shown(kind: Kind | None, place: Any) -> str:
    assert kind is not None
    return show_value(from_coordinate(kind, place))


class PathStep(NamedTuple):
    """A test and the result that a path asks for; `STAR` where a level is passed without a test."""

    test: ElementaryTest
    result: Result


class Path(NamedTuple):
    """A conjunction of elementary results, in the order of the tests, and the ranges among them."""

    steps: tuple[PathStep, ...]
    bounds: Mapping[ValueSource, Bounds]

    @classmethod
    def of(cls, steps: Iterable[PathStep], bounds: Mapping[ValueSource, Bounds]) -> Path:
        """The path of some steps in any order."""
        return cls(tuple(sorted(steps, key=lambda step: step.test.order)), bounds)

    def without(self, attribute: str, known: Result) -> Path | None:
        """What is left to test where an attribute has a known label; None if the path fails."""
        rest = []
        for step in self.steps:
            if step.test.source.attribute != attribute:
                rest.append(step)
            elif step.test.result_for(known) != step.result:
                return None
        elsewhere = {s: range_ for s, range_ in self.bounds.items() if s.attribute != attribute}
        return Path(tuple(rest), elsewhere)


class TotalOrder:
    """The fixed total order of elementary tests: by attribute, then by test, then by operand.

    Attributes of the event schema come first, in its order, the others after them by name. With
    `levels` every path passes a `Value` test of every attribute of the schema (but those of
    `factored`), caring or not: the equality version before its chains of `*` are collapsed.
    """

    def __init__(
        self, schema: Sequence[str] = (), *, levels: bool = False, factored: Sequence[str] = ()
    ) -> None:
        self._ranks = {name: rank for rank, name in enumerate(schema)}
        self._values = {name: self._value(name) for name in schema}
        self._levels = [name for name in schema if levels and name not in factored]

    def paths(self, conjunction: Conjunction) -> Iterator[Path]:
        """The paths of a conjunction without variables: alternatives that exclude each other.

        None at all for a contradiction. What is no comparison with constants is refused.

        >>> import palio
        >>> (only,) = palio.parse("x < 10 AND x = 5 AND y != 2").conjunctions
        >>> for path in TotalOrder().paths(only):
        ...     print(
        ...         ", ".join(f"{step.test}: {step.test.show(step.result)}" for step in path.steps)
        ...     )
        x: 5, y < 2: yes
        x: 5, y < 2.0000000000000004: no
        """
        if conjunction.residuals:
            raise _unsupported(conjunction.residuals[0])
        choices = [self._alternatives(*item) for item in sorted(conjunction.domains.items())]
        paths = prod(map(len, choices))
        check_limit("the paths of a conjunction", "MAX_BRANCHES", MAX_BRANCHES, paths)
        for chosen in product(*choices):
            steps = [step for piece in chosen for step in piece.steps]
            asked = {step.test.order for step in steps}
            for name in self._levels:
                level = self.value(name)
                if level.order not in asked:
                    steps.append(PathStep(level, STAR))
            bounds = {source: each for piece in chosen for source, each in piece.bounds.items()}
            yield Path.of(steps, bounds)

    def value(self, attribute: str) -> Value:
        """The test of an attribute's value; those of the schema are shared."""
        return self._values.get(attribute) or self._value(attribute)

    def _value(self, attribute: str) -> Value:
        return Value(ValueSource(attribute, None), (*self._rank(attribute), _VALUE))

    def cut(self, source: ValueSource, place: Any) -> Cut:
        """The test of an attribute against a coordinate: kinds apart, coordinates by digest."""
        digest = blake2b(repr(place).encode(), digest_size=8).digest()
        order = (*self._rank(source.attribute), _CUT, source.kind, digest, place)
        return Cut(source, order, place)

    def _rank(self, attribute: str) -> tuple[int, str]:
        return self._ranks.get(attribute, len(self._ranks)), attribute

    def _alternatives(self, name: str, domain: Domain) -> list[Path]:
        """What a domain asks of its attribute, as paths of which at most one holds."""
        if domain.is_empty:
            return []
        if domain.absent or len(domain.kinds) > 1 or domain.text_tests:
            raise _unsupported(name)
        ((kind, admitted),) = domain.kinds.items()
        source = ValueSource(name, kind)
        return [
            self._range(source, low, high)
            if successor(kind, low) != high
            else Path((PathStep(self.value(name), label(kind, low)),), {})
            for low, high in admitted.spans
        ]

    def _range(self, source: ValueSource, low: Any, high: Any) -> Path:
        """The cuts of a range; one that excludes nothing of its kind still asks for the kind."""
        assert source.kind is not None
        start = None if low == lowest(source.kind) else low
        end = None if high is TOP else high
        if start is None and end is None:
            start = low
        bounds = Bounds(start, end)
        cuts = [self.cut(source, place) for place in bounds if place is not None]
        steps = tuple(PathStep(cut, cut.decide(bounds)) for cut in cuts)
        return Path(steps, {source: bounds})


_VALUE, _CUT = range(2)


def _unsupported(what: object) -> NotSupported:
    return NotSupported(
        f"the matching tree only compares attributes with constants, and {what!s:.80} needs more; "
        "use palio.matching.Index"
    )
