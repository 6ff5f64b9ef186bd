"""`app`, the `palio` command, and the options that many of its commands share.

Nothing here or at the top of a command's module imports more than typer and what comes with Python,
so that `palio --help` answers at once; each command imports its package when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from palio.cli.connecting import DEFAULT_BROKER

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


def _broker_option(*flags: str) -> Any:
    return typer.Option(
        *flags,
        metavar="URL",
        help="A broker: palio://host:port. May be repeated: the first that answers is taken.",
        show_default=DEFAULT_BROKER,
    )


Broker = Annotated[list[str] | None, _broker_option("--at", "--to", "--from")]
Source = Annotated[list[str] | None, _broker_option("--from", "--at")]
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
