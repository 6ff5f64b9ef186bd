"""The patterns of `LIKE` (CESQL 3.4.3): `%` is any text, `_` any one character; `\\` escapes them.

A backslash before anything else, another backslash included, is an ordinary character.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from palio.model.operators import Wildcards

__all__ = ["ANY_ONE", "like", "segments"]

ANY_ONE: Final = None
"""Stands for `_` among the parts of a segment; the other parts are literal texts."""

_PART: Final = re.compile(r"\\[%_]|[%_]|[^%_\\]+|\\", re.DOTALL)
_REMEMBERED_PATTERNS: Final = 4096


def like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern, case and all.

    >>> like("abcd1", "_b%"), like("aBc", "_b%"), like("50%", r"%\\%")
    (True, False, True)
    """
    return _compiled(pattern).fits(text)


def segments(pattern: str) -> list[list[str | None]]:
    """A pattern split at its `%`; each segment is literal texts and `ANY_ONE`s.

    >>> segments("a_%b")
    [['a', None], ['b']]
    """
    found: list[list[str | None]] = [[]]
    for match in _PART.finditer(pattern):
        part = match[0]
        if part == "%":
            found.append([])
        elif part == "_":
            found[-1].append(ANY_ONE)
        else:
            literal = part[1:] if part in (r"\%", r"\_") else part
            previous = found[-1][-1] if found[-1] else ANY_ONE
            if previous is ANY_ONE:
                found[-1].append(literal)
            else:
                found[-1][-1] = previous + literal
    return found


@lru_cache(maxsize=_REMEMBERED_PATTERNS)
def _compiled(pattern: str) -> Wildcards:
    return Wildcards.of(segments(pattern))
