"""`palio pub` and `palio advertise`: publish events, and announce what will be published."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from palio.cli import inputs
from palio.cli.application import (
    AsJson,
    ClientName,
    FilterText,
    Identity,
    Parameters,
    with_broker,
)
from palio.cli.connecting import UNDER_WAY, BrokerAccess, ProgressLine
from palio.cli.reporting import print_status, show
from palio.errors import InvalidInput, PalioError, Unreachable

if TYPE_CHECKING:
    import asyncio

    from palio.client.connection import Client
    from palio.protocol.messages import StoredAt

_WHERE: Final = {
    "memory": "in the broker's memory",
    "durable": "on the broker's disk",
    "home": "on the disks of the broker and of all homes",
}
"""The words for each level of storage."""

CHECK_S: Final = 30.0
"""Seconds between two queries of an idle `palio advertise`: it would not notice otherwise that the
broker refuses it for good."""


@with_broker
def pub(  # noqa: PLR0913, PLR0917  # typer reads each option from an argument
    access: BrokerAccess,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-|TEXT",
            help="JSON lines, CSV or Parquet, by the file's ending; standard input is JSON lines.",
            show_default=False,
        ),
    ] = "-",
    durable: Annotated[
        bool, typer.Option("--durable", help="Return once the events are on the broker's disk.")
    ] = False,
    at_homes: Annotated[
        bool,
        typer.Option(
            "--at-homes",
            help="Return once every broker where a durable subscription wants them has them on its "
            "disk, too.",
        ),
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(help="Seconds after which the events are not delivered any more."),
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(
            help="Publish one event, unless --name has published one of this id to the broker.",
        ),
    ] = None,
    identity: Identity = "",
    name: ClientName = "",
    as_json: AsJson = False,
) -> int:
    """Publish events."""
    if dedup_id is not None and not (name or identity or access.token):
        raise InvalidInput("--dedup-id requires --name: else each call is another publisher")
    access = access._replace(name=name, identity=identity)
    stored_at: StoredAt = "home" if at_homes else durable
    published = access.ask(
        lambda client: _publish(client, source, durable=stored_at, ttl=ttl, dedup_id=dedup_id)
    )
    if as_json:
        show(published)
    else:
        level = _WHERE[published["level"]]
        events = "event" if published["events"] == 1 else "events"
        show(f"{published['events']:,} {events} published by {published['publisher']}, {level}")
    return 0


async def _publish(
    client: Client, source: str, *, durable: StoredAt, ttl: float | None, dedup_id: str | None
) -> dict[str, Any]:
    from palio.cli.threaded_reader import ThreadedReader
    from palio.client.deadlines import TIMEOUT_S
    from palio.protocol.messages import LEVELS

    progress = ProgressLine()
    reader = ThreadedReader(inputs.events_of(source))
    under_way: list[asyncio.Future[Any]] = []
    count = 0
    first = last = 0

    async def confirm_oldest() -> None:
        nonlocal count, first, last
        answer = await under_way.pop(0)
        first, last = first or answer.first_seq, answer.last_seq
        count += answer.last_seq - answer.first_seq + 1
        progress.show(count)

    try:
        while taken := await reader.take(inputs.BATCH_ROWS):
            for each in inputs.gathered(taken):
                if dedup_id is not None and (under_way or count):
                    raise InvalidInput("--dedup-id is the id of one event; publish one by one")
                receipt = client.publish_nowait(
                    each, durable=durable, ttl=ttl, dedup_id=dedup_id, timeout=TIMEOUT_S
                )
                under_way.append(receipt)
            is_input_idle = len(taken) < inputs.BATCH_ROWS  # as from a terminal: confirm at once
            while len(under_way) > UNDER_WAY or (under_way and is_input_idle):
                await confirm_oldest()
        while under_way:
            await confirm_oldest()
    except PalioError:  # the others may have been published all the same
        while under_way:
            with suppress(PalioError):
                await confirm_oldest()
        if count:
            progress.end()
            print_status(f"{count:,} events were published")
        raise
    finally:
        for receipt in under_way:
            receipt.cancel()
        progress.end()
    return {
        "events": count,
        "publisher": client.publisher,
        "first_seq": first,
        "last_seq": last,
        "level": LEVELS[durable],
    }


@with_broker
def advertise(
    access: BrokerAccess,
    filter: FilterText,
    param: Parameters = None,
    identity: Identity = "",
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="Withdraw all advertisements of --identity that the filter covers, of any client.",
        ),
    ] = False,
    name: ClientName = "",
    as_json: AsJson = False,
) -> int:
    """Announce what will be published, until Ctrl-C."""
    values = inputs.bindings(param)
    if withdraw and not identity:
        raise InvalidInput("--withdraw requires --identity: whose advertisements")
    under = f" as {identity}" if identity else ""

    async def advertised(client: Client) -> None:
        """Until Ctrl-C: an advertisement lasts as long as its client is there."""
        import asyncio

        offer = await client.advertise(filter, values)
        await client.settled()
        if as_json:
            offered = str(offer.advertisement)
            show({"broker": client.broker, "identity": identity, "advertised": offered})
        print_status(
            f"advertised {offer.advertisement} at {client.broker}{under}; Ctrl-C withdraws it"
        )
        while offer.is_in_force:
            await asyncio.sleep(CHECK_S)
            # Raises if the broker refuses this client for good; else the client dials again.
            with suppress(Unreachable):
                await client.admin.status()
        print_status(f"{offer.advertisement} was withdrawn by another client{under}")

    async def withdrawn(client: Client) -> None:
        """Withdraw what other clients of the identity advertise."""
        await client.unadvertise(filter, values)
        if as_json:
            show({"broker": client.broker, "identity": identity, "withdrawn": filter})
        else:
            print_status(
                f"nothing that {filter} covers is advertised at {client.broker}{under} any longer"
            )

    access = access._replace(name=name, identity=identity)
    access.ask(withdrawn if withdraw else advertised)
    return 0
