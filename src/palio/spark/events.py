"""Events as Spark has them: which columns cross into Python, and which come back.

From a DataFrame only the columns that are needed are selected, under positional names, so that no
name means two things. Of Parquet files given by path only paths cross: each task reads its row
groups itself, which is several times faster than sending rows from the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from palio.errors import InvalidInput
from palio.spark.attributes import arrow_schema, attributes_of, column_at
from palio.spark.parquet import as_stored, opened, parquet_files, read_groups, schema_of
from palio.spark.tasks import context_of
from palio.spark.workers import ColumnSlots

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

FILE: Final = "$file"
"""The column that names the file an event of a Parquet path is in..."""

ROW: Final = "$row"
"""...and the one with the number of its row."""

WATERMARK: Final = "spark.watermarkDelayMs"
"""The metadata that Spark writes beside a column that `withWatermark` names."""

TASKS_PER_CORE: Final = 3
"""Tasks for each core that read Parquet: enough that no core waits long for the last task."""

MAX_PRECISION: Final = 38
"""Of Spark's decimals."""

CONNECT_TASKS: Final = 64
"""Tasks that read Parquet at most where the number of cores is not known."""

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Layout(NamedTuple):
    """The paths of fields to fetch, and what each of them is for."""

    paths: tuple[tuple[str, ...], ...]
    slots: ColumnSlots


def _layout(schema: pa.Schema, names: Sequence[str], columns: Sequence[str]) -> Layout:
    """The columns to fetch so that some attributes are there and some columns come back."""
    attributes = attributes_of(schema)
    wanted = [name for name in sorted(names) if name in attributes]
    paths: dict[tuple[str, ...], int] = {}
    for path in [attributes[name] for name in wanted] + [(name,) for name in columns]:
        paths.setdefault(path, len(paths))
    slots = ColumnSlots(
        tuple((name, paths[attributes[name]]) for name in wanted),
        tuple(paths[(name,)] for name in columns),
    )
    return Layout(tuple(paths), slots)


def check_columns(existing: Sequence[str], names: Iterable[str]) -> None:
    """Refuse what is no column of events."""
    for name in names:
        if name not in existing:
            raise InvalidInput(
                f"the events have no column {name!r}; they have {', '.join(existing)}"
            )


class FrameEvents:
    """The rows of a DataFrame, static or streaming."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql.types import NullType, StructType

        self.frame = frame
        self.columns: list[str] = list(frame.columns)
        types = StructType()
        for field in frame.schema.fields:
            types.add(field.name, field.dataType if _is_known(field.dataType) else NullType())
        self.schema: pa.Schema = arrow_schema(types)

    @property
    def session(self) -> SparkSession:
        """The session it belongs to."""
        return self.frame.sparkSession

    @property
    def is_streaming(self) -> bool:
        """True for a stream."""
        return self.frame.isStreaming

    def watermark_ms(self, column: str) -> int | None:
        """The delay with which an event of a stream may come; None if none was set."""
        delay: int | None = self.frame.schema[column].metadata.get(WATERMARK)
        return delay

    def layout(self, names: Sequence[str], columns: Sequence[str]) -> Layout:
        """The columns that are selected for some attributes and columns."""
        twice = [name for name in columns if self.columns.count(name) > 1]
        twice += [name for name in names if self.columns.count(name) > 1]
        if twice:
            raise InvalidInput(f"the events have two columns {twice[0]!r}; rename one of them")
        return _layout(self.schema, names, columns)

    def types(self, columns: Sequence[str]) -> StructType:
        """The Spark types of columns that come back."""
        from pyspark.sql.types import StructType

        by_name = {field.name: field for field in self.frame.schema.fields}
        for name in columns:
            if not _is_known(by_name[name].dataType):
                raise cannot_come_back(name, by_name[name].dataType.simpleString())
        return StructType([by_name[name] for name in columns])

    def run(self, task: Task, layout: Layout, result: StructType) -> DataFrame:
        """A task over all rows."""
        from pyspark.sql import functions

        plain = self.frame.toDF(*(f"_{place}" for place in range(len(self.columns))))
        selected = []
        for number, path in enumerate(layout.paths):
            place = self.columns.index(path[0])
            column, given = functions.col(f"_{place}"), self.frame.schema.fields[place].dataType
            for name in path[1:]:
                column, given = _field(column, given, name)
            selected.append(column.alias(f"c{number}"))
        if not selected:  # rows without columns have no number in Arrow
            selected.append(functions.lit(None).cast("boolean").alias("c0"))
        return plain.select(*selected).mapInArrow(task, result)


def _field(column: Column, given: Any, name: str) -> tuple[Column, DataType]:
    """A field of a struct, and its type. Spark may take names that differ in case for the same one:
    then fields are distinguished by their places.
    """
    place = given.names.index(name)
    if [other.lower() for other in given.names].count(name.lower()) > 1:
        renamed = type(given)()
        for number, field in enumerate(given.fields):
            renamed.add(f"_{number}", field.dataType)
        return column.cast(renamed).getField(f"_{place}"), given.fields[place].dataType
    return column.getField(name), given.fields[place].dataType


def cannot_come_back(name: str, given: object) -> InvalidInput:
    """The error for a column of a type that does not cross between Python and Spark."""
    return InvalidInput(
        f"column {name!r} is {given}, which cannot come back from Python; "
        "name the columns that are to come back, with columns=[...]"
    )


def _is_known(given: Any) -> bool:
    """True if Arrow has a type for Spark's; the others are no attributes anyway."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        to_arrow_type(given, timezone="UTC")
    except PySparkTypeError:
        return False
    return True


# --- Parquet ---


class RowGroup(NamedTuple):
    """One row group of a file, and the number of its first row."""

    path: str
    group: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class ReadTask:
    """Reads row groups and hands them to a task; each partition has a list of them."""

    inner: Task
    paths: tuple[tuple[str, ...], ...]
    shares: tuple[tuple[RowGroup, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the row groups of this partition, and run the inner task on them."""
        shares = [number for batch in batches for number in batch.column(0).to_numpy().tolist()]
        pieces = [piece for number in shares for piece in self.shares[number]]
        return self.inner(batch for piece in pieces for batch in self._read(piece))

    def _read(self, piece: RowGroup) -> Iterator[pa.RecordBatch]:
        stored = [".".join(path) for path in self.paths if path[0] not in (FILE, ROW)]
        first = piece.first_row
        for batch in read_groups(piece.path, [piece.group], stored):
            arrays = [self._column(batch, path, piece, first) for path in self.paths]
            first += batch.num_rows
            names = [f"c{number}" for number in range(len(arrays))]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, names)
            else:
                yield pa.record_batch({"c0": pa.nulls(batch.num_rows)})

    @staticmethod
    def _column(batch: pa.RecordBatch, path: tuple[str, ...], piece: RowGroup, first: int) -> Any:
        if path == (FILE,):
            return pa.repeat(piece.path, batch.num_rows)
        if path == (ROW,):
            return pa.array(range(first, first + batch.num_rows), pa.int64())
        return as_stored(column_at(batch, path))


class ParquetEvents:
    """The rows of Parquet files: one, or all of a directory."""

    is_streaming: Final = False

    def __init__(self, path: str | Path, session: SparkSession) -> None:
        self.session = session
        files = parquet_files(Path(path), "events from")
        self.pieces: list[RowGroup] = []
        self.schema: pa.Schema = pa.schema([])
        like: tuple[Any, Any] | None = None
        for number, source in enumerate(files):
            with opened(source) as file:
                if like is None or (file.schema, file.metadata.metadata) != like:
                    like = file.schema, file.metadata.metadata
                    schema = schema_of(file, source)
                    self.schema = schema if number == 0 else self.schema
                    _check_same(self.schema, schema, files[0], source)
                first = 0
                for group in range(file.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    self.pieces.append(RowGroup(str(source), group, first, rows))
                    first += rows
        self.columns: list[str] = self.schema.names

    @property
    def rows(self) -> int:
        """The number of events."""
        return sum(piece.rows for piece in self.pieces)

    def layout(self, names: Sequence[str], columns: Sequence[str]) -> Layout:
        """The columns that are read for some attributes and columns."""
        return _layout(self.schema, names, columns)

    def types(self, columns: Sequence[str]) -> StructType:
        """The Spark types of columns that come back."""
        from pyspark.sql.types import StructType

        given: dict[str, pa.DataType] = {FILE: pa.utf8(), ROW: pa.int64()}
        given |= {field.name: field.type for field in self.schema}
        schema = StructType()
        for name in columns:
            schema.add(name, _spark_type(name, given[name]))
        return schema

    def run(self, task: Task, layout: Layout, result: StructType) -> DataFrame:
        """A task over all rows, each partition reading its own."""
        most = _most_tasks(self.session)
        shares = _shares(self.pieces, max(1, min(len(self.pieces), most)))
        numbers = self.session.range(0, len(shares), 1, len(shares))
        return numbers.mapInArrow(ReadTask(task, layout.paths, shares), result)


def _most_tasks(session: SparkSession) -> int:
    """As many tasks as are worth their start; by Spark Connect one cannot see the cores."""
    context = context_of(session)
    return CONNECT_TASKS if context is None else TASKS_PER_CORE * context.defaultParallelism


def _spark_type(name: str, given: pa.DataType) -> DataType:
    """The type of a column that comes back, which not every column has."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import TimeType

    try:
        kind = from_arrow_type(given)
    except PySparkTypeError:
        kind = None
    if kind is None or isinstance(kind, TimeType) or _precision(given) > MAX_PRECISION:
        raise cannot_come_back(name, given)
    return kind


def _precision(given: Any) -> int:
    return given.precision if pa.types.is_decimal(given) else 0


def _check_same(schema: pa.Schema, other: pa.Schema, first: Path, path: Path) -> None:
    if not schema.equals(other):
        raise InvalidInput(
            f"{str(path)!r} and {str(first)!r} have different columns; "
            "hand in spark.read.option('mergeSchema', True).parquet(...) instead of the path"
        )


def _shares(pieces: Sequence[RowGroup], count: int) -> tuple[tuple[RowGroup, ...], ...]:
    """Row groups dealt out so that every share has about as many rows; the largest first."""
    shares: list[list[RowGroup]] = [[] for _ in range(count)]
    rows = [0] * count
    for piece in sorted(pieces, key=lambda piece: -piece.rows):
        least = rows.index(min(rows))
        shares[least].append(piece)
        rows[least] += piece.rows
    return tuple(tuple(sorted(share)) for share in shares)
