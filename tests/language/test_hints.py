from __future__ import annotations

import pytest

import palio
from palio.errors import InvalidFilter, ParseError
from palio.language.fluent import attr, call
from palio.language.hints import _FUNCTIONS, _WORDS, of_function, of_place
from palio.model.functions import FUNCTIONS
from palio.model.values import RESERVED


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a = 1 && b = 2", "write AND"),
        ("a = 1 & b = 2", "write AND"),
        ("a = 1 || b = 2", "write OR"),
        ("!a", "write NOT"),
        ("a === 1", "equal is written ="),
        ("a := 1", "equal is written ="),
        ("a !== 1", "unequal is written !="),
        ("a ≠ 1", "unequal is written !="),
        ("a =< 1", "at most is written <="),
        ("a => 1", "at least is written >="),
        ("a eq 1", "equal is written ="),
        ("a = NULL", "write IS NULL or IS NOT NULL"),
        ("a <> null", "write IS NULL or IS NOT NULL"),
        ("a IS None", "missing is written IS NULL"),
        ("a IS missing", "missing is written IS NULL"),
        ("a IS TRUE", "write x = TRUE"),
        ("a exists", "write EXISTS a"),
        ("a[0] = 1", "events have no arrays"),
        ("a IN [1, 2]", "in parentheses: a IN"),
        ("a IN {1, 2}", "in parentheses: a IN"),
        ("a IN ()", "one value or more"),
        ("a -> 'b' = 1", "data.total"),
        ("a?.b = 1", "data.total"),
        ("a = ?", "a parameter is written :name"),
        ("a = @x", "a parameter is written :name"),
        ("a = ${x}", "a parameter is written :name"),
        ("a =~ 'x.*'", "no regular expressions"),
        ("a REGEXP 'x.*'", "no regular expressions"),
        ("a matches 'x.*'", "no regular expressions"),
        ("regexp_like(a, 'x')", "no regular expressions"),
        ("a startsWith 'x'", "write a STARTS WITH 'text'"),
        ("a.startswith('x')", "write a STARTS WITH 'text'"),
        ("ends_with(a, 'x')", "write a ENDS WITH 'text'"),
        ("has(a)", "write EXISTS a"),
        ("len(a) > 1", "write LENGTH(a)"),
        ("time > now()", "filters have no clock"),
        ("cast(a) = 1", "nothing is cast"),
        ("a::int = 1", "nothing is cast"),
        ("a = date '2026-01-31'", "TIMESTAMP '2026"),
        ("a = 1 // it", "a comment is written --"),
        ("a = 1 # it", "a comment is written --"),
        ("a = 1;", "one condition"),
        ("a ^ b", "write XOR"),
        ("a = “IBM”", "straight single quotes"),
        ("SELECT * FROM t WHERE a = 1", "behind WHERE"),
        ("WHERE a = 1", "behind WHERE"),
        ("CASE WHEN a THEN b END", "no CASE"),
        ("a THEN b WITHIN 30 s", "a duration such as 30s"),
    ],
)
def test_what_is_written_as_elsewhere_is_answered_with_what_is_written_here(
    text: str, hint: str
) -> None:
    with pytest.raises(ParseError) as caught:
        palio.parse(text)
    assert hint in str(caught.value)
    assert "), ,, AND" not in str(caught.value)


def test_functions_of_the_fluent_form_are_hinted_at_too() -> None:
    with pytest.raises(InvalidFilter, match="write LENGTH"):
        call("len", attr.a)


def test_every_hint_is_for_something_that_cannot_be_read() -> None:
    assert not _FUNCTIONS.keys() & FUNCTIONS.keys()
    for word in _WORDS.keys() - RESERVED:
        assert of_place(f"a = 1 {word}", 6)
        with pytest.raises(ParseError):
            palio.parse(f"a = 1 {word} 1")


def test_where_nothing_is_known_nothing_is_hinted_at() -> None:
    assert of_place("a = 1 b", 6) == ""
    assert of_place("", 0) == ""
    assert of_function("FROBNICATE") == ""
