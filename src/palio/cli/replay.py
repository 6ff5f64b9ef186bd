"""`palio replay`: archived events, published again or printed."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from palio.cli import inputs
from palio.cli.application import AsJson, Parameters, with_broker
from palio.cli.connecting import UNDER_WAY, BrokerAccess, ProgressLine
from palio.cli.reporting import print_status, show
from palio.cli.sub import show_event
from palio.errors import InvalidInput, PalioError, Unreachable

if TYPE_CHECKING:
    import asyncio

    import pyarrow as pa

    from palio.client.connection import Client
    from palio.client.events import PublishReceipt


@with_broker
def replay(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    access: BrokerAccess,
    path: Annotated[Path, typer.Argument(metavar="DIR", help="What `palio archive` has written.")],
    filter: Annotated[str, typer.Argument(metavar="[FILTER]")] = "TRUE",
    is_printed: Annotated[
        bool, typer.Option("--print", help="Print a JSON document a line, and publish nothing.")
    ] = False,
    param: Parameters = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="From this time on: 2026-01-31, 2026-01-31T09:30Z.")
    ] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Before this time.")] = "",
    skip: Annotated[int, typer.Option(metavar="N", help="Leave out the first N of these.")] = 0,
    take: Annotated[
        int | None, typer.Option(metavar="N", help="Replay no more than N, behind those.")
    ] = None,
    speed: Annotated[
        str, typer.Option(metavar="X|max", help="1 keeps their pace, 10 is ten times as fast.")
    ] = "max",
    publisher: Annotated[
        str, typer.Option("--publisher", metavar="NAME", help="Who publishes them now.")
    ] = "",
    durable: Annotated[
        bool, typer.Option("--durable", help="Keep them on the broker's disk.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Publish archived events again, by time, or print them."""
    import asyncio

    from palio.client.history import history
    from palio.language.parsing import parse_filter

    bound = parse_filter(filter).bind(inputs.bindings(param))
    if skip < 0 or (take is not None and take < 0):
        raise InvalidInput("--skip and --take are numbers of events, 0 or more")
    archived = history(path, bound, since=inputs.moment(since), until=inputs.moment(until))
    pieces, pace = _part(archived, skip, take), _pace(speed)
    if is_printed:
        asyncio.run(_print(pieces, pace))
        return 0
    access = access._replace(name=publisher)
    publisher, sent = access.ask(lambda client: _publish(client, pieces, pace, durable=durable))
    count = sum(each.events for each in sent if each.error is None)
    errors = [each.error for each in sent if each.error is not None]
    if errors:
        print_status(_summary(sent, skip))
        raise errors[0]
    text = f"{count:,} events published by {publisher}"
    show({"events": count, "publisher": publisher} if as_json else text)
    return 0


def _part(
    pieces: Iterator[pa.RecordBatch], skip: int, take: int | None
) -> Iterator[pa.RecordBatch]:
    """The events after the first `skip`, at most `take` of them."""
    end = None if take is None else skip + take
    position = 0
    for piece in pieces:
        if end is not None and position >= end:
            return
        first = max(0, skip - position)
        last = piece.num_rows if end is None else min(piece.num_rows, end - position)
        position += piece.num_rows
        if first < last:
            yield piece.slice(first, last - first)


class Sent(NamedTuple):
    """The outcome for some events: how many there were, and the error if they were refused."""

    events: int
    error: PalioError | None


def _summary(sent: list[Sent], skipped: int) -> str:
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
    from palio.client.events import Event
    from palio.model.events import PUBLISHER, rows

    async for piece in paced(pieces, pace):
        for row in rows(piece):
            show_event(Event.of(row, row.pop(PUBLISHER)), as_json=True)


async def _publish(
    client: Client, pieces: Iterator[pa.RecordBatch], pace: float, *, durable: bool
) -> tuple[str, list[Sent]]:
    """Publish until something is refused; what became of everything that was sent by then."""
    from palio.client.deadlines import TIMEOUT_S
    from palio.model.events import PUBLISHER, SEQ, TIME

    progress = ProgressLine()
    count = 0
    under_way: list[tuple[int, asyncio.Future[PublishReceipt]]] = []
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


async def paced(pieces: Iterator[pa.RecordBatch], pace: float) -> AsyncIterator[pa.RecordBatch]:
    """Yield events at their original intervals, divided by `pace`."""
    import asyncio

    import numpy as np
    import pyarrow as pa

    from palio.model.events import TIME

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
                await asyncio.sleep(due_s[place] - now_s)
                now_s = max(loop.time() - began, due_s[place])
            end = int(np.searchsorted(due_s, now_s, side="right"))
            yield piece.slice(place, end - place)
            place = end
