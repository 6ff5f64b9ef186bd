"""Templates: filters whose texts differ in their literals only.

Thousands of filters are usually a few shapes with other constants. `split` lifts the plain literals
out of a text; what is left is the key of a *template*, a filter with a `Slot` for each literal, a
variable of known kind. A text whose template is known is filled in without being read. A template
is learned when its key is met the second time, so that texts of their own are spared the cost.

A template is trusted only if its literals are tokens of the text it came from, and if filling it
gives what parsing that text gave. Then they are tokens in every text with this key: a literal has
neither quotes nor signs of its own that a token before or after it could take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from palio.errors import InvalidInput
from palio.language.lexer import LITERALS, Token, tokens
from palio.language.parser import syntax_tree
from palio.model.expressions import (
    Arithmetic,
    Attribute,
    Boolean,
    Call,
    Slot,
    Test,
    Variable,
    walk,
)
from palio.model.filters import Filter, reduce
from palio.model.operators import Op, like_shape
from palio.model.patterns import Pattern
from palio.model.values import Value, kind_of

MAX_TEMPLATES: Final = 4_096
"""Templates kept; when there are more, texts are not of a few shapes, and all are forgotten."""

MAX_TEMPLATE_TOKENS: Final = 128
"""Tokens of a template; longer texts are parsed one by one, and those kept stay below 100 MB."""

MAX_SPLIT_CHARS: Final = 2_048
"""Longer texts are parsed one by one: those that are kept as keys stay below 20 MB."""

Key: TypeAlias = tuple[Any, ...]
"""The pieces between the literals of a text, and between two of them a mark for a literal's kind.

A literal that decides which filter a text is, such as an address block, is its own mark.
"""

_NUMBER, _STRING, _INSTANT = range(3)

_LITERAL: Final = re.compile(
    r"""( (?<![\w.$:'"`-])-?(?:\d{1,18}+(?:\.\d{0,18}+)?|\.\d{1,18}+)(?:[eE][+-]?\d{1,3}+)?(?![\w.])
        | '[^']*+(?:''[^']*+)*+'
        )""",
    re.VERBOSE,
)
"""A number that is no part of a word, or a string."""

_LAST_LETTERS: Final = frozenset("eElLpPrRxX")
_DECIDING: Final = re.compile(
    r"(?<![\w$.])(?:(?P<like>I?LIKE)|(?P<timestamp>TIMESTAMP)|CIDR|CESQL|X)\s*$", re.IGNORECASE
)
"""Words after which a string is no plain one; they end in one of a few letters."""

_LIKE_WORDS: Final = {
    Op.PREFIX: "STARTS_WITH",
    Op.SUFFIX: "ENDS_WITH",
    Op.CONTAINS: "CONTAINS",
}
_PATTERN_WORDS: Final = frozenset({"LIKE", "ILIKE", "IN_CIDR"})
_SLOTS: Final = tuple(map(str, range(MAX_TEMPLATE_TOKENS)))
"""The names of slots."""


class SplitText(NamedTuple):
    """A text without its plain literals, and these."""

    key: Key
    values: tuple[Value, ...]


class Template(msgspec.Struct, frozen=True):
    """A filter whose literals are slots named `0`, `1`, ... in the order of the text."""

    skeleton: Filter

    def fill(self, values: Sequence[Value]) -> Filter:
        """The filter with these constants; its own variables stay."""
        return self.skeleton.substitute(dict(zip(_SLOTS, values, strict=False)))


_known: dict[Key, Template | None] = {}
"""Templates by key; None for one that is not to be trusted."""
_seen: set[Key] = set()
"""Keys that were met once."""


def split(text: str) -> SplitText | None:
    """Take the plain literals out of a text; None for a long one.

    A LIKE whose pattern is a prefix, suffix or piece of text has that as its literal.

    >>> split("price < 9.5 AND symbol = 'IBM'")
    SplitText(key=('price < ', 0, ' AND symbol = ', 1, ''), values=(9.5, 'IBM'))
    """
    if len(text) > MAX_SPLIT_CHARS:
        return None
    key: list[Any] = _LITERAL.split(text)
    values: list[Value] = []
    for place in range(1, len(key), 2):
        literal = key[place]
        if literal[-1] != "'":
            key[place] = _NUMBER
            is_float = "." in literal or "e" in literal or "E" in literal
            values.append(float(literal) if is_float else int(literal))
            continue
        value = literal[1:-1]
        if "'" in value:
            value = value.replace("''", "'")
        key[place] = _STRING
        if key[place - 1].rstrip()[-1:] in _LAST_LETTERS:
            key[place], value = _marked(key[place - 1], value)
        if value is not None:
            values.append(value)
    return SplitText(tuple(key), tuple(values))


def _marked(before: str, string: str) -> tuple[object, Value | None]:
    """The mark of a string by the word before it, and its value, unless it is its own mark."""
    word = _DECIDING.search(before)
    if word is None:
        return _STRING, string
    with suppress(InvalidInput, ValueError, OverflowError):
        if word["like"]:
            simpler = like_shape(string)
            if simpler is not None and simpler[0] in _LIKE_WORDS:
                return simpler
        elif word["timestamp"]:
            instant = datetime.fromisoformat(string)
            if instant.tzinfo is not None:
                return _INSTANT, instant.astimezone(UTC)
    return (string,), None


def recalled(parts: SplitText) -> Filter | None:
    """The filter of a text whose template is known.

    `InvalidInput` if a constant does not fit: parsing names its place.
    """
    template = _known.get(parts.key)
    return None if template is None else template.fill(parts.values)


def learn(text: str, parts: SplitText, lexed: Sequence[Token], meaning: Filter | Pattern) -> None:
    """Note a text that was parsed: the second of a key is learned."""
    if isinstance(meaning, Pattern) or parts.key in _known:
        return
    if parts.key in _seen:
        _keep(parts.key, _made(text, parts, lexed, meaning))
        return
    if len(_seen) >= MAX_TEMPLATES:
        _seen.clear()
    _seen.add(parts.key)


def template_of(text: str, parts: SplitText) -> Template | None:
    """The template of a text, learned at once; None if it has none, or is no filter."""
    if parts.key not in _known:
        template = None
        with suppress(InvalidInput):
            lexed = tokens(text)
            conditions, _ = syntax_tree(text, lexed)
            if len(conditions) == 1:
                template = _made(text, parts, lexed, reduce(conditions[0]))
        _keep(parts.key, template)
    return _known[parts.key]


def _keep(key: Key, template: Template | None) -> None:
    if len(_known) >= MAX_TEMPLATES:
        _known.clear()
    _known[key] = template


def _made(text: str, parts: SplitText, lexed: Sequence[Token], meaning: Filter) -> Template | None:
    """The template of a text whose meaning is known; None if filling it gives anything else."""
    lifted = _lifted(text, parts, lexed)
    if lifted is None:
        return None
    try:
        (condition,), _ = syntax_tree("", lifted)
        if _computes(condition):
            return None
        template = Template(reduce(condition))
        return template if template.fill(parts.values) == meaning else None
    except InvalidInput:
        return None


def _lifted(text: str, parts: SplitText, lexed: Sequence[Token]) -> list[Token] | None:
    """The tokens of a text with slots for its literals; None if these are no tokens of it."""
    if max(len(lexed), len(parts.values)) > MAX_TEMPLATE_TOKENS:
        return None
    ends = [match.end() for match in _LITERAL.finditer(text)]
    marks = zip(parts.key[1::2], ends, strict=True)
    due = [(end, mark) for mark, end in marks if not isinstance(mark, tuple)]
    slots = {end: (mark, _SLOTS[place]) for place, (end, mark) in enumerate(due)}
    kept: list[Token] = []
    for token in lexed:
        mark, name = slots.pop(token.end, (None, ""))
        if mark is None:
            kept.append(token)
            continue
        value = parts.values[int(name)]
        before = kept[-1].type if kept else ""
        is_same = type(value) is type(token.value) and value == token.value
        if token.type not in LITERALS or not (is_same or mark in _LIKE_WORDS):
            return None
        if (before in _PATTERN_WORDS) != (mark in _LIKE_WORDS):
            return None
        slot = token._replace(value=Slot(name, kind_of(value)))
        if mark in _LIKE_WORDS:
            kept[-1] = kept[-1]._replace(type=_LIKE_WORDS[mark])
        kept.append(slot)
        if before == "ILIKE":
            kept.append(token._replace(type="IGNORE_CASE"))
    return None if slots else kept


def _computes(condition: Boolean) -> bool:
    """Check whether constants alone make a value or a verdict in it, which differs by text."""
    return any(
        isinstance(node, Arithmetic | Call | Test)
        and not any(isinstance(part, Attribute) or type(part) is Variable for part in walk(node))
        for node in walk(condition)
    )
