"""The patterns of `LIKE` (CESQL 3.4.3): `%` is any text, `_` any one character; `\\` escapes them.

A backslash before anything else, another backslash included, is an ordinary character. A pattern
is split at its `%` into segments; each is looked for at the first place after the one before,
which is exact for such patterns and never backtracks: the time is at worst that of text times
pattern.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["ANY_ONE", "like", "segments"]

ANY_ONE: Final = None
"""Stands for `_` among the parts of a segment; the other parts are literal texts."""

_PART: Final = re.compile(r"\\[%_]|[%_]|[^%_\\]+|\\", re.DOTALL)
_REMEMBERED_PATTERNS: Final = 1024


def like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern, case and all.

    >>> like("abcd1", "_b%"), like("aBc", "_b%"), like("50%", r"%\\%")
    (True, False, True)
    """
    first, middle, last = _compiled(pattern)
    start = first.match(text)
    if start is None:
        return False
    if last is None:
        return start.end() == len(text)
    place = start.end()
    for segment in middle:
        found = segment.search(text, place)
        if found is None:
            return False
        place = found.end()
    end_width, segment = last
    return len(text) - end_width >= place and segment.match(text, len(text) - end_width) is not None


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
def _compiled(
    pattern: str,
) -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...], tuple[int, re.Pattern[str]] | None]:
    """The pieces to match at the start, find in turn, and match at the end, with its width."""
    first, *rest = segments(pattern)
    if not rest:
        return _expression(first), (), None
    *middle, last = rest
    width = sum(1 if part is ANY_ONE else len(part) for part in last)
    wanted = tuple(_expression(segment) for segment in middle if segment)
    return _expression(first), wanted, (width, _expression(last))


def _expression(segment: list[str | None]) -> re.Pattern[str]:
    source = "".join("." if part is ANY_ONE else re.escape(part) for part in segment)
    return re.compile(source, re.DOTALL)
