from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given

from palio.language.cesql import Expression, evaluate, parse
from palio.language.cesql.filters import Condition, is_boolean, names_in, nodes_in
from palio.model.filters import Residual
from tests.language.cesql.strategies import events, expressions


@given(expressions, events)
def test_truth_is_the_value_or_unknown(expression: Expression, event: dict[str, Any]) -> None:
    value, error = evaluate(expression, event)
    truth = Condition(expression).truth(event)
    assert truth is (value if error is None and type(value) is bool else None)


@given(expressions.filter(is_boolean), events)
def test_the_inverse_is_true_where_it_is_false(
    expression: Expression, event: dict[str, Any]
) -> None:
    condition = Condition(expression)
    truth = condition.truth(event)
    assert condition.inverted().truth(event) is (None if truth is None else not truth)
    assert condition.inverted().inverted().truth(event) is truth


@pytest.mark.parametrize(
    ("text", "inverse"),
    [
        ("a = 1", "a != 1"),
        ("a != 1", "a = 1"),
        ("a < 1", "NOT (a < 1)"),
        ("a = 1 = TRUE", "NOT (a = 1 = TRUE)"),
        ("a LIKE '%x'", "a NOT LIKE '%x'"),
        ("a NOT LIKE '%x'", "a LIKE '%x'"),
        ("a IN (1)", "a NOT IN (1)"),
        ("NOT (a < 1)", "a < 1"),
        ("NOT a", "NOT NOT a"),  # a need not be a Boolean, NOT a is
        ("a < 1 AND b", "NOT (a < 1 AND b)"),
    ],
)
def test_the_inverse_is_short(text: str, inverse: str) -> None:
    assert str(Condition(parse(text)).inverted().expression) == inverse


@pytest.mark.parametrize("text", ["1 + 1", "LENGTH('a')", "'true'", "id"])
def test_what_is_no_boolean_is_unknown_either_way(text: str) -> None:
    condition = Condition(parse(text))
    assert condition.truth({"id": "true"}) is None
    assert condition.inverted() == condition


def test_its_text_is_of_our_language() -> None:
    condition = Condition(parse("a < 'it' or b like '%\\'s'"))
    assert condition.text == r"CESQL 'a < ''it'' OR b LIKE ''%\''s'''"


def test_identity_is_the_text() -> None:
    one, other = Condition(parse("a<1")), Condition(parse("A  <  1"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Condition(parse("a <= 1"))


def test_it_names_its_attributes_and_its_cost() -> None:
    condition = Condition(parse("a < 1 AND EXISTS b AND LENGTH(c) > 2 AND a LIKE '%x'"))
    assert condition.attributes == {"a", "b", "c"}
    plain, longer = Condition(parse("a < 1")), Condition(parse("a < 1 + 1"))
    assert plain.cost == 3
    assert longer.cost > plain.cost
    assert Condition(parse("a LIKE 'x'")).cost > plain.cost


def test_it_can_be_pickled() -> None:
    residual = Residual(Condition(parse("a < int(b)")))
    copy = pickle.loads(pickle.dumps(residual))
    assert copy == residual
    assert copy.truth({"a": 1, "b": "2"}) is True


def test_nodes_and_names() -> None:
    expression = parse("a = 1 AND NOT EXISTS b")
    assert len(list(nodes_in(expression))) == 6
    assert names_in(expression) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "boolean"),
    [
        ("a", False),
        ("1", False),
        ("'true'", False),
        ("TRUE", True),
        ("a = 1", True),
        ("a + 1", False),
        ("-a", False),
        ("NOT a", True),
        ("BOOL(a)", True),
        ("IS_INT(a)", True),
        ("LENGTH(a)", False),
        ("NO_SUCH(a)", True),  # its value would be false
    ],
)
def test_what_is_certainly_a_boolean(text: str, boolean: bool) -> None:
    assert is_boolean(parse(text)) is boolean
