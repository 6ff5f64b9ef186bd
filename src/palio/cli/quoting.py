"""Hints for who writes texts and nothing as other languages do: in filters both are attributes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from palio.cli.reporting import tell
from palio.language.lexer import tokens

__all__ = ["hints", "show_hints"]


def hints(text: str) -> Iterator[str]:
    """What looks like a constant and is an attribute: a name in double quotes behind a comparison,
    or a word that means nothing elsewhere.

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
        elif before.type == "COMPARISON" and quoted.lower() in _NOTHING:
            yield f"{quoted} is an attribute; that there is no value is written IS NULL"


_NOTHING: Final = frozenset({"none", "nil", "undefined"})
"""The words of other languages for an absent value."""


def show_hints(text: str) -> None:
    """Print hints where they are not taken for the command's answer."""
    for hint in hints(text):
        tell(hint)
