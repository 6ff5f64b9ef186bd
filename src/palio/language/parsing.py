"""`parse`: the text of a filter or pattern to its object; `parse_many` for many texts at once.

A million filters are a few shapes with columns of constants. So `parse_many` sorts texts by their
templates (templates.py) without reading each one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TypeAlias

import msgspec

from palio.errors import InvalidBinding, InvalidFilter, InvalidInput, LimitExceeded
from palio.language.lexer import Token, error_at, tokens
from palio.language.parser import syntax_tree
from palio.language.templates import Key, Template, learn, recalled, split, template_of
from palio.model.advertisements import Advertisement, advertisement_of, checked_advertisement
from palio.model.filters import Filter, reduce
from palio.model.patterns import Pattern
from palio.model.values import NO_VALUES, Bindings, Value


def parse(text: str) -> Filter | Pattern:
    """A filter, or a pattern if the text has a THEN.

    Where one of the two is meant, `parse_filter` and `parse_pattern` show that to readers and to
    type checkers, and refuse the other.

    >>> parse("price < :limit AND symbol IN ('IBM', 'MSFT')")
    palio.parse("price < :limit AND symbol IN ('IBM', 'MSFT')")
    >>> type(parse("a = 1 THEN b = 2")).__name__
    'Pattern'
    """
    if not isinstance(text, str):
        raise InvalidFilter(f"a filter's text is a str, not {type(text).__name__}")
    parts = split(text)
    if parts is not None:
        with suppress(InvalidInput):  # a constant that does not fit: parsing names its place
            remembered = recalled(parts)
            if remembered is not None:
                return remembered
    lexed = tokens(text)
    meaning = parse_tokens(text, lexed)
    if parts is not None:
        learn(text, parts, lexed, meaning)
    return meaning


def parse_filter(text: str) -> Filter:
    """A filter; a pattern is refused.

    >>> str(parse_filter("NOT price >= 5"))
    'price < 5'
    """
    parsed = parse(text)
    if isinstance(parsed, Pattern):
        raise InvalidFilter("a single filter is needed here, and the text is a pattern (THEN)")
    return parsed


def parse_pattern(text: str) -> Pattern:
    """A pattern; a filter is refused.

    >>> len(parse_pattern("a = 1 THEN b = 2").steps)
    2
    """
    parsed = parse(text)
    if isinstance(parsed, Filter):
        raise InvalidFilter("a pattern is needed here, and the text has no THEN; use parse_filter")
    return parsed


def read_advertisement(given: str | Advertisement, values: Bindings) -> Advertisement:
    """An advertisement as it may be handed in: by its text with values, or read already.

    A `Filter` is refused: it no longer has the text, by which alone it would announce.
    """
    if isinstance(given, str):
        return parse_advertisement(given, values)
    for name in values:
        raise InvalidBinding(f"the advertisement has no parameter :{name}", name=name)
    return checked_advertisement(given)


def parse_advertisement(text: str, values: Bindings = NO_VALUES) -> Advertisement:
    """Read an advertisement, its parameters replaced by their values (see `Advertisement`).

    >>> parse_advertisement("price BETWEEN 0 AND :most", {"most": 10}).announces({"price": 99})
    False
    """
    if not isinstance(text, str):
        raise InvalidFilter(f"an advertisement's text is a str, not {type(text).__name__}")
    lexed = tokens(text)
    conditions, _ = syntax_tree(text, lexed)
    if len(conditions) > 1:
        raise InvalidFilter(
            "events are advertised one by one: the text of an advertisement has no THEN"
        )
    with _located(text, lexed):
        return advertisement_of(conditions[0], values)


def parse_tokens(text: str, lexed: Sequence[Token]) -> Filter | Pattern:
    """The object that a text's tokens mean."""
    conditions, within = syntax_tree(text, lexed)
    with _located(text, lexed):
        steps = tuple(reduce(condition) for condition in conditions)
        return steps[0] if len(steps) == 1 else Pattern(steps, within)


@contextmanager
def _located(text: str, lexed: Sequence[Token]) -> Iterator[None]:
    """Shows the text to which an error of its meaning belongs."""
    try:
        yield
    except LimitExceeded:
        raise
    except InvalidFilter as error:
        place = lexed[0].start if lexed else 0
        raise error_at(text, place, str(error), offending=text[:40]) from None


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


_Members: TypeAlias = tuple[Template, list[int], list[tuple[Value, ...]]]
"""A template, and the places and values of the texts of it."""


def parse_many(texts: Iterable[str]) -> Bulk:
    """Parse many filters by their templates; one without a trusted template is parsed for itself.

    A bad text never spoils the others.

    >>> bulk = parse_many(["price < 5", "price < 7", "a = ", "size > 'x'"])
    >>> [(str(group.template.skeleton), group.columns) for group in bulk.groups]
    [('price < :0', ([5, 7],)), ('size > :0', (['x'],))]
    >>> [place for place, _ in bulk.rejects]
    [2]
    """
    members: dict[Key, _Members | None] = {}
    singles: list[tuple[int, Filter]] = []
    rejects: list[tuple[int, InvalidInput]] = []
    for place, text in enumerate(texts):
        try:
            if not _took(members, place, text):
                singles.append((place, parse_filter(text)))
        except InvalidInput as error:
            rejects.append((place, error))
    groups = [
        Group(template, places, tuple(map(list, zip(*rows, strict=True))))
        for template, places, rows in filter(None, members.values())
    ]
    return Bulk(groups, singles, rejects)


def _took(groups: dict[Key, _Members | None], place: int, text: str) -> bool:
    """Put a text with others of its template; False if it must be parsed for itself."""
    if not isinstance(text, str):
        raise InvalidFilter(f"a filter's text is a str, not {type(text).__name__}")
    parts = split(text)
    if parts is None or not (text.isascii() or _is_text(text)):
        return False
    if parts.key not in groups:
        # Columns hold numbers and strings, which are not checked again.
        is_plain = not any(isinstance(value, datetime) for value in parts.values)
        template = template_of(text, parts) if is_plain else None
        groups[parts.key] = None if template is None else (template, [], [])
    members = groups[parts.key]
    if members is None:
        return False
    _, places, rows = members
    places.append(place)
    rows.append(parts.values)
    return True


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
