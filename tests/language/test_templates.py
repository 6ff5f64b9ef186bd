"""Templates: filling one in, or several, gives what parsing the text gives, or there is none."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, note

from palio.errors import InvalidInput, LimitExceeded, ParseError
from palio.language import templates
from palio.language.lexer import tokens
from palio.language.parsing import parse
from palio.language.templates import (
    MAX_SPLIT_CHARS,
    MAX_TEMPLATE_TOKENS,
    SplitText,
    Template,
    split,
    template_of,
)
from palio.model.limits import MAX_IN_VALUES, MAX_STRING_CHARS
from tests import strategies as our


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_known", {})
    monkeypatch.setattr(templates, "_seen", set())


def parts_of(text: str) -> SplitText:
    parts = split(text)
    assert parts is not None
    return parts


def template(text: str) -> Template | None:
    return template_of(text, parts_of(text))


@our.examples(150)
@given(our.expression_texts(variables=True), our.SEEDS)
def test_a_filled_template_is_the_parsed_text(text: str, seed: int) -> None:
    """For the text it came from, and for others with its key."""
    try:
        direct = our.fresh(text)
    except InvalidInput:
        return
    made = template(text)
    if made is None:
        return
    assert made.fill(parts_of(text).values) == direct
    sibling = others(text, seed)
    note(sibling)
    parts = parts_of(sibling)
    if parts.key != parts_of(text).key:
        return
    try:
        expected = our.fresh(sibling)
    except InvalidInput:
        with pytest.raises(InvalidInput, match=r"\w"):
            made.fill(parts.values)
    else:
        filled = made.fill(parts.values)
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
            own = rng.choice(("0", "1", "-2.5", "7", "9007199254740993", "1e300", "0.1", ".5"))
        elif token.type == "STRING" and rng.random() < 0.6 and "/" not in own:
            own = rng.choice(("''", "'a'", "'it''s'", "'a%'", "'%b'", "'ẞ'", "'A'"))
        pieces.append(own)
    return "".join([*pieces, text[end:]])


@our.examples(80)
@given(our.expression_texts(variables=True), our.SEEDS)
def test_parsing_again_and_again_gives_the_same(text: str, seed: int) -> None:
    """Through the cache: the first, the second and the third of a shape."""
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
        ("s like '%a' AND n = -5", "n = :1 AND s ENDS WITH :0", ("a", -5)),
        ("s IN CIDR '10.0.0.0/8'", "s IN CIDR '10.0.0.0/8'", ()),
        ("s = 'it''s' OR s = ''", "s IN (:0, :1)", ("it's", "")),
        ("n IN (3, 1, 2)", "n IN (:0, :1, :2)", (3, 1, 2)),
        ("n = 1 OR n = 2", "n IN (:0, :1)", (1, 2)),
        ("n < :x AND m = X'00'", "m = X'00' AND n < :x", ()),
        ("n > 1e3 AND n < 5.", "n < :1 AND n > :0", (1000.0, 5.0)),
        ("n + 1 < m", "n + :0 < m", (1,)),
        ("ok = TRUE", "ok = TRUE", ()),
    ],
)
def test_what_is_lifted(text: str, skeleton: str, values: tuple[Any, ...]) -> None:
    made = template(text)
    assert made is not None
    assert str(made.skeleton) == skeleton
    assert parts_of(text).values == values
    assert str(made.fill(values)) == str(our.fresh(text))


def test_timestamps_are_lifted() -> None:
    texts = [f"t > TIMESTAMP '2026-01-31T12:00:0{second}+01:00' AND n = 1" for second in range(3)]
    made = template(texts[0])
    assert made is not None
    for text in texts:
        assert parts_of(text).key == parts_of(texts[0]).key
        assert made.fill(parts_of(text).values) == our.fresh(text)
    for wrong in ("2026-01-31T12:00:00", "yesterday"):
        with pytest.raises(ParseError, match="no timestamp"):
            parse(texts[0].replace("2026-01-31T12:00:00+01:00", wrong))


@pytest.mark.parametrize("text", ["n < 1 + 2", "1 < 2", "n < 10 / 5", "n < - -5", "SQRT(9) < n"])
def test_texts_whose_constants_compute_have_no_template(text: str) -> None:
    assert template(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "n = 1e5000 -- 100000.0",
        "n = 123456789012345678 -- 5",
        "n = 1234567890123456789 -- 1234567890123456789",
        "\"a'b\" = 'c'",
        "n - 5 > 3 AND \"7\" = 'x' AND `8` = 1",
        '"odd 5" = 5',
        "CESQL 'a = 5'",
        "s LIKE -- 'b%'\n 'a%'",
    ],
)
def test_what_is_no_literal_of_the_text_is_not_lifted(text: str) -> None:
    """Neither comments nor names have literals."""
    for one in (text, text, text.replace("5", "6").replace("b", "d"), text):
        assert parse(one) == our.fresh(one)


def test_a_comment_with_the_same_constant_is_none() -> None:
    text = "n = 1e1234 -- 1e999"
    for one in (text, text, text.replace("1e999", "1e9")):
        assert str(parse(one)) == "n = INFINITY"


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
        with pytest.raises(ParseError, match="surrogate"):
            parse("odd1 / 4 < 2 AND odd2 = '\ud800'")


def test_a_filled_list_may_shrink_but_not_grow() -> None:
    made = template("n IN (1, 2)")
    assert made is not None
    assert str(made.fill((3, 3))) == "n = 3"
    with pytest.raises(LimitExceeded, match="MAX_IN_VALUES"):
        our.fresh(f"n IN ({','.join(map(str, range(MAX_IN_VALUES + 1)))})")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("n < 5", "n < 7.5", True),
        ("n < 5", "n < -7.5", True),
        ("n < 5", "n < 'a'", False),
        ("n < 5", "n < :x", False),
        ("n < 5", "m < 5", False),
        ("n < 5", "n <= 5", False),
        ("n < 5", "n < TRUE", False),
        ("s = 'a'", "s = 'it''s'", True),
        ("n = 1 AND m = 2", "n = 1 OR m = 2", False),
        ("s LIKE 'a%'", "s LIKE 'b%'", True),
        ("s LIKE 'a%'", "s LIKE '%b'", False),
        ("s LIKE 'a_'", "s LIKE 'b_'", False),
        ("s IN CIDR '10.0.0.0/8'", "s IN CIDR '11.0.0.0/8'", False),
        ("s = X'00'", "s = X'01'", False),
        ("n IN (1, 2)", "n IN (1, 2, 3)", False),
        ("n < TIMESTAMP '2026-01-31T12:00Z'", "n < TIMESTAMP '2027-01-31T12:00Z'", True),
        ("LENGTH(n) < 5", "ABS(n) < 5", False),
    ],
)  # fmt: skip
def test_texts_of_one_shape_have_one_key(one: str, other: str, same: bool) -> None:
    assert (parts_of(one).key == parts_of(other).key) is same


def test_patterns_have_no_templates() -> None:
    for value in range(3):
        assert str(parse(f"n = {value} THEN n = 5")) == f"n = {value} THEN n = 5"
    assert template("n = 1 THEN n = 5") is None


def test_constants_that_vanish_for_one_text_do_not_for_another() -> None:
    """The verdict of the constants is absorbed in the first text: filling it would look right."""
    first, second = (
        f"n != {one} AND (n != 5 OR {two} IS NOT NULL)" for one, two in ((5, 1), (7, 0))
    )
    assert template(first) is None
    for text in (first, first, first, second):
        assert parse(text) == our.fresh(text)


# --- limits ---


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_long_texts_have_no_templates(extra: int) -> None:
    assert (split("a = 1".ljust(MAX_SPLIT_CHARS + extra)) is None) is (extra > 0)
    text = "NOT " * (extra + 1) + "a AND " * (MAX_TEMPLATE_TOKENS // 2 - 2) + "a <= 1"
    assert len(tokens(text)) == MAX_TEMPLATE_TOKENS + extra
    assert (template(text) is None) is (extra > 0)
    assert template("a = 1 --" + " 5" * 2 * MAX_TEMPLATE_TOKENS) is None


def test_the_templates_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MAX_TEMPLATES", 8)
    for place in range(50):
        for value in range(3):
            text = f"kept{place} = {value} AND also{place} = 'a'"
            assert parse(text) == our.fresh(text)
        assert len(templates._known) <= 8
        assert len(templates._seen) <= 8
