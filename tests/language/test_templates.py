"""Templates: filling one in gives what parsing the text gives, or there is none."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, note

from palio.errors import InvalidInput, LimitExceeded, ParseError
from palio.language import templates
from palio.language.lexer import tokens
from palio.language.parsing import conditions_of, parse, parse_tokens
from palio.language.templates import LiftedText, Template, lift, make_template
from palio.model.filters import Filter
from palio.model.limits import MAX_IN_VALUES, MAX_STRING_CHARS
from palio.model.values import Kind
from tests import strategies as our


def lifted(text: str) -> LiftedText:
    found = lift(tokens(text))
    assert found is not None
    return found


def template(text: str) -> Template | None:
    meaning = parse_tokens(text, tokens(text))
    assert isinstance(meaning, Filter)
    return make_template(lifted(text), meaning, conditions_of)


@our.examples(150)
@given(our.expression_texts(variables=True), our.SEEDS)
def test_a_filled_template_is_the_parsed_text(text: str, seed: int) -> None:
    """For the text it came from, and for others of its shape."""
    try:
        direct = our.fresh(text)
    except InvalidInput:
        return
    made = template(text)
    if made is None:
        return
    assert made.fill(lifted(text).values) == direct
    sibling = others(text, seed)
    note(sibling)
    if lifted(sibling).key != lifted(text).key:
        return
    try:
        expected = our.fresh(sibling)
    except InvalidInput:
        with pytest.raises(InvalidInput, match=r"\w"):
            made.fill(lifted(sibling).values)
    else:
        filled = made.fill(lifted(sibling).values)
        assert filled == expected
        assert str(filled) == str(expected)


def others(text: str, seed: int) -> str:
    """The text with other constants of the same kinds."""
    rng = random.Random(seed)
    pieces, end = [], 0
    for token in tokens(text):
        pieces.append(text[end : token.start])
        end = token.end
        own = text[token.start : token.end]
        if token.type == "NUMBER" and rng.random() < 0.6:
            own = rng.choice(("0", "1", "2.5", "7", "9007199254740993", "1e300", "0.1"))
        elif token.type == "STRING" and rng.random() < 0.6 and "/" not in own:
            own = rng.choice(("''", "'a'", "'it''s'", "'a%'", "'%b'", "'ẞ'", "'A'"))
        pieces.append(own)
    return "".join([*pieces, text[end:]])


@our.examples(80)
@given(our.expression_texts(variables=True), our.SEEDS)
def test_parsing_again_and_again_gives_the_same(text: str, seed: int) -> None:
    """Through the cache of templates: the first, the second and the third of a shape."""
    for one in (text, text, others(text, seed), text, others(text, seed + 1)):
        try:
            expected = our.fresh(one)
        except InvalidInput as error:
            with pytest.raises(type(error)):
                parse(one)
        else:
            found = parse(one)
            assert found == expected
            assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("text", "skeleton", "values"),
    [
        ("n < 5", "n < :0", (5,)),
        ("n < 5 AND s = 'a'", "n < :0 AND s = :1", (5, "a")),
        ("s LIKE 'a%'", "s STARTS WITH :0", ("a",)),
        ("s NOT LIKE '%a'", "s NOT ENDS WITH :0", ("a",)),
        ("s ILIKE '%A%'", "s CONTAINS :0 IGNORE CASE", ("A",)),
        ("s LIKE 'a_'", "s LIKE 'a_'", ()),
        ("s IN CIDR '10.0.0.0/8'", "s IN CIDR '10.0.0.0/8'", ()),
        ("n IN (3, 1, 2)", "n IN (:0, :1, :2)", (3, 1, 2)),
        ("n = 1 OR n = 2", "n IN (:0, :1)", (1, 2)),
        ("n < :x AND m = X'00'", "m = :0 AND n < :x", (b"\x00",)),
        ("n + 1 < m", "n + :0 < m", (1,)),
        ("ok = TRUE", "ok = TRUE", ()),
    ],
)
def test_what_is_lifted(text: str, skeleton: str, values: tuple[Any, ...]) -> None:
    made = template(text)
    assert made is not None
    assert str(made.skeleton) == skeleton
    assert lifted(text).values == values
    assert str(made.fill(values)) == str(our.fresh(text))


@pytest.mark.parametrize("text", ["n < 1 + 2", "1 < 2", "n < 10 / 5", "n < - -5", "SQRT(9) < n"])
def test_texts_whose_constants_compute_have_no_template(text: str) -> None:
    assert template(text) is None


def test_an_error_in_a_filled_text_is_told_like_any_other() -> None:
    for _ in range(3):
        assert str(parse("odd1 / 4 < 2 AND odd2 = 'a'")) == "odd2 = 'a' AND odd1 / 4 < 2"
        with pytest.raises(ParseError, match="has no value"):
            parse("odd3 < 10 / 0")
        assert str(parse("odd3 < 10 / 5")) == "odd3 < 2"
        with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
            parse(f"odd1 / 4 < 2 AND odd2 = '{'a' * (MAX_STRING_CHARS + 1)}'")
        with pytest.raises(ParseError, match="does not fit int64"):
            parse("odd1 / 9223372036854775808 < 2 AND odd2 = 'a'")


def test_a_filled_list_may_shrink_but_not_grow() -> None:
    made = template("n IN (1, 2)")
    assert made is not None
    assert str(made.fill((3, 3))) == "n = 3"
    assert made.kinds == (Kind.NUMBER, Kind.NUMBER)
    with pytest.raises(LimitExceeded, match="MAX_IN_VALUES"):
        our.fresh(f"n IN ({','.join(map(str, range(MAX_IN_VALUES + 1)))})")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("n < 5", "n<7 -- so", True),
        ("n < 5", "n < 7.5", True),
        ("n < 5", "n < 'a'", False),
        ("n < 5", "n < :x", False),
        ("n < 5", "m < 5", False),
        ("n < 5", "n <= 5", False),
        ("n = 5", "n == 5", True),
        ("n < 5", "n < TRUE", False),
        ("n = 1 AND m = 2", "n = 1 OR m = 2", False),
        ("s LIKE 'a%'", "s LIKE 'b%'", True),
        ("s LIKE 'a%'", "s LIKE '%b'", False),
        ("s LIKE 'a%'", "s STARTS WITH 'b'", True),
        ("s LIKE 'a_'", "s LIKE 'b_'", False),
        ("s ILIKE 'a%'", "s STARTS WITH 'a' IGNORE CASE", True),
        ("n IN (1, 2)", "n IN (1, 2, 3)", False),
        ("\"n\" < 5", "n < 6", True),
        ("n < TIMESTAMP '2026-01-31T12:00Z'", "n < TIMESTAMP '2027-01-31T12:00Z'", True),
        ("LENGTH(n) < 5", "ABS(n) < 5", False),
    ],
)  # fmt: skip
def test_texts_of_one_shape_have_one_key(one: str, other: str, same: bool) -> None:
    assert (lifted(one).key == lifted(other).key) is same


def test_the_templates_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MAX_TEMPLATES", 8)
    monkeypatch.setattr(templates, "_known", {})
    monkeypatch.setattr(templates, "_seen", set())
    for place in range(50):
        for value in range(3):
            assert str(parse(f"kept{place} = {value}")) == f"kept{place} = {value}"
        assert len(templates._known) <= 8
        assert len(templates._seen) <= 8


def test_patterns_have_no_templates() -> None:
    for value in range(3):
        assert str(parse(f"n = {value} THEN n = 5")) == f"n = {value} THEN n = 5"


def test_constants_that_vanish_for_one_text_do_not_for_another() -> None:
    """The verdict of the constants is absorbed in the first text: filling it would look right."""
    first, second = (
        f"n != {one} AND (n != 5 OR {two} IS NOT NULL)" for one, two in ((5, 1), (7, 0))
    )
    assert template(first) is None
    for text in (first, first, first, second):
        assert parse(text) == our.fresh(text)
