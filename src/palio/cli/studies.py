"""Commands of another distribution, palio-studies, which may not be installed."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

from palio.errors import InvalidConfiguration

__all__ = ["STUDIES_COMMANDS"]

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
        command = typer.main.get_command(found[name].load())
        return command.make_context(*arguments, **options)


STUDIES_COMMANDS: Final = {
    name: typer.Typer(cls=StudiesCommand, help=summary)
    for name, summary in (
        ("simulate", "Run routers on a virtual network and count what it costs."),
        ("study", "Repeat the evaluations of the papers behind Palio."),
    )
}
