"""`Subscriptions`: filters by key with the values of their parameters, single or in tables.

A *table* is one skeleton filter with a column of values for each of its variables: a million
filters of one shape are a few arrays. A null in a column drops the constraints that use it, so one
skeleton serves rows that constrain different attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property, lru_cache
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidBinding, InvalidInput
from palio.matching.manifest import Written
from palio.matching.texts import scans
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Literal, Variable
from palio.model.filters import Conjunction, Filter
from palio.model.operators import ORDER, Op
from palio.model.texts import TextTest
from palio.model.values import INT64_MAX, INT64_MIN, Bindings

Use: TypeAlias = tuple[str, Op]
"""An attribute, and the operator that compares it with a number."""

Comparisons: TypeAlias = tuple[tuple[Use, ...], tuple[int | float, ...]]
"""The attributes that are compared, and the numbers that they are compared with."""


class Unknown(Enum):
    """The mark of a value that was not computed yet, where None is a value."""

    UNKNOWN = auto()


UNKNOWN: Final = Unknown.UNKNOWN

RANGES: Final = ORDER | {Op.EQ}
"""Operators that make an interval of a number."""

_PATTERNS: Final = frozenset({Op.LIKE, Op.NOT_LIKE})
_SCANNING: Final = _PATTERNS | {Op.CIDR, Op.NOT_CIDR}


@dataclass(frozen=True)
class Recipe:
    """The uses of a filter's parameters, computed once for all filters of its shape."""

    numeric: Mapping[str, tuple[Use, ...]]
    """The variables that are compared with attributes and used in no other way."""
    fixed: Comparisons
    """Comparisons with numbers that no parameter changes."""
    plain: bool
    """True if the filter is a conjunction of only these comparisons."""
    once: bool
    """True if, besides, every parameter is compared once: its values are the numbers then."""
    may_scan: bool
    """True if a constraint may be a test of texts that no literal decides (see `may_scan`)."""


@lru_cache(maxsize=4096)
def recipe_of(filter: Filter) -> Recipe:
    """Return the recipe of a filter."""
    uses: dict[str, list[Use]] = {}
    others: set[str] = set()
    fixed: list[tuple[Use, int | float]] = []
    plain = len(filter.conjunctions) == 1
    for conjunction in filter.conjunctions:
        parts: list[Constraint | Residual] = [*conjunction.constraints, *conjunction.residuals]
        for part in parts:
            if not isinstance(part, Constraint) or part.op not in RANGES or part.ignore_case:
                plain = False
                others |= part.variables
            elif isinstance(part.operand, Variable):
                uses.setdefault(part.operand.name, []).append((part.name, part.op))
            elif isinstance(part.operand, Literal) and is_number(part.operand.value):
                fixed.append(((part.name, part.op), part.operand.value))
            else:
                plain = False
                others |= part.variables
    numeric = {name: tuple(places) for name, places in uses.items() if name not in others}
    constraints = [constraint for one in filter.conjunctions for constraint in one.constraints]
    scans = any(map(may_scan, constraints))
    once = plain and not fixed and all(len(places) == 1 for places in numeric.values())
    return Recipe(numeric, _comparisons(fixed), plain, once, scans)


def may_scan(constraint: Constraint) -> bool:
    """Check whether a constraint may be a test of texts that no literal decides: a pattern of
    wildcards or with more than a literal to find, a variable pattern, an address block, any test
    that ignores case.

    >>> may_scan(Constraint.of("s", "LIKE", "a_%")), may_scan(Constraint.of("s", "LIKE", "_%_"))
    (False, True)
    """
    if constraint.op in _PATTERNS and isinstance(constraint.operand, Literal):
        pattern = str(constraint.operand.value)
        return not pattern.strip("%_") or scans(TextTest(Op.LIKE, pattern))
    return constraint.ignore_case or constraint.op in _SCANNING


def _comparisons(pairs: Iterable[tuple[Use, int | float]]) -> Comparisons:
    pairs = list(pairs)
    return _shared(tuple([use for use, _ in pairs])), tuple([number for _, number in pairs])


def _constant_comparisons(filter: Filter) -> Comparisons | None:
    """Return a filter without parameters as comparisons with numbers; None if it has others."""
    if len(filter.conjunctions) != 1 or filter.conjunctions[0].residuals:
        return None
    pairs: list[tuple[Use, int | float]] = []
    for constraint in filter.conjunctions[0].constraints:
        value: Any = constraint.operand.value if isinstance(constraint.operand, Literal) else None
        if constraint.op not in RANGES or constraint.ignore_case or not is_number(value):
            return None
        pairs.append(((constraint.name, constraint.op), value))
    return _comparisons(pairs)


@lru_cache(maxsize=4096)
def _shared(uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """Return one object for all filters with these uses: the garbage collector visits each."""
    return uses


def is_number(value: object) -> bool:
    """Check whether a value is a plain number that every comparison can use as it is."""
    kind = type(value)
    if kind is int:
        return INT64_MIN <= value <= INT64_MAX  # type: ignore[operator]  # `is` does not narrow
    return kind is float and -inf < value < inf  # type: ignore[operator]  # likewise


class Subscription:
    """One filter, the values of its parameters, and its destination; immutable.

    Constraints of the skeleton that use a variable without a value are no part of the filter.
    A plain class with slots: there may be a hundred thousand, which the garbage collector visits
    one by one.
    """

    __slots__ = ("_comparisons", "_filter", "destination", "skeleton", "values")

    def __init__(self, skeleton: Filter, values: Bindings, destination: int) -> None:
        self.skeleton = skeleton
        self.values = values
        self.destination = destination
        self._filter: Filter | None = None
        self._comparisons: Comparisons | Unknown | None = UNKNOWN

    @property
    def filter(self) -> Filter:
        """The skeleton less the constraints whose variables have no value."""
        if self._filter is None:
            missing = self.skeleton.variables - self.values.keys()
            self._filter = without(self.skeleton, missing) if missing else self.skeleton
        return self._filter

    @property
    def comparisons(self) -> Comparisons | None:
        """The filter as comparisons with numbers, None if it is more than a conjunction of them."""
        comparisons = self._comparisons
        if comparisons is UNKNOWN:
            comparisons = self._comparisons = self._compared()
        return comparisons

    def _compared(self) -> Comparisons | None:
        # Without variables the skeleton is this filter's alone: a recipe would not be reused.
        if not self.skeleton.variables:
            return _constant_comparisons(self.skeleton)
        recipe = recipe_of(self.skeleton)
        if not recipe.plain or not all(map(is_number, self.values.values())):
            return None
        values: Mapping[str, Any] = self.values
        if not values:
            return recipe.fixed
        pairs = list(zip(*recipe.fixed, strict=True))
        for variable, number in values.items():
            pairs += [(use, number) for use in recipe.numeric.get(variable, ())]
        return _comparisons(pairs)

    def rebound(self, key: int, values: Bindings) -> Subscription:
        """Return the subscription with other values of some parameters; refuse invalid ones."""
        changed = Subscription(self.skeleton, {**self.values, **values}, self.destination)
        recipe = recipe_of(self.skeleton)
        for name, value in values.items():
            if name not in recipe.numeric or name not in self.values or not is_number(value):
                break
        else:
            comparisons = self.comparisons
            # Most changes: the uses stay, in the order of the values, and the numbers are new.
            if recipe.once and comparisons is not None:
                numbers: Any = changed.values.values()
                changed._comparisons = (comparisons[0], tuple(numbers))
            return changed
        for name in values:
            if name not in self.filter.variables:
                raise InvalidBinding(f"filter {key} has no parameter :{name}", name=name)
        changed.check(values)
        return changed

    def check(self, names: Iterable[str]) -> None:
        """Refuse values of some parameters that their constraints cannot use."""
        wanted = frozenset(names)
        for conjunction in self.filter.conjunctions:
            for constraint in conjunction.constraints:
                if constraint.variables & wanted:
                    constraint.substitute(self.values)
            for residual in conjunction.residuals:
                if residual.variables & wanted:
                    residual.substitute(self.values)


Keys: TypeAlias = npt.NDArray[np.int64]

FEW_TABLES: Final = 8
"""Tables up to which each is searched; of more a directory of all keys is kept."""


@dataclass(frozen=True)
class Column:
    """Values of one variable: of all rows, or of those `rows` (ascending) that have one."""

    values: pa.Array[Any]
    rows: npt.NDArray[np.int32] | None

    @classmethod
    def of(cls, given: Any) -> Column:
        """Make a column of values without the nulls."""
        array = _plain(given)
        if not array.null_count:
            return cls(array, None)
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        return cls(array.drop_null(), rows.astype(np.int32))

    @cached_property
    def _numbers(self) -> npt.NDArray[Any] | None:
        """Numbers as an array: to read one by Arrow costs more than to bind it."""
        is_number = self.values.type in (pa.int64(), pa.float64())
        return self.values.to_numpy() if is_number else None

    def value(self, place: int) -> Any:
        """Return the value at a place."""
        numbers = self._numbers
        return self.values[place].as_py() if numbers is None else numbers.item(place)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays in bytes."""
        return self.values.nbytes + (0 if self.rows is None else self.rows.nbytes)


@dataclass(frozen=True)
class Table:
    """Subscriptions of one shape, keys ascending."""

    keys: npt.NDArray[np.int64]
    skeleton: Filter
    columns: Mapping[str, Column]
    destinations: npt.NDArray[np.int64]
    gone: set[int] = field(default_factory=set)
    """Keys that were removed, replaced or given other values: arrays are never changed."""

    @classmethod
    def of(
        cls,
        keys: Iterable[int] | npt.NDArray[np.int64],
        skeleton: Filter,
        columns: Mapping[str, Any],
        destinations: Any = None,
    ) -> Table:
        """Make a checked table, sorted by key."""
        listed = _words(keys)
        missing = sorted(skeleton.variables - set(columns))
        if missing:
            raise InvalidBinding(f"there is no column of values for :{missing[0]}", name=missing[0])
        arrays = {name: _plain(columns[name]) for name in sorted(skeleton.variables)}
        for name, array in arrays.items():
            if pa.types.is_nested(array.type):
                raise InvalidBinding(
                    f"column {name!r} holds {array.type}, and must hold one value for each key; "
                    "add filters whose parameters are lists one by one, with add",
                    name=name,
                )
            if len(array) != len(listed):
                raise InvalidBinding(
                    f"column {name!r} has {len(array)} values for {len(listed)} keys", name=name
                )
        destinations = listed if destinations is None else _words(destinations)
        if len(listed) > 1 and not bool(np.all(listed[1:] > listed[:-1])):
            order = np.argsort(listed, kind="stable")
            listed, destinations = listed[order], destinations[order]
            if bool(np.any(listed[1:] == listed[:-1])):
                raise InvalidInput("a key occurs twice in one table; each filter needs its own")
            places = pa.array(order)
            arrays = {name: array.take(places) for name, array in arrays.items()}
        return cls(
            listed,
            skeleton,
            {name: Column.of(array) for name, array in arrays.items()},
            destinations,
        )

    def place_of(self, key: int) -> int | None:
        """Return the place of a key; None if it is not, or no longer, here."""
        return _place(self.keys, self.gone, key)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays in bytes."""
        own = 0 if self.destinations is self.keys else self.destinations.nbytes
        return self.keys.nbytes + own + sum(column.nbytes for column in self.columns.values())

    def subscription(self, place: int) -> Subscription:
        """Return a row as a subscription of its own."""
        values = {name: column.value(place) for name, column in self._full.items()}
        names, starts, numbers, places = self._sparse
        first, end = starts.item(place), starts.item(place + 1)
        for at in range(first, end):
            name = names[numbers.item(at)]
            values[name] = self.columns[name].value(places.item(at))
        return Subscription(self.skeleton, values, self.destinations.item(place))

    @cached_property
    def _full(self) -> dict[str, Column]:
        """The columns without gaps."""
        return {name: column for name, column in self.columns.items() if column.rows is None}

    @cached_property
    def _sparse(self) -> tuple[list[str], Keys, Keys, Keys]:
        """The columns with gaps, by row: names, and for row r the entries `starts[r] :
        starts[r + 1]` of (number of the name, place in its column). So a row costs its own values,
        not all columns.
        """
        gappy = {
            name: column.rows for name, column in self.columns.items() if column.rows is not None
        }
        none = np.zeros(0, np.int64)
        rows = np.concatenate([none, *gappy.values()])
        numbers = np.concatenate(
            [none, *(np.full(len(rows), at) for at, rows in enumerate(gappy.values()))]
        )
        places = np.concatenate([none, *(np.arange(len(rows)) for rows in gappy.values())])
        order = np.argsort(rows, kind="stable")
        counts = np.bincount(rows.astype(np.int64), minlength=len(self.keys))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return list(gappy), starts, numbers[order], places[order]


def _words(numbers: Any) -> npt.NDArray[np.int64]:
    try:
        return np.asarray(numbers, np.int64)
    except OverflowError:
        raise InvalidInput("keys and their destinations must be 64-bit integers") from None


def _plain(values: Any) -> Any:
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    types = pa.types
    if types.is_integer(array.type):
        return array.cast(pa.int64())
    if types.is_floating(array.type):
        return array.cast(pa.float64())
    return array.cast(pa.utf8()) if types.is_large_string(array.type) else array


def without(filter: Filter, names: frozenset[str]) -> Filter:
    """Return a filter without the constraints and residuals that use some variables."""
    kept = []
    for conjunction in filter.conjunctions:
        parts: list[Constraint | Residual] = [*conjunction.constraints, *conjunction.residuals]
        kept.append(Conjunction.of(part for part in parts if not part.variables & names))
    return Filter.of(kept)


class Archive:
    """Subscriptions of a file: texts, each parsed when it is first used."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.keys: npt.NDArray[np.int64] = batch.column(0).to_numpy()
        self.gone: set[int] = set()

    def place_of(self, key: int) -> int | None:
        """Return the place of a key; None if it is not, or no longer, here."""
        return _place(self.keys, self.gone, key)

    def subscription(self, place: int) -> Subscription:
        """Parse and return a subscription."""
        row = Written(**self.batch.slice(place, 1).to_pylist()[0])
        return Subscription(*row.read(), row.destination)

    @property
    def nbytes(self) -> int:
        """The memory of the texts in bytes."""
        return self.batch.nbytes


def _place(keys: npt.NDArray[np.int64], gone: set[int], key: int) -> int | None:
    place = int(keys.searchsorted(key))
    here = place < len(keys) and int(keys[place]) == key and key not in gone
    return place if here else None


class Subscriptions:
    """All subscriptions of an index by key."""

    def __init__(self) -> None:
        self.single: dict[int, Subscription] = {}
        self.tables: list[Table | Archive] = []
        self._directory: tuple[int, Keys, Keys] | None = None

    def __len__(self) -> int:
        return len(self.single) + sum(len(table.keys) - len(table.gone) for table in self.tables)

    def __contains__(self, key: int) -> bool:
        return key in self.single or self._find(key) is not None

    def __getitem__(self, key: int) -> Subscription:
        return self.located(key)[0]

    def located(self, key: int) -> tuple[Subscription, Table | Archive | None]:
        """Return the subscription of a key, and its table; None for a single filter."""
        single = self.single.get(key)
        if single is not None:
            return single, None
        slot = self._find(key)
        if slot is None:
            raise KeyError(key)
        table, place = slot
        return table.subscription(place), table

    def __setitem__(self, key: int, subscription: Subscription) -> None:
        if key not in self.single:
            self.discard(key)
        self.single[key] = subscription

    def discard(self, key: int) -> bool:
        """Remove a key; return whether it was present."""
        if self.single.pop(key, None) is not None:
            return True
        place = self._find(key)
        if place is not None:
            place[0].gone.add(key)
        return place is not None

    def _find(self, key: int) -> tuple[Table | Archive, int] | None:
        """Return the table that has a key, and its place there."""
        tables: Sequence[Table | Archive] = self.tables
        if not INT64_MIN <= key <= INT64_MAX:
            return None
        if len(tables) > FEW_TABLES:
            keys, numbers = self._all_keys()
            first, end = np.searchsorted(keys, key), np.searchsorted(keys, key, "right")
            tables = [self.tables[number] for number in numbers[first:end].tolist()]
        for table in tables:
            place = table.place_of(key)
            if place is not None:
                return table, place
        return None

    def _all_keys(self) -> tuple[Keys, Keys]:
        """Return the keys of all tables, ascending, with their tables' numbers."""
        directory = self._directory
        if directory is None or directory[0] != len(self.tables):
            keys = np.concatenate([table.keys for table in self.tables])
            sizes = [len(table.keys) for table in self.tables]
            order = np.argsort(keys, kind="stable")
            numbers = np.repeat(np.arange(len(sizes)), sizes)[order]
            directory = self._directory = (len(self.tables), keys[order], numbers)
        return directory[1], directory[2]

    def memory(self) -> int:
        """Return the memory in bytes; single filters are objects, about a kilobyte each."""
        return 1024 * len(self.single) + sum(table.nbytes for table in self.tables)
