"""Columns as attributes: which types of Spark, Arrow and Parquet are attributes, and how.

The table of docs/reference/spark.md, in code. A column is an attribute of its own name, spelled
exactly so; a field of a struct is one with a dotted name. What is no single value (arrays, maps,
intervals, times of day, variants) is no attribute: for filters it is absent, as
`palio.model.flatten` leaves arrays out.

Nothing is rounded on the way. A value that the model cannot hold exactly makes its row a *misfit*:
it matches nothing, and `palio.spark.rejects` lists it with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from palio.model.events import conform

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Fitted", "Misfit", "arrow_schema", "attributes_of", "fit", "is_attribute"]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

EXACT_DIGITS: Final = 15
"""Digits up to which decimals and floats are in one-to-one order: IEEE 754 promises no more."""


class Misfit(NamedTuple):
    """Values of one attribute that the model cannot hold: their rows, and why."""

    rows: npt.NDArray[np.int64]
    attribute: str
    reason: str


class Fitted(NamedTuple):
    """A batch in the model's types, misfits as null, and the misfits."""

    events: pa.RecordBatch
    misfits: list[Misfit]


def is_attribute(given: pa.DataType) -> bool:
    """Whether values of an Arrow type are single values of the model.

    >>> is_attribute(pa.decimal128(10, 2)), is_attribute(pa.list_(pa.int64()))
    (True, False)
    """
    types = pa.types
    if types.is_dictionary(given):
        return is_attribute(given.value_type)
    return any(
        test(given)
        for test in (
            *(types.is_boolean, types.is_integer, types.is_floating, types.is_decimal),
            *(types.is_string, types.is_large_string, types.is_string_view, types.is_binary),
            *(types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
            *(types.is_date, types.is_timestamp),
        )
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Columns of Spark as Arrow has them: their times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def attributes_of(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """The attributes of a schema, each with the path of fields that leads to it.

    A column whose own name has the dots hides a field that would be called the same.

    >>> inner = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.utf8()))])
    >>> attributes_of(pa.schema([("id", pa.int64()), ("data", inner)]))
    {'id': ('id',), 'data.x': ('data', 'x')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for path, given in _leaves((), list(schema)):
        name = ".".join(path)
        if is_attribute(given) and (name not in found or len(path) < len(found[name])):
            found[name] = path
    return found


def _leaves(
    prefix: tuple[str, ...], fields: list[pa.Field[Any]]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in fields:
        path = (*prefix, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(path, list(field.type))
        else:
            yield path, field.type


def fit(batch: pa.RecordBatch) -> Fitted:
    """A batch of attributes in the model's types.

    >>> from decimal import Decimal
    >>> fit(pa.record_batch({"price": pa.array([Decimal("9.50")])})).events.column(0).to_pylist()
    [9.5]
    """
    misfits: list[Misfit] = []
    names, columns = batch.schema.names, batch.columns
    arrays = [_fitted(name, column, misfits) for name, column in zip(names, columns, strict=True)]
    if all(one is other for one, other in zip(arrays, columns, strict=True)):
        return Fitted(conform(batch), misfits)
    return Fitted(conform(pa.RecordBatch.from_arrays(arrays, names)), misfits)


def _fitted(name: str, column: Any, misfits: list[Misfit]) -> Any:
    """A column in a type that `conform` takes as it is or widens without loss."""
    types, given = pa.types, column.type
    if types.is_dictionary(given):
        return _fitted(name, column.dictionary_decode(), misfits)
    if types.is_decimal(given):
        return _decimal(name, column, misfits)
    if types.is_uint64(given):
        return _cast(name, column, pa.int64(), "it is beyond int64", misfits)
    if types.is_date(given):
        return _instants(name, column.cast(pa.date32()), misfits)
    if types.is_timestamp(given) and given != TIMESTAMP:
        return _instants(name, column, misfits)
    return column


def _decimal(name: str, column: Any, misfits: list[Misfit]) -> Any:
    """Whole decimals as int64; others as the nearest float64 where that tells them apart."""
    if column.type.scale <= 0:
        return _cast(name, column, pa.int64(), "it is beyond int64", misfits)
    texts = column.cast(pa.utf8())
    if column.type.precision > EXACT_DIGITS:
        digits = pc.replace_substring_regex(texts, r"[eE].*$", "")
        digits = pc.replace_substring_regex(digits, r"[-.]", "")
        digits = pc.ascii_trim(digits, "0")
        long = pc.greater(pc.binary_length(digits), pa.scalar(EXACT_DIGITS))
        reason = f"it has more than {EXACT_DIGITS} digits; cast the column to double or string"
        texts = _without(name, texts, long, reason, misfits)
    return texts.cast(pa.float64())


def _instants(name: str, column: Any, misfits: list[Misfit]) -> Any:
    """Dates as their midnights and timestamps without a zone, both in UTC."""
    return _cast(name, column, TIMESTAMP, "it is out of range or finer than microseconds", misfits)


def _cast(name: str, column: Any, target: pa.DataType, reason: str, misfits: list[Misfit]) -> Any:
    """A column cast, or if some of it does not fit the rest of it cast."""
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        bad = pa.array([not _casts(column[row : row + 1], target) for row in range(len(column))])
        return _without(name, column, bad, reason, misfits).cast(target)


def _casts(one: Any, target: pa.DataType) -> bool:
    try:
        one.cast(target)
    except pa.ArrowInvalid:
        return False
    return True


def _without(name: str, column: Any, bad: Any, reason: str, misfits: list[Misfit]) -> Any:
    """A column with null for what is bad, which is noted."""
    mask = pc.fill_null(bad, False).to_numpy(zero_copy_only=False)
    if not mask.any():
        return column
    misfits.append(Misfit(np.flatnonzero(mask), name, reason))
    return pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)
