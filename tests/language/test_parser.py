"""The tree that a text is, before any reduction; and all the parser says, beside the grammar."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, note

from palio.errors import InvalidInput, LimitExceeded, ParseError
from palio.language.lexer import Token, tokens
from palio.language.parser import FALSE, TRUE, Whole, syntax_tree
from palio.model.expressions import (
    All,
    AnyOf,
    Arithmetic,
    Attribute,
    Between,
    Boolean,
    Call,
    Exclusive,
    Not,
    Test,
    Variable,
    literal,
    test,
)
from palio.model.limits import MAX_IN_VALUES, MAX_STRING_CHARS
from palio.model.operators import Op
from tests import strategies as our
from tests.language.grammar import read_by_grammar

A, B, C = (test(Attribute(name), Op.EQ, literal(True)) for name in "abc")
N = Attribute("n")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("TRUE", TRUE),
        ("FALSE", FALSE),
        ("NOT NOT a", Not(Not(A))),
        ("a AND b AND c", All((A, B, C))),
        ("(a AND b) AND c", All((A, B, C))),
        ("a AND (b AND c)", All((A, All((B, C))))),
        ("a OR b OR c", AnyOf((A, B, C))),
        ("a AND b OR c", AnyOf((All((A, B)), C))),
        ("a OR b AND c", AnyOf((A, All((B, C))))),
        ("a XOR b XOR c", Exclusive(Exclusive(A, B), C)),
        ("a XOR b OR c", AnyOf((Exclusive(A, B), C))),
        ("a XOR b AND c", Exclusive(A, All((B, C)))),
        ("NOT a AND b", All((Not(A), B))),
        ("NOT a XOR b", Exclusive(Not(A), B)),
        ("TRUE AND a", All((TRUE, A))),
        ("n BETWEEN 1 AND 2", Between((test(N, Op.GE, literal(1)), test(N, Op.LE, literal(2))))),
        ("n NOT IN (1, 2)", test(N, Op.NOT_IN, (literal(1), literal(2)))),
        ("n IN :x", Test(N, Op.IN, Variable("x"))),
        ("n NOT LIKE 'a%'", Not(test(N, Op.PREFIX, literal("a")))),
        ("n ILIKE 'A_'", test(N, Op.LIKE, literal("a_"), True)),
        (
            "n < 1 + 2 * 3",
            test(N, Op.LT, Arithmetic("+", literal(1), Arithmetic("*", literal(2), literal(3)))),
        ),
        (
            "n < (1 + 2) * 3",
            test(N, Op.LT, Arithmetic("*", Arithmetic("+", literal(1), literal(2)), literal(3))),
        ),
        (
            "n < 1 - 2 - 3",
            test(N, Op.LT, Arithmetic("-", Arithmetic("-", literal(1), literal(2)), literal(3))),
        ),
        ("n < -:x", test(N, Op.LT, Arithmetic("-", literal(0), Variable("x")))),
        ("n < - - 5", test(N, Op.LT, literal(5))),
        ("n < -INFINITY", test(N, Op.LT, literal(float("-inf")))),
        ("abs(n) = 1", test(Call("ABS", (N,)), Op.EQ, literal(1))),
        (
            "coalesce(n, 1, :x) = 1",
            test(Call("COALESCE", (N, literal(1), Variable("x"))), Op.EQ, literal(1)),
        ),
        ("n = ok", test(N, Op.EQ, Attribute("ok"))),
        ("(n) = (1)", test(N, Op.EQ, literal(1))),
        ("exists n", test(N, Op.EXISTS)),
    ],
)
def test_trees(text: str, tree: Boolean) -> None:
    assert our.trees(text) == [tree]


def test_a_sequence_has_a_tree_for_each_step() -> None:
    assert our.trees("a THEN b OR c THEN TRUE") == [A, AnyOf((B, C)), TRUE]


@pytest.mark.parametrize(
    "text",
    [
        *("5 AND a", "a OR 'x'", "NOT 5", "'a'", ":x OR a", "NOT :x", "n + 1", "ABS(n) AND a"),
        *(
            "(a AND b) = TRUE",
            "(a OR b) + 1 < 2",
            "ABS((a OR b)) < 1",
            "(NOT a) IS NULL",
            "-(a = 1) < 2",
        ),
        *(
            "n IN ((a = 1), 2)",
            "n BETWEEN (a OR b) AND 5",
            "(a = 1) LIKE 'x'",
            "n - 'a' < 1",
            "-'a' < n",
        ),
        *("-TRUE = n", "TRUE + 1 < n", "a THEN 5", "5 THEN a", "n < X'00' * 2"),
    ],
)
def test_a_value_is_no_condition_and_a_condition_no_value(text: str) -> None:
    with pytest.raises(ParseError, match=r"stands where|needs numbers|is no condition") as caught:
        our.trees(text)
    assert caught.value.offending


def test_limits_keep_their_own_type() -> None:
    """A limit is no syntax error: who catches it wants to know which."""
    with pytest.raises(LimitExceeded) as caught:
        our.trees(f"n = '{'s' * (MAX_STRING_CHARS + 1)}'")
    assert caught.value.limit == "MAX_STRING_CHARS"
    with pytest.raises(LimitExceeded) as caught:
        our.trees(f"n IN ({','.join(map(str, range(MAX_IN_VALUES + 1)))})")
    assert caught.value.limit == "MAX_IN_VALUES"


def test_a_long_chain_is_built_link_by_link() -> None:
    """No link copies those before it: two thousand take about as many steps."""
    (tree,) = our.trees(" OR ".join(["a"] * 2_000))
    assert tree == AnyOf((A,) * 2_000)


# --- the parser and the grammar ---

Reader = Callable[[str, Sequence[Token]], Whole]


def outcome(read: Reader, text: str, found: Sequence[Token]) -> object:
    """The tree, or all that the error of a text says."""
    try:
        return read(text, found)
    except LimitExceeded as error:
        return error.limit
    except ParseError as error:
        where = error.line, error.column, error.offending
        return where, error.problem, error.expected, error.hint
    except InvalidInput as error:
        return type(error), str(error)


def check(text: str, found: Sequence[Token]) -> object:
    parsed = outcome(syntax_tree, text, found)
    assert parsed == outcome(read_by_grammar, text, found), text
    return parsed


WORDS = (
    *("AND", "OR", "XOR", "NOT", "(", ")", ",", "-", "*", "+", "=", "<", "IN", "IN (1)", "IS"),
    *("NULL", "EXISTS", "a", ":p", "5", "'x'", "TRUE", "THEN", "WITHIN", "5s", "ABS(", "NOPE("),
    *("BETWEEN", "LIKE", "ILIKE", "STARTS WITH", "IN CIDR", "IGNORE CASE", "INFINITY", "X'00'"),
    *("9223372036854775808", "CESQL 'a = 1'", "CESQL 'a ='", "TIMESTAMP '2026-01-31T12:00Z'"),
    f"IN ({', '.join(map(str, range(100)))})",
)


@our.examples(200)
@given(our.expression_texts(variables=True), our.SEEDS)
def test_a_text_means_what_the_grammar_says(text: str, seed: int) -> None:
    """And errors are the same to the letter, where words are left out, exchanged or put in."""
    rng = random.Random(seed)
    check(text, tokens(text))
    words = [text[token.start : token.end] for token in tokens(text)]
    for _ in range(8):
        changed = list(words)
        for _ in range(rng.randrange(1, 3)):
            place = rng.randrange(len(changed) + 1)
            end = place + rng.randrange(2)
            changed[place:end] = rng.sample(WORDS, rng.randrange(2))
        broken = " ".join(changed)
        note(broken)
        check(broken, tokens(broken))


@our.examples(200)
@given(our.SEEDS)
def test_word_soup_means_what_the_grammar_says(seed: int) -> None:
    """Also tokens in an order that no text has, such as a function without its parenthesis."""
    rng = random.Random(seed)
    for _ in range(8):
        text = " ".join(rng.choices(WORDS, k=rng.randrange(8)))
        note(text)
        found = tokens(text)
        check(text, found)
        check(text, rng.sample(found, len(found)))


@pytest.mark.parametrize(
    "text",
    [
        "NOT NOT a AND b OR c XOR d",
        "a = 1 AND b = 2 AND c = 3 OR (d = 4 OR e = 5) AND NOT (f = 6)",
        "a + b * c - d % 2 / e < -f * -2",
        "a BETWEEN 1 + 2 AND 3 AND b NOT BETWEEN 4 AND :c",
        "a IN (1, b + 2, :c) AND d NOT IN :e AND f IN ('x') IGNORE CASE",
        "a LIKE 'b%' IGNORE CASE AND c NOT CONTAINS 'd' OR e ILIKE '_f' AND g IN CIDR '10.0.0.0/8'",
        "a IS NULL AND b + 1 IS NOT NULL AND EXISTS c AND EXISTS (d)",
        "ABS(a) > 1 AND LENGTH(b) = 2",
        "CESQL 'a = 1' AND TRUE OR FALSE",
        "a = 1 THEN b = 2 THEN NOT c WITHIN 30s",
        "a < Infinity OR a > -Infinity",
        "a = TIMESTAMP '2026-01-31T12:00:00Z' AND b = x'ff'",
        f"a IN ({', '.join(map(str, range(200)))})",
    ],
)
def test_every_rule_of_the_grammar_is_read(text: str) -> None:
    conditions, _ = syntax_tree(text, tokens(text))
    assert check(text, tokens(text))[0] == conditions  # type: ignore[index]  # a `Whole`


@pytest.mark.parametrize(
    "text",
    [
        *("", "a b", "a = b = c", "a NOT b", "a = NOT b", "(a", "a)", "a IN 1", "a IN ()"),
        *("a IS 1", "EXISTS 1", "EXISTS (a", "a AND", "a THEN", "a WITHIN 3s", "a THEN b WITHIN"),
        *("a THEN b WITHIN 3s c", "a BETWEEN 1 OR 2", "ABS(a", "1 + (a = 2) > 3", "NOPE(a) = 1"),
        *("a AND WITHIN 3s", "a THEN b AND", "(a THEN b)", "a = 1 IGNORE CASE IGNORE CASE"),
        *("ABS(,", "ABS(-)", "a + 'x' b", "a + 'x'", "-(a = 1) < 2", "NOPE() b"),
    ],
)
def test_the_grammar_and_the_parser_refuse_alike(text: str) -> None:
    check(text, tokens(text))
    with pytest.raises(ParseError, match=r"\w"):
        syntax_tree(text, tokens(text))


@pytest.mark.parametrize("opening", ["(", "NOT (", "x OR x XOR x AND NOT ("])
def test_no_nesting_recurses(opening: str) -> None:
    """The lexer refuses such texts; the parser would not mind them."""
    depth = 2 * sys.getrecursionlimit()
    found = [*tokens(opening) * depth, *tokens("y"), *tokens(")") * depth]
    conditions, _ = syntax_tree("", found)
    assert len(conditions) == 1
    calls = [*tokens("ABS(") * depth, *tokens("y"), *tokens(")") * depth, *tokens("= 1")]
    with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
        syntax_tree("", calls)


def test_long_chains_are_read_as_the_grammar_does() -> None:
    for text in ("NOT " * 400 + "a", "- " * 60 + "a < 1", " AND ".join(["a = 1"] * 900)):
        assert not isinstance(check(text, tokens(text)), str)
