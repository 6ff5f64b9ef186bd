"""Rows as events: JSON read, CloudEvents checked, structs flattened to attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palio.errors import InvalidInput
from palio.spark.attributes import leaves
from palio.spark.plan import Normalize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["normalized"]

REQUIRED: Final = ("id", "source", "type")
"""The attributes of every CloudEvent."""


def normalized(rows: DataFrame, how: Normalize) -> DataFrame:
    """Rows of a source as events, one column for each attribute."""
    for name, schema in how.json.items():
        rows = _with_json(rows, name, schema)
    if how.cloudevents:
        rows = _unpacked(rows)
    return _flattened(rows) if how.flatten else rows


def _with_json(rows: DataFrame, name: str, schema: str) -> DataFrame:
    """A column of JSON read; a text that is none, or is otherwise, is null."""
    from pyspark.sql import functions

    _check(rows, [name], "normalize.json")
    if dict(rows.dtypes)[name] != "string":
        raise InvalidInput(
            f"normalize.json: column {name!r} is {dict(rows.dtypes)[name]}, no text; leave it out"
        )
    return rows.withColumn(name, functions.from_json(_column((name,)), schema))


def _unpacked(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    _check(rows, REQUIRED, "normalize.cloudevents")
    types = dict(rows.dtypes)
    if types.get("data") == "string":
        raise InvalidInput(
            "normalize.cloudevents: column 'data' is text; give its schema under normalize.json"
        )
    if types.get("time") == "string":
        rows = rows.withColumn("time", functions.to_timestamp(functions.col("time")))
    return rows


def _flattened(rows: DataFrame) -> DataFrame:
    """A column with a dotted name for each field; of equal names the shortest path has it."""
    kept = leaves(rows.schema.fields, lambda kind: kind.typeName() not in ("array", "map"))
    return rows.select(*(_column(path).alias(name) for name, (path, _) in kept.items()))


def _column(path: tuple[str, ...]) -> Any:
    from pyspark.sql import functions

    return functions.col(".".join(f"`{part.replace('`', '``')}`" for part in path))


def _check(rows: DataFrame, names: Any, key: str) -> None:
    for name in names:
        if name not in rows.columns:
            raise InvalidInput(
                f"{key}: the source has no column {name!r}; it has {', '.join(rows.columns)}"
            )
