"""From subscriptions to a compiled index: many texts at once, and no bad one spoils the others.

Texts are read by their shapes (`palio.language.parsing`). Plain comparisons of all shapes together
make one wide table (`Wide`); every other shape makes one of its own: a skeleton filter with a
column for each constant, each parameter, and the bounds of the time that a row holds for. A column
has one type, so rows with values of other types are kept apart. What does not go into a table is
added one by one, and what cannot be added is rejected with its reason.

*As of*: with a `time` column, a row that holds from t1 to t2 has two more constraints,
`time >= t1 AND time < t2`. A table drops a constraint whose value is null, so that one skeleton
serves rows without a beginning or an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC
from itertools import chain
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidBinding, InvalidInput
from palio.language.parsing import Group, parse_many
from palio.matching.index import Index
from palio.matching.subscriptions import Table
from palio.model.binding import unbound
from palio.model.constraints import Constraint
from palio.model.expressions import Variable
from palio.model.filters import Conjunction, Filter
from palio.model.limits import MAX_STRING_CHARS
from palio.model.operators import MEMBERSHIP, Op
from palio.model.values import INT64_MAX, INT64_MIN

BOUNDS: Final = {"valid_from": ">=", "valid_to": "<"}
"""The columns of the times when a row holds, each with what the event's time must be to it."""

MIN_TABLE_ROWS: Final = 4
"""Fewer rows of one shape are cheaper as single filters."""

Row: TypeAlias = dict[str, Any]


class CompiledSubscriptions(NamedTuple):
    """An index by row, the attributes that its filters name, and rows that are in it no more."""

    engine: Index
    attributes: frozenset[str]
    rejects: list[tuple[int, str]]


def compile_rows(
    table: pa.Table, rows: npt.NDArray[np.int64], time: str | None = None
) -> CompiledSubscriptions:
    """Compile some rows of a table of subscriptions; their numbers are the keys of the index.

    >>> from palio.spark.reading import read
    >>> subscriptions = read([{"id": "a", "filter": "x < 5"}, {"id": "b", "filter": "x <"}])
    >>> compiled = compile_rows(subscriptions.table, np.arange(2))
    >>> len(compiled.engine), sorted(compiled.attributes), [row for row, _ in compiled.rejects]
    (1, ['x'], [1])
    """
    return _Compiler(table.take(pa.array(rows, pa.int64())), rows, time).compiled()


class _Compiler:
    def __init__(self, table: pa.Table, rows: npt.NDArray[np.int64], time: str | None) -> None:
        self.keys = rows
        self.time = time
        self.texts: list[Any] = table["filter"].to_pylist()
        self.parameters = self._column(table, "parameters")
        self.bounds = {
            name: self._column(table, name)
            for name in BOUNDS
            if time is not None and name in table.column_names
        }
        self.index = Index()
        self.attributes: set[str] = set()
        self.rejects: list[tuple[int, str]] = []

    @staticmethod
    def _column(table: pa.Table, name: str) -> list[Any] | None:
        return table[name].to_pylist() if name in table.column_names else None

    def compiled(self) -> CompiledSubscriptions:
        bulk = parse_many(self.texts)
        self.rejects += [(int(self.keys[place]), str(error)) for place, error in bulk.rejects]
        wide = Wide()
        widened: list[_Batch] = []
        tables: list[tuple[Table, list[_Batch]]] = []
        singles = list(bulk.singles)
        for group in bulk.groups:
            for batch in self._batches(group):
                if wide.add(batch.skeleton, batch.names, batch.kinds, batch.places, batch.values):
                    widened.append(batch)
                elif len(batch.places) < MIN_TABLE_ROWS:
                    singles += batch.filters()
                else:
                    tables.append((self._table(batch.skeleton, batch), [batch]))
        if widened:
            tables.append((self._table(wide.skeleton, wide), widened))
        self._add_tables(tables)
        for place, filter in singles:
            self._add(place, filter)
        return CompiledSubscriptions(self.index, frozenset(self.attributes), self.rejects)

    # --- tables ---

    def _batches(self, group: Group) -> list[_Batch]:
        """The rows of one template, split by the types of their constants and parameters."""
        skeleton, own = group.template.skeleton, _own_variables(group)
        rows = list(zip(*group.columns, strict=True)) if group.columns else [()] * len(group.places)
        split: dict[tuple[type, ...], _Batch] = {}
        for at, (place, constants) in enumerate(zip(group.places, rows, strict=True)):
            values = constants
            if own:
                given = self._values(place)
                if given is None or not all(_goes_in_column(given.get(name)) for name in own):
                    self._add(place, group.template.fill(constants))
                    continue
                values = (*constants, *(given[name] for name in own))
            kinds = tuple(map(type, values))
            if kinds not in split:
                names = [*map(str, range(len(constants))), *own]
                split[kinds] = _Batch(skeleton, names, kinds, group, [], [], [])
            split[kinds].add(place, at, values)
        return list(split.values())

    def _add_tables(self, tables: list[tuple[Table, list[_Batch]]]) -> None:
        """Add all tables at once; if one of them is refused, each for itself."""
        try:
            self.index.add_tables(table for table, _ in tables)
        except InvalidInput:
            for table, batches in tables:
                try:
                    self.index.add_tables([table])
                except InvalidInput:
                    for place, filter in chain.from_iterable(map(_Batch.filters, batches)):
                        self._add(place, filter)
        for table, _ in tables:
            self.attributes |= table.skeleton.attributes

    def _table(self, skeleton: Filter, rows: _Batch | Wide) -> Table:
        """A table of rows, with the times that they hold from and to."""
        columns = rows.columns()
        if self.time is not None:
            for bound, values in self.bounds.items():
                assert values is not None
                here = [values[place] for place in rows.places]
                if any(item is not None for item in here):
                    name = _unused(bound, skeleton)
                    columns[name] = pa.array(here, pa.timestamp("us", tz="UTC"))
                    skeleton = skeleton & _bound(self.time, bound, name)
        return Table.of(self.keys[rows.places], skeleton, columns)

    # --- one by one ---

    def _add(self, place: int, filter: Filter) -> None:
        key = int(self.keys[place])
        values: dict[str, Any] = {}
        try:
            given = self._values(place) or {}
            for name in sorted(filter.variables):
                if given.get(name) is None:
                    raise unbound(name)
                values[name] = _plain(given[name])
            for bound, column in self.bounds.items():
                assert column is not None
                if self.time is not None and column[place] is not None:
                    name = _unused(bound, filter)
                    filter = filter & _bound(self.time, bound, name)
                    values[name] = column[place].astimezone(UTC)
            self.index.add(key, filter, values)
        except InvalidInput as error:
            self.rejects.append((key, str(error)))
        else:
            self.attributes |= filter.attributes

    def _values(self, place: int) -> Mapping[str, Any] | None:
        """The parameters of a row."""
        packed = None if self.parameters is None else self.parameters[place]
        return None if packed is None else msgspec.msgpack.decode(packed)


class _Batch(NamedTuple):
    """Rows that make one table, with the group they come from."""

    skeleton: Filter
    names: list[str]
    kinds: tuple[type, ...]
    group: Group
    places: list[int]
    members: list[int]
    values: list[tuple[Any, ...]]

    def add(self, place: int, member: int, values: tuple[Any, ...]) -> None:
        self.places.append(place)
        self.members.append(member)
        self.values.append(values)

    def columns(self) -> dict[str, Any]:
        """A column of values for each variable."""
        if not self.names:
            return {}
        columns = map(pa.array, zip(*self.values, strict=True))
        return dict(zip(self.names, columns, strict=True))

    def filters(self) -> list[tuple[int, Filter]]:
        """The rows one by one, their own variables kept."""
        slots = range(len(self.group.columns))
        return [
            (place, self.group.template.fill([self.group.columns[slot][member] for slot in slots]))
            for place, member in zip(self.places, self.members, strict=True)
        ]


def _own_variables(group: Group) -> list[str]:
    """The variables that the texts themselves name, besides the slots of their constants."""
    slots = {str(slot) for slot in range(len(group.columns))}
    return sorted(group.template.skeleton.variables - slots)


def _goes_in_column(value: Any) -> bool:
    """True if a parameter needs no check by itself: a number or text that can be an operand."""
    kind = type(value)
    if kind is int:
        return bool(INT64_MIN <= value <= INT64_MAX)
    if kind is float:
        return isfinite(value)
    return kind is str and len(value) <= MAX_STRING_CHARS and value.isascii()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        raise InvalidBinding(
            "a parameter is a single value or a list, not an object", name="parameters"
        )
    return (
        tuple(value)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes)
        else value
    )


def _unused(name: str, filter: Filter) -> str:
    while name in filter.variables:
        name += "_"
    return name


def _bound(time: str, bound: str, variable: str) -> Filter:
    """`time >= :valid_from`, or `time < :valid_to`."""
    constraint = Constraint.of(time, BOUNDS[bound], Variable(variable))
    return Filter.of([Conjunction.of([constraint])])


# --- one table of many shapes ---


MAX_COLUMNS: Final = 1_024
"""Comparisons that one table is wide: building it takes a pass over all rows for each."""

_Comparison: TypeAlias = tuple[str, Op, bool, type, int]
"""Attribute, operator, whether case is ignored, type of the constant, and which of them it is
where a row compares one attribute so several times."""


class Wide:
    """Many shapes as one table: a column for every comparison that any of them makes.

    Filters that choose their attributes freely have thousands of shapes with a few rows each, and a
    table costs what it costs however small it is. But a table drops the constraints whose value is
    null. So rows of one conjunction of plain comparisons (`x < 5 AND s = 'a'`), whatever their
    shapes, go into one wide table: `x < :v0 AND s = :v1 AND ...`, with nulls for what a row does
    not ask.

    >>> import palio
    >>> wide = Wide()
    >>> wide.add(palio.parse("x < :a"), ["a"], (int,), [0], [(5,)])
    True
    >>> wide.add(palio.parse("x < :a AND y = :b"), ["a", "b"], (int, str), [1], [(7, "q")])
    True
    >>> str(wide.skeleton), [column.to_pylist() for column in wide.columns().values()]
    ('x < :v0 AND y = :v1', [[5, 7], [None, 'q']])
    """

    def __init__(self) -> None:
        self.places: list[int] = []
        """The numbers of its rows among those that are compiled."""
        self._cells: dict[_Comparison, tuple[list[int], list[Any]]] = {}

    def add(
        self,
        skeleton: Filter,
        names: Sequence[str],
        kinds: Sequence[type],
        places: Sequence[int],
        values: Sequence[tuple[Any, ...]],
    ) -> bool:
        """Take in rows of one shape, with the values of its variables; False if they do not fit."""
        comparisons = _comparisons(skeleton, names, kinds)
        if comparisons is None:
            return False
        fresh = [cell for cell, _ in comparisons if cell not in self._cells]
        if len(self._cells) + len(fresh) > MAX_COLUMNS:
            return False
        first = len(self.places)
        self.places.extend(places)
        for comparison, at in comparisons:
            rows, constants = self._cells.setdefault(comparison, ([], []))
            rows.extend(range(first, first + len(values)))
            constants.extend(row[at] for row in values)
        return True

    @property
    def skeleton(self) -> Filter:
        """The conjunction of all comparisons, each with a variable of its own."""
        constraints = [
            Constraint.of(name, op, Variable(f"v{number}"), ignore_case)
            for number, (name, op, ignore_case, _, _) in enumerate(self._cells)
        ]
        return Filter.of([Conjunction.of(constraints)])

    def columns(self) -> dict[str, Any]:
        """A column for each variable, null where a row makes no such comparison."""
        columns = {}
        for number, (rows, constants) in enumerate(self._cells.values()):
            places = np.full(len(self.places), -1)
            places[rows] = np.arange(len(rows))
            columns[f"v{number}"] = pa.array(constants).take(
                pa.array(places, pa.int64(), mask=places < 0)
            )
        return columns


def _comparisons(
    skeleton: Filter, names: Sequence[str], kinds: Sequence[type]
) -> list[tuple[_Comparison, int]] | None:
    """The comparisons of a shape with the numbers of their variables; None if it has others."""
    if len(skeleton.conjunctions) != 1 or skeleton.conjunctions[0].residuals:
        return None
    seen: Counter[tuple[str, Op, bool, type]] = Counter()
    columns = []
    for constraint in skeleton.conjunctions[0].constraints:
        operand = constraint.operand
        if not isinstance(operand, Variable) or constraint.op in MEMBERSHIP:
            return None
        at = names.index(operand.name)
        key = (constraint.name, constraint.op, constraint.ignore_case, kinds[at])
        if constraint.op is Op.NE and seen[key]:  # two of them would become one NOT IN
            return None
        columns.append(((*key, seen[key]), at))
        seen[key] += 1
    return columns or None
