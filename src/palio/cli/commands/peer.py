"""Commands about the brokers of a network: who belongs to it, and who leaves it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from palio.cli.application import AsJson, Authorities, Broker, TokenFile, app, door_of

__all__ = ["peer_commands"]

peer_commands: Final = typer.Typer(
    no_args_is_help=True, help="Have brokers join a network, or leave it."
)
app.add_typer(peer_commands, name="peer")


@peer_commands.command()
def drain(
    at: Broker = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Have a broker that was drained in service again.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="To wait; then it is undone.")
    ] = 300.0,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Have a broker hand over its clients, durable subscriptions and events to others.

    Ends with 0 once it may be stopped without loss. With 1 if that was not so in time: then, and
    after Ctrl-C, it is in service again.
    """
    from palio.cli.drain import drain

    return drain(door_of(at, token_file, ca), timeout, undo=undo, as_json=as_json)


@peer_commands.command()
def add(
    url: Annotated[
        str, typer.Argument(help="Where the other broker is: palio://host.", show_default=False)
    ],
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Link a broker to another, now and after a restart. Ends when the link is up.

    One end is enough. Fails at the first try that fails, or after 10 heartbeats of silence.
    """
    from palio.cli.peers import add

    return add(url, door_of(at, token_file, ca), as_json=as_json)


@peer_commands.command()
def remove(
    name: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Part a broker from a neighbour, once ways lead round the link.

    Until that broker starts again: take its address out of peers.urls as well.
    """
    from palio.cli.peers import remove

    return remove(name, door_of(at, token_file, ca), as_json=as_json)


@peer_commands.command(name="list")
def list_peers(
    at: Broker = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
    as_json: AsJson = False,
) -> int:
    """Show the neighbours of a broker, and where it dials."""
    from palio.cli.peers import list_peers

    return list_peers(door_of(at, token_file, ca), as_json=as_json)
