"""`palio journal`: checks, copies and salvages what a broker keeps on its disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from palio.cli.application import AsJson
from palio.cli.reporting import show

if TYPE_CHECKING:
    from palio.server.journal.maintenance import Findings

journal_commands: Final = typer.Typer(
    no_args_is_help=True, help="Check, copy and salvage what a broker keeps on its disk."
)

DataDirectory = Annotated[
    Path, typer.Argument(metavar="DATA", help="The data directory of a broker (broker.data_dir).")
]
NewDirectory = Annotated[
    Path, typer.Argument(metavar="NEW", help="Another directory, from which a broker can start.")
]


@journal_commands.command("check")
def journal_check(data: DataDirectory, as_json: AsJson = False) -> int:
    """Report what is damaged in a journal; ends with 1 if anything is. The broker may run."""
    from palio.server.journal.maintenance import check

    return _show(check(data), as_json=as_json)


@journal_commands.command("backup")
def journal_backup(data: DataDirectory, new: NewDirectory, as_json: AsJson = False) -> int:
    """Copy a journal as it is now. The broker may be running.

    A broker that starts from a copy reports to its durable subscriptions that events may be lost:
    those that came after it.
    """
    from palio.server.journal.maintenance import backup

    return _show(backup(data, new), as_json=as_json)


@journal_commands.command("salvage")
def journal_salvage(data: DataDirectory, new: NewDirectory, as_json: AsJson = False) -> int:
    """Write what is sound of a damaged journal to another directory; 1 if anything is lost.

    The broker must have ended. One that starts from there reports the losses to its durable
    subscriptions.
    """
    from palio.server.journal.maintenance import salvage

    return _show(salvage(data, new), as_json=as_json)


def _show(findings: Findings, *, as_json: bool) -> int:
    name, rows, damage = findings
    if as_json:
        show({"broker": name, "rows": rows, "damage": damage})
    else:
        sound = ", ".join(f"{count} {table}" for table, count in rows.items() if count)
        verdict = "damaged" if damage else "whole"
        show(
            "\n".join([f"journal of {name or 'a broker'}: {verdict}; sound rows: {sound}", *damage])
        )
    return 1 if damage else 0
