"""`palio sub` and `palio subscription cancel`: print events as they come; end subscriptions."""

from __future__ import annotations

import json
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
from palio.cli.connecting import BrokerAccess
from palio.cli.reporting import print_status, show
from palio.errors import InvalidEvent, PalioError, Unsettled

if TYPE_CHECKING:
    from palio.client.connection import Client
    from palio.client.events import Event
    from palio.client.subscription import Subscription


subscription_commands: Final = typer.Typer(no_args_is_help=True, help="End subscriptions.")


@with_broker
def sub(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    access: BrokerAccess,
    filter: FilterText,
    param: Parameters = None,
    durable: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Keep this subscription at the broker under a name; give --name."
        ),
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Begin a new durable subscription in the broker's history: 2026-01-31T09:30Z.",
        ),
    ] = "",
    latest_by: Annotated[
        str,
        typer.Option(metavar="NAME", help="First the last event for each value of an attribute."),
    ] = "",
    count: Annotated[
        int, typer.Option(min=0, help="End after this number of events; 0 for never.")
    ] = 0,
    lifetime: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long it waits for somebody to announce what it wants; for ever unless given.",
        ),
    ] = None,
    reorder: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long a pattern waits for events that were overtaken: 1 at first "
            "and then as it finds out, unless given.",
        ),
    ] = None,
    by_brokers: Annotated[
        bool,
        typer.Option("--by-brokers", help="Have brokers assemble a pattern where its events meet."),
    ] = False,
    identity: Identity = "",
    name: ClientName = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document a line.")] = False,
) -> int:
    """Print events as they come, until Ctrl-C.

    A line such as limit=20 on standard input changes a parameter at once.
    """
    values = inputs.bindings(param)

    async def print_events(client: Client) -> None:
        import asyncio

        subscription = await client.subscribe(
            filter,
            values,
            on_gap=print_status,
            durable_name=durable,
            since=inputs.moment(since),
            latest_by=latest_by,
            ack="manual" if durable else "auto",
            max_events=None if durable else count or None,
            offer_timeout=lifetime,
            reorder_timeout=reorder,
            match_at="brokers" if by_brokers else "client",
        )
        helpers = [
            asyncio.create_task(_steer(subscription)),
            asyncio.create_task(_print_when_in_force(subscription, client.broker)),
        ]
        received = 0
        try:
            async for event in subscription:
                show_event(event, as_json=as_json)
                event.ack()
                received += 1
                if received == count:
                    break
        finally:
            for helper in helpers:
                helper.cancel()

    access._replace(name=name, identity=identity).ask(print_events)
    return 0


async def _print_when_in_force(subscription: Subscription, broker: str) -> None:
    """Print when the subscription is in force wherever events are published."""
    print_status(f"subscribed to {subscription.filter} at {broker}; Ctrl-C ends it")
    try:
        await subscription.settled()
    except Unsettled as error:
        print_status(str(error))
    except PalioError:
        pass  # the connection is lost, which has its own warning, or the subscription is over
    else:
        print_status("in force wherever events are published")


async def _steer(subscription: Subscription) -> None:
    """Take `limit=20` from standard input as a new value; a mistake changes nothing."""
    from palio.cli.threaded_reader import ThreadedReader

    reader = ThreadedReader(inputs.standard_input())
    while lines := await reader.take(1):
        given = lines[0].decode(errors="replace").split()
        if not given:
            continue
        try:
            await subscription.update(**inputs.bindings(given))
        except PalioError as error:
            print_status(str(error).partition("\n")[0])
        else:
            values = sorted(subscription.params.items())
            print_status(", ".join(f":{name} = {value!r}" for name, value in values))


def show_event(event: Event, *, as_json: bool) -> None:
    """Print an event on a line: its attributes as text, or all there is as JSON."""
    if as_json:
        line = json.dumps(described(event), default=_jsonable, ensure_ascii=False)
    else:
        line = f"{event.time:%H:%M:%S} {event.publisher} {event.seq}  " + " ".join(
            f"{name}={value!r}" for name, value in event.items()
        )
        if event.packed is not None:
            line += f"  payload={_payload(event)!r}"
    print(line, flush=True)  # noqa: T201  # one line an event, at once


def _payload(event: Event) -> Any:
    try:
        return event.payload
    except InvalidEvent as error:
        return f"not readable: {error}"


def described(event: Event) -> dict[str, Any]:
    """An event for programs; for a pattern with all its parts."""
    document: dict[str, Any] = {
        "publisher": event.publisher,
        "seq": event.seq,
        "time": event.time.isoformat(),
        "event": dict(event),
    }
    if event.packed is not None:
        document["payload"] = _payload(event)
    if event.parts:
        document["parts"] = [described(part) for part in event.parts]
    return document


def _jsonable(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


@subscription_commands.command()
@with_broker
def cancel(
    access: BrokerAccess,
    filter: FilterText,
    identity: Annotated[
        str,
        typer.Option("--identity", metavar="NAME", help="Whose subscriptions.", show_default=False),
    ],
    param: Parameters = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="End durable ones for good; else they wait.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """End the subscriptions of an identity that a filter covers.

    A pattern ends patterns of as many steps, each covered by its own.
    """
    values = inputs.bindings(param)
    access = access._replace(identity=identity)
    ended = access.ask(lambda client: client.cancel(filter, values, delete=delete))
    text = f"{ended:,} {'subscription' if ended == 1 else 'subscriptions'} of {identity} cancelled"
    show({"identity": identity, "cancelled": ended} if as_json else text)
    return 0
