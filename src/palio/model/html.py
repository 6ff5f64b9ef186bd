"""What notebooks show of filters, explanations and subscriptions: fragments of HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Final

_PARAMETER: Final = re.compile(r"(?<!\w)(:[A-Za-z_]\w*)")
_TEXT: Final = re.compile(r"('(?:[^']|'')*')")


class Fragment(str):
    """HTML, which is not escaped again."""


def code(text: object) -> Fragment:
    """The text of a filter, its parameters in bold.

    >>> code("price < :limit AND note = ':x'")
    "<code>price &lt; <b>:limit</b> AND note = ':x'</code>"
    """
    parts = _TEXT.split(str(text))  # every second one is a text in quotes
    shown = (
        escape(part, quote=False) if at % 2 else _PARAMETER.sub(r"<b>\1</b>", escape(part))
        for at, part in enumerate(parts)
    )
    return Fragment(f"<code>{''.join(shown)}</code>")


def lines(text: object) -> Fragment:
    """Text as it is, line by line."""
    return Fragment(f"<pre>{escape(str(text))}</pre>")


def table(rows: Mapping[str, object]) -> Fragment:
    """Names with their values.

    >>> table({"pending": 3})
    '<table><tr><th>pending</th><td>3</td></tr></table>'
    """
    cells = {
        name: value if isinstance(value, Fragment) else escape(str(value))
        for name, value in rows.items()
    }
    shown = (f"<tr><th>{escape(name)}</th><td>{cell}</td></tr>" for name, cell in cells.items())
    return Fragment(f"<table>{''.join(shown)}</table>")
