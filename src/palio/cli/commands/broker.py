"""Commands for those who run a broker: `serve`, settings, keys and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from palio.cli.application import AsJson, ConfigFile, app
from palio.routing.algorithms import ALGORITHMS

token_commands: Final = typer.Typer(no_args_is_help=True, help="Make and read tokens.")
keys_commands: Final = typer.Typer(no_args_is_help=True, help="Make and list the keys of tokens.")
config_commands: Final = typer.Typer(no_args_is_help=True, help="Show and check settings.")
app.add_typer(config_commands, name="config")
app.add_typer(keys_commands, name="keys")
app.add_typer(token_commands, name="token")


@app.command()
def serve(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    config: ConfigFile = None,
    name: Annotated[str | None, typer.Option(help="The broker's name.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Port 0 for any free one.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where durable events are kept.")
    ] = None,
    routing: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"One of {', '.join(ALGORITHMS)}.")
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With hierarchical, the broker above; with proxies, it is not the root.",
        ),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Another broker: palio://host:port.")
    ] = None,
    http: Annotated[int | None, typer.Option(metavar="PORT", help="Also serve HTTP.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run a broker.

    Prints one line once it can be reached. A signal (Ctrl-C, TERM) stops it in order: it sends its
    clients to other brokers, says goodbye, and ends with 0. A second one cuts that short: 1.
    """
    from palio.cli.serve import flags, serve

    given = flags(
        name=name,
        listen=listen,
        data=data,
        routing=routing,
        parent=parent,
        peers=peer,
        http=http,
    )
    return serve(config, given, as_json=as_json)


@config_commands.command("show")
def config_show(
    config: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each was set.")] = False,
    as_json: AsJson = False,
) -> int:
    """Print every setting as a broker would have it."""
    from palio.cli.config import show_configuration

    return show_configuration(config, [], with_origin=origin, as_json=as_json)


@config_commands.command("check")
def config_check(config: ConfigFile = None, as_json: AsJson = False) -> int:
    """Say whether the settings are good; ends with 2 if not."""
    from palio.cli.config import check_configuration

    return check_configuration(config, [], as_json=as_json)


@keys_commands.command("create")
def keys_create(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes.")],
    as_json: AsJson = False,
) -> int:
    """Make a pair of keys: FILE signs tokens, FILE.pub verifies them."""
    from palio.cli.keys import create_key

    return create_key(path, as_json=as_json)


@keys_commands.command("list")
def keys_list(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A public key, or many.")],
    as_json: AsJson = False,
) -> int:
    """List the public keys that a broker would accept."""
    from palio.cli.keys import list_keys

    return list_keys(path, as_json=as_json)


@token_commands.command("create")
def token_create(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The private key that signs it.")],
    may_publish: Annotated[str, typer.Option(metavar="FILTER", help="Default: nothing.")] = "",
    may_hear: Annotated[str, typer.Option(metavar="FILTER", help="Default: nothing.")] = "",
    deny_publish: Annotated[str, typer.Option(metavar="FILTER", help="Never this.")] = "",
    deny_hear: Annotated[str, typer.Option(metavar="FILTER", help="Never this.")] = "",
    monitor: Annotated[
        bool, typer.Option("--monitor", help="May be told about others: topology, trace, metrics.")
    ] = False,
    identity: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name under which it may act."),
    ] = None,
    broker: Annotated[
        Path | None,
        typer.Option(metavar="FILE.pub", help="For the broker that has the key to this one."),
    ] = None,
    expires: Annotated[str, typer.Option(metavar="TIME", help="In 90s, 15m, 12h, 30d.")] = "30d",
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="subscriptions, events_per_s or bytes_per_s."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file, for its owner only.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Sign a token: who someone is, and the filters of what they may publish and hear."""
    from palio.cli.token import create_token

    grants = {
        "may_publish": may_publish,
        "may_hear": may_hear,
        "deny_publish": deny_publish,
        "deny_hear": deny_hear,
        "monitor": monitor,
        "identities": tuple(identity or ()),
    }
    return create_token(
        key,
        name,
        grants,
        expires=expires,
        limits=limit or [],
        out=out,
        broker=broker,
        as_json=as_json,
    )


@token_commands.command("inspect")
def token_inspect(
    token: Annotated[
        str, typer.Argument(metavar="FILE", help="Holds the token; - for standard input.")
    ] = "-",
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="Verify its signature with these.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what a token grants. Ends with 1 if it has expired or its signature is not good."""
    from palio.cli.token import inspect_token

    return inspect_token(token, keys, as_json=as_json)


@token_commands.command("revoke")
def token_revoke(
    token: Annotated[
        str, typer.Argument(metavar="NUMBER", help="The token's; - to read the token itself.")
    ],
    file: Annotated[Path, typer.Option(metavar="FILE", help="The brokers' file of revocations.")],
    as_json: AsJson = False,
) -> int:
    """Add a token to the file of revocations; brokers read it again within a second."""
    from palio.cli.token import revoke_token

    return revoke_token(token, file, as_json=as_json)
