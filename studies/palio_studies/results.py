"""What came of a study: the rows of its experiments, and means of them over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from palio.errors import InvalidInput
from palio_studies.averages import Mean, mean_of
from palio_studies.names import Row, Value


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
