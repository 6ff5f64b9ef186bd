"""Batches of one shape as batches of another: what a DataFrame's schema makes of events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from palio.errors import InvalidEvent

__all__ = ["reshaped"]


def reshaped(
    batch: pa.RecordBatch, target: pa.Schema, origin: str, *, permissive: bool = False
) -> pa.RecordBatch:
    """The columns of a schema, in its types: null where the batch has none, others left out.

    A value that its column's type cannot hold exactly is an error that names `origin`; with
    `permissive` it is null.

    >>> batch = pa.record_batch({"y": [1.0, 2.5], "z": ["a", "b"]})
    >>> target = pa.schema([("x", pa.utf8()), ("y", pa.int64())])
    >>> reshaped(batch, target, "b1", permissive=True).to_pydict()
    {'x': [None, None], 'y': [1, None]}
    """
    known = set(batch.schema.names)
    arrays = [
        _column(batch.column(field.name), field, origin, permissive)
        if field.name in known
        else pa.nulls(batch.num_rows, field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _column(column: Any, field: pa.Field[Any], origin: str, permissive: bool) -> Any:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if permissive:
            return pa.concat_arrays(
                [_one(column[row : row + 1], field) for row in range(len(column))]
            )
        raise InvalidEvent(
            f"attribute {field.name!r} of events from {origin} is {column.type}, and some of it "
            f"does not fit the column's type {field.type}: {error}; change the schema, or read "
            "such values as null with option('mode', 'permissive')"
        ) from None


def _one(value: Any, field: pa.Field[Any]) -> Any:
    try:
        return value.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, field.type)
