"""Templates: filters whose texts differ in their literals only.

Thousands of filters are usually a few shapes with other constants. `split` lifts the plain literals
out of a text; what is left is the key of a *template*, a filter with a `Slot` for each literal, a
variable of known kind. A text whose template is known is filled in without being read. A template
is learned when its key is met the second time, so that texts of their own are spared the cost.

Shapes of texts are many where their conditions are few. So a text whose template is unknown may be
put together from others, if it is conditions joined by AND.

A template is trusted only if its literals are tokens of the text it came from, and if filling it
gives what parsing that text gave. Then they are tokens in every text with this key: a literal has
neither quotes nor signs of its own that a token before or after it could take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from palio.errors import InvalidInput
from palio.language.lexer import LITERALS, Token, tokens
from palio.language.parser import syntax_tree
from palio.model.constraints import Constraint
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
from palio.model.filters import Filter, all_of, reduce
from palio.model.operators import Op, like_shape
from palio.model.patterns import Pattern
from palio.model.values import Value, kind_of

__all__ = ["MAX_TEMPLATES", "SplitText", "Template", "learn", "recalled", "split", "template_of"]

MAX_TEMPLATES: Final = 4_096
"""Templates kept; when there are more, texts are not of a few shapes, and all are forgotten."""

MAX_TEMPLATE_TOKENS: Final = 128
"""Tokens of a template; longer texts are parsed one by one, and those kept stay below 100 MB."""

MAX_SPLIT_CHARS: Final = 2_048
"""Longer texts are parsed one by one: those that are kept as keys stay below 20 MB."""

MOST_LEARNED: Final = 8
"""Conditions of one text that are read by themselves: a millisecond each at the worst."""

Key: TypeAlias = tuple[Any, ...]
"""What stands between the literals of a text, and between two of them a mark for a literal's kind.

A literal that decides which filter a text is, such as an address block, is its own mark.
"""

_NUMBER, _STRING, _INSTANT = range(3)

_LITERAL: Final = re.compile(
    r"""( (?<![\w.$:'"`-])-?(?:\d{1,18}+(?:\.\d{0,18}+)?|\.\d{1,18}+)(?:[eE][+-]?\d{1,3}+)?(?![\w.])
        | '[^']*+(?:''[^']*+)*+'
        )""",
    re.VERBOSE,
)
"""A number that stands by itself, or a string."""

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
_LOOSER: Final = frozenset({"OR", "XOR"})
"""Tokens of operators that an AND beside them would take apart."""

_SLOTS: Final = tuple(map(str, range(MAX_TEMPLATE_TOKENS)))
"""The names of slots."""


class SplitText(NamedTuple):
    """A text without its plain literals, and these."""

    key: Key
    values: tuple[Value, ...]


class Template(msgspec.Struct, frozen=True):
    """A filter whose literals are slots named `0`, `1`, ... in the order of the text."""

    skeleton: Filter
    constraints: tuple[Constraint, ...] | None = None
    """What it adds to an AND; None where it is no conjunction of constraints."""

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
    """The filter of a text whose template is known, or the templates of all of its conditions.

    `InvalidInput` if a constant does not fit: parsing says where it stands.
    """
    template = _known.get(parts.key)
    if template is not None:
        return template.fill(parts.values)
    if parts.key in _seen or parts.key in _known:
        return None  # it is learned now, or not to be trusted
    pieces = _pieces(parts.key)
    if len(pieces) < 2:
        return None
    first = 0
    leaves: list[Constraint] = []
    for piece in pieces:
        template = _known.get(piece)
        if template is None or template.constraints is None:
            return None
        last = first + _slots_of(piece)
        values = dict(zip(_SLOTS, parts.values[first:last], strict=False))
        leaves += [each.substitute(values) for each in template.constraints]
        first = last
    _is_due(parts.key)
    return all_of(leaves)


def learn(text: str, parts: SplitText, found: Sequence[Token], meaning: Filter | Pattern) -> None:
    """Note a text that was parsed: the second of a key is learned, and so are its conditions."""
    if isinstance(meaning, Pattern):
        return
    if _is_due(parts.key):
        _keep(parts.key, _made(text, parts, found, meaning))
    pieces = _pieces(parts.key)
    if len(pieces) < 2:
        return
    unknown = {key: place for place, key in enumerate(pieces) if key not in _known}
    due = [place for key, place in islice(unknown.items(), MOST_LEARNED) if _is_due(key)]
    if due:
        texts = ["".join(piece) for piece in _pieces(_LITERAL.split(text))]
        for place in due:
            _keep(pieces[place], _read(texts[place], split(texts[place])))


def template_of(text: str, parts: SplitText) -> Template | None:
    """The template of a text, learned at once; None if it has none, or is no filter."""
    if parts.key not in _known:
        _keep(parts.key, _read(text, parts))
    return _known[parts.key]


def _is_due(key: Key) -> bool:
    """Whether a key has no template yet and is met again."""
    if key in _known or key in _seen:
        return key not in _known
    if len(_seen) >= MAX_TEMPLATES:
        _seen.clear()
    _seen.add(key)
    return False


def _keep(key: Key, template: Template | None) -> None:
    if len(_known) >= MAX_TEMPLATES:
        _known.clear()
    _known[key] = template


def _read(text: str, parts: SplitText | None) -> Template | None:
    with suppress(InvalidInput):
        found = tokens(text)
        conditions, _ = syntax_tree(text, found)
        if parts is not None and len(conditions) == 1:
            return _made(text, parts, found, reduce(conditions[0]))
    return None


def _made(text: str, parts: SplitText, found: Sequence[Token], meaning: Filter) -> Template | None:
    """The template of a text whose meaning is known; None if filling it gives anything else."""
    lifted = _lifted(text, parts, found)
    if lifted is None:
        return None
    try:
        (condition,), _ = syntax_tree("", lifted)
        if _computes(condition):
            return None
        skeleton = reduce(condition)
        if Template(skeleton).fill(parts.values) != meaning:
            return None
    except InvalidInput:
        return None
    is_lone = len(skeleton.conjunctions) == 1 and not skeleton.conjunctions[0].residuals
    if not is_lone or "--" in text or any(token.type in _LOOSER for token in found):
        return Template(skeleton)
    return Template(skeleton, skeleton.conjunctions[0].constraints)


def _lifted(text: str, parts: SplitText, found: Sequence[Token]) -> list[Token] | None:
    """The tokens of a text with slots for its literals; None if these are no tokens of it."""
    if max(len(found), len(parts.values)) > MAX_TEMPLATE_TOKENS:
        return None
    ends = [match.end() for match in _LITERAL.finditer(text)]
    marks = zip(parts.key[1::2], ends, strict=True)
    due = [(end, mark) for mark, end in marks if not isinstance(mark, tuple)]
    slots = {end: (mark, _SLOTS[place]) for place, (end, mark) in enumerate(due)}
    kept: list[Token] = []
    for token in found:
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
    """Whether constants alone make a value or a verdict in it, which every text has another of."""
    return any(
        isinstance(node, Arithmetic | Call | Test)
        and not any(isinstance(part, Attribute) or type(part) is Variable for part in walk(node))
        for node in walk(condition)
    )


def _slots_of(key: Key) -> int:
    return sum(not isinstance(mark, tuple) for mark in key[1::2])


def _pieces(parts: Sequence[Any]) -> list[Key]:
    """What stands between one AND and the next; that of a BETWEEN does not count.

    Texts are at the even places of the parts, and at the odd ones what stands for literals.
    """
    pieces: list[Key] = []
    piece: list[Any] = []
    is_between = False
    for place, part in enumerate(parts):
        if place % 2:
            piece.append(part)
            continue
        head, *rest = part.split(" AND ")
        piece.append(head)
        is_between |= head.endswith(" BETWEEN ")
        for each in rest:
            if is_between:
                piece[-1] += f" AND {each}"
            else:
                pieces.append(tuple(piece))
                piece = [each]
            is_between = each.endswith(" BETWEEN ")
    pieces.append(tuple(piece))
    return pieces
