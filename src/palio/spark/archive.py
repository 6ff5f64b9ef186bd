"""Reading an archive: Parquet files of events in directories by day, filtered by Palio's filters.

An archive's columns are the attributes of its events and `$publisher`, `$seq` and `$time`; files
need not have the same. Whole row groups are passed over where their statistics show that nothing
in them can match: these are a filter too, and both together contradict themselves. What is left is
matched by the index, batch by batch, in the worker that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as SparkFilter

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.model.constraints import Constraint
from palio.model.filters import TRUE, Conjunction, Filter
from palio.model.operators import Op
from palio.parquet import matching_groups
from palio.spark.attributes import arrow_schema, fit, is_attribute, leaves, reshaped
from palio.spark.options import Options, bindings
from palio.spark.parquet import as_stored, opened, parquet_files, read_groups, schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# --- filters that Spark pushes down, as Palio's, as far as both mean exactly the same ---
#
# What is left to Spark, which then looks at the rows itself:
#
# - `<=>`, lists with a null in them, and columns whose type is no attribute's;
# - on floating-point columns whatever is true of NaN in Spark, where NaN is greater than any number
#   and equal to itself: `>`, `>=` and negations. In Palio NaN satisfies no comparison.

_OPERATORS: Final = {
    "EqualTo": Op.EQ,
    "GreaterThan": Op.GT,
    "GreaterThanOrEqual": Op.GE,
    "LessThan": Op.LT,
    "LessThanOrEqual": Op.LE,
    "In": Op.IN,
    "StringStartsWith": Op.PREFIX,
    "StringEndsWith": Op.SUFFIX,
    "StringContains": Op.CONTAINS,
    "IsNull": Op.ABSENT,
    "IsNotNull": Op.EXISTS,
}

_UNARY: Final = (Op.ABSENT, Op.EXISTS)

_PLAIN: Final = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "timestamp"}
)
_FLOATING: Final = frozenset({"float", "double"})


class Pushed(NamedTuple):
    """The filters that Palio takes over, as one, and those left to Spark."""

    filter: Filter
    left: list[SparkFilter]


def push(filters: Iterable[SparkFilter], schema: StructType) -> Pushed:
    """Take over what means the same in Palio.

    >>> from pyspark.sql.datasource import EqualNullSafe, LessThan, Not, StringStartsWith
    >>> from pyspark.sql.types import StructType
    >>> schema = StructType().add("price", "double").add("symbol", "string")
    >>> given = [LessThan(("price",), 5.0), Not(StringStartsWith(("symbol",), "I"))]
    >>> str(push(given, schema).filter)
    "price < 5 AND symbol NOT STARTS WITH 'I'"
    >>> push([EqualNullSafe(("price",), 5.0)], schema).left
    [EqualNullSafe(attribute=('price',), value=5.0)]
    """
    types = {name: kind.simpleString() for name, (_, kind) in leaves(schema.fields).items()}
    whole, left = TRUE, []
    for filter in filters:
        translated = _translated(filter, types)
        if translated is None:
            left.append(filter)
        else:
            whole = whole & translated
    return Pushed(whole, left)


def _translated(given: Any, types: dict[str, str]) -> Filter | None:
    is_negated = type(given).__name__ == "Not"
    inner = given.child if is_negated else given
    op = _OPERATORS.get(type(inner).__name__)
    if op is None:
        return None
    name = ".".join(inner.attribute)
    kind = types.get(name)
    if kind in _FLOATING:
        if op not in _UNARY and (is_negated or op in (Op.GT, Op.GE)):
            return None
    elif kind not in _PLAIN:
        return None
    try:
        constraint = (
            Constraint.of(name, op)
            if op in _UNARY
            else Constraint.of(name, op, _operand(inner.value))
        )
    except (InvalidInput, TypeError):
        return None
    single = Filter.of([Conjunction.of([constraint])])
    return ~single if is_negated else single


def _operand(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_operand, value))
    if value is None or (isinstance(value, datetime) and value.tzinfo is None):
        raise TypeError("no single value of the model")
    return bytes(value) if isinstance(value, bytearray) else value


# --- the reader ---

STRETCH_BYTES: Final = 64 << 20
"""Row groups that lie together are read by one task up to about so much."""


@dataclass(frozen=True)
class RowGroups(InputPartition):
    """Row groups of one file, for one task."""

    path: str
    groups: tuple[int, ...]


class ArchiveOptions(Options, frozen=True, kw_only=True):
    """The options of reading an archive."""

    path: str
    filter: str = "TRUE"
    param: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def bound_filter(self) -> Filter:
        """The filter, with the values of its parameters."""
        return parse_filter(self.filter).bind(bindings(self.filter, self.param))


class ArchiveReader(DataSourceReader):
    """Reads what matches: `filter`, and what Spark pushes down besides."""

    def __init__(self, path: str, schema: StructType, filter: Filter = TRUE) -> None:
        self.path = path
        self.schema = schema
        self.filter = filter

    def pushFilters(  # noqa: N802  # Spark's name
        self, filters: list[SparkFilter]
    ) -> Iterable[SparkFilter]:
        """Take over those that mean the same in Palio; the others are Spark's."""
        pushed = push(filters, self.schema)
        self.filter = self.filter & pushed.filter
        return pushed.left

    def partitions(self) -> Sequence[InputPartition]:
        """The row groups in which something may match, in stretches."""
        row_groups: list[RowGroups] = []
        for path in parquet_files(Path(self.path), "the archive", deep=True):
            groups: list[int] = []
            size = 0
            with opened(path) as file:
                for number in matching_groups(file, self.filter, _attributes(file, path)):
                    groups.append(number)
                    size += file.metadata.row_group(number).total_byte_size
                    if size >= STRETCH_BYTES:
                        row_groups.append(RowGroups(str(path), tuple(groups)))
                        groups, size = [], 0
            if groups:
                row_groups.append(RowGroups(str(path), tuple(groups)))
        # With no partitions at all Spark would make one of its own.
        return row_groups or [RowGroups("", ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a stretch that match, in Spark's schema."""
        assert isinstance(partition, RowGroups)
        if not partition.groups:
            return
        with opened(partition.path) as file:
            usable = _attributes(file, partition.path)
        wanted = [*{*self._target.names, *self.filter.attributes}]
        for batch in read_groups(partition.path, partition.groups, wanted):
            columns = [*map(as_stored, batch.columns)]
            stored = pa.RecordBatch.from_arrays(columns, batch.schema.names)
            kept = self._matching(stored, usable)
            if kept.num_rows:
                yield reshaped(kept, self._target, partition.path)

    @cached_property
    def _target(self) -> pa.Schema:
        return arrow_schema(self.schema)

    def _matching(self, batch: pa.RecordBatch, usable: frozenset[str]) -> pa.RecordBatch:
        if self.filter == TRUE:
            return batch
        index = Index()
        index.add(0, self.filter)
        names = [name for name in batch.schema.names if name in self.filter.attributes & usable]
        fitted = fit(batch.select(names))
        rows = index.match(fitted.events).rows
        rows = rows[fitted.fits[rows]]
        return batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))


def archive_schema(path: str) -> StructType:
    """The columns of all files of an archive.

    What is integers in some and floats in others is floats: the reader refuses what does not fit.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    columns: dict[str, pa.DataType] = {}
    origin: dict[str, Path] = {}
    for file in parquet_files(Path(path), "the archive", deep=True):
        with opened(file) as parquet:
            fields = list(schema_of(parquet, file))
        for field in fields:
            kind = columns.setdefault(field.name, field.type)
            if kind != field.type and _is_number(kind) and _is_number(field.type):
                columns[field.name] = _wider(kind, field.type)
            elif kind != field.type:
                raise InvalidInput(
                    f"column {field.name!r} is {kind} in {str(origin[field.name])!r} and "
                    f"{field.type} in {str(file)!r}; choose a type with .schema(...)"
                )
            origin.setdefault(field.name, file)
    return from_arrow_schema(pa.schema(list(columns.items())))


def _is_number(given: pa.DataType) -> bool:
    return pa.types.is_integer(given) or pa.types.is_floating(given)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for numbers of two types."""
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return max(one, other, key=lambda given: given.bit_width)
    return pa.float64()


def _attributes(file: pq.ParquetFile, path: str | Path) -> frozenset[str]:
    """The columns that are attributes."""
    return frozenset(field.name for field in schema_of(file, path) if is_attribute(field.type))
