"""Many texts at once: a million filters are a few shapes with columns of constants.

`parse_many` sorts texts by their template (templates.py) without reading each one: a single split
lifts the constants out, and what remains of the text is looked up. Only the first text of a shape
is really parsed, and its constants must be the very ones that the split found; a shape where they
are not (quotes within quotes, constants that compute) is parsed text by text. A bad text never
spoils the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from palio.errors import InvalidFilter, InvalidInput, LimitExceeded
from palio.language.lexer import tokens
from palio.language.parsing import conditions_of, parse_filter, parse_tokens
from palio.language.templates import Template, lift, make_template
from palio.model.filters import Filter
from palio.model.limits import MAX_STRING_CHARS, MAX_TEXT_CHARS
from palio.model.operators import like_shape
from palio.model.values import INT64_MAX, INT64_MIN, Value

__all__ = ["Bulk", "Group", "parse_many"]


class Group(msgspec.Struct, frozen=True):
    """Texts of one template: their places in the input, and a column of values for each slot."""

    template: Template
    places: list[int]
    columns: tuple[list[Value], ...]

    def filters(self) -> Iterable[tuple[int, Filter]]:
        """The filters one by one, with their places."""
        rows = zip(*self.columns, strict=True) if self.columns else [()] * len(self.places)
        for place, values in zip(self.places, rows, strict=True):
            yield place, self.template.fill(values)


class Bulk(msgspec.Struct, frozen=True):
    """The result of reading many texts: groups of one shape, single filters, rejects."""

    groups: list[Group]
    singles: list[tuple[int, Filter]]
    rejects: list[tuple[int, InvalidInput]]

    def filters(self) -> list[Filter | InvalidInput]:
        """All of it in the order of the input."""
        found: dict[int, Filter | InvalidInput] = {
            place: filter for group in self.groups for place, filter in group.filters()
        }
        found.update(self.singles)
        found.update(self.rejects)
        return [found[place] for place in range(len(found))]


_LITERAL: Final = re.compile(
    r"""( '(?:[^']|'')*'                                                  # a string
        | (?:(?<=[=<>(,])|(?<=\bAND)|(?<=\bBETWEEN)|(?<=\band)|(?<=\bbetween))
          \s*-(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.])            # a negative number
        | (?<![\w.$:"`])(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.])  # a number
        )""",
    re.VERBOSE | re.ASCII,
)
_ENDS_IN_LIKE: Final = re.compile(r"(?<![\w$.])I?LIKE\s*$", re.IGNORECASE)


class _Shape:
    """All texts that read the same but for their constants."""

    __slots__ = ("likes", "members")

    def __init__(self, likes: tuple[int, ...]) -> None:
        self.likes = likes
        """Slots that follow LIKE: what their patterns are decides the template."""
        self.members: dict[tuple[object, ...], _Members | None] = {}
        """Members by the patterns after LIKE; None where a text must be parsed for itself."""


class _Members:
    """Texts of one template as they are found."""

    __slots__ = ("places", "rows", "template")

    def __init__(self, template: Template) -> None:
        self.template = template
        self.places: list[int] = []
        self.rows: list[tuple[Value, ...]] = []

    def group(self) -> Group:
        columns = tuple(map(list, zip(*self.rows, strict=True)))
        return Group(self.template, self.places, columns)


def parse_many(texts: Iterable[str]) -> Bulk:
    """Parse many filters by their shapes.

    >>> bulk = parse_many(["price < 5", "price < 7", "a = ", "size > 'x'"])
    >>> [(str(group.template.skeleton), group.columns) for group in bulk.groups]
    [('price < :0', ([5, 7],)), ('size > :0', (['x'],))]
    >>> [place for place, _ in bulk.rejects]
    [2]
    """
    shapes: dict[tuple[str, ...], _Shape] = {}
    singles: list[tuple[int, Filter]] = []
    rejects: list[tuple[int, InvalidInput]] = []
    for place, text in enumerate(texts):
        try:
            if not _took(shapes, place, text):
                singles.append((place, parse_filter(text)))
        except InvalidInput as error:
            rejects.append((place, error))
    groups = [
        members.group()
        for shape in shapes.values()
        for members in shape.members.values()
        if members
    ]
    return Bulk(groups, singles, rejects)


def _took(shapes: dict[tuple[str, ...], _Shape], place: int, text: str) -> bool:
    """Put a text with others of its template; False if it must be parsed for itself."""
    if not isinstance(text, str):
        raise InvalidFilter(f"a filter's text is a str, not {type(text).__name__}")
    if len(text) > MAX_TEXT_CHARS:
        raise LimitExceeded(
            "a filter's text", limit="MAX_TEXT_CHARS", maximum=MAX_TEXT_CHARS, actual=len(text)
        )
    parts = _LITERAL.split(text)
    values = _values(parts)
    if values is None:
        return False
    # The key holds what stands between the constants, and of which kind each constant is.
    parts[1::2] = ["s" if isinstance(value, str) else "n" for value in values]
    key = tuple(parts)
    shape = shapes.get(key)
    if shape is None:
        likes = (at // 2 for at in range(0, len(parts) - 1, 2) if _ENDS_IN_LIKE.search(parts[at]))
        shape = shapes[key] = _Shape(tuple(likes))
    patterns: tuple[object, ...] = ()
    if shape.likes:
        patterns, values = _without_patterns(shape.likes, values)
    if patterns in shape.members:
        members = shape.members[patterns]
    else:
        members = shape.members[patterns] = _members(text, values)
    if members is None:
        return False
    members.places.append(place)
    members.rows.append(tuple(values))
    return True


def _values(parts: Sequence[str]) -> list[Value] | None:
    """The constants that a split found, None if one of them is out of bounds."""
    values: list[Value] = []
    for literal in parts[1::2]:
        if literal[-1] == "'":
            text = literal[1:-1]
            if "'" in text:
                text = text.replace("''", "'")
            if len(text) > MAX_STRING_CHARS or not (text.isascii() or _is_text(text)):
                return None
            values.append(text)
        elif "." in literal or "e" in literal or "E" in literal:
            values.append(float(literal))
        else:
            number = int(literal) if len(literal) < 40 else INT64_MAX + 1
            if not INT64_MIN <= number <= INT64_MAX:
                return None
            values.append(number)
    return values


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _without_patterns(
    likes: tuple[int, ...], values: list[Value]
) -> tuple[tuple[object, ...], list[Value]]:
    """The patterns after LIKE as operators where they are one, and the values that remain."""
    patterns: list[object] = []
    kept: list[Value | None] = list(values)
    for slot in likes:
        pattern = values[slot]
        shape = None
        if isinstance(pattern, str) and not pattern.endswith("\\"):
            shape = like_shape(pattern)
        if shape is None or shape[0].value == "=":
            patterns.append(pattern)
            kept[slot] = None
        else:
            patterns.append(shape[0])
            kept[slot] = shape[1]
    return tuple(patterns), [value for value in kept if value is not None]


def _members(text: str, values: list[Value]) -> _Members | None:
    """The members of a new template; None unless its constants are those that the split found."""
    found = tokens(text)
    lifted = lift(found)
    if lifted is None or list(map(_identity, lifted.values)) != list(map(_identity, values)):
        return None
    meaning = parse_tokens(text, found)
    if not isinstance(meaning, Filter):
        return None
    template = make_template(lifted, meaning, conditions_of)
    return None if template is None else _Members(template)


def _identity(value: Value) -> tuple[type, Value]:
    return type(value), value
