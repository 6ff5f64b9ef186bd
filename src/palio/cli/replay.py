"""`palio replay`: archived events, published again or printed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from palio.cli import inputs
from palio.cli.connecting import UNDER_WAY, BrokerDoor, ProgressLine
from palio.cli.reporting import show, tell
from palio.cli.sub import show_event
from palio.client.deadlines import TIMEOUT_S
from palio.client.events import Event
from palio.client.history import history
from palio.errors import InvalidInput, PalioError, Unreachable
from palio.language.parsing import parse_filter
from palio.model.events import PUBLISHER, SEQ, TIME, rows
from palio.model.filters import Filter

__all__ = ["Wanted", "paced", "replay"]


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
    def of(
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
        tell(_told(sent, wanted.skip))
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
