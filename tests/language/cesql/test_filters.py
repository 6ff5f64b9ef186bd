from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidFilter, InvalidInput, LimitExceeded, ParseError
from palio.language.cesql import Expression, condition, evaluate, loads
from palio.language.cesql import parse as parse_expression
from palio.language.cesql.filters import Condition, nodes_in
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
from palio.language.parsing import parse
from palio.model.expressions import Test
from palio.model.filters import TRUE, Filter, reduce
from palio.model.limits import MAX_IN_VALUES, MAX_LIKE_CHARS, MAX_RESIDUAL_COST, MAX_STRING_CHARS
from palio.model.relations import covers
from tests.language.cesql.strategies import (
    attribute_values,
    events,
    expressions,
    names,
    strings,
    values,
)
from tests.language.cesql.test_parsing import FRAGMENTS
from tests.model.meaning import truth

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


whole_cases = st.one_of(cases(), cases(), st.tuples(expressions, events))


@given(whole_cases)
def test_a_filter_matches_when_the_value_is_true_without_an_error(
    case: tuple[Expression, dict[str, Any]],
) -> None:
    expression, event = case
    value, error = evaluate(str(expression), event)
    assert loads(str(expression)).matches(event) is (value is True and error is None)


@given(whole_cases)
def test_a_condition_is_true_false_or_unknown_as_cesql_says(
    case: tuple[Expression, dict[str, Any]],
) -> None:
    expression, event = case
    value, error = evaluate(expression, event)
    known = value if error is None and type(value) is bool else None
    found = condition(str(expression))
    assert truth(found, event) is known
    assert (~reduce(found)).matches(event) is (known is False)


@given(whole_cases)
def test_a_filter_prints_and_parses_back(case: tuple[Expression, dict[str, Any]]) -> None:
    filter = loads(str(case[0]))
    parsed = parse(str(filter))
    assert parsed == filter
    assert isinstance(parsed, Filter)
    assert parsed.matches(case[1]) is filter.matches(case[1])


@pytest.mark.parametrize(
    ("text", "reduced"),
    [
        ("type = 'x'", "type = 'x'"),
        ("type <> 'x'", "type != 'x'"),
        ("source LIKE '%y%'", "source CONTAINS 'y'"),
        ("source LIKE 'https://%'", "source STARTS WITH 'https://'"),
        (r"subject LIKE '50\%'", "subject = '50%'"),
        (r"subject LIKE 'a\b_'", r"subject LIKE 'a\\b_'"),
        ("EXISTS subject", "subject IS NOT NULL"),
        ("NOT EXISTS subject", "subject IS NULL"),
        ("EXISTS id", "TRUE"),
        ("id IN ('a', 'b')", "id IN ('a', 'b')"),
        ("id NOT IN ('a', 'b')", "id NOT IN ('a', 'b')"),
        ("id = 'a' OR id = 'b'", "id IN ('a', 'b')"),
        ("type = 'x' AND source = 'y'", "source = 'y' AND type = 'x'"),
        ("type = 'x' OR id = 'y'", "id = 'y' AND type STARTS WITH '' OR type = 'x'"),
        (
            "EXISTS ext OR subject = 'x' OR subject = 'y'",
            "ext IS NOT NULL OR subject IN ('x', 'y')",
        ),
        ("NOT (type = 'x')", "type != 'x'"),
        ("type = 'x' AND (id = 'y' AND flag)", "id = 'y' AND type = 'x' AND CESQL 'BOOL(flag)'"),
        ("type = 'x' AND FALSE", "FALSE"),
        ("flag", "flag = TRUE"),
        ("ext = 'IBM.N'", "ext = 'IBM.N'"),
        ("ext = 'aGk='", "ext = 'aGk=' OR ext = X'6869'"),
        ("ext IN ('x.y', 'aGk=')", "ext = X'6869' OR ext IN ('aGk=', 'x.y')"),
        ("hop < 8", "CESQL 'hop < 8'"),
        ("type = 'x' AND hop < 8", "type = 'x' AND CESQL 'hop < 8'"),
        ("type = 'x' OR hop < 8", "type = 'x' OR type STARTS WITH '' AND CESQL 'hop < 8'"),
    ],
)
def test_what_reduces_becomes_constraints(text: str, reduced: str) -> None:
    assert str(loads(text)) == reduced


@pytest.mark.parametrize(
    "text",
    [
        *("ext = 5", "ext = '5'", "ext != 'a.b'", "ext LIKE 'a.b%'", "ext < 5"),
        *("ext IN ('a.b', 5)", "ext IN ('a.b', '+5')", "ext NOT IN ('a.b')", "type = ext"),
        *("ext IN ('a.b', 'true')", "ext IN ('False')", "time = '2024-05-17T08:30:00Z'"),
        *("type = 'a' = TRUE", "LOWER(type) = 'a'", "type = 'a' XOR id = 'b'", "NOT subject"),
        *("hop < 5 OR type = 'a'", "NOT (type = 'a' AND id = 'b')", "type = 5"),
    ],
)
def test_what_stays_whole(text: str) -> None:
    assert str(loads(text)) == str(reduce(Condition(parse_expression(text))))


@pytest.mark.parametrize(
    ("text", "event", "matches"),
    [
        ("ext = '5'", {"ext": 5}, True),
        ("ext = '5'", {"ext": 5.0}, False),
        ("ext = '5.0'", {"ext": 5.0}, True),
        ("ext = '5.0'", {"ext": 5}, False),
        ("ext = 'nan'", {"ext": float("nan")}, True),
        ("ext = '-0.0'", {"ext": 0}, False),
        ("ext = 'aGk='", {"ext": b"hi"}, True),
        ("ext = 'true'", {"ext": True}, True),
        ("ext = '4294967296'", {"ext": 2**32}, True),
        ("ext = 4294967295", {"ext": 2**32 - 1}, None),
        ("ext + 1 = 1", {"ext": 2**32}, False),
        ("ext LIKE '%aGk%'", {"ext": b"hi"}, True),
        ("ext != 'a.b'", {"ext": 5}, True),
        ("ext IN ('a.b')", {"ext": 5}, False),
        ("ext NOT IN ('a.b')", {"ext": 5}, False),
        ("ext IN ('a.b', '+5')", {"ext": 5}, False),
        ("ext IN ('+5', 'a.b')", {"ext": 5}, True),
        ("ext IN ('TRUE')", {"ext": True}, True),
        ("ext NOT IN ('a.b')", {"ext": 5.5}, True),
        ("time = '2024-05-17T08:30:00Z'", {"time": datetime(2024, 5, 17, 8, 30, tzinfo=UTC)}, True),
        ("type = 'x' OR id = 'y'", {"id": "y"}, False),
        ("type = 'x' OR id = 'y'", {"type": 1, "id": "y"}, False),
        ("type = 'x' OR id = 'y'", {"type": "x"}, True),
        ("EXISTS type AND type = 'x' OR id = 'y'", {"id": "y"}, False),
        ("subject = 'x' OR EXISTS subject", {"subject": 5}, False),
        ("EXISTS subject AND subject = 'x' OR id = 'y'", {"id": "y"}, True),
    ],
)
def test_edges(text: str, event: dict[str, Any], matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(ParseError, match="32 bits"):
            loads(text)
    else:
        assert loads(text).matches(event) is matches
        assert evaluate(text, event).matches is matches


def test_relations_see_the_constraints() -> None:
    wide, narrow = loads("source LIKE '%.example%'"), loads("source = 'a.example' AND hop < 8")
    assert covers(wide, narrow)
    assert not covers(narrow, wide)
    assert covers(loads("hop < 8"), narrow)
    assert loads("TRUE") == TRUE


@pytest.mark.parametrize(
    ("text", "line", "column", "name"),
    [
        ("NO_SUCH(1)", 1, 1, "NO_SUCH"),
        ("TRUE OR\n  left('a') = 'b'", 2, 3, "LEFT"),
    ],
)
def test_a_function_that_does_not_exist_is_refused(
    text: str, line: int, column: int, name: str
) -> None:
    for read in (loads, condition):
        with pytest.raises(ParseError, match=name) as refused:
            read(text)
        assert (refused.value.line, refused.value.column) == (line, column)
        assert refused.value.offending == name


def test_an_unreadable_text_is_refused() -> None:
    with pytest.raises(ParseError, match="line 1, column 7"):
        loads("type =")


def test_patterns_have_a_limit() -> None:
    for length in (MAX_LIKE_CHARS - 1, MAX_LIKE_CHARS):
        loads(f"ext LIKE '{'a' * length}'")
    with pytest.raises(LimitExceeded, match="MAX_LIKE_CHARS"):
        loads(f"ext LIKE '{'a' * (MAX_LIKE_CHARS + 1)}'")


@pytest.mark.parametrize("template", ["type = '{}'", "ext < '{}'"])
def test_constants_have_a_limit(template: str) -> None:
    for length in (MAX_STRING_CHARS - 1, MAX_STRING_CHARS):
        loads(template.format("a" * length))
    with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
        loads(template.format("a" * (MAX_STRING_CHARS + 1)))


def test_a_constant_is_text() -> None:
    for text in ("type = '\ud800'", "hop < '\ud800'"):
        with pytest.raises(InvalidFilter, match="surrogate"):
            loads(text)


def test_too_many_alternatives_become_one_residual() -> None:
    text = " AND ".join(f"(subject LIKE '%s{i}.%' OR id LIKE '%i{i}.%')" for i in range(16))
    filter = loads(text)
    assert str(filter).startswith("CESQL '(")
    assert filter.matches({"subject": "".join(f"s{i}." for i in range(16)), "id": ""})
    assert not filter.matches({"subject": "".join(f"s{i}." for i in range(15)), "id": ""})


def test_residuals_have_a_limit() -> None:
    def sum_of(ones: int) -> str:
        return "ext = " + " + ".join(["1"] * ones)

    fits = MAX_RESIDUAL_COST - len(("=", "ext", "+"))
    for ones in (fits - 1, fits):
        loads(sum_of(ones))
    whole = condition(sum_of(fits))
    assert isinstance(whole, Condition)
    assert whole.cost == MAX_RESIDUAL_COST
    with pytest.raises(LimitExceeded, match="MAX_RESIDUAL_COST"):
        loads(sum_of(fits + 1))


def test_a_list_that_is_too_long_is_refused_as_such() -> None:
    members = ", ".join(f"'{i}'" for i in range(MAX_IN_VALUES + 1))
    with pytest.raises(LimitExceeded, match="MAX_TOKENS"):
        loads(f"id IN ({members})")


@given(st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join))
def test_any_text_is_a_filter_or_invalid_input(text: str) -> None:
    for read in (loads, condition):
        with suppress(InvalidInput):
            read(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("type = 'x'", Test), ("NOT EXISTS ext", Test), ("type = 'x' AND id = 'y'", Condition)],
)
def test_a_single_test_is_a_constraint_of_our_language(text: str, kind: type) -> None:
    assert isinstance(condition(text), kind)
