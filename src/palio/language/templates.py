"""Templates: the text of a filter without its constants.

Thousands of filters are usually a few shapes with other constants. A *template* is what is left of
the tokens once the literals are lifted out; its *skeleton* is the filter with a `Slot` for each of
them, a variable of known kind. A text of a known template is filled in without parsing, and a
million of them are a few skeletons with columns of values, which is the form the matching engine
takes them in.

A template is trusted only when filling it gave exactly what parsing gave for the text it came from;
otherwise its texts are parsed one by one.

Most texts are not even read as tokens twice. `split` takes the plain literals out of a text, and
what is left is the key of a template if a text with the same rest was read and had these literals
and no others. Then the tokens of both differ in their literals only, for a plain literal is one
token wherever another one is: it has neither quotes nor signs of its own that a token before or
after it could take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from palio.errors import InvalidInput
from palio.language.lexer import LITERALS, Token
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
from palio.model.values import Kind, Value, kind_of

__all__ = [
    "MAX_TEMPLATES",
    "ConditionsOf",
    "Key",
    "LiftedText",
    "SplitText",
    "Template",
    "is_seen",
    "learn",
    "lift",
    "make_template",
    "remember",
    "split",
    "template_of",
    "template_of_split",
]

Key: TypeAlias = tuple[Any, ...]

ConditionsOf: TypeAlias = Callable[[Sequence[Token]], Sequence[Boolean]]
"""Reads the conditions that tokens stand for; the parser, which learns templates, hands it over."""

MAX_TEMPLATES: Final = 4_096
"""Templates kept; when there are more, the texts are not of a few shapes and all are forgotten."""


MAX_TEMPLATE_TOKENS: Final = 128
"""Tokens of a template; longer texts are parsed one by one, and those kept stay below 100 MB."""


class Template(msgspec.Struct, frozen=True):
    """A filter whose literals are slots named `0`, `1`, ... in the order of the text."""

    skeleton: Filter
    kinds: tuple[Kind, ...]

    def fill(self, values: Sequence[Value]) -> Filter:
        """The filter with these constants; its own variables stay."""
        return self.skeleton.substitute({str(place): value for place, value in enumerate(values)})


class LiftedText(msgspec.Struct, frozen=True):
    """A text's tokens taken apart: what it shares with others of its shape, and its constants."""

    key: Key
    tokens: tuple[Token, ...]
    values: tuple[Value, ...]


class SplitText(NamedTuple):
    """A text without its plain literals, and these."""

    key: Key
    values: tuple[Value, ...]


_PLAIN: Final = re.compile(
    r"""(?<![\w.$:'"`-])(-?\d{1,18}+(?:\.\d{1,18}+)?)(?![\w.])|'([^']*+)'(?!')"""
)
"""A number that stands by itself, or a text without quotes in it."""

MAX_SPLIT_CHARS: Final = 2_048
"""Longer texts are parsed one by one: those that are kept as keys stay below 10 MB."""


def split(text: str) -> SplitText | None:
    """Take the plain literals out of a text; None for a long one.

    >>> split("price < 9.5 AND symbol = 'IBM'")
    SplitText(key=('price < ', 1, ' AND symbol = ', 2, ''), values=(9.5, 'IBM'))
    """
    if len(text) > MAX_SPLIT_CHARS:
        return None
    key: list[Any] = _PLAIN.split(text)
    values: list[Value] = []
    for place in range(1, len(key), 3):
        number, string = key[place : place + 2]
        if number is None:
            key[place], key[place + 1] = 2, None
            values.append(string)
        else:
            key[place], key[place + 1] = 1, None
            values.append(float(number) if "." in number else int(number))
    return SplitText(tuple([part for part in key if part is not None]), tuple(values))


def lift(found: Sequence[Token]) -> LiftedText | None:
    """Lift the literals out of a text's tokens; None for a text too long to keep a template of.

    A LIKE whose pattern is a prefix, suffix or piece of text becomes that operator, so that its
    text is lifted; other patterns and address blocks decide the shape of the filter and stay.
    """
    if len(found) > MAX_TEMPLATE_TOKENS:
        return None
    key: list[Any] = []
    kept: list[Token] = []
    values: list[Value] = []
    for token in found:
        if token.type not in LITERALS:
            if token.type == "LIST":
                return None
            kept.append(token)
            key.append((token.type, token.value) if token.type in _TELLING else token.type)
            continue
        value = token.value
        before = kept[-1].type if kept else ""
        ignore_case = False
        if before in _PATTERN_WORDS:
            simpler = _simpler(before, value)
            if simpler is None:
                kept.append(token)
                key.append((token.type, value))
                continue
            word, value = simpler
            ignore_case = before == "ILIKE"
            changed = kept[-1]
            kept[-1] = Token(word, *changed[1:])
            key[-1] = word
        kind = kind_of(value)
        kept.append(Token(token.type, Slot(str(len(values)), kind), token.start, token.end))
        key.append(kind)
        values.append(value)
        if ignore_case:
            kept.append(token._replace(type="IGNORE_CASE"))
            key.append("IGNORE_CASE")
    return LiftedText(tuple(key), tuple(kept), tuple(values))


_TELLING: Final = frozenset({"NAME", "VARIABLE", "FUNCTION", "COMPARISON", "DURATION", "CESQL"})
_PATTERN_WORDS: Final = frozenset({"LIKE", "ILIKE", "IN_CIDR"})
_LIKE_WORDS: Final = {
    Op.PREFIX: "STARTS_WITH",
    Op.SUFFIX: "ENDS_WITH",
    Op.CONTAINS: "CONTAINS",
}


def _simpler(word: str, pattern: Value) -> tuple[str, Value] | None:
    """The operator that a LIKE with this pattern is, with its operand; None to leave it alone."""
    if word == "IN_CIDR" or not isinstance(pattern, str):
        return None
    try:
        shape = like_shape(pattern)
    except InvalidInput:
        return None
    return (_LIKE_WORDS[shape[0]], shape[1]) if shape and shape[0] in _LIKE_WORDS else None


_known: dict[Key, Template | None] = {}
"""Templates by key; None for one that is not to be trusted."""
_seen: set[Key] = set()
"""What texts were without their plain literals."""
_by_rest: dict[Key, Template] = {}
"""Templates by what texts are without their plain literals."""


def template_of(lifted: LiftedText) -> Template | None:
    """The template of a text, if it is known and to be trusted."""
    return _known.get(lifted.key)


def template_of_split(parts: SplitText) -> Template | None:
    """The template of a text by what it is without its literals."""
    return _by_rest.get(parts.key)


def remember(parts: SplitText, lifted: LiftedText, template: Template) -> None:
    """A text's template is known: texts with the same rest have it too, if the literals are those
    that its tokens have.
    """
    kinds = list(map(type, parts.values))
    if parts.values == lifted.values and kinds == list(map(type, lifted.values)):
        if len(_by_rest) >= MAX_TEMPLATES:
            _by_rest.clear()
        _by_rest[parts.key] = template


def is_seen(parts: SplitText) -> bool:
    """Whether a text with the same rest was asked about before: shapes that occur once are spared
    everything else here.
    """
    if parts.key in _seen:
        return True
    if len(_seen) >= MAX_TEMPLATES:
        _seen.clear()
    _seen.add(parts.key)
    return False


def learn(lifted: LiftedText, meaning: Filter | Pattern, conditions_of: ConditionsOf) -> None:
    """Make the template of a text that was parsed, which costs another parse (`conditions_of`)."""
    key = lifted.key
    if key in _known or isinstance(meaning, Pattern):
        return
    if len(_known) >= MAX_TEMPLATES:
        _known.clear()
    _known[key] = make_template(lifted, meaning, conditions_of)


def make_template(
    lifted: LiftedText, meaning: Filter, conditions_of: ConditionsOf
) -> Template | None:
    """The template of a text whose meaning is known; None if filling it gives anything else."""
    try:
        conditions = conditions_of(lifted.tokens)
        if any(_computes(condition) for condition in conditions):
            return None
        (condition,) = conditions  # a pattern has several, and is no Filter
        skeleton = reduce(condition)
        template = Template(skeleton, tuple(kind_of(value) for value in lifted.values))
        return template if template.fill(lifted.values) == meaning else None
    except InvalidInput:
        return None


def _computes(condition: Boolean) -> bool:
    """Whether constants alone make a value or a verdict in it, which every text has another of."""
    return any(
        isinstance(node, Arithmetic | Call | Test)
        and not any(isinstance(part, Attribute) or type(part) is Variable for part in walk(node))
        for node in walk(condition)
    )
