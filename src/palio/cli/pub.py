"""`palio pub`: publish events at a broker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from palio.cli.connecting import UNDER_WAY, BrokerDoor, ProgressLine
from palio.cli.event_files import BATCH_ROWS, events_of, gathered
from palio.cli.feed import LineFeed
from palio.cli.reporting import show, tell
from palio.client.deadlines import TIMEOUT_S
from palio.errors import PalioError

__all__ = ["pub"]


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
        feed = LineFeed(events_of(source))
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
                for each in gathered(taken):
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
