"""The `palio` command: its status and its errors.

A command returns its exit status: 0, 1 where its answer is no, and 2 for bad input, which is told
on stderr and never as a traceback. The commands are in the modules `commands`, which register
them in the order of `--help`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Final, cast

import typer

from palio import __version__
from palio.cli.application import AsJson, app
from palio.cli.commands import broker, local, multicast, network, peer, spark, studies
from palio.cli.extras import missing_extra
from palio.cli.reporting import show, show_error
from palio.errors import InvalidInput, PalioError

__all__ = ["COMMANDS", "app", "run"]

COMMANDS: Final = (local, network, broker, peer, multicast, spark, studies)
"""The modules of the commands; importing them registers them."""

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
        status = app(arguments, prog_name="palio", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone; the rest goes nowhere, and nobody is told twice.
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


def _of_system(error: OSError) -> PalioError:
    """An error of the system as ours, with the file's name."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return PalioError(reason)
    return InvalidInput(f"{str(error.filename)!r}: {reason}")
