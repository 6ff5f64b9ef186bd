"""Many texts at once give what each of them gives alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from palio.errors import InvalidFilter, InvalidInput, LimitExceeded, ParseError
from palio.language.parsing import parse_filter, parse_many
from palio.model.filters import Filter
from palio.model.limits import MAX_STRING_CHARS, MAX_TEXT_CHARS
from palio.model.values import INT64_MAX, INT64_MIN

SHAPES = [
    "symbol = {s} AND price < {n}",
    "a BETWEEN {n} AND {n} OR NOT b = {n}",
    "a IN ({n}, {n}, {n}) AND t IN ({s}, {s})",
    "source LIKE {p} AND NOT kind LIKE {p}",
    "name ILIKE {p} AND x = TRUE",
    "a - {n} > b * {n}",
    "a = {n} OR a = {n} OR b = {s}",
    "a={n} and b<{n} -- the end {n}",
    '"odd name" > {n} AND `its` = {s}',
    "price < :limit AND volume >= {n}",
    "ip IN CIDR '10.0.0.0/8' AND n = {n}",
    "x = X'00ff' OR t > TIMESTAMP '2026-01-01T00:00:00Z' AND n < {n}",
]
STRINGS = ["'IBM'", "''", "'it''s'", "'a%b'", "'-5'", "'é'", "'\U0001f600'", "'x = 5'"]
PATTERNS = ["'a%'", "'%b'", "'%c%'", "'plain'", "'a_c'", "'%'", r"'50\%'", "'a%c'", "''"]
NUMBERS = [
    "0",
    "5",
    "-5",
    "1.5",
    "-0.25",
    "2e3",
    "-1E-2",
    "7.",
    ".5",
    str(INT64_MAX),
    str(INT64_MIN),
]


def texts(rng: random.Random, count: int) -> list[str]:
    """Random texts of a few shapes."""
    made = []
    for _ in range(count):
        text = rng.choice(SHAPES)
        for slot, choices in (("{s}", STRINGS), ("{p}", PATTERNS), ("{n}", NUMBERS)):
            while slot in text:
                text = text.replace(slot, rng.choice(choices), 1)
        made.append(text)
    return made


def alone(text: str) -> Filter | type[InvalidInput]:
    try:
        return parse_filter(text)
    except InvalidInput as error:
        return type(error)


def together(many: Sequence[str]) -> list[Filter | type[InvalidInput]]:
    bulk = parse_many(many)
    whole: dict[int, Filter | type[InvalidInput]] = {}
    whole.update(pair for group in bulk.groups for pair in group.filters())
    whole.update(bulk.singles)
    whole.update((place, type(error)) for place, error in bulk.rejects)
    return [whole[place] for place in range(len(many))]


def test_together_as_alone(rng: random.Random) -> None:
    many = texts(rng, 2_000)
    assert together(many) == [alone(text) for text in many]


@pytest.mark.parametrize(
    "text",
    [
        "\"a'b\" = 'c'",
        "a - -5 > 3",
        "a -5 > 3",
        "n = 2 * 3",
        "a = 99999999999999999999",
        "a = 1 THEN b = 2",
        "x LIKE 'a\\'",
        "x = 'unclosed",
        "x = 'lone \ud800 surrogate'",
        "",
        "a = 5x",
    ],
)
def test_odd_texts_twice(text: str) -> None:
    assert together([text, text]) == [alone(text)] * 2


def test_a_shape_is_one_group_with_columns() -> None:
    bulk = parse_many([f"price < {n} AND symbol = 'S{n}'" for n in range(100)])
    (group,) = bulk.groups
    assert (bulk.singles, bulk.rejects) == ([], [])
    assert group.places == list(range(100))
    assert group.columns == (list(range(100)), [f"S{n}" for n in range(100)])


def test_kinds_of_constants_are_different_shapes() -> None:
    assert len(parse_many(["a = 1", "a = 'x'", "a = 1.5"]).groups) == 2


def test_a_bad_text_spoils_no_other() -> None:
    bulk = parse_many(["a = 1", "a = ", "a = 2"])
    assert [place for place, _ in bulk.rejects] == [1]
    assert isinstance(bulk.rejects[0][1], ParseError)
    assert bulk.groups[0].places == [0, 2]


def test_what_is_no_text_is_rejected() -> None:
    bulk = parse_many(["a = 1", 5])  # type: ignore[list-item]  # the point of the test
    assert isinstance(bulk.rejects[0][1], InvalidFilter)


@pytest.mark.parametrize(("extra", "fits"), [(-1, True), (0, True), (1, False)])
def test_limit_of_a_string(extra: int, fits: bool) -> None:
    text = "a = '" + "x" * (MAX_STRING_CHARS + extra) + "'"
    assert isinstance(together([text])[0], Filter) is fits


@pytest.mark.parametrize(("extra", "fits"), [(-1, True), (0, True), (1, False)])
def test_limit_of_a_text(extra: int, fits: bool) -> None:
    text = "a = 1".ljust(MAX_TEXT_CHARS + extra)
    assert together([text]) == ([parse_filter("a = 1")] if fits else [LimitExceeded])
