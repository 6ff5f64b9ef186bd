from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palio.errors import LimitExceeded, ParseError
from palio.language.cesql import parse
from palio.language.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Expression,
    Literal,
    Negate,
)
from palio.model.limits import MAX_DEPTH, MAX_TEXT_CHARS, MAX_TOKENS
from tests.language.cesql.grammar import read
from tests.language.cesql.strategies import expressions

ONE, A = Literal(1), Attribute("a")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a-1", Arithmetic(A, (("-", ONE),))),
        ("a -1", Arithmetic(A, (("-", ONE),))),
        ("a +1", Arithmetic(A, (("+", ONE),))),
        ("a - -1", Arithmetic(A, (("-", Literal(-1)),))),
        ("a--1", Arithmetic(A, (("-", Literal(-1)),))),
        ("1-1", Arithmetic(ONE, (("-", ONE),))),
        ("-1", Literal(-1)),
        ("- 1", Negate(ONE)),
        ("-a", Negate(A)),
        ("-7up", Negate(Attribute("7up"))),
        ("7up", Attribute("7up")),
        ("andy", Attribute("andy")),
        ("1and", Attribute("1and")),
        ("in1", Attribute("in1")),
        ("left", Attribute("left")),
        ("left(a)", Call("LEFT", (A,))),
        ("Not_A\n(a)", Call("NOT_A", (A,))),
        ("a\t\r\n", A),
    ],
)
def test_tokens_depend_on_their_place(text: str, tree: Expression) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "line", "column", "offending", "problem", "expected"),
    [
        ("", 1, 1, "", "unexpected end", ("an expression",)),
        ("a =", 1, 4, "", "unexpected end", ("an expression",)),
        ("a =\n  ", 2, 3, "", "unexpected end", ("an expression",)),
        ("a b", 1, 3, "b", "unexpected 'b'", ("an operator", "the end")),
        ("a = 1\nOR b c", 2, 6, "c", "unexpected 'c'", ("an operator", "the end")),
        ("(a", 1, 3, "", "unexpected end", ("')'",)),
        ("f(a", 1, 4, "", "unexpected end", ("')'", "','")),
        ("EXISTS 5", 1, 8, "5", "unexpected '5'", ("an attribute name",)),
        ("a LIKE 5", 1, 8, "5", "unexpected '5'", ("a string in quotes",)),
        ("a NOT 5", 1, 7, "5", "unexpected '5'", ("LIKE", "IN")),
        ("a IN 5", 1, 6, "5", "unexpected '5'", ("'('",)),
        ("a = 'x", 1, 5, "'", "without its closing quote", ("an expression",)),
        ("a ; b", 1, 3, ";", "unexpected ';'", ("an operator",)),
        ("a = EXI\u017fTS b", 1, 8, "\u017f", "unexpected '\u017f'", ("an operator",)),
        ("1 + 2147483648", 1, 5, "2147483648", "32 bits", ()),
    ],
)
def test_an_error_says_where_what_and_what_was_expected(
    text: str, line: int, column: int, offending: str, problem: str, expected: tuple[str, ...]
) -> None:
    with pytest.raises(ParseError) as refused:
        parse(text)
    error = refused.value
    assert (error.line, error.column, error.offending) == (line, column, offending)
    assert problem in error.problem
    assert error.expected == expected


FRAGMENTS = (
    *("a", "id", "7up", "1", "-1", "+", "-", "2147483648", "'x'", '"', "'", "\\", "TRUE"),
    *("(", ")", ",", "=", "!=", "<>", "<=", "%", "*", "AND", "or", "NOT", "LIKE", "IN"),
    *("EXISTS", "LEFT", "LEFT(", "NO_SUCH(", " ", "\n", ".", "_", "é", "\x00", "\u017f"),
)


@pytest.mark.parametrize("length", [MAX_TEXT_CHARS - 1, MAX_TEXT_CHARS])
def test_a_text_up_to_the_limit_is_read(length: int) -> None:
    assert parse("TRUE".ljust(length)) == Literal(True)


def test_a_longer_text_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="MAX_TEXT_CHARS") as refused:
        parse("TRUE".ljust(MAX_TEXT_CHARS + 1))
    assert refused.value.limit == "MAX_TEXT_CHARS"
    assert refused.value.actual == MAX_TEXT_CHARS + 1


NESTINGS = {
    "not": ("NOT ", ""),
    "minus": ("- ", ""),
    "call": ("INT(", ")"),
    "run": ("(1 + ", ")"),
    "in": ("1 IN (", ")"),
    "like": ("", " LIKE 'x'"),
}


@pytest.mark.parametrize(("before", "after"), NESTINGS.values(), ids=NESTINGS)
def test_nesting_has_a_limit(before: str, after: str) -> None:
    def nested(levels: int) -> str:
        return before * (levels - 1) + "1" + after * (levels - 1)

    for levels in (MAX_DEPTH - 1, MAX_DEPTH):
        expression = parse(nested(levels))
        assert parse(str(expression)) == expression
    for levels in (MAX_DEPTH + 1, 300):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            parse(nested(levels))


def test_runs_and_parentheses_do_not_nest() -> None:
    parse(" AND ".join(["a = 1"] * 500))
    assert parse("(" * 900 + "1" + ")" * 900) == Literal(1)


def test_the_number_of_tokens_has_a_limit() -> None:
    """Each counts twice, and beginning to read four times."""
    most = (MAX_TOKENS - 4) // 2 - 1
    for count in (most - 1, most):
        parse("(" * (count // 2) + "NOT " * (count % 2) + "a" + ")" * (count // 2))
    for text in ("(" * (most + 2), "(" * (MAX_TEXT_CHARS - 1)):
        with pytest.raises(LimitExceeded, match="MAX_TOKENS"):
            parse(text)


# --- the parser and the grammar ---

texts = (
    st.text()
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join)
)


def outcome(read_one: Callable[[str], Expression], text: str) -> object:
    """The tree, or all that the error of a text says."""
    try:
        return read_one(text)
    except ParseError as error:
        where = error.line, error.column, error.offending
        return error.problem, where, error.expected, error.text


def check(text: str) -> None:
    """An integer out of range is the first error here, and what follows it is the grammar's."""
    parsed, expected = outcome(parse, text), outcome(read, text)
    if parsed != expected:
        assert isinstance(parsed, tuple)
        assert "32 bits" in parsed[0]
        assert isinstance(expected, tuple)


@given(texts)
@example("'" * 3)
@example("-" * 500)
@example("'\\")
def test_any_text_is_what_the_grammar_says(text: str) -> None:
    check(text)


@given(expressions, st.data())
def test_an_expression_is_what_the_grammar_says(
    expression: Expression, data: st.DataObject
) -> None:
    """And so is one with a fragment put in or left out."""
    text = str(expression)
    assert parse(text) == read(text) == expression
    place = data.draw(st.integers(0, len(text)))
    end = place + data.draw(st.integers(0, 2))
    fragment = data.draw(st.sampled_from(FRAGMENTS))
    check(text[:place] + fragment + text[end:])
