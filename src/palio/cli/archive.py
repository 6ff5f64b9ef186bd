"""`palio archive`: events to Parquet, each exactly once."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from palio.cli import inputs
from palio.cli.application import AsJson, FilterText, Parameters, with_broker
from palio.cli.connecting import BrokerAccess, ProgressLine
from palio.cli.reporting import print_status, show

if TYPE_CHECKING:
    import asyncio

    from palio.client.archive import Archive
    from palio.client.subscription import Subscription
    from palio.protocol.messages import Parcel

DURABLE: Final = "archive"
"""The name of the durable subscription; its owner distinguishes archives."""

CAPACITY: Final = 200_000
"""Events that wait while a file is written; of those that are not durable, more are lost."""

GROUP_BYTES: Final = 8 << 20
"""Events that are synced to the disk at once."""


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


@with_broker
def archive(
    access: BrokerAccess,
    filter: FilterText,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Where Parquet is written.")
    ],
    param: Parameters = None,
    name: Annotated[
        str, typer.Option("--name", help="Whose durable subscription it is; one for each archive.")
    ] = "archive",
    file_mib: Annotated[
        float, typer.Option(min=0.001, max=1024, help="Write a file when so much has come...")
    ] = 64.0,
    file_s: Annotated[
        float, typer.Option(min=0.1, help="...or when the first of it came so long ago.")
    ] = 900.0,
    as_json: AsJson = False,
) -> int:
    """Write events to Parquet, each exactly once.

    It runs until Ctrl-C or SIGTERM, as a durable subscription: what is published durably while it
    is away waits at the broker, and no event is written twice, whatever is killed. A directory a
    day (UTC), a file a shape, with $publisher, $seq and $time beside the attributes.
    """
    import asyncio

    from palio.client.archive import Archive

    rolling = Rolling(int(file_mib * (1 << 20)), file_s)
    access = access._replace(name=name)
    with Archive(output, name) as opened:
        number = asyncio.run(_archive(filter, access, inputs.bindings(param), opened, rolling))
        document = {"events": opened.events, "files": opened.files, "directory": str(output)}
        text = f"{opened.events:,} events archived, {opened.files:,} files written to {output}"
        show(document if as_json else text)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


async def _archive(
    filter: str, access: BrokerAccess, values: dict[str, Any], archive: Archive, rolling: Rolling
) -> int:
    """Archive until a signal comes, and return its number; 0 if the client was closed."""
    import asyncio

    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    progress = ProgressLine()
    try:
        async with access.connect() as client:
            subscription = await client.subscribe(
                filter,
                values,
                queue_size=CAPACITY,
                durable_name=DURABLE,
                ack="manual",
                on_gap=print_status,
            )
            for number in (signal.SIGINT, signal.SIGTERM):  # what is staged is written first
                loop.add_signal_handler(number, stop, number)
            print_status(f"archiving {subscription.filter} from {client.broker} to {archive.path}")
            async for _ in _taken(subscription, archive, rolling, stopped):
                progress.show(archive.events)
    finally:
        progress.end()
    await asyncio.to_thread(archive.roll)
    return stopped.result() if stopped.done() else 0


async def _taken(
    subscription: Subscription, archive: Archive, rolling: Rolling, stopped: asyncio.Future[Any]
) -> AsyncIterator[None]:
    """Take events until `stopped` is done: to the disk first, and only then acknowledged."""
    import asyncio

    parcels = subscription.parcels()
    coming = asyncio.ensure_future(anext(parcels))
    try:
        while not stopped.done():
            wait_s = rolling.wait_s(archive)
            if wait_s == 0:
                await asyncio.to_thread(archive.roll)
                continue
            await asyncio.wait(
                {stopped, coming}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not coming.done():
                continue
            group = await _group(coming, parcels, subscription)
            await asyncio.to_thread(archive.add, group)
            subscription.ack()
            coming = asyncio.ensure_future(anext(parcels))
            yield
    except StopAsyncIteration:
        return  # the client was closed
    finally:
        coming.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await coming


async def _group(
    first: Awaitable[Parcel], parcels: AsyncIterator[Parcel], subscription: Subscription
) -> list[Parcel]:
    """The parcels that have come, to be written together."""
    group = [await first]
    size = group[0].nbytes
    while subscription.pending and size < GROUP_BYTES:
        group.append(await anext(parcels))
        size += group[-1].nbytes
    return group
