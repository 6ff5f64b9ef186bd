from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palio.language.cesql import Error, Expression, evaluate
from palio.language.cesql.evaluation import type_of
from palio.language.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Exists,
    In,
    Like,
    Literal,
    Logical,
    Not,
)
from palio.language.cesql.values import INTEGER_MAX, INTEGER_MIN
from palio.model.limits import MAX_DEPTH, MAX_TEXT_CHARS
from tests.language.cesql.strategies import (
    events,
    expressions,
    integers,
    names,
    small_expressions,
    strings,
    values,
)
from tests.language.cesql.test_parsing import FRAGMENTS

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.decimals() | st.datetimes() | st.dates() | st.uuids() | st.builds(object),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(
    st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join),
    st.dictionaries(names | st.text(), anything, max_size=4),
)
@example("\ud800", {})
@example("'\ud800' = ext", {"ext": "\ud800"})
@example("ext + 1", {"ext": 10**5000})
def test_no_text_and_no_event_makes_it_raise(text: str, event: dict[str, Any]) -> None:
    value, error = evaluate(text, event)
    assert type(value) in (bool, int, str)
    assert error is None or (error.kind and error.message)


@given(expressions, st.dictionaries(names, anything, max_size=4))
def test_no_expression_and_no_event_makes_it_raise(
    expression: Expression, event: dict[str, Any]
) -> None:
    value, error = evaluate(expression, event)
    assert type(value) in (bool, int, str)
    assert error is None or error.kind != "parse"


@given(expressions, events)
def test_the_value_has_the_type_of_the_expression(
    expression: Expression, event: dict[str, Any]
) -> None:
    value, error = evaluate(expression, event)
    assert evaluate(str(expression), event) == (value, error)
    if type(value) is int:
        assert INTEGER_MIN <= value <= INTEGER_MAX
    if error is not None or not isinstance(expression, Attribute):
        assert type(value) is type_of(expression)
    if error is not None and not isinstance(expression, Call):
        assert value == type_of(expression)()


@given(small_expressions, events, values)
def test_the_first_error_is_the_one_that_is_told(
    expression: Expression, event: dict[str, Any], other: Any
) -> None:
    error = evaluate(expression, event).error
    if error is not None:
        for whole in (
            Not(expression),
            Comparison(expression, (("=", Attribute("nowhere")),)),
            Logical(expression, (("OR", Literal(other)),)),
            In(expression, (Attribute("nowhere"),)),
            Like(expression, "%"),
            Call("LENGTH", (expression,)),
            Comparison(Literal(other), (("=", expression), ("=", Attribute("nowhere")))),
        ):
            assert evaluate(whole, event).error == error


@given(small_expressions, small_expressions, events)
def test_a_part_can_be_replaced_by_its_value(
    part: Expression, rest: Expression, event: dict[str, Any]
) -> None:
    value, error = evaluate(part, event)
    if error is None:
        for whole in (
            Not,
            lambda given: Logical(given, (("AND", rest), ("XOR", given))),
            lambda given: Comparison(rest, (("=", given),)),
            lambda given: In(rest, (given, Literal("a"))),
            lambda given: Call("CONCAT", (given, rest)),
        ):
            assert evaluate(whole(Literal(value)), event) == evaluate(whole(part), event)


@given(
    small_expressions,
    st.lists(
        st.tuples(st.sampled_from(("AND", "OR", "XOR")), small_expressions), min_size=1, max_size=4
    ),
    events,
)
def test_a_run_associates_to_the_left(
    first: Expression, rest: list[tuple[str, Expression]], event: dict[str, Any]
) -> None:
    nested = reduce(lambda left, pair: Logical(left, (pair,)), rest, first)
    assert evaluate(Logical(first, tuple(rest)), event) == evaluate(nested, event)


@given(small_expressions, strings, st.lists(small_expressions, min_size=1, max_size=3), events)
def test_a_negated_operator_is_the_negation(
    operand: Expression, pattern: str, members: list[Expression], event: dict[str, Any]
) -> None:
    listed = tuple(members)
    for plain, negated in (
        (Like(operand, pattern), Like(operand, pattern, negated=True)),
        (In(operand, listed), In(operand, listed, negated=True)),
        (
            Comparison(operand, (("=", members[0]),)),
            Comparison(operand, (("!=", members[0]),)),
        ),
    ):
        value, error = evaluate(plain, event)
        expected = (not value) if error is None else False
        assert evaluate(negated, event) == (expected, error)


@given(strings, st.lists(values, min_size=1, max_size=4))
def test_in_is_an_or_of_equalities_cast_to_the_left(text: str, members: list[Any]) -> None:
    found = evaluate(In(Literal(text), tuple(Literal(each) for each in members)), {})
    equalities = [
        evaluate(Comparison(Literal(each), (("=", Literal(text)),)), {}).value for each in members
    ]
    assert found == (any(equalities), None)


EXACT: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1),
    "%": lambda left, right: left - right * EXACT["/"](left, right),
}


@given(integers, integers, st.sampled_from(sorted(EXACT)))
def test_arithmetic_is_exact_or_a_math_error(left: int, right: int, symbol: str) -> None:
    value, error = evaluate(Arithmetic(Literal(left), ((symbol, Literal(right)),)), {})
    if right == 0 and symbol in "/%":
        assert (value, error and error.kind) == (0, "math")
        return
    exact = EXACT[symbol](left, right)
    if INTEGER_MIN <= exact <= INTEGER_MAX:
        assert (value, error) == (exact, None)
    else:
        assert (value, error and error.kind) == (0, "math")


@given(names, events)
def test_exists_agrees_with_access(name: str, event: dict[str, Any]) -> None:
    error = evaluate(Attribute(name), event).error
    if error is not None and error.kind == "missingAttribute":
        assert name in ("id", "source", "type") or not evaluate(Exists(name), event).value
    else:
        assert evaluate(Exists(name), event) == (True, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a =", "line 1, column 4"),
        ("TRUE".ljust(MAX_TEXT_CHARS + 1), "MAX_TEXT_CHARS"),
        ("NOT " * MAX_DEPTH + "TRUE", "MAX_DEPTH"),
    ],
    ids=["unreadable", "long", "deep"],
)
def test_what_cannot_be_parsed_is_a_parse_error(text: str, words: str) -> None:
    value, error = evaluate(text, {})
    assert value is False
    assert error is not None
    assert error.kind == "parse"
    assert words in error.message


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ext = 1", Error("missingAttribute", "the event has no attribute 'ext'")),
        ("'a b' = 1", Error("cast", "the String 'a b' is no Integer")),
        ("1 / 0", Error("math", "division of 1 by zero")),
        ("1 % 0", Error("math", "remainder of 1 divided by zero")),
        ("2147483647 + 1", Error("math", "2147483648 does not fit 32 bits")),
        ("LEFT('a', -1)", Error("functionEvaluation", "LEFT of -1 characters")),
    ],
)
def test_errors_are_told_in_words(text: str, error: Error) -> None:
    assert evaluate(text, {}).error == error


def test_the_event_is_not_touched() -> None:
    event = {"ext": "5"}
    assert evaluate("ext + 1", event).value == 6
    assert event == {"ext": "5"}
