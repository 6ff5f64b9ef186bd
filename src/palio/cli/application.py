"""`app`, the `palio` command, and the options that many of its commands share.

Nothing here or at the top of a command's module imports more than typer and the standard library,
so that `palio --help` answers at once; each command imports its package when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from palio.cli.connecting import DEFAULT_BROKER, BrokerAccess

app: Final = typer.Typer(
    help="Content-based publish/subscribe: filters over typed events.",
    no_args_is_help=True,
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
Identity = Annotated[
    str,
    typer.Option(
        "--identity",
        metavar="NAME",
        help="Act under this identity: its clients share advertisements, and may cancel each "
        "other's subscriptions.",
    ),
]
ClientName = Annotated[
    str, typer.Option("--name", help="Owner of durable subscriptions and publications.")
]
BrokerName = Annotated[
    str, typer.Argument(metavar="NAME", help="A broker's name.", show_default=False)
]


def _access(
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker",
            "-b",
            metavar="URL",
            help="A broker: palio://host:port. May be repeated: the first that answers is taken.",
            show_default=DEFAULT_BROKER,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Holds a token. Without it, $PALIO_TOKEN may."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust, for TLS.")
    ] = None,
) -> BrokerAccess:
    return BrokerAccess(broker, token_file, ca)


def with_broker(command: Callable[..., int]) -> Callable[..., int]:
    """Make the first parameter of a command, a `BrokerAccess`, from the options of `_access`."""
    options = inspect.signature(_access, eval_str=True).parameters

    @wraps(command)
    def call(**given: Any) -> int:
        access = _access(**{name: given.pop(name, None) for name in options})
        return command(access, **given)

    _, *own, as_json = inspect.signature(command, eval_str=True).parameters.values()
    parameters = (*own, *options.values(), as_json)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads it
        [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    )
    return call
