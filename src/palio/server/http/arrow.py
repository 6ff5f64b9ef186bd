"""Arrow streams: record batches in, in the body of a publication, and out, as events come.

1. A stream has one schema, and events have many. `?column.NAME=TYPE` names the attributes that
   become columns; without it the first events do. Attributes that do not fit, others or of another
   type, are in the column `$rest`, as JSON.
2. A row without `$seq` is no event but a gap: `$rest` has the lost range. So every reader sees it,
   also those that know no metadata of batches. A gap waits for the first events if no columns are
   named, but no longer than until the next empty batch is due.
3. `$cursor`, in the last row of a batch, is where to resume after it.
4. An idle stream has an empty batch now and then, and ends with Arrow's end marker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec
import pyarrow as pa
from starlette.requests import Request

from palio.errors import InvalidInput
from palio.language.http_events import gap_event, json_value
from palio.model.events import PUBLISHER, SEQ, TIME, is_system_name, rows
from palio.model.limits import MAX_ATTRIBUTES, check_limit
from palio.server.http.cursors import CursorFeed, FeedBatch
from palio.server.http.sse import PING_S, with_pings
from palio.server.scheduler import Pace

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"

CURSOR: Final = "$cursor"
REST: Final = "$rest"

COLUMN: Final = "column."
"""Begins the parameters of a query that name columns."""

REST_ROWS: Final = 1_000
"""Rows that are fitted at once where some of them go into `$rest`, which takes Python."""

MAX_WAITING_GAPS: Final = 1_000
"""Gaps that wait for an event to give the schema: no client makes a broker keep more of them."""

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

TYPES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Of columns, by the names that a query gives them."""
_SYSTEM: Final[tuple[tuple[str, pa.DataType], ...]] = (
    (PUBLISHER, pa.utf8()),
    (SEQ, pa.int64()),
    (TIME, pa.timestamp("us", "UTC")),
    (CURSOR, pa.utf8()),
    (REST, pa.utf8()),
)

Columns = Mapping[str, pa.DataType]
"""Attributes that become columns, with their types."""


def is_wanted(request: Request) -> bool:
    """Return whether an answer is to be an Arrow stream."""
    kinds = request.headers.get("accept", "").split(",")
    return ARROW_TYPE in {kind.partition(";")[0].strip().lower() for kind in kinds}


def columns_of(query: Mapping[str, str]) -> Columns:
    """Columns out of a query.

    >>> columns_of({"column.price": "float64", "filter": "TRUE"})
    {'price': DataType(double)}
    """
    columns = {}
    for key, kind in query.items():
        name = key.removeprefix(COLUMN)
        if name == key:
            continue
        if kind not in TYPES or is_system_name(name):
            raise InvalidInput(
                f"column {name!r:.60} of type {kind!r:.40}: types are {', '.join(TYPES)}, "
                "and names that begin with $ belong to the system"
            )
        columns[name] = TYPES[kind]
    check_limit("the columns of a stream", "MAX_ATTRIBUTES", MAX_ATTRIBUTES, len(columns))
    return columns


async def messages(
    feed: CursorFeed, columns: Columns, ping_s: float = PING_S
) -> AsyncIterator[bytes]:
    """A feed as an Arrow stream, until either end has had enough."""
    schema = _schema(columns) if columns else None
    waiting: list[FeedBatch] = []
    try:
        if schema is not None:  # the client knows at once that it listens
            yield _bytes(schema)
        async with aclosing(with_pings(feed.batches(), ping_s)) as parts:
            async for part in parts:
                waiting += [part] if part is not None else []
                if schema is None:
                    is_event = part is not None and part.batch is not None
                    is_quiet = part is None and waiting
                    if not (is_event or is_quiet or len(waiting) == MAX_WAITING_GAPS):
                        continue
                    schema = _schema_for(waiting)
                    yield _bytes(schema)
                if part is None:
                    yield _bytes(pa.RecordBatch.from_pylist([], schema=schema))
                async for fitted in _fitted(waiting, schema):
                    yield fitted
                waiting.clear()
        if schema is None:
            schema = _schema({})
            yield _bytes(schema)
        async for fitted in _fitted(waiting, schema):
            yield fitted
        yield _END
    finally:
        feed.leave()


async def whole(parts: Sequence[FeedBatch], columns: Columns) -> bytes:
    """Encode a batch as a stream with an end."""
    schema = _schema(columns) if columns else _schema_for(parts)
    fitted = [message async for message in _fitted(parts, schema)]
    return b"".join([_bytes(schema), *fitted, _END])


async def _fitted(parts: Iterable[FeedBatch], schema: pa.Schema) -> AsyncIterator[bytes]:
    """Portions as messages of a stream."""
    pace = Pace()
    for part in parts:
        for batch in _record_batches(part, schema):
            yield _bytes(batch)
            await pace()


def _record_batches(part: FeedBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    batch = part.batch
    if batch is None:
        yield _gap(part, schema)
        return
    others = [
        field.name
        for field in batch.schema
        if field.name not in schema.names or schema.field(field.name).type != field.type
    ]
    step = REST_ROWS if others else batch.num_rows
    for start in range(0, batch.num_rows, step):
        cursor = part.cursor if start + step >= batch.num_rows else ""
        yield _shaped(batch.slice(start, step), schema, others, part.publisher, cursor)


def _shaped(
    batch: pa.RecordBatch, schema: pa.Schema, others: list[str], publisher: str, cursor: str
) -> pa.RecordBatch:
    """A batch as a stream's schema has it."""
    count = batch.num_rows
    own: dict[str, pa.Array[Any]] = {
        PUBLISHER: pa.repeat(publisher, count),
        CURSOR: pa.array([*[None] * (count - 1), cursor or None], pa.utf8()),
    }
    if others:
        texts = [_text(row) if row else None for row in rows(batch.select(others))]
        own[REST] = pa.array(texts, pa.utf8())
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name not in others:
            own[field.name] = column
    arrays = [own.get(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, field.type) if array is None else array
            for field, array in zip(schema, arrays, strict=True)
        ],
        schema=schema,
    )


def _gap(part: FeedBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The row for a gap."""
    gap = part.gap
    assert gap is not None
    lost = gap_event(gap.publisher, gap.first_seq, gap.last_seq, gap.count, "palio")["data"]
    row = {PUBLISHER: gap.publisher, CURSOR: part.cursor or None, REST: _text(lost)}
    return pa.RecordBatch.from_pylist([row], schema=schema)


def _text(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode({name: json_value(value) for name, value in values.items()}).decode()


def _schema(columns: Columns) -> pa.Schema:
    return pa.schema([*columns.items(), *_SYSTEM])


def _schema_for(parts: Sequence[FeedBatch]) -> pa.Schema:
    """The schema that the first events give."""
    first = next((part.batch.schema for part in parts if part.batch is not None), ())
    return _schema({field.name: field.type for field in first if field.name[:1] != "$"})


def _bytes(part: pa.Schema | pa.RecordBatch) -> bytes:
    return part.serialize().to_pybytes()
