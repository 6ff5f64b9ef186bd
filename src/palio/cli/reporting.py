"""The output of commands: text for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import typer

from palio.errors import ParseError


def show(what: str | Mapping[str, Any]) -> None:
    """Print a text, or a document as JSON."""
    typer.echo(what if isinstance(what, str) else _json(what))


def print_status(what: object) -> None:
    """Print a line for people on stderr, where it is not taken for the command's answer."""
    sys.stderr.write(f"palio: {what}\n")
    sys.stderr.flush()


def show_error(error: Exception, *, as_json: bool) -> None:
    """Print an error: on stderr, or as a JSON document on stdout."""
    if as_json:
        show({"error": described(error)})
    else:
        typer.echo(f"palio: {error}", err=True)


def described(error: Exception) -> dict[str, Any]:
    """An error for programs. Line and column are null where the error is in no text.

    >>> import palio
    >>> try:
    ...     palio.parse("price <")
    ... except palio.errors.ParseError as error:
    ...     described(error)["line"], described(error)["column"]
    (1, 8)
    """
    place = {"line": getattr(error, "line", None), "column": getattr(error, "column", None)}
    if isinstance(error, ParseError):
        return {
            "type": "ParseError",
            "message": "; ".join(filter(None, (error.problem, error.hint))),
            **place,
            "expected": list(error.expected),
        }
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return {"type": getattr(error, "kind", type(error).__name__), "message": message, **place}


def _json(document: Mapping[str, Any]) -> str:
    readable = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    return json.dumps(document, indent=2, ensure_ascii=not readable, default=str)
