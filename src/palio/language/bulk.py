"""Many texts at once: a million filters are a few shapes with columns of constants.

`parse_many` sorts texts by their templates (templates.py) without reading each one. Where there is
none to be trusted, a text is parsed for itself. A bad text never spoils the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from palio.errors import InvalidFilter, InvalidInput
from palio.language.parsing import parse_filter
from palio.language.templates import Key, Template, split, template_of
from palio.model.filters import Filter
from palio.model.values import Value

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
    """Parse many filters by their templates.

    >>> bulk = parse_many(["price < 5", "price < 7", "a = ", "size > 'x'"])
    >>> [(str(group.template.skeleton), group.columns) for group in bulk.groups]
    [('price < :0', ([5, 7],)), ('size > :0', (['x'],))]
    >>> [place for place, _ in bulk.rejects]
    [2]
    """
    known: dict[Key, _Members | None] = {}
    singles: list[tuple[int, Filter]] = []
    rejects: list[tuple[int, InvalidInput]] = []
    for place, text in enumerate(texts):
        try:
            if not _took(known, place, text):
                singles.append((place, parse_filter(text)))
        except InvalidInput as error:
            rejects.append((place, error))
    return Bulk([members.group() for members in known.values() if members], singles, rejects)


def _took(known: dict[Key, _Members | None], place: int, text: str) -> bool:
    """Put a text with others of its template; False if it must be parsed for itself."""
    if not isinstance(text, str):
        raise InvalidFilter(f"a filter's text is a str, not {type(text).__name__}")
    parts = split(text)
    if parts is None or not (text.isascii() or _is_text(text)):
        return False
    if parts.key not in known:
        # Columns hold numbers and strings, which need no second look.
        is_plain = not any(isinstance(value, datetime) for value in parts.values)
        template = template_of(text, parts) if is_plain else None
        known[parts.key] = None if template is None else _Members(template)
    members = known[parts.key]
    if members is None:
        return False
    members.places.append(place)
    members.rows.append(parts.values)
    return True


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
