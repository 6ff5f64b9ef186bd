"""The events of files: JSON lines one by one, CSV and Parquet in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from palio.cli import inputs
from palio.errors import InvalidInput

__all__ = ["BATCH_ROWS", "events_of", "gathered"]

BATCH_ROWS: Final = 1_000
"""Events that are taken at once from a file."""


def gathered(
    taken: Iterable[dict[str, Any] | pa.RecordBatch],
) -> Iterator[list[dict[str, Any]] | pa.RecordBatch]:
    """Events that came one by one as lists, batches as they are, in order."""
    rows: list[dict[str, Any]] = []
    for each in taken:
        if isinstance(each, dict):
            rows.append(each)
            continue
        if rows:
            yield rows
            rows = []
        yield each
    if rows:
        yield rows


def events_of(source: str) -> Iterator[dict[str, Any] | pa.RecordBatch]:
    """The events of JSON lines one by one, those of CSV and Parquet in batches."""
    kind = Path(source).suffix.lower()
    if kind == ".parquet":
        yield from _parquet(source)
    elif kind == ".csv":
        yield from _csv(source)
    else:
        for _, event in inputs.events(source):
            yield event


def _parquet(source: str) -> Iterator[pa.RecordBatch]:
    from palio.parquet import pieces

    yield from pieces(source, most_rows=BATCH_ROWS)


def _csv(source: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    # Blocks of about a thousand ordinary lines. Empty fields are absent, not empty texts.
    reading = csv.ReadOptions(block_size=256 << 10)
    converting = csv.ConvertOptions(strings_can_be_null=True)
    try:
        with csv.open_csv(source, read_options=reading, convert_options=converting) as reader:
            for batch in reader:
                yield _zoned(batch)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(source, error) from None


def _zoned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times without a zone are taken for UTC, as the language takes them."""
    arrays = [
        column.cast(pa.timestamp("us", tz="UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz is None
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _unreadable(source: str, error: Exception) -> InvalidInput:
    reason = str(error).partition("\n")[0]
    return InvalidInput(f"cannot read {source!r:.200}: {reason}")
