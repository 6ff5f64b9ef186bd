"""`palio pub`: publish events at a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from palio.cli import inputs
from palio.cli.connecting import UNDER_WAY, BrokerDoor, ProgressLine
from palio.cli.feed import LineFeed
from palio.cli.reporting import show, tell
from palio.client.deadlines import TIMEOUT_S
from palio.errors import InvalidInput, PalioError

__all__ = ["pub"]

BATCH_ROWS: Final = 1_000
"""Events that are published in one go where they come from a file."""


def pub(source: str, door: BrokerDoor, *, durable: bool, as_json: bool) -> int:
    """Publish the events of a file or of standard input; print the receipt."""
    published = asyncio.run(_publish(source, door, durable=durable))
    if as_json:
        show(published)
    else:
        level = "on the broker's disk" if durable else "in the broker's memory"
        events = "event" if published["events"] == 1 else "events"
        show(f"{published['events']:,} {events} published by {published['publisher']}, {level}")
    return 0


async def _publish(source: str, door: BrokerDoor, *, durable: bool) -> dict[str, Any]:
    progress = ProgressLine()
    async with door.connect() as client:
        feed = LineFeed(_batches(source))
        under_way: list[asyncio.Future[Any]] = []
        count = 0
        first = last = 0

        async def answered() -> None:
            nonlocal count, first, last
            answer = await under_way.pop(0)
            first, last = first or answer.first_seq, answer.last_seq
            count += answer.last_seq - answer.first_seq + 1
            progress.show(count)

        try:
            while taken := await feed.take(BATCH_ROWS):
                for each in _gathered(taken):
                    receipt = client.publish_nowait(each, durable=durable, timeout=TIMEOUT_S)
                    under_way.append(receipt)
                while len(under_way) > UNDER_WAY or (under_way and len(taken) < BATCH_ROWS):
                    await answered()
            while under_way:
                await answered()
        except PalioError:  # the others may have been published all the same
            while under_way:
                with suppress(PalioError):
                    await answered()
            if count:
                progress.end()
                tell(f"{count:,} events were published")
            raise
        finally:
            for receipt in under_way:
                receipt.cancel()
            progress.end()
        level = "durable" if durable else "memory"
        return {
            "events": count,
            "publisher": client.publisher,
            "first_seq": first,
            "last_seq": last,
            "level": level,
        }


def _gathered(
    taken: list[dict[str, Any] | pa.RecordBatch],
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


def _batches(source: str) -> Iterator[dict[str, Any] | pa.RecordBatch]:
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
