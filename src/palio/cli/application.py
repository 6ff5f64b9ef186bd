"""`app`, the `palio` command, and the options that many of its commands share.

Nothing here or in the modules of commands imports more than typer, so that `palio --help` answers
at once; each command loads its room when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from palio.cli.connecting import BrokerDoor

__all__ = [
    "AsJson",
    "Authorities",
    "Broker",
    "ClientName",
    "ConfigFile",
    "FilterText",
    "Identity",
    "Parameters",
    "Source",
    "TokenFile",
    "app",
    "door_of",
    "event_argument",
]

DEFAULT_BROKER: Final = "palio://localhost:7400"

app: Final = typer.Typer(
    help="Content-based publish/subscribe: filters over typed events.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def event_argument(what: str) -> Any:
    """The argument with which a command takes an event, or several: `what` it is."""
    return typer.Argument(
        metavar="EVENT.json|-|TEXT",
        help=f"{what}: a file, standard input, or the text itself.",
        show_default=False,
    )


FilterText = Annotated[
    str,
    typer.Argument(
        metavar="FILTER", help="A filter, such as \"symbol = 'IBM' AND price < :limit\"."
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="The value of a parameter: 10, true, 'text' or text, (1, 2). May be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, errors too.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="Settings, as TOML.")
]
_ADDRESS: Final = "A broker: palio://host:port. May be repeated: the first that answers is taken."
Broker = Annotated[
    list[str] | None,
    typer.Option(
        "--at",
        "--to",
        "--from",
        metavar="URL",
        help=_ADDRESS,
        show_default=DEFAULT_BROKER,
    ),
]
Source = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        "--at",
        metavar="URL",
        help=_ADDRESS,
        show_default=DEFAULT_BROKER,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="Holds a token. Without it, $PALIO_TOKEN may."
    ),
]
Authorities = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Certificates to trust, for TLS.")
]
Identity = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Act under this identity: advertisements count for all who do, and each may cancel "
        "what any of them hears.",
    ),
]
ClientName = Annotated[
    str, typer.Option("--name", help="Whom durable subscriptions and publications belong to.")
]


def door_of(
    urls: list[str] | None,
    token_file: Path | None,
    ca: Path | None,
    name: str = "",
    identity: str = "",
) -> BrokerDoor:
    """The broker that a command talks to, by its options."""
    from palio.cli.connecting import BrokerDoor

    return BrokerDoor(urls or [DEFAULT_BROKER], token_file, ca, name, identity)
