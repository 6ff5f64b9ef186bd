"""The cost of reading a CESQL text, counted before it is read."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from palio.errors import LimitExceeded
from palio.model.limits import MAX_TOKENS

__all__ = ["check_weight", "weight"]

_PIECE: Final = re.compile(
    r"""'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\w++|[^\s\w]""", re.DOTALL
)
_TOKEN_WEIGHT: Final = 2
"""A token costs twice: it is read, and printed and read again as the text of a condition."""

_TEXT_WEIGHT: Final = 4
"""The cost of beginning to read a text."""


def weight(text: str) -> int:
    """Its tokens, in units of our own language's; counting stops where they are too many.

    >>> weight("hop < 5 AND id = 'a b'")
    18
    """
    return _TEXT_WEIGHT + _TOKEN_WEIGHT * sum(1 for _ in islice(_PIECE.finditer(text), MAX_TOKENS))


def check_weight(text: str) -> None:
    """Refuse a text that costs too much to read."""
    if weight(text) > MAX_TOKENS:
        raise LimitExceeded(
            "the words and signs of a CESQL expression, each counted twice",
            limit="MAX_TOKENS",
            maximum=MAX_TOKENS,
        )
