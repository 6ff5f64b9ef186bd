"""A hint for who quotes texts as other languages do: in filters, double quotes are for names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise

from palio.language.lexer import tokens

__all__ = ["hints", "show_hints"]


def hints(text: str) -> Iterator[str]:
    """What looks like a text and is an attribute: a name in double quotes behind a comparison.

    >>> list(hints('symbol = "IBM"'))
    ['"IBM" is an attribute; a text is written \\'IBM\\'']
    >>> list(hints("symbol = 'IBM'"))
    []
    """
    for before, token in pairwise(tokens(text)):
        quoted = text[token.start : token.end]
        if before.type == "COMPARISON" and token.type == "NAME" and quoted.startswith('"'):
            literal = token.value.replace("'", "''")
            yield f"{quoted} is an attribute; a text is written '{literal}'"


def show_hints(text: str) -> None:
    """Print hints where they are not taken for the command's answer."""
    for hint in hints(text):
        sys.stderr.write(f"palio: {hint}\n")
