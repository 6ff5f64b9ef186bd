"""The tree that a text is, before any reduction; and what is grammatical but means nothing."""

from __future__ import annotations

import pytest

from palio.errors import LimitExceeded, ParseError
from palio.language.builder import FALSE, TRUE
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
