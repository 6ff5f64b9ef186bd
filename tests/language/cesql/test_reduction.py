from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import LimitExceeded
from palio.language.cesql import Expression, evaluate, parse
from palio.language.cesql.conditions import Condition, is_boolean, nodes_in
from palio.language.cesql.reduction import FALSE, TRUE, reduced
from palio.language.cesql.syntax import (
    Attribute,
    Comparison,
    Exists,
    In,
    Like,
    Literal,
    Logical,
    Not,
)
from palio.model.evaluation import truth
from palio.model.expressions import All, AnyOf, Boolean, Test
from palio.model.limits import MAX_DEPTH, MAX_IN_VALUES
from tests.language.cesql.strategies import attribute_values, expressions, names, strings, values

likely: st.SearchStrategy[Expression] = st.one_of(
    st.builds(
        lambda name, symbol, text: Comparison(Attribute(name), ((symbol, Literal(text)),)),
        names,
        st.sampled_from(("=", "!=")),
        strings,
    ),
    st.builds(
        lambda name, value: Comparison(Literal(value), (("=", Attribute(name)),)), names, values
    ),
    st.builds(Like, names.map(Attribute), strings, st.booleans()),
    st.builds(
        In,
        names.map(Attribute),
        st.lists((strings | values).map(Literal), min_size=1, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(Exists, names),
    st.builds(Attribute, names),
    st.booleans().map(Literal),
)
"""Expressions of which most reduce, at least in part."""


def _joined(operands: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    pair = st.tuples(st.sampled_from(("AND", "OR", "OR", "XOR")), operands)
    return st.builds(Not, operands) | st.builds(
        Logical, operands, st.lists(pair, min_size=1, max_size=4).map(tuple)
    )


reducible: st.SearchStrategy[Expression] = st.recursive(likely, _joined, max_leaves=6)


def close(text: str) -> st.SearchStrategy[Any]:
    """Values that a constant of this text may or may not be equal to."""
    near = [text, text.upper(), text + "a", "x" + text, text[1:], "true", True, False, 5, 5.0, 5.5]
    return st.sampled_from(near) | attribute_values


@st.composite
def cases(draw: st.DrawFn) -> tuple[Expression, dict[str, Any]]:
    """An expression and an event that has what the expression asks for, or nearly."""
    expression = draw(reducible)
    constants = [""] + [
        str(getattr(node, "value", getattr(node, "pattern", "")))
        for node in nodes_in(expression)
        if isinstance(node, Literal | Like)
    ]
    value = st.sampled_from(constants).flatmap(close)
    return expression, draw(st.dictionaries(names, value, max_size=7))


def _reduced(expression: Expression) -> tuple[Boolean, Boolean]:
    found = reduced(expression)
    return found.true.condition, found.false.condition


@given(st.one_of(cases(), st.tuples(expressions, st.dictionaries(names, attribute_values))))
def test_true_and_false_are_when_cesql_says(case: tuple[Expression, dict[str, Any]]) -> None:
    expression, event = case
    true, false = _reduced(expression)
    value, error = evaluate(expression if is_boolean(expression) else Not(Not(expression)), event)
    assert (truth(true, event) is True) is (value is True and error is None)
    assert (truth(false, event) is True) is (value is False and error is None)


@given(cases())
def test_guards_say_what_they_should(case: tuple[Expression, dict[str, Any]]) -> None:
    expression, event = case
    found = reduced(expression)
    if found.defined is not None:
        error = evaluate(Not(expression), event).error
        assert (truth(All(tuple(found.defined)), event) is True) is (error is None)
    for when in (found.true, found.false):
        if truth(when.condition, event) is True:
            assert truth(All(tuple(when.implies)), event) is True


def is_reduced(condition: Boolean) -> bool:
    """Whether nothing is left to CESQL."""
    if isinstance(condition, All | AnyOf):
        return all(is_reduced(part) for part in condition.parts)
    return isinstance(condition, Test)


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("TRUE", True),
        ("EXISTS ext", True),
        ("type = 'x'", True),
        ("'x' = type", True),
        ("5 != type", True),
        ("type = CONCAT('a', 'b')", True),
        ("id IN ('a', 5, TRUE)", True),
        ("source NOT LIKE '%y%'", True),
        ("NOT (type = 'x' AND (subject = 'y' OR EXISTS ext))", True),
        ("EXISTS id OR NO_SUCH()", True),
        ("ext = 'IBM.N'", False),
        ("ext = 'aGk='", False),
        ("ext LIKE 'com.example.%'", False),
        ("ext IN ('a.b', 'c.d')", False),
        ("type = 'x' AND ext = 'IBM.N'", False),
    ],
)
def test_what_reduces(text: str, both: bool) -> None:
    true, false = _reduced(parse(text))
    assert is_reduced(true)
    assert is_reduced(false) is both


@pytest.mark.parametrize(
    "text",
    [
        "ext = 5",
        "5 = ext",
        "'a.b' = ext",
        "ext = '5'",
        "ext = TRUE",
        "type = 5",
        "type = ext",
        "ext LIKE '%commerce%'",
        "ext IN ('a.b', '5')",
        "ext IN ('+5')",
        "ext IN ('True')",
        "ext IN ('a.b', 5)",
        "ext IN ('a.b', id)",
        "ext < 5",
        "type = 'a' = TRUE",
        "LOWER(type) = 'a'",
        "type = 'a' XOR id = 'b'",
        "NOT subject",
        "BOOL(subject)",
        "1 = 1 / 0",
    ],
)
def test_what_stays_whole(text: str) -> None:
    expression = parse(text)
    true, false = _reduced(expression)
    assert isinstance(true, Condition)
    assert isinstance(false, Condition)


def test_constants_are_decided() -> None:
    assert _reduced(parse("1 + 1 = 2")) == (TRUE, FALSE)
    assert _reduced(parse("LENGTH('a') > 2")) == (FALSE, TRUE)


@pytest.mark.parametrize("members", [MAX_IN_VALUES - 1, MAX_IN_VALUES])
def test_a_list_up_to_the_limit_reduces(members: int) -> None:
    true, _ = _reduced(In(Attribute("id"), tuple(Literal(str(i)) for i in range(members))))
    assert isinstance(true, Test)
    assert isinstance(true.operand, tuple)
    assert len(true.operand) == members


def test_a_longer_list_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="MAX_IN_VALUES") as refused:
        reduced(In(Attribute("id"), (Literal("a"),) * (MAX_IN_VALUES + 1)))
    assert refused.value.actual == MAX_IN_VALUES + 1


def test_long_runs_reduce_in_linear_size() -> None:
    wanted = reduced(parse(" OR ".join(f"id = '{i}'" for i in range(500))))
    assert wanted.true.leaves == 500
    assert is_reduced(wanted.true.condition)


@pytest.mark.parametrize("alternations", [MAX_DEPTH, 500], ids=str)
def test_hostile_runs_are_given_up_early(alternations: int) -> None:
    text = "hop < 5" + " AND hop < 5 OR hop < 5" * (alternations // 2)
    found = reduced(parse(text))
    assert found.true.depth <= MAX_DEPTH
    assert found.false.depth <= MAX_DEPTH


def test_hostile_nesting_is_given_up_early() -> None:
    text = "hop < 5"
    for level in range(50):
        text = f"({text}) {'AND' if level % 2 else 'OR'} hop < 5"
    found = reduced(parse(text))
    assert found.true.depth <= MAX_DEPTH


def test_many_terms_that_do_not_reduce_leave_the_negation_whole() -> None:
    found = reduced(parse(" AND ".join(f"hop < {i}" for i in range(500))))
    assert found.true.leaves == 500
    assert isinstance(found.false.condition, Condition)
