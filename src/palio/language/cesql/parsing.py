"""`parse`: the text of an expression to its tree, within limits.

The grammar itself, and with it the parser generator, is imported when the first text is parsed.
"""

from __future__ import annotations

from palio.errors import LimitExceeded
from palio.language.cesql.syntax import Expression, children
from palio.language.cesql.weighing import check_weight
from palio.model.limits import MAX_DEPTH, MAX_TEXT_CHARS

__all__ = ["parse"]


def parse(text: str) -> Expression:
    """The tree of an expression.

    Raises `ParseError` with line and column, or `LimitExceeded` for a text that is too long or
    nests deeper than `MAX_DEPTH` (a run of operators of one precedence is one level).

    >>> str(parse("not exists subject or id in ('a', 'b')"))
    "NOT EXISTS subject OR id IN ('a', 'b')"
    """
    if len(text) > MAX_TEXT_CHARS:
        raise LimitExceeded(
            "the text of a CESQL expression",
            limit="MAX_TEXT_CHARS",
            maximum=MAX_TEXT_CHARS,
            actual=len(text),
        )
    check_weight(text)
    from palio.language.cesql.grammar import read

    expression = read(text)
    _check_depth(expression)
    return expression


def _check_depth(expression: Expression) -> None:
    level = [expression]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return
    raise LimitExceeded("the nesting of a CESQL expression", limit="MAX_DEPTH", maximum=MAX_DEPTH)
