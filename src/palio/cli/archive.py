"""`palio archive` and `palio replay`: events to Parquet, and from there again."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from palio.cli import inputs
from palio.cli.pub import UNDER_WAY, BrokerDoor, ProgressLine, show_event
from palio.cli.reporting import show
from palio.client.archive import Archive
from palio.client.deadlines import TIMEOUT_S
from palio.client.events import Event, Gap
from palio.client.history import history
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, PalioError, Unreachable
from palio.language.parsing import parse_filter
from palio.model.events import PUBLISHER, SEQ, TIME, rows
from palio.model.filters import Filter
from palio.protocol.messages import Parcel

__all__ = ["Rolling", "Wanted", "archive", "paced", "replay"]

DURABLE: Final = "archive"
"""The name of the durable subscription; whose it is tells archives apart."""

CAPACITY: Final = 200_000
"""Events that wait while a file is written; of those that are not durable, more are lost."""

GROUP_BYTES: Final = 8 << 20
"""Events that are synced to the disk at once."""


# --- archive ---


class Rolling(NamedTuple):
    """When what is staged becomes a file."""

    bytes: int
    """When it is so large..."""
    seconds: float
    """...or its first event came so long ago."""

    def wait_s(self, archive: Archive) -> float | None:
        """Seconds until it is due; None while nothing is staged."""
        if archive.staged_at is None:
            return None
        if archive.staged_bytes >= self.bytes:
            return 0.0
        return max(0.0, archive.staged_at + self.seconds - time.monotonic())


def archive(
    filter: str,
    door: BrokerDoor,
    target: Path,
    parameters: list[str],
    rolling: Rolling,
    *,
    as_json: bool,
) -> int:
    """Write events to Parquet until a signal comes; say how many."""
    with Archive(target, door.name) as opened:
        try:
            asyncio.run(_archive(filter, door, inputs.bindings(parameters), opened, rolling))
        except asyncio.CancelledError:  # before it began
            raise KeyboardInterrupt from None
        if as_json:
            show({"events": opened.events, "files": opened.files, "directory": str(target)})
        else:
            show(f"{opened.events:,} events archived, {opened.files:,} files written to {target}")
    return 0


async def _archive(
    filter: str, door: BrokerDoor, values: dict[str, Any], archive: Archive, rolling: Rolling
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    assert starting is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, starting.cancel)
    progress = ProgressLine()
    try:
        async with door.connect() as client:
            subscription = await client.subscribe(
                filter,
                capacity=CAPACITY,
                durable=DURABLE,
                acknowledge="explicit",
                values=values,
                on_gap=_tell_gap,
            )
            for number in (signal.SIGINT, signal.SIGTERM):  # what is staged is written first
                loop.add_signal_handler(number, stopped.set)
            _tell(f"archiving {subscription.filter} from {client.broker} to {archive.path}")
            async for _ in _taken(subscription, archive, rolling, stopped):
                progress.show(archive.events)
    finally:
        progress.end()
    await asyncio.to_thread(archive.roll)


async def _taken(
    subscription: Subscription, archive: Archive, rolling: Rolling, stopped: asyncio.Event
) -> AsyncIterator[None]:
    """Take events until told to stop: to the disk first, and only then acknowledged."""
    parcels = subscription.parcels()
    end = asyncio.ensure_future(stopped.wait())
    coming = asyncio.ensure_future(anext(parcels))
    try:
        while not end.done():
            wait_s = rolling.wait_s(archive)
            if wait_s == 0:
                await asyncio.to_thread(archive.roll)
                continue
            await asyncio.wait({end, coming}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                continue
            group = await _group(coming, parcels, subscription)
            await asyncio.to_thread(archive.add, group)
            await subscription.ack()
            coming = asyncio.ensure_future(anext(parcels))
            yield
    except StopAsyncIteration:
        return  # the client was closed
    finally:
        end.cancel()
        coming.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await coming


async def _group(
    first: Awaitable[Parcel], parcels: AsyncIterator[Parcel], subscription: Subscription
) -> list[Parcel]:
    """The parcels that have come, to be written together."""
    group = [await first]
    size = group[0].nbytes
    while subscription.waiting and size < GROUP_BYTES:
        group.append(await anext(parcels))
        size += group[-1].nbytes
    return group


def _tell_gap(gap: Gap) -> None:
    _tell(str(gap))


def _tell(text: str) -> None:
    sys.stderr.write(f"palio: {text}\n")
    sys.stderr.flush()


# --- replay ---


class Wanted(NamedTuple):
    """Which archived events are replayed."""

    filter: Filter
    since: datetime | None
    until: datetime | None
    skip: int = 0
    """How many of the first events are left out."""
    take: int | None = None
    """How many events are replayed at most; None for all."""

    @classmethod
    def of(  # options of a command
        cls,
        filter: str,
        parameters: list[str],
        since: str,
        until: str,
        skip: int = 0,
        take: int | None = None,
    ) -> Self:
        """From what was typed.

        >>> Wanted.of("x < :top", ["top=3"], "2026-01-31", "").filter
        palio.parse('x < 3')
        """
        bound = parse_filter(filter).bind(inputs.bindings(parameters))
        if skip < 0 or (take is not None and take < 0):
            raise InvalidInput("--skip and --take are numbers of events, 0 or more")
        return cls(bound, _moment(since), _moment(until), skip, take)

    def pieces(self, path: Path) -> Iterator[pa.RecordBatch]:
        """The events, in order of time; the same whenever the archive is."""
        found = history(path, self.filter, since=self.since, until=self.until)
        return _part(found, self.skip, self.take)


def _part(
    pieces: Iterator[pa.RecordBatch], skip: int, take: int | None
) -> Iterator[pa.RecordBatch]:
    """Some of the events, without the first and without those behind."""
    end = None if take is None else skip + take
    place = 0
    for piece in pieces:
        if end is not None and place >= end:
            return
        first = max(0, skip - place)
        last = piece.num_rows if end is None else min(piece.num_rows, end - place)
        place += piece.num_rows
        if first < last:
            yield piece.slice(first, last - first)


def _moment(text: str) -> datetime | None:
    """A time; UTC where it does not say."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r:.80} is no time; write 2026-01-31 or 2026-01-31T09:30:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def replay(
    path: Path, wanted: Wanted, door: BrokerDoor, *, speed: str, durable: bool, as_json: bool
) -> int:
    """Publish archived events again, or print them; say how many there were."""
    pace = _pace(speed)
    pieces = wanted.pieces(path)
    if door.urls == ["-"]:
        asyncio.run(_print(pieces, pace))
        return 0
    publisher, sent = asyncio.run(_publish(pieces, pace, door, durable=durable))
    count = sum(each.events for each in sent if each.error is None)
    errors = [each.error for each in sent if each.error is not None]
    if errors:
        _tell(_told(sent, wanted.skip))
        raise errors[0]
    if as_json:
        show({"events": count, "publisher": publisher})
    else:
        show(f"{count:,} events published by {publisher}")
    return 0


class Sent(NamedTuple):
    """The outcome for some events: how many there were, and the error if they were refused."""

    events: int
    error: PalioError | None


def _told(sent: list[Sent], skipped: int) -> str:
    """The number of events published before a replay ended, and the command for the others."""
    count = sum(each.events for each in sent if each.error is None)
    first = skipped
    lines = [f"{count:,} events were published before the replay ended"]
    for each in sent:
        if each.error is not None and each.events:
            became = (
                "may have been published or not"
                if isinstance(each.error, Unreachable)
                else "were not published"
            )
            lines.append(
                f"{each.events:,} events {became}; only these: --skip {first} --take {each.events}"
            )
        first += each.events
    lines.append(f"all that follow: --skip {first}")
    return "\n  ".join(lines)


def _pace(speed: str) -> float:
    try:
        pace = math.inf if speed == "max" else float(speed)
    except ValueError:
        pace = math.nan
    if not pace > 0:
        raise InvalidInput(f"--speed is a number above 0, or max; not {speed!r:.80}")
    return pace


async def _print(pieces: Iterator[pa.RecordBatch], pace: float) -> None:
    async for piece in paced(pieces, pace):
        for row in rows(piece):
            event = Event(row, row.pop(PUBLISHER), row.pop(SEQ), row.pop(TIME))
            show_event(event, as_json=True)


async def _publish(
    pieces: Iterator[pa.RecordBatch], pace: float, door: BrokerDoor, *, durable: bool
) -> tuple[str, list[Sent]]:
    """Publish until something is refused; what became of everything that was sent by then."""
    progress = ProgressLine()
    count = 0
    under_way: list[tuple[int, asyncio.Future[Any]]] = []
    sent: list[Sent] = []

    async def first_answer() -> Sent:
        events, answer = under_way.pop(0)
        try:
            await answer
        except PalioError as error:
            sent.append(Sent(events, error))
        else:
            sent.append(Sent(events, None))
        return sent[-1]

    async with door.connect() as client:
        try:
            async for piece in paced(pieces, pace):
                bare = piece.drop_columns([PUBLISHER, SEQ, TIME])
                receipt = client.publish_nowait(bare, durable=durable, timeout=TIMEOUT_S)
                under_way.append((piece.num_rows, receipt))
                if len(under_way) > UNDER_WAY:
                    answered = await first_answer()
                    if answered.error is not None:
                        break
                    count += answered.events
                progress.show(count)
            while under_way:
                await first_answer()
        except PalioError as error:  # of the archive, or of what cannot be sent at all
            while under_way:
                await first_answer()
            sent.append(Sent(0, error))
        finally:
            for _, answer in under_way:
                answer.cancel()
            progress.end()
        return client.publisher, sent


async def paced(
    pieces: Iterator[pa.RecordBatch],
    pace: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[pa.RecordBatch]:
    """Events when they are due: at the distances that they had, divided by the pace."""
    loop = asyncio.get_running_loop()
    began, origin = loop.time(), None
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        if pace == math.inf:
            yield piece
            continue
        times = piece.column(TIME).cast(pa.int64()).to_numpy() / 1e6
        origin = times[0] if origin is None else origin
        due_s = (times - origin) / pace
        place = 0
        while place < len(times):
            now_s = loop.time() - began
            if due_s[place] > now_s:
                await sleep(due_s[place] - now_s)
                now_s = max(loop.time() - began, due_s[place])
            end = int(np.searchsorted(due_s, now_s, side="right"))
            yield piece.slice(place, end - place)
            place = end
