"""`palio study`: commands of another distribution, palio-studies, which may not be installed."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

from palio.errors import InvalidConfiguration

__all__ = ["ENTRY_POINTS", "study_commands"]

ENTRY_POINTS: Final = "palio.commands"
"""The group in which a distribution names the `typer.Typer` of its commands."""


class StudyCommands(TyperGroup):
    """Looks for its commands when they are asked for, so that `palio --help` need not."""

    def list_commands(self, ctx: Any) -> list[str]:
        """See click."""
        return self._installed().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See click."""
        return self._installed().get_command(ctx, cmd_name)

    def _installed(self) -> TyperGroup:
        from importlib.metadata import entry_points

        found = entry_points(group=ENTRY_POINTS, name="study")
        if not found:
            raise InvalidConfiguration(
                "this needs the package palio-studies, which is not installed; "
                "pip install palio-studies"
            )
        return typer.main.get_group(found["study"].load())


study_commands: Final = typer.Typer(
    cls=StudyCommands,
    no_args_is_help=True,
    help="Repeat the evaluations of the papers behind Palio.",
)
