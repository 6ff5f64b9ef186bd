"""Many shapes as one table: a column for every comparison that any of them makes.

Filters that choose their attributes freely have thousands of shapes with a few rows each, and a
table costs what it costs however small it is. But a table drops the constraints whose value is
null. So rows of one conjunction of plain comparisons (`x < 5 AND s = 'a'`), whatever their shapes,
go into one wide table: `x < :v0 AND s = :v1 AND ...`, with nulls for what a row does not ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from palio.model.constraints import Constraint
from palio.model.expressions import Variable
from palio.model.filters import Conjunction, Filter
from palio.model.operators import MEMBERSHIP, Op

__all__ = ["MAX_COLUMNS", "Wide"]

MAX_COLUMNS: Final = 1_024
"""Comparisons that one table is wide: building it takes a pass over all rows for each."""

_Comparison: TypeAlias = tuple[str, Op, bool, type, int]
"""Attribute, operator, whether case is ignored, type of the constant, and which of them it is
where a row compares one attribute so several times."""


class Wide:
    """A table in the making.

    >>> import palio
    >>> wide = Wide()
    >>> wide.take(palio.parse("x < :a"), ["a"], (int,), [0], [(5,)])
    True
    >>> wide.take(palio.parse("x < :a AND y = :b"), ["a", "b"], (int, str), [1], [(7, "q")])
    True
    >>> str(wide.skeleton), [column.to_pylist() for column in wide.columns().values()]
    ('x < :v0 AND y = :v1', [[5, 7], [None, 'q']])
    """

    def __init__(self) -> None:
        self.places: list[int] = []
        """The rows of the roster, in the order of the table."""
        self._cells: dict[_Comparison, tuple[list[int], list[Any]]] = {}

    def take(
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
        fresh = [each for each, _ in comparisons if each not in self._cells]
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
        found = {}
        for number, (rows, constants) in enumerate(self._cells.values()):
            places = np.full(len(self.places), -1)
            places[rows] = np.arange(len(rows))
            found[f"v{number}"] = pa.array(constants).take(
                pa.array(places, pa.int64(), mask=places < 0)
            )
        return found


def _comparisons(
    skeleton: Filter, names: Sequence[str], kinds: Sequence[type]
) -> list[tuple[_Comparison, int]] | None:
    """The comparisons of a shape with the numbers of their variables; None if it has others."""
    if len(skeleton.conjunctions) != 1 or skeleton.conjunctions[0].residuals:
        return None
    seen: Counter[tuple[str, Op, bool, type]] = Counter()
    found = []
    for constraint in skeleton.conjunctions[0].constraints:
        operand = constraint.operand
        if not isinstance(operand, Variable) or constraint.op in MEMBERSHIP:
            return None
        at = names.index(operand.name)
        key = (constraint.name, constraint.op, constraint.ignore_case, kinds[at])
        if constraint.op is Op.NE and seen[key]:  # two of them would become one NOT IN
            return None
        found.append(((*key, seen[key]), at))
        seen[key] += 1
    return found or None
