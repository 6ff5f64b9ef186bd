"""Parsing: what a text means, where it goes wrong, and that nothing else ever comes out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.errors import InvalidFilter, InvalidInput, LimitExceeded, ParseError
from palio.language.parsing import parse, parse_filter, parse_pattern
from palio.model.filters import Filter
from palio.model.limits import (
    MAX_CONJUNCTIONS,
    MAX_CONSTRAINTS,
    MAX_DEPTH,
    MAX_IN_VALUES,
    MAX_NAME_CHARS,
    MAX_STRING_CHARS,
    MAX_TEXT_CHARS,
)
from palio.model.patterns import Pattern
from tests import strategies as our


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("price < 5", "price < 5"),
        ("a == 1", "a = 1"),
        ("a <> 1", "a != 1"),
        ("a", "a = TRUE"),
        ("NOT a", "a != TRUE"),
        ("a AND b OR c", "a = TRUE AND b = TRUE OR c = TRUE"),
        ("a OR b AND c", "a = TRUE OR b = TRUE AND c = TRUE"),
        ("(a OR b) AND c", "a = TRUE AND c = TRUE OR b = TRUE AND c = TRUE"),
        ("NOT a = 1 AND b", "a != 1 AND b = TRUE"),
        ("a XOR b OR c", "a = TRUE AND b != TRUE OR a != TRUE AND b = TRUE OR c = TRUE"),
        ("a BETWEEN 1 AND 2 AND b", "a <= 2 AND a >= 1 AND b = TRUE"),
        ("a NOT BETWEEN 1 AND 2", "a < 1 OR a > 2"),
        ("a IN (1)", "a = 1"),
        ("a NOT IN (2, 1, 1)", "a NOT IN (1, 2)"),
        ("a IN :x", "a IN :x"),
        ("a LIKE 'b%'", "a STARTS WITH 'b'"),
        ("a NOT LIKE '%b'", "a NOT ENDS WITH 'b'"),
        ("a ILIKE '%B%'", "a CONTAINS 'b' IGNORE CASE"),
        ("a LIKE 'b_%c'", "a LIKE 'b_%c'"),
        ("a LIKE 'b\\%'", "a = 'b%'"),
        ("a STARTS WITH X'00'", "a STARTS WITH X'00'"),
        ("a IN CIDR '10.1.1.1/8'", "a IN CIDR '10.0.0.0/8'"),
        ("EXISTS a", "a IS NOT NULL"),
        ("exists(a)", "a IS NOT NULL"),
        ("a IS NOT NULL", "a IS NOT NULL"),
        ("NOT a IS NULL", "a IS NOT NULL"),
        ('"a b" = `c d`', '"a b" = "c d"'),
        ("a = -0.0", "a = 0"),
        ("a = 1e999", "a = INFINITY"),
        ("a > -INFINITY", "a > -INFINITY"),
        ("a = 9007199254740993", "a = 9007199254740993"),
        ("a = 9007199254740993.0", "a = 9007199254740992"),
        ("a = TIMESTAMP '2026-01-31T13:30:00+01:30'", "a = TIMESTAMP '2026-01-31T12:00:00Z'"),
        ("a AND TRUE", "a = TRUE"),
        ("a = TRUE -- and no more", "a = TRUE"),
        ("1 < a", "a > 1"),
        ("a < b", "a < b"),
        ("a = 'A' IGNORE CASE", "a = 'a' IGNORE CASE"),
        ("a IN ('B', 'b') IGNORE CASE", "a = 'b' IGNORE CASE"),
        ("x = 'X'", "x = 'X'"),
        ("starts STARTS WITH 'starts'", "starts STARTS WITH 'starts'"),
        (
            "timestamp > TIMESTAMP '2026-01-31T12:00Z'",
            "timestamp > TIMESTAMP '2026-01-31T12:00:00Z'",
        ),
    ],
)
def test_meaning(text: str, canonical: str) -> None:
    assert str(our.fresh(text)) == canonical
    assert parse(text) == parse(canonical)


@pytest.mark.parametrize(
    ("text", "steps", "within"),
    [
        ("a THEN b", ["a = TRUE", "b = TRUE"], None),
        ("a OR b THEN c", ["a = TRUE OR b = TRUE", "c = TRUE"], None),
        ("a THEN b THEN c WITHIN 1.5s", ["a = TRUE", "b = TRUE", "c = TRUE"], 1.5),
        ("TRUE THEN FALSE WITHIN 2min", ["TRUE", "FALSE"], 120),
    ],
)
def test_patterns(text: str, steps: list[str], within: float | None) -> None:
    found = parse(text)
    assert isinstance(found, Pattern)
    assert [str(step) for step in found.steps] == steps
    assert found.within == (None if within is None else timedelta(seconds=within))
    assert parse_pattern(text) == found
    with pytest.raises(InvalidFilter, match="THEN"):
        parse_filter(text)


def test_a_pattern_is_asked_for_and_the_text_is_none() -> None:
    with pytest.raises(InvalidFilter, match="has no THEN; use parse_filter"):
        parse_pattern("a = 1")


@pytest.mark.parametrize(
    ("text", "line", "column", "problem", "expected"),
    [
        ("", 1, 1, "is empty", "an attribute"),
        ("price <", 1, 8, "ends too soon", "a value"),
        ("price < AND", 1, 9, "unexpected 'AND'", "a value"),
        ("a = 1\nAND AND", 2, 5, "unexpected 'AND'", "NOT"),
        ("(a = 1", 1, 7, "ends too soon", ")"),
        ("a = 1)", 1, 6, r"unexpected '\)'", "the end"),
        ("a = 1 b", 1, 7, "unexpected 'b'", "AND"),
        ("a = 5s", 1, 5, "unexpected '5s'", "a value"),
        ("a WITHIN 5s", 1, 3, "no THEN before", ""),
        ("a THEN b WITHIN 0s", 1, 17, "positive duration", ""),
        ("a THEN b WITHIN 5", 1, 17, "unexpected '5'", "a duration such as 30s"),
        ("LENGHT(a) > 3", 1, 1, "unknown function LENGHT", ""),
        ("LENGTH(a, b) > 3", 1, 1, "LENGTH takes 1 arguments, not 2", ""),
        ("LENGTH() > 3", 1, 1, "LENGTH takes 1 arguments, not 0", ""),
        ("5", 1, 1, "a value stands where a condition is needed", ""),
        ("a AND 5", 1, 3, "a value stands where a condition is needed", ""),
        ("a AND :x", 1, 3, "a parameter is no condition by itself", ""),
        ("(a = 1) < 5", 1, 9, "a condition stands where < needs a value", ""),
        ("(a AND b) IN (1)", 1, 11, "a condition stands where IN needs a value", ""),
        ("a + 'b' < 5", 1, 3, "needs numbers, not a string", ""),
        ("a LIKE 5", 1, 3, "LIKE needs a string, not a number", ""),
        ("a STARTS WITH 5", 1, 3, "STARTS WITH needs a string or bytes", ""),
        ("a LIKE 'b\\'", 1, 3, "lone backslash", ""),
        ("a IN CIDR 'b'", 1, 3, "not an address block", ""),
        ("a IN (1, 'b')", 1, 3, "mixes a number and a string", ""),
        ("a = 5 IGNORE CASE", 1, 3, "IGNORE CASE needs a string", ""),
        ("a = 9223372036854775808", 1, 5, "does not fit int64", ""),
        ("a = - -9223372036854775808", 1, 5, "does not fit int64", ""),
        ("a = '\ud800'", 1, 5, "lone surrogate", ""),
        ("1 = 'a'", 1, 1, "cannot be compared", ""),
        ("a = NULL", 1, 5, "unexpected 'NULL'", "a value"),
        ("a IN ()", 1, 7, r"unexpected '\)'", "a value"),
    ],
)
def test_errors_say_what_and_where(
    text: str, line: int, column: int, problem: str, expected: str
) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert error.text == text
    assert not expected or expected in error.expected
    assert problem.startswith(("is", "ends")) or error.offending


@pytest.mark.parametrize("text", [None, 5, b"a = 1", ["a = 1"]])
def test_only_a_str_is_a_text(text: object) -> None:
    with pytest.raises(InvalidFilter, match="is a str"):
        parse(text)  # type: ignore[arg-type]  # that is the test


# --- fuzzing ---

WORDS = (
    *(
        "a",
        "s",
        "n",
        '"odd name"',
        ":x",
        "5",
        "-5",
        "0.5",
        "'a'",
        "'%a_'",
        "X'00'",
        "TRUE",
        "FALSE",
    ),
    *("TIMESTAMP '2026-01-31T12:00Z'", "INFINITY", "30s", "AND", "OR", "NOT", "XOR", "IN", "IS"),
    *("NULL", "EXISTS", "BETWEEN", "LIKE", "ILIKE", "CONTAINS", "STARTS WITH", "ENDS WITH"),
    *("IN CIDR", "IGNORE CASE", "THEN", "WITHIN", "(", ")", "+", "-", "*", "/", "%", ",", "="),
    *("!=", "<", ">=", "LENGTH(", "CONCAT(", "NOPE(", "'10.0.0.0/8'", "9223372036854775808", "--"),
)


@our.examples(400)
@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))
def test_token_soup_gives_a_filter_or_a_documented_error(text: str) -> None:
    check(text)


@our.examples(200)
@given(st.text(max_size=30))
def test_any_text_gives_a_filter_or_a_documented_error(text: str) -> None:
    check(text)


@our.examples(200)
@given(
    our.expression_texts(variables=True), st.integers(0, 200), st.sampled_from((*WORDS, "", "'"))
)
def test_a_text_with_one_fault_gives_a_filter_or_a_documented_error(
    text: str, place: int, fault: str
) -> None:
    place %= len(text) + 1
    check(text[:place] + fault + text[place + 1 :])


def check(text: str) -> None:
    try:
        found = parse(text)
    except InvalidInput as error:
        fine = not isinstance(error, ParseError) or (
            error.text == text
            and 1 <= error.line <= text.count("\n") + 1
            and error.column >= 1
            and bool(str(error))
        )
    else:
        fine = parse(str(found)) == found
    assert fine


# --- limits ---


def test_limits_of_a_text() -> None:
    for size in (MAX_TEXT_CHARS - 1, MAX_TEXT_CHARS):
        assert str(parse("a = 1".ljust(size))) == "a = 1"
    with pytest.raises(LimitExceeded, match="MAX_TEXT_CHARS"):
        parse("a = 1".ljust(MAX_TEXT_CHARS + 1))


@pytest.mark.parametrize("form", ["{} = 1", '"{}" = 1', "a = :{}", "EXISTS {}", "LENGTH({}) = 1"])
def test_limits_of_a_name(form: str) -> None:
    for size in (MAX_NAME_CHARS - 1, MAX_NAME_CHARS):
        assert isinstance(parse(form.format("n" * size)), Filter)
    with pytest.raises(LimitExceeded, match="MAX_NAME_CHARS"):
        parse(form.format("n" * (MAX_NAME_CHARS + 1)))


@pytest.mark.parametrize(
    "form", ["a = '{}'", "a CONTAINS '{}'", "a IN ('{}', 'b')", "b = CONCAT(a, '{}')"]
)
def test_limits_of_a_constant(form: str) -> None:
    for size in (MAX_STRING_CHARS - 10, MAX_STRING_CHARS - 1):
        assert isinstance(parse(form.format("s" * size)), Filter)
    for _ in range(3):  # also once a template is known
        with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
            parse(form.format("s" * (MAX_STRING_CHARS + 1)))
    assert isinstance(parse(f"a = '{'s' * MAX_STRING_CHARS}'"), Filter)
    with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
        parse(f"a = X'{'00' * (MAX_STRING_CHARS + 1)}'")


@pytest.mark.parametrize("form", ["a IN ({})", "NOT a IN ({})"])
def test_limits_of_an_in_list(form: str) -> None:
    for count in (MAX_IN_VALUES - 1, MAX_IN_VALUES):
        assert len(parse_filter(form.format(numbers(count))).conjunctions) == 1
    with pytest.raises(LimitExceeded, match="MAX_IN_VALUES"):
        parse(form.format(numbers(MAX_IN_VALUES + 1)))


def numbers(count: int) -> str:
    return ",".join(map(str, range(count)))


NESTED = {
    "parentheses": ("(", "a = 1", ")", MAX_DEPTH),
    "NOT": ("NOT ", "a = 1", "", MAX_DEPTH),
    "NOT in parentheses": ("NOT (", "a = 1", ")", MAX_DEPTH),
    "minus": ("- ", "a < b", "", MAX_DEPTH),
    "functions": ("ABS(", "a) < b", "", None),
    "sums": ("", "a < b", "", None),
    "XOR": ("a XOR ", "b", "", None),
    "quotients": ("a / ", "b < 1", "", MAX_DEPTH),
    "AND within OR": ("a OR (b AND ", "c", ")", None),
}


@pytest.mark.parametrize(("before", "core", "after", "limit"), NESTED.values(), ids=NESTED)
def test_deep_nesting_is_refused_or_works(
    before: str, core: str, after: str, limit: int | None
) -> None:
    """Never a RecursionError, in parsing or printing; exactly at the limit where it counts."""
    for levels in (3, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 300, 5_000):
        text = before * levels + core + after * levels
        try:
            found = parse(text)
        except LimitExceeded:
            assert levels > (limit or 3)
        except ParseError:
            assert "ABS" in text  # its parentheses do not close
        else:
            assert limit is None or levels <= limit
            assert parse(str(found)) == found


@pytest.mark.parametrize("operator", ["+", "-", "*"])
def test_a_long_sum_nests_as_deep_as_it_is_long(operator: str) -> None:
    def chain(count: int) -> str:
        return f" {operator} ".join(["a"] * count) + " < b"

    assert parse(chain(MAX_DEPTH)) == parse(str(parse(chain(MAX_DEPTH))))
    assert parse(chain(MAX_DEPTH + 1)) == parse(str(parse(chain(MAX_DEPTH + 1))))
    for count in (MAX_DEPTH + 2, 2_000):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            parse(chain(count))
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            parse(f"x IN ({chain(count)[:-4]}, 1)")


def test_nested_functions() -> None:
    def nest(levels: int) -> str:
        return "ABS(" * levels + "a" + ")" * levels + " < b"

    assert parse(nest(MAX_DEPTH)) == parse(str(parse(nest(MAX_DEPTH))))
    for levels in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            parse(nest(levels))


def test_a_long_flat_condition_is_no_deep_one() -> None:
    for word, count in (("AND", MAX_CONSTRAINTS), ("OR", MAX_CONJUNCTIONS)):
        text = f" {word} ".join(f"a{place} = 1" for place in range(count))
        assert parse(str(parse(text))) == parse(text)


def test_the_public_name_is_this_one() -> None:
    assert palio.parse is parse
