"""Canonical text parses back to the very same thing."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.model.constraints import Constraint
from palio.model.expressions import Attribute, Literal, Variable
from palio.model.filters import Conjunction, Filter
from palio.model.printing import show_duration, show_name, show_scalar, show_value
from palio.model.values import RESERVED, canonical
from tests import strategies as our


@our.examples(150)
@given(our.filters(variables=True))
def test_a_printed_filter_reads_back(filter: Filter) -> None:
    again = our.fresh(str(filter))
    assert again == filter
    assert str(again) == str(filter)


@our.examples(200)
@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(our.STRINGS[1:])
)
def test_any_name_can_be_written(name: str) -> None:
    constraint = Constraint.of(name, "=", 1)
    assert our.fresh(str(constraint)) == Filter.of([Conjunction.of([constraint])])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("price", "price"),
        ("data.price", "data.price"),
        ("data.2nd", "data.2nd"),
        ("$time", "$time"),
        ("a$b", "a$b"),
        ("größe", "größe"),
        ("unit price", '"unit price"'),
        ('a"b', '"a""b"'),
        ("2nd", '"2nd"'),
        ("a.", '"a."'),
        (".a", '".a"'),
        ("a..b", '"a..b"'),
        ("a-b", '"a-b"'),
        ("and", '"and"'),
        ("Null", '"Null"'),
        ("starts", "starts"),
        ("timestamp", "timestamp"),
        ("x", "x"),
    ],
)
def test_names(name: str, shown: str) -> None:
    assert show_name(name) == shown


def test_every_reserved_word_can_be_a_name() -> None:
    for word in sorted(RESERVED):
        for name in (word, word.lower()):
            assert our.fresh(f'"{name}" = 1').attributes == {name}


@our.examples(300)
@given(our.values())
def test_a_printed_value_reads_back(value: Any) -> None:
    constraint = Constraint.of("v", "=", value)
    (conjunction,) = our.fresh(f"v = {show_value(canonical(value))}").conjunctions
    assert conjunction.constraints == (constraint,)
    operand = conjunction.constraints[0].operand
    assert isinstance(operand, Literal)
    assert repr(operand.value) == repr(canonical(value))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "TRUE"),
        (5, "5"),
        (-0.5, "-0.5"),
        (1e300, "1e+300"),
        (math.inf, "INFINITY"),
        (-math.inf, "-INFINITY"),
        ("it's", "'it''s'"),
        ("\n\0😀", "'\n\0😀'"),
        (b"\x00\xff", "X'00ff'"),
        (our.TIMES[1], "TIMESTAMP '2026-01-31T12:00:00Z'"),
        (our.TIMES[3], "TIMESTAMP '2026-01-31T12:00:00.000001Z'"),
        (our.TIMES[5], "TIMESTAMP '0001-01-01T00:00:00Z'"),
    ],
)
def test_values(value: Any, shown: str) -> None:
    assert show_value(value) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a - (b - c) < 1", "a - (b - c) < 1"),
        ("(a - b) - c < 1", "a - b - c < 1"),
        ("a - b * c < 1", "a - b * c < 1"),
        ("(a - b) * c < 1", "(a - b) * c < 1"),
        ("a / (b * c) < 1", "a / (b * c) < 1"),
        ("a / b * c < 1", "a / b * c < 1"),
        ("-a < b", "0 - a < b"),
        ("-a * b < 1", "(0 - a) * b < 1"),
        ("a - -5 < b", "a - -5 < b"),
        ("a - 5 < b", "a - 5 < b"),
        ("a -5 < b", "a - 5 < b"),
        ("-5 % a < b", "-5 % a < b"),
        ("a + 2.0 < b", "a + 2.0 < b"),
        ("a + INFINITY < b", "a + INFINITY < b"),
        ("a - -INFINITY < b", "a - -INFINITY < b"),
        ("a * -9223372036854775808 < b", "a * -9223372036854775808 < b"),
        ("length(concat(a, 'x')) < b", "LENGTH(CONCAT(a, 'x')) < b"),
        ("5 IN (a, b)", "5 IN (a, b)"),
        ("TRUE NOT IN (a, b)", "TRUE NOT IN (a, b)"),
        ("a + 1 IS NULL", "a + 1 IS NULL"),
        ("upper(a) LIKE b", "UPPER(a) LIKE b"),
        ("a = b ignore case", "a = b IGNORE CASE"),
        ("a < 1 AND (b = 1 OR c = 1)", "a < 1 AND b = 1 OR a < 1 AND c = 1"),
    ],
)
def test_expressions_have_the_parentheses_they_need(text: str, shown: str) -> None:
    parsed = our.fresh(text)
    assert str(parsed) == shown
    assert our.fresh(shown) == parsed


@pytest.mark.parametrize(
    ("duration", "shown"),
    [
        (timedelta(days=2), "2d"),
        (timedelta(hours=36), "36h"),
        (timedelta(seconds=90), "90s"),
        (timedelta(milliseconds=1500), "1500ms"),
        (timedelta(microseconds=1), "1us"),
        (timedelta(minutes=1), "1m"),
    ],
)
def test_durations(duration: timedelta, shown: str) -> None:
    assert show_duration(duration) == shown


def test_scalars_by_themselves() -> None:
    assert show_scalar(Variable("x")) == ":x"
    assert show_scalar(Attribute("a b")) == '"a b"'
