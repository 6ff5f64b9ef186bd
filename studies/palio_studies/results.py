"""What came of a study: the rows of its experiments, means over seeds, and how sure these are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palio.errors import InvalidInput
from palio_studies.names import Row, Value

_QUANTILES: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for 95% on two sides, with 1 to 30 degrees of freedom."""

LEAST_RUNS: Final = 3
"""Of two runs the interval is 12.7 standard errors wide each way, and covers the picture."""

_NORMAL: Final = 1.960
"""...and with more."""


def _quantile(freedom: int) -> float:
    return _QUANTILES[freedom - 1] if freedom <= len(_QUANTILES) else _NORMAL


class Mean(NamedTuple):
    """A mean, and half the width of its 95% interval: infinite where there was one run only.

    >>> print(mean_of([9.0, 10.0, 11.0]))
    10 ±2.5
    """

    value: float
    half: float
    runs: int

    @property
    def low(self) -> float:
        """Where the interval begins."""
        return self.value - self.half

    @property
    def bar(self) -> float:
        """How far its bar goes in pictures: nowhere where there were fewer than `LEAST_RUNS`."""
        return self.half if self.runs >= LEAST_RUNS and isfinite(self.half) else 0.0

    @property
    def high(self) -> float:
        """Where it ends."""
        return self.value + self.half

    @property
    def error(self) -> float:
        """The standard error, where there was more than one run."""
        return self.half / _quantile(self.runs - 1)

    def __str__(self) -> str:
        value = f"{self.value:,.3g}" if abs(self.value) < 1000 else f"{self.value:,.0f}"
        return value if self.half in (0.0, inf) else f"{value} ±{self.half:,.2g}"


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of what several seeds gave."""
    if not values:
        raise InvalidInput("no values, so no mean; is an experiment missing from the results?")
    count = len(values)
    value = float(np.mean(values))
    if count == 1:
        return Mean(value, inf, 1)
    spread = float(np.std(values, ddof=1))
    return Mean(value, _quantile(count - 1) * spread / sqrt(count), count)


def fitted_exponent(xs: Sequence[float], ys: Sequence[float]) -> Mean:
    """The e of y = c * x**e that fits best, by least squares over the logarithms; all above 0.

    >>> print(fitted_exponent([1, 10, 100, 1000], [3, 30, 300, 3000]).value.__round__(6))
    1.0
    """
    if len(xs) < 2 or min(*xs, *ys) <= 0:
        raise InvalidInput("an exponent is fitted to two points or more, all of them above 0")
    along, up = np.log(xs), np.log(ys)
    slope, offset = np.polyfit(along, up, 1)
    freedom = len(xs) - 2
    if not freedom:
        return Mean(float(slope), inf, len(xs))
    residual = float(np.sum((up - slope * along - offset) ** 2)) / freedom
    error = sqrt(residual / float(np.sum((along - along.mean()) ** 2)))
    return Mean(float(slope), _quantile(freedom) * error, len(xs))


class Results:
    """The rows of a study, by experiment.

    >>> results = Results(
    ...     {
    ...         "costs": [
    ...             {"routing": "as", "seed": 1, "cost": 10.0},
    ...             {"routing": "as", "seed": 2, "cost": 12.0},
    ...             {"routing": "hs", "seed": 1, "cost": 30.0},
    ...         ]
    ...     }
    ... )
    >>> results.mean("costs", "cost", by=["routing"])[("as",)].value
    11.0
    """

    def __init__(self, tables: Mapping[str, Sequence[Row]]) -> None:
        self._tables = {name: list(rows) for name, rows in tables.items()}

    def __bool__(self) -> bool:
        return any(self._tables.values())

    def rows(self, experiment: str, **where: Value) -> list[Row]:
        """The rows whose columns have these values; none if the experiment was not run."""
        rows = self._tables.get(experiment, [])
        return [row for row in rows if all(row[name] == value for name, value in where.items())]

    def values(self, experiment: str, column: str, **where: Value) -> list[Any]:
        """The values that a column has, each once, in order."""
        return sorted({row[column] for row in self.rows(experiment, **where)})

    def mean(
        self, experiment: str, column: str, by: Sequence[str] = (), **where: Value
    ) -> dict[tuple[Value, ...], Mean]:
        """The mean of a column over all rows that agree in `by`, in the order of those."""
        groups: dict[tuple[Value, ...], list[float]] = {}
        for row in self.rows(experiment, **where):
            groups.setdefault(tuple(row[name] for name in by), []).append(float(row[column]))
        return {key: mean_of(groups[key]) for key in sorted(groups)}

    def line(self, experiment: str, column: str, along: str, **where: Value) -> dict[Any, float]:
        """The means of a column at each value of another one, in the order of those.

        >>> results = Results({"costs": [{"n": 1, "cost": 5.0}, {"n": 2, "cost": 8.0}]})
        >>> results.line("costs", "cost", along="n")
        {1: 5.0, 2: 8.0}
        """
        means = self.mean(experiment, column, by=[along], **where)
        return {value: mean.value for (value,), mean in means.items()}


def read_results(home: Path) -> Results:
    """What `DIR/STUDY` has: the files of experiments, written when a sweep ended."""
    files = sorted(home.glob("*.parquet"))
    return Results({path.stem: pq.read_table(path).to_pylist() for path in files})


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table; all have the same columns, of the same types."""
    rows = list(rows)
    columns = list(rows[0]) if rows else []
    for row in rows:
        if list(row) != columns:
            raise InvalidInput(
                f"rows of one experiment differ in their columns: {columns} and {list(row)}"
            )
    return pa.Table.from_pylist(rows)
