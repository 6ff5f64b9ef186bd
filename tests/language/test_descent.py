"""The pass by precedence reads what the grammar reads, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, note

from palio.errors import InvalidInput
from palio.language.builder import Builder, Misuse, Whole
from palio.language.descent import MAX_PARENTHESES, NotUnderstood, understood
from palio.language.lexer import Token, tokens
from palio.language.parsing import read_by_grammar
from tests import strategies as our


def in_one_pass(found: list[Token]) -> Whole | None:
    try:
        return understood(found, Builder())
    except (NotUnderstood, Misuse):
        return None


def by_grammar(text: str, found: list[Token]) -> Whole | None:
    try:
        return read_by_grammar(text, found)
    except InvalidInput:
        return None


@our.examples(200)
@given(our.expression_texts(variables=True), our.SEEDS)
def test_what_it_reads_is_what_the_grammar_reads(text: str, seed: int) -> None:
    """Also where words were left out, doubled, exchanged or put in."""
    rng = random.Random(seed)
    found = tokens(text)
    assert in_one_pass(found) == by_grammar(text, found)
    words = [
        *found,
        *tokens("AND OR XOR NOT ( ) , - * = IN (1) IS NULL EXISTS a THEN f(1) IGNORE CASE"),
    ]
    for _ in range(8):
        changed = list(found)
        for _ in range(rng.randrange(1, 3)):
            place = rng.randrange(len(changed) + 1)
            match rng.randrange(3):
                case 0:
                    del changed[place : place + 1]
                case 1:
                    changed.insert(place, rng.choice(words))
                case _:
                    changed[place : place + 1] = [rng.choice(words)]
        note(" ".join(str(each.value) for each in changed))
        assert in_one_pass(changed) == by_grammar(text, changed)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "NOT NOT a AND b OR c XOR d",
        "a = 1 AND b = 2 AND c = 3 OR (d = 4 OR e = 5) AND NOT (f = 6)",
        "NOT a = 1 AND b",
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
    found = tokens(text)
    whole = in_one_pass(found)
    assert whole is not None
    assert whole == by_grammar(text, found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "a = b = c",
        "a NOT b",
        "a = NOT b",
        "(a",
        "a)",
        "a IN 1",
        "a IN ()",
        "a IS 1",
        "EXISTS 1",
        "EXISTS (a",
        "a AND",
        "a THEN",
        "a WITHIN 3s",
        "a THEN b WITHIN",
        "a THEN b WITHIN 3s c",
        "a BETWEEN 1 OR 2",
        "ABS(a",
        "1 + (a = 2) > 3",
        "a = 1 IGNORE CASE IGNORE CASE",
        "NOPE(a) = 1",
    ],
)
def test_what_the_grammar_refuses_is_not_understood(text: str) -> None:
    found = tokens(text)
    assert by_grammar(text, found) is None
    assert in_one_pass(found) is None


@pytest.mark.parametrize("depth", [MAX_PARENTHESES - 1, MAX_PARENTHESES, MAX_PARENTHESES + 1])
def test_what_is_nested_deeper_is_left_to_the_grammar(depth: int) -> None:
    text = "(" * depth + "a = 1" + ")" * depth
    found = tokens(text)
    assert by_grammar(text, found) is not None
    assert (in_one_pass(found) is not None) == (depth <= MAX_PARENTHESES)


def test_long_chains_do_not_recurse() -> None:
    for text in ("NOT " * 400 + "a", "- " * 60 + "a < 1", " AND ".join(["a = 1"] * 900)):
        found = tokens(text)
        assert in_one_pass(found) == by_grammar(text, found) is not None
