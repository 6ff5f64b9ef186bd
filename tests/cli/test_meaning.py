from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.cli.meaning import in_words, phrase
from palio.model import Filter
from palio.model.operators import Op
from tests.strategies import some_constraint


def words(text: str) -> str:
    """The wording of a filter of one alternative on the attribute `x`."""
    parsed = palio.parse(text)
    assert isinstance(parsed, Filter)
    (conjunction,) = parsed.conjunctions
    return in_words("x", conjunction.domains["x"], conjunction.constraints)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5", "exactly 5"),
        ("x = 'a'", "exactly 'a'"),
        ("x = TRUE", "exactly TRUE"),
        ("x != 5", "a number other than 5"),
        ("x NOT IN (5, 7)", "a number other than 5, 7"),
        ("x < 5", "a number below 5"),
        ("x >= 1 AND x < 5", "a number at least 1 and below 5"),
        ("x > 1 AND x <= 5 AND x != 3", "a number above 1 and at most 5 and other than 3"),
        ("x >= -INFINITY", "a number"),
        ("x IN (1, 2, 3)", "one of 1, 2, 3"),
        ("x IN (1, 2, 3) AND x > 1", "one of 2, 3"),
        ("x LIKE 'a%'", "a string starting with 'a'"),
        ("x LIKE '%a%' AND x LIKE '%b'", "a string ending with 'b' and containing 'a'"),
        ("x NOT LIKE 'a%'", "a string not starting with 'a'"),
        ("x LIKE 'a_c'", "a string like 'a_c'"),
        ("x ILIKE 'a%'", "a string starting with 'a' in any case"),
        ("x >= ''", "a string"),
        ("x IN CIDR '10.0.0.0/8'", "an address in '10.0.0.0/8'"),
        (
            "x > TIMESTAMP '2026-01-01T00:00:00Z'",
            "a timestamp above TIMESTAMP '2026-01-01T00:00:00Z'",
        ),
        ("x > 1 AND x > 3", "a number above 3"),
        ("x IS NULL", "missing"),
        ("EXISTS x", "any value"),
        ("EXISTS x AND x = 1", "exactly 1"),
        ("x > 5 AND x < 3", "nothing: no value can be all of this"),
        ("x = 1 AND x = 'a'", "nothing: no value can be all of this"),
        ("x IS NULL AND x = 1", "nothing: no value can be all of this"),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert words(text) == expected


@pytest.mark.parametrize("op", Op)
def test_there_are_words_for_every_operator(op: Op, rng: random.Random) -> None:
    assert all(phrase([some_constraint(rng, ops=[op])]) for _ in range(20))


def test_long_lists_are_counted() -> None:
    listed = ", ".join(str(2 * each) for each in range(100))
    assert words(f"x IN ({listed})").endswith(", 22 and 88 more")


def test_what_parameters_move_is_said_with_them() -> None:
    parsed = palio.parse("x < :high AND x IN (:a, :b) AND x LIKE :like")
    assert isinstance(parsed, Filter)
    (conjunction,) = parsed.conjunctions
    assert phrase(conjunction.constraints) == "one of :a, :b and below :high and like :like"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
            st.sampled_from(["-1", "0", "0.5", "2", "'a'", "'b'", "TRUE"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_there_are_words_for_any_domain(parts: list[tuple[str, str]]) -> None:
    text = " AND ".join(f"x {op} {value}" for op, value in parts)
    found = words(text)
    assert found
    assert not {"None", "Literal"} & set(found.split())
