"""Advertisements: the events that a publisher announces, read by rules of their own (siena 3.3).

A text has two readings. As a subscription it is a `Filter`, and laws of logic bring it to its
canonical form. Those laws do not hold for an advertisement: `x = 1 OR (x = 1 AND y = 2)` matches
the same events as `x = 1`, but announces events that have a `y`. So an `Advertisement` is built
from the conditions as they were written, and no filter becomes one.

- The text's OR makes *alternatives*, its NOT is pushed down to the tests, its AND is multiplied
  out. Nothing is absorbed.
- Within an alternative the tests of one attribute are alternatives again. What BETWEEN, IN, LIKE
  and the others state at once is one test, also after a NOT.
- An event is announced when, in some alternative, every attribute of it passes some test of its
  name. An attribute that is not named is not announced.
- A *residual* (`bid > ask * 1.01`) names what it reads and must not be false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from palio.errors import InvalidBinding, InvalidFilter
from palio.model.binding import unbound
from palio.model.constraints import Constraint, Residual
from palio.model.domains import PRESENT, Domain
from palio.model.events import is_system_name
from palio.model.expressions import (
    All,
    AnyOf,
    Between,
    Boolean,
    Exclusive,
    Foreign,
    Not,
    Test,
    check_depth,
    variables_of,
    walk,
)
from palio.model.filters import FALSE, TRUE, Conjunction, Filter, reduce
from palio.model.limits import Effort
from palio.model.normal_form import leaf_of, settled
from palio.model.operators import Op
from palio.model.printing import show_name, show_scalar
from palio.model.sizes import check_growth, check_size
from palio.model.values import NO_VALUES, Bindings

_NO_NAMES: Final[frozenset[str]] = frozenset()


class Alternative:
    """One alternative of an advertisement: by attribute, the tests of which a value passes one.

    The tests of one attribute are a filter that reads nothing else. Of one value both readings have
    one meaning, so there, and only there, the laws of filters may be used.
    """

    __slots__ = ("__dict__", "_hash", "residuals", "tests")

    def __init__(self, tests: Mapping[str, Filter], residuals: Iterable[Residual]) -> None:
        self.tests = {name: tests[name] for name in sorted(tests)}
        self.residuals = tuple(sorted(set(residuals), key=str))
        self._hash = hash((tuple(self.tests.items()), self.residuals))

    @cached_property
    def domains(self) -> dict[str, list[Domain]]:
        """The values that an announced event may have, by name: a union of domains, presence apart.

        When the effort is spent, some domains that could be joined are left apart.
        """
        domains: dict[str, list[Domain]] = {}
        effort = Effort()
        for name, filter in self.tests.items():
            offered = domains[name] = []
            for test in filter.conjunctions:
                domain = test.domains[name].without_absent()
                for place, other in enumerate(offered):
                    whole = other.union(domain) if effort.compare(other, domain) else None
                    if whole is not None:
                        offered[place] = whole
                        break
                    if effort.is_spent:
                        offered.append(domain)
                        break
                else:
                    offered.append(domain)
        for name in self._named_by_residuals:
            domains.setdefault(name, [PRESENT])
        return domains

    @property
    def together(self) -> Conjunction:
        """All its tests in one conjunction, which means something else: to be measured by."""
        tests = [test for filter in self.tests.values() for test in filter.conjunctions]
        return Conjunction(
            tuple(constraint for test in tests for constraint in test.constraints), self.residuals
        )

    @cached_property
    def _named_by_residuals(self) -> frozenset[str]:
        return _NO_NAMES.union(*(residual.attributes for residual in self.residuals))

    def announces(self, event: Mapping[str, Any], *, open: bool) -> bool:
        """Check whether every attribute of an event passes a test, and no residual is false."""
        for name, value in event.items():
            if value is None or is_system_name(name):
                continue
            filter = self.tests.get(name)
            if filter is not None:
                if not filter.matches(event):
                    return False
            elif not open and name not in self._named_by_residuals:
                return False
        return not any(residual.truth(event) is False for residual in self.residuals)

    def within(self, granted: Conjunction) -> Alternative | None:
        """Narrow it to events that an alternative of a filter matches; None if nothing is left.

        An attribute with tests in both has the filter's test, unless this one is narrower.
        """
        tests = dict(self.tests)
        for name, domain in granted.domains.items():
            if is_system_name(name):
                continue  # which is never announced
            allowed = _test_of(granted, name)
            anything = TRUE if name in self._named_by_residuals else FALSE
            offered = tests.pop(name, anything).conjunctions
            kept = [
                offer if allowed.covers(offer) else allowed
                for offer in offered
                if name not in offer.domains or not offer.domains[name].disjoint(domain)
            ]
            if kept:
                tests[name] = Filter.of(kept)
            elif not domain.absent:
                return None
        return Alternative(tests, self.residuals)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Alternative)
            and self._hash == other._hash
            and self.tests == other.tests
            and self.residuals == other.residuals
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Alternative, (self.tests, self.residuals)

    def __str__(self) -> str:
        parts = [_show_test(test) for filter in self.tests.values() for test in filter.conjunctions]
        return " AND ".join([*parts, *map(str, self.residuals)]) or "TRUE"

    def __repr__(self) -> str:
        return f"Alternative({self})"


class Advertisement:
    """The events that a publisher announces: alternatives, immutable and hashable.

    Made by `palio.parse_advertisement`. Its own text is read back to an equal advertisement.

    >>> import palio
    >>> quotes = palio.parse_advertisement("symbol IS NOT NULL AND price BETWEEN 0 AND 10")
    >>> quotes.announces({"price": 3}), quotes.announces({"price": 99})
    (True, False)
    >>> quotes.announces({"price": 3, "volume": 10})
    False
    """

    __slots__ = ("__dict__", "_hash", "alternatives")

    def __init__(self, alternatives: Iterable[Alternative]) -> None:
        self.alternatives = tuple(sorted(set(alternatives), key=str))
        self._hash = hash(self.alternatives)

    @property
    def variables(self) -> frozenset[str]:
        """None: parameters get their values when the text is read."""
        return _NO_NAMES

    @property
    def breadth(self) -> int:
        """Its number of tests."""
        return sum(
            len(filter.conjunctions)
            for alternative in self.alternatives
            for filter in alternative.tests.values()
        )

    def announces(self, event: Mapping[str, Any], *, open: bool = False) -> bool:
        """Check whether an event is one that may be published.

        siena 3.3: in some alternative every attribute of the event passes some test of its name.
        An attribute that is not named is not announced, unless the advertisement is `open`.
        Attributes whose names begin with `$` belong to the service and are exempt.
        """
        return any(alternative.announces(event, open=open) for alternative in self.alternatives)

    def within(self, granted: Filter) -> Advertisement:
        """Narrow it to what a filter matches, or a little more.

        >>> import palio
        >>> quotes = palio.parse_advertisement("symbol IS NOT NULL AND price >= 0")
        >>> print(quotes.within(palio.parse("symbol = 'IBM' OR venue = 3")))
        price >= 0 AND symbol = 'IBM'
        """
        pairs = ((one, other) for one in self.alternatives for other in granted.conjunctions)
        left = [one.within(other) for one, other in pairs]
        kept = [alternative for alternative in left if alternative is not None]
        check_size(alternative.together for alternative in kept)
        return Advertisement(kept)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Advertisement)
            and self._hash == other._hash
            and self.alternatives == other.alternatives
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Advertisement, (self.alternatives,)

    def __str__(self) -> str:
        return " OR ".join(map(str, self.alternatives)) or "FALSE"

    def __repr__(self) -> str:
        return f"palio.parse_advertisement({str(self)!r})"


class UnreadAdvertisement(Advertisement):
    """Every event, in the place of a `text` that could not be read, as it is of a newer grammar.

    No advertisement means that, so it is passed on by its text, for those who can read it. Hence it
    covers none but itself, and none covers it.

    >>> UnreadAdvertisement("x RESEMBLES 'y'").announces({"z": 1})
    True
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(())
        self.text = text
        self._hash = hash(text)

    def announces(self, event: Mapping[str, Any], *, open: bool = False) -> bool:
        """Anything."""
        del event, open
        return True

    def within(self, granted: Filter) -> Advertisement:
        """All of it: the events of its publisher are checked one by one."""
        del granted
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadAdvertisement) and self.text == other.text

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return UnreadAdvertisement, (self.text,)

    def __str__(self) -> str:
        return self.text


def advertisement_of(condition: Boolean, values: Bindings = NO_VALUES) -> Advertisement:
    """The advertisement that a condition as written is, its parameters replaced by their values."""
    check_depth(condition)
    names = variables_of(condition)
    for name in sorted(names ^ values.keys()):
        if name in names:
            raise unbound(name)
        raise InvalidBinding(f"the advertisement has no parameter :{name}", name=name)
    tests = tuple(Residual(test) for test in walk(condition) if isinstance(test, Test))
    check_growth([Conjunction((), tests)], values)
    # Each test is unequal to all others, so that expanding the condition absorbs none.
    expanded = reduce(_Places(values).marked(condition))
    alternatives = [_alternative(conjunction) for conjunction in expanded.conjunctions]
    kept = [alternative for alternative in alternatives if alternative is not None]
    check_size(alternative.together for alternative in kept)
    return Advertisement(kept)


def checked_advertisement(given: object) -> Advertisement:
    """The advertisement that was handed in; anything else, a filter above all, is refused."""
    if isinstance(given, Advertisement):
        return given
    hint = "pass the text, or what parse_advertisement makes of it"
    if isinstance(given, Filter):
        hint = f"a filter no longer has the text of the advertisement; {hint}"
    raise InvalidFilter(f"an advertisement is needed here, not a {type(given).__name__}: {hint}")


class _Place(Foreign):
    """A test at its place in the text: equal to no other, even of the same words.

    `leaves` are what it comes to: nothing for TRUE, a constraint, a residual, or the two bounds of
    one BETWEEN. `also` are attributes that are named with it.
    """

    __slots__ = ("_number", "also", "is_negated", "leaves")

    def __init__(
        self,
        number: int,
        leaves: tuple[Constraint | Residual, ...],
        also: frozenset[str] = _NO_NAMES,
        is_negated: bool = False,
    ) -> None:
        self._number = number
        self.leaves = leaves
        self.also = also
        self.is_negated = is_negated

    @property
    def text(self) -> str:
        return f"{'NOT ' if self.is_negated else ''}{self._number}"

    @property
    def attributes(self) -> frozenset[str]:
        return _NO_NAMES

    @property
    def cost(self) -> int:
        return 0

    @property
    def weight(self) -> int:
        return 0

    def truth(self, event: Mapping[str, Any]) -> bool | None:  # noqa: ARG002 - nobody asks
        return None

    def inverted(self) -> _Place:
        return _Place(self._number, self.leaves, self.also, not self.is_negated)


class _Places:
    """Puts a place for every test of a condition, parameters replaced."""

    def __init__(self, values: Bindings) -> None:
        self._values = values
        self._next = 0

    def marked(self, condition: Boolean) -> Boolean:
        match condition:
            case Between(parts):
                return self._between(parts)
            case All(()):
                return self._place(True)
            case AnyOf(()):
                return self._place(False)
            case All(parts):
                return All(tuple(map(self.marked, parts)))
            case AnyOf(parts):
                return AnyOf(tuple(map(self.marked, parts)))
            case Not(part):
                return Not(self.marked(part))
            case Exclusive(left, right):
                return Exclusive(self.marked(left), self.marked(right))
            case _:
                return self._place(self._leaf(condition))

    def _between(self, parts: tuple[Boolean, ...]) -> Boolean:
        """One test if both bounds are constants; else two, each naming what either reads."""
        low, high = (self._leaf(part) for part in parts)
        if isinstance(low, Constraint) and isinstance(high, Constraint) and low.name == high.name:
            return self._place(low, high)
        also = _NO_NAMES.union(*(_names(side) for side in (low, high)))
        return All((self._place(low, also=also), self._place(high, also=also)))

    def _leaf(self, condition: Boolean) -> Constraint | Residual | bool:
        if isinstance(condition, Foreign):
            return Residual(condition)
        assert isinstance(condition, Test)
        if variables_of(condition):
            return settled(Residual(condition), self._values)
        return leaf_of(condition)

    def _place(
        self, *leaves: Constraint | Residual | bool, also: frozenset[str] = _NO_NAMES
    ) -> Boolean:
        self._next += 1
        truths = tuple(leaf for leaf in leaves if not isinstance(leaf, bool))
        place = _Place(self._next, truths, also)
        return Not(place) if False in leaves else place


def _names(leaf: Constraint | Residual | bool) -> frozenset[str]:
    if isinstance(leaf, bool):
        return _NO_NAMES
    return frozenset((leaf.name,)) if isinstance(leaf, Constraint) else leaf.attributes


def _alternative(places: Conjunction) -> Alternative | None:
    """The alternative that some places make together; None if FALSE is among them."""
    tests: dict[str, list[Conjunction]] = {}
    residuals: list[Residual] = []
    also = _NO_NAMES
    for residual in places.residuals:
        place = residual.condition
        assert isinstance(place, _Place)
        also |= place.also
        if not place.leaves and place.is_negated:
            return None
        for test in _tests(place):
            if test.residuals:
                residuals += test.residuals
            else:
                tests.setdefault(test.constraints[0].name, []).append(test)
    named = tests.keys() | _NO_NAMES.union(*(residual.attributes for residual in residuals))
    for name in also - named:
        tests[name] = [Conjunction((Constraint.of(name, Op.EXISTS),))]
    return Alternative(
        {name: Filter.of(constraints) for name, constraints in tests.items()}, residuals
    )


def _tests(place: _Place) -> Iterator[Conjunction]:
    if place.is_negated:
        for leaf in place.leaves:
            yield Conjunction.of((leaf.inverted(),))
    elif place.leaves:
        yield Conjunction.of(place.leaves)


def _test_of(granted: Conjunction, name: str) -> Conjunction:
    """A filter's test of an attribute, if it has one; else the first of its tests."""
    tests = [constraint for constraint in granted.constraints if constraint.name == name]
    is_between = [test.op for test in sorted(tests, key=str)] == [Op.LE, Op.GE]
    return Conjunction.of(tests if is_between else tests[:1])


def _show_test(test: Conjunction) -> str:
    if len(test.constraints) == 1:
        return str(test.constraints[0])
    low, high = sorted(test.constraints, key=lambda constraint: constraint.op is Op.LE)
    bounds = f"{show_scalar(low.operand)} AND {show_scalar(high.operand)}"  # type: ignore[arg-type]  # bounds are constants
    return f"{show_name(low.name)} BETWEEN {bounds}"
