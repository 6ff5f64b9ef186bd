"""Residual conditions over the rows that the constraints left, a column at a time where Arrow can.

`bid > ask * 1.01` on a million rows is one expression on columns. Arithmetic and comparison of
numbers and comparison of strings run in numpy; everything else (functions, text tests, foreign
conditions) falls back to `Residual.truth`, row by row, which is the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.model.constraints import Residual
from palio.model.events import in_python
from palio.model.expressions import (
    Arithmetic,
    Attribute,
    Call,
    Foreign,
    Literal,
    Scalar,
    Variable,
    walk,
)
from palio.model.operators import Op
from palio.model.values import Bindings, Kind

Mask = npt.NDArray[np.bool_]

_COMPARISONS: Final[dict[Op, Callable[[Any, Any], Any]]] = {
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.GT: np.greater,
    Op.GE: np.greater_equal,
}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
}

_EXACT: Final = 2**53
"""Integers below this are floats exactly, and a result that is one was computed exactly."""


class Columns:
    """Rows of a batch, given once or more: each column is read once, for all residuals."""

    def __init__(self, events: pa.RecordBatch, rows: npt.NDArray[np.int64] | None = None) -> None:
        self._events, self._rows = events, rows
        self._values: dict[str, list[Any] | None] = {}
        self._floats: dict[str, npt.NDArray[np.float64] | None] = {}

    def events(self, names: Iterable[str], chosen: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """Some attributes of the chosen rows."""
        for name in names:
            if name not in self._values:
                column = self._column(name)
                self._values[name] = None if column is None else in_python(column)
        columns = [(name, values) for name in names if (values := self._values[name]) is not None]
        return [{name: values[row] for name, values in columns} for row in chosen.tolist()]

    def floats(self, name: str, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.float64] | None:
        """An attribute of the chosen rows, NaN where unknown; None if floats would not be exact."""
        if name not in self._floats:
            self._floats[name] = _as_floats(self._column(name))
        floats = self._floats[name]
        if floats is None:
            return None
        return floats[chosen] if len(floats) else np.full(len(chosen), np.nan)

    def _column(self, name: str) -> pa.Array[Any] | None:
        place = self._events.schema.get_field_index(name)
        if place < 0:
            return None
        column = self._events.column(place)
        return column if self._rows is None else column.take(pa.array(self._rows, pa.int64()))


def holds_on(
    residual: Residual, columns: Columns, chosen: npt.NDArray[np.int64], values: Bindings
) -> Mask:
    """For each chosen row whether the condition is true there (neither false nor unknown)."""
    by_column = _by_column(residual, columns, chosen, values)
    if by_column is not None:
        return by_column
    events = columns.events(residual.attributes, chosen)
    return np.array([residual.truth(event, values) is True for event in events], np.bool_)


def cost_of_rows(residual: Residual) -> int:
    """The cost of one row among many, in the units of `MAX_RESIDUAL_COST`; one where columns of
    numbers are likely to do.
    """
    condition = residual.condition
    if isinstance(condition, Foreign) or condition.op not in _COMPARISONS or condition.ignore_case:
        return residual.cost
    return residual.cost if any(isinstance(part, Call) for part in walk(condition)) else 1


def _by_column(
    residual: Residual, columns: Columns, chosen: npt.NDArray[np.int64], values: Bindings
) -> Mask | None:
    """The mask computed on columns of floats; None where that could differ from the definition."""
    condition = residual.condition
    if isinstance(condition, Foreign) or condition.op not in _COMPARISONS:
        return None
    operand = condition.operand
    if operand is None or isinstance(operand, tuple) or condition.ignore_case:
        return None
    with np.errstate(all="ignore"):
        left = _floats(condition.subject, columns, chosen, values)
        right = _floats(operand, columns, chosen, values)
        if left is None or right is None:
            return None
        comparable = ~(np.isnan(left) | np.isnan(right))
        return np.asarray(_COMPARISONS[condition.op](left, right) & comparable, np.bool_)


def _floats(
    expression: Scalar,
    columns: Columns,
    chosen: npt.NDArray[np.int64],
    values: Mapping[str, Any],
) -> npt.NDArray[np.float64] | None:
    """A numeric expression as floats, NaN where unknown; None if floats would not be exact."""
    match expression:
        case Literal(kind=Kind.NUMBER, value=value):
            return _constant(value, len(chosen))
        case Variable(name):
            return _constant(values.get(name), len(chosen))
        case Attribute(name):
            return columns.floats(name, chosen)
        case Arithmetic(operator, left, right):
            one = _floats(left, columns, chosen, values)
            other = _floats(right, columns, chosen, values)
            if one is None or other is None:
                return None
            if operator in _ARITHMETIC:
                return _exact(_ARITHMETIC[operator](one, other))
            if operator == "/":
                return np.where(other == 0.0, np.nan, one / other)
        case _:
            pass
    return None


def _constant(value: Any, count: int) -> npt.NDArray[np.float64] | None:
    if type(value) not in (int, float) or _EXACT <= abs(value) < np.inf:
        return None
    return np.full(count, float(value))


def _as_floats(column: pa.Array[Any] | None) -> npt.NDArray[np.float64] | None:
    if column is None:
        return _NO_FLOATS
    if column.type not in (pa.int64(), pa.float64()):
        return None
    present = column.is_valid().to_numpy(zero_copy_only=False)
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    floats = _exact(numbers.astype(np.float64))
    return None if floats is None else np.where(present, floats, np.nan)


_NO_FLOATS: Final = np.zeros(0)
"""A column that is not there."""


def _exact(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """The numbers, unless one is so large that an integer there may not be a float."""
    finite = numbers[np.isfinite(numbers)]
    return None if len(finite) and np.abs(finite).max() >= _EXACT else numbers
