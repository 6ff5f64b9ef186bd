"""`palio peer`: link a broker to others, remove links, or drain a broker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from palio.cli.application import AsJson, BrokerName, with_broker
from palio.cli.connecting import BrokerAccess
from palio.cli.reporting import print_status, show

if TYPE_CHECKING:
    from palio.client.answers import DrainStatus
    from palio.client.connection import Client

peer_commands: Final = typer.Typer(
    no_args_is_help=True, help="Have brokers join a network, or leave it."
)

_KINDS: Final = {
    "configured": "configured",
    "added": "added",
    "found": "found in the place of another",
    "dials": "dials this broker",
}

POLL_S: Final = 0.2
"""How often it is asked what is left."""


@peer_commands.command()
@with_broker
def drain(
    access: BrokerAccess,
    undo: Annotated[
        bool, typer.Option("--undo", help="Have a broker that was drained in service again.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="To wait; then it is undone.")
    ] = 300.0,
    as_json: AsJson = False,
) -> int:
    """Have a broker hand over its clients, durable subscriptions and events to others.

    Ends with 0 once it may be stopped without loss. With 1 if that was not so in time: then, and
    after Ctrl-C, it is in service again.
    """

    async def drained(client: Client) -> tuple[str, DrainStatus]:
        broker = client.broker
        return broker, await (client.admin.drain(undo=True) if undo else _drain(client, timeout))

    broker, remains = access.ask(drained)
    if as_json:
        show({"broker": broker, **remains})
    elif undo:
        show(f"{broker} is in service.")
    elif remains["done"]:
        show(f"{broker} is empty: it may be stopped, and nothing is lost.")
    else:
        show(f"{broker} is in service again, after {timeout:g} s. {left(remains)}")
    return 0 if undo or remains["done"] else 1


async def _drain(client: Client, timeout_s: float) -> DrainStatus:
    """Drain until all is handed over, or undo it when time is over; return what is left."""
    import asyncio

    remains = await client.admin.drain()
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    shown = ""
    while not remains["done"] and loop.time() < until:
        text = left(remains)
        if text != shown and sys.stderr.isatty():
            print_status(text)
        shown = text
        await asyncio.sleep(POLL_S)
        remains = await client.admin.drain()  # changes nothing, and returns the rest
    if not remains["done"]:
        await client.admin.drain(undo=True)
    return remains


def left(remains: DrainStatus) -> str:
    """The rest that is left, in words.

    >>> left(
    ...     dict(
    ...         clients=1,
    ...         durable_subscriptions=0,
    ...         entries=7,
    ...         neighbours=1,
    ...         unreached=[],
    ...         done=False,
    ...     )
    ... )
    'Left: 1 client, 7 durable events.'
    """
    counts = {
        "client": remains["clients"],
        "durable subscription": remains["durable_subscriptions"],
        "durable event": remains["entries"],
    }
    left = [f"{count:,} {what}{'s' * (count != 1)}" for what, count in counts.items() if count]
    words = (
        f"Left: {', '.join(left)}." if left else "Nothing is left; it waits for what is on its way."
    )
    if not remains["neighbours"]:
        words += " No other broker is linked that could take it over."
    if remains["unreached"]:
        words += f" Not informed yet: {', '.join(remains['unreached'])}."
    return words


@peer_commands.command()
@with_broker
def add(
    access: BrokerAccess,
    url: Annotated[
        str, typer.Argument(help="Where the other broker is: palio://host.", show_default=False)
    ],
    as_json: AsJson = False,
) -> int:
    """Link a broker to another, now and after a restart. Ends when the link is up.

    Run it at one of the two. Fails if the first attempt fails, or after 10 heartbeats of silence.
    """
    added = access.ask(lambda client: client.admin.add_peer(url))
    if as_json:
        show(added)
        return 0
    show(f"{added['peer']} is linked, at {added['url']}.")
    if not added["remembered"]:
        show("That broker has no data directory: after a restart the link is to be added again.")
    return 0


@peer_commands.command()
@with_broker
def remove(access: BrokerAccess, name: BrokerName, as_json: AsJson = False) -> int:
    """Remove the link to a neighbour, once routes avoid it.

    Until that broker starts again: take its address out of peers.urls as well.
    """
    removed = access.ask(lambda client: client.admin.remove_peer(name))
    if as_json:
        show(removed)
        return 0
    show(f"{removed['peer']} is linked no longer.")
    if removed["configured"]:
        urls = ", ".join(removed["configured"])
        show(f"It is dialled again after a restart; take {urls} out of peers.urls.")
    return 0


@peer_commands.command(name="list")
@with_broker
def list_peers(access: BrokerAccess, as_json: AsJson = False) -> int:
    """Show the neighbours of a broker, and where it dials."""
    peers = access.ask(lambda client: client.admin.peers())
    if as_json:
        show({"peers": peers})
        return 0
    for peer in peers:
        parts = (
            peer["peer"] or "nobody yet",
            peer["url"],
            _KINDS[peer["kind"]],
            "up" if peer["up"] else "down",
        )
        show("  ".join(part for part in parts if part))
    return 0
