"""Columns as attributes: which types of Spark, Arrow and Parquet are attributes, and how.

The table of docs/reference/spark.md, in code. A column is an attribute of its own name, spelled
exactly so; a field of a struct is one with a dotted name. What is no single value (arrays, maps,
intervals, times of day, variants) is no attribute: for filters it is absent, as
`palio.model.flatten` leaves arrays out.

Nothing is rounded on the way. A value that the model cannot hold exactly makes its row a *misfit*:
it matches nothing, and `palio.spark.rejects` lists it with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from palio.errors import InvalidEvent
from palio.model.events import conform

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

EXACT_DIGITS: Final = 15
"""Digits up to which decimals and floats are in one-to-one order: IEEE 754 promises no more."""

_CANNOT_CAST: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


class Misfit(NamedTuple):
    """Values of one attribute that the model cannot hold: their rows, and why."""

    rows: npt.NDArray[np.int64]
    attribute: str
    reason: str


class Fitted(NamedTuple):
    """A batch in the model's types, misfits as null, and the misfits."""

    events: pa.RecordBatch
    misfits: list[Misfit]

    @property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Select the rows without a misfit: the others match nothing."""
        mask = np.ones(self.events.num_rows, np.bool_)
        for misfit in self.misfits:
            mask[misfit.rows] = False
        return mask


def is_attribute(given: pa.DataType) -> bool:
    """True if values of an Arrow type are single values of the model.

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
    return {name: path for name, (path, _) in leaves(schema, is_attribute).items()}


def leaves(
    fields: Iterable[Any], keep: Callable[[Any], bool] = lambda _: True
) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Columns and fields of structs under dotted names, of Arrow or of Spark: path and type each.

    Of those to `keep` that are called the same the shortest path has the name.
    """
    columns: dict[str, tuple[tuple[str, ...], Any]] = {}
    for path, kind in _leaves((), fields):
        name = ".".join(path)
        if keep(kind) and (name not in columns or len(path) < len(columns[name][0])):
            columns[name] = path, kind
    return columns


def _leaves(
    prefix: tuple[str, ...], fields: Iterable[Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in fields:
        path = (*prefix, field.name)
        kind = field.type if isinstance(field, pa.Field) else field.dataType
        is_struct = isinstance(kind, pa.StructType) or type(kind).__name__ == "StructType"
        if is_struct:
            yield from _leaves(path, kind)
        else:
            yield path, kind


def type_at(schema: pa.Schema, path: Sequence[str]) -> Any:
    """The type of a column, or of a field in it."""
    given: Any = schema.field(path[0]).type
    for name in path[1:]:
        given = given.field(name).type
    return given


def column_at(batch: pa.RecordBatch, path: Sequence[str]) -> Any:
    """A column, or a field in it."""
    column: Any = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def fit(batch: pa.RecordBatch) -> Fitted:
    """A batch of attributes in the model's types.

    >>> from decimal import Decimal
    >>> fit(pa.record_batch({"price": pa.array([Decimal("9.50")])})).events.column(0).to_pylist()
    [9.5]
    """
    if not batch.num_columns:  # a column of nulls is no attribute, but it has a length
        batch = pa.record_batch({"absent": pa.nulls(batch.num_rows)})
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
    """Whole decimals as int64; others as the nearest float64 where that distinguishes them."""
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
    """A column cast, with null for what does not fit, which is noted."""
    array, bad = _cast_as_far(column, target)
    if bad is not None:
        misfits.append(Misfit(np.flatnonzero(bad), name, reason))
    return array


def _cast_as_far(column: Any, target: Any) -> tuple[Any, npt.NDArray[np.bool_] | None]:
    """A column cast, with null for what does not fit, and a mask of that if there is any."""
    try:
        return column.cast(target), None
    except _CANNOT_CAST:
        bad = np.array([not _casts(column[row : row + 1], target) for row in range(len(column))])
    if bad.all():  # perhaps there is no such cast at all
        return pa.nulls(len(column), target), bad
    return _nulled(column, bad).cast(target), bad


def _casts(one: Any, target: pa.DataType) -> bool:
    try:
        one.cast(target)
    except _CANNOT_CAST:
        return False
    return True


def _nulled(column: Any, bad: npt.NDArray[np.bool_]) -> Any:
    return pc.if_else(pa.array(bad), pa.scalar(None, column.type), column)


def _without(name: str, column: Any, bad: Any, reason: str, misfits: list[Misfit]) -> Any:
    """A column with null for what is bad, which is noted."""
    mask = pc.fill_null(bad, False).to_numpy(zero_copy_only=False)
    if not mask.any():
        return column
    misfits.append(Misfit(np.flatnonzero(mask), name, reason))
    return _nulled(column, mask)


# --- columns of another schema ---


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
    names = set(batch.schema.names)
    arrays = [
        _reshaped(batch.column(field.name), field, origin, permissive)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _reshaped(column: Any, field: pa.Field[Any], origin: str, permissive: bool) -> Any:
    if column.type == field.type:
        return column
    if permissive:
        return _cast_as_far(column, field.type)[0]
    try:
        return column.cast(field.type)
    except _CANNOT_CAST as error:
        raise InvalidEvent(
            f"attribute {field.name!r} of events from {origin} is {column.type}, and some of it "
            f"does not fit the column's type {field.type}: {error}; change the schema, or read "
            "such values as null with option('mode', 'permissive')"
        ) from None
