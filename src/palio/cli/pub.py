"""`palio pub`, `sub` and `adv`: publish, hear and announce at a broker."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from palio.cli import inputs
from palio.cli.feed import LineFeed
from palio.cli.reporting import show
from palio.client.connection import Client, connect
from palio.client.deadlines import TIMEOUT_S
from palio.client.events import Event, Gap
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, PalioError, Unsettled

__all__ = ["UNDER_WAY", "BrokerDoor", "ProgressLine", "adv", "pub", "show_event", "sub"]

BATCH_ROWS: Final = 1_000
"""Events that are published in one go where they come from a file."""

UNDER_WAY: Final = 32
"""Publications that are on their way before the first of them must be answered."""

Result = TypeVar("Result")

TOKEN_VARIABLE: Final = "PALIO_TOKEN"


class BrokerDoor(NamedTuple):
    """The addresses of brokers, the client's name and token, and the authorities to trust."""

    urls: list[str]
    token_file: Path | None = None
    ca: Path | None = None
    name: str = ""

    def connect(self, *, tells: bool = True) -> Client:
        """A client that is not connected yet; unless it `tells` nothing, people read on stderr when
        its connection is lost and when it is back.
        """
        _tell_warnings(tells=tells)
        token = os.environ.get(TOKEN_VARIABLE, "")
        if self.token_file is not None:
            token = inputs.token_of(str(self.token_file))
        return connect(self.urls, name=self.name, token=token, tls=self.ca)


# --- pub ---


def pub(source: str, door: BrokerDoor, *, durable: bool, as_json: bool) -> int:
    """Publish the events of a file or of standard input; print the receipt."""
    published = _run(_publish(source, door, durable=durable))
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
        try:
            while taken := await feed.take(BATCH_ROWS):
                under_way += [
                    client.publish_nowait(each, durable=durable, timeout=TIMEOUT_S)
                    for each in _gathered(taken)
                ]
                while len(under_way) > UNDER_WAY or (under_way and len(taken) < BATCH_ROWS):
                    receipt = await under_way.pop(0)
                    first, last = first or receipt.first_seq, receipt.last_seq
                    count += receipt.last_seq - receipt.first_seq + 1
                    progress.show(count)
            for each in under_way:
                receipt = await each
                first, last = first or receipt.first_seq, receipt.last_seq
                count += receipt.last_seq - receipt.first_seq + 1
        finally:
            for each in under_way:
                each.cancel()
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


class ProgressLine:
    """A count on the terminal, now and then; nothing where there is no terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last = time.monotonic()
        self._has_written = False

    def show(self, count: int) -> None:
        """So many so far."""
        if self._is_shown and time.monotonic() - self._last > 0.2:
            self._last = time.monotonic()
            self._has_written = True
            sys.stderr.write(f"\r{count:,} events")
            sys.stderr.flush()

    def end(self) -> None:
        """Take the count away."""
        if self._has_written:
            sys.stderr.write("\r\x1b[K")


# --- sub ---


def sub(
    filter: str,
    door: BrokerDoor,
    parameters: list[str],
    *,
    durable: str,
    count: int,
    reorder_s: float | None,
    as_json: bool,
) -> int:
    """Print events as they come, up to `count` or until Ctrl-C; read new parameters from stdin."""
    values = inputs.bindings(parameters)
    return _run(_hear(filter, door, values, durable, count, reorder_s, as_json=as_json))


async def _hear(
    filter: str,
    door: BrokerDoor,
    values: dict[str, Any],
    durable: str,
    count: int,
    reorder_s: float | None,
    *,
    as_json: bool,
) -> int:
    async with door.connect() as client:
        subscription = await client.subscribe(
            filter,
            on_gap=_tell_gap,
            values=values,
            durable=durable,
            acknowledge="explicit" if durable else "automatic",
            reorder_s=reorder_s,
        )
        helpers = [
            asyncio.create_task(_steer(subscription)),
            asyncio.create_task(_tell_when_in_force(subscription, client.broker)),
        ]
        heard = 0
        try:
            async for event in subscription:
                show_event(event, as_json=as_json)
                await event.ack()
                heard += 1
                if heard == count:
                    break
        finally:
            for each in helpers:
                each.cancel()
    return 0


async def _tell_when_in_force(subscription: Subscription, broker: str) -> None:
    """Say when whatever is published will be heard, wherever that is."""
    _tell(f"hearing {subscription.filter} at {broker}; Ctrl-C ends it")
    try:
        await subscription.settled()
    except Unsettled as error:
        _tell(str(error))
    except PalioError:
        pass  # the connection is lost, which is told by itself, or the subscription is over
    else:
        _tell("in force wherever events are published")


async def _steer(subscription: Subscription) -> None:
    """Take `limit=20` from standard input as a new value; a mistake is told and changes nothing."""
    feed = LineFeed(_typed())
    while lines := await feed.take(1):
        for line in lines:
            given = line.strip()
            if not given:
                continue
            try:
                await subscription.update(**inputs.bindings(given.split()))
            except PalioError as error:
                _tell(str(error).partition("\n")[0])
            else:
                _tell(", ".join(f":{name} = {value!r}" for name, value in _shown(subscription)))


def _typed() -> Iterator[str]:
    """Lines of standard input, read past Python's own buffer.

    A thread that waits inside that buffer holds its lock, on which a program that ends would fail.
    """
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # something that only looks like a file
        yield from sys.stdin
        return
    rest = b""
    while data := os.read(descriptor, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _shown(subscription: Subscription) -> list[tuple[str, Any]]:
    return sorted(subscription.values.items())


def show_event(event: Event, *, as_json: bool) -> None:
    """Print an event on a line: its attributes as text, or all there is as JSON."""
    if as_json:
        line = json.dumps(described(event), default=_jsonable, ensure_ascii=False)
    else:
        line = f"{event.time:%H:%M:%S} {event.publisher} {event.seq}  " + " ".join(
            f"{name}={value!r}" for name, value in event.items()
        )
    print(line, flush=True)  # noqa: T201  # one line an event, at once


def described(event: Event) -> dict[str, Any]:
    """An event for programs; for a pattern with all its parts."""
    document: dict[str, Any] = {
        "publisher": event.publisher,
        "seq": event.seq,
        "time": event.time.isoformat(),
        "event": dict(event),
    }
    if event.parts:
        document["parts"] = [described(part) for part in event.parts]
    return document


def _jsonable(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def _tell_gap(gap: Gap) -> None:
    _tell(str(gap))


class _Warnings(logging.Handler):
    """Prints a client's warnings, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        _tell(record.getMessage())


def _tell_warnings(*, tells: bool) -> None:
    """Let people read what clients of this process warn of, or not."""
    logger = logging.getLogger("palio")
    if not any(isinstance(each, _Warnings | logging.NullHandler) for each in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING) if tells else logging.NullHandler())


def _tell(text: str) -> None:
    sys.stderr.write(f"palio: {text}\n")
    sys.stderr.flush()


# --- adv ---


def adv(filter: str, door: BrokerDoor, parameters: list[str]) -> int:
    """Advertise until Ctrl-C: an advertisement lasts as long as its client is there."""
    return _run(_advertise(filter, door, inputs.bindings(parameters)))


async def _advertise(filter: str, door: BrokerDoor, values: Mapping[str, Any]) -> int:
    async with door.connect() as client:
        offer = await client.advertise(filter, **values)
        await client.settled()
        _tell(f"advertised {offer.advertisement} at {client.broker}; Ctrl-C withdraws it")
        await asyncio.Event().wait()
    return 0


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)
