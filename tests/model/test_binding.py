"""Giving variables their values, all or some, agrees with evaluating with the values."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, note, reject

from palio.errors import InvalidBinding, InvalidInput, LimitExceeded, ParseError
from palio.language.parsing import parse
from palio.model.filters import Filter
from palio.model.limits import MAX_IN_VALUES, MAX_STRING_CHARS
from palio.model.merging import merge
from palio.model.patterns import Pattern
from palio.model.printing import show_value
from tests import strategies as our
from tests.model.sendable import some_filter, some_values


def verdict(filter: Filter, event: our.Event, values: dict[str, Any]) -> object:
    try:
        return filter.truth(event, values)
    except InvalidBinding as error:
        return error.name


@our.examples(200)
@given(our.filters(variables=True), our.bindings(), our.SEEDS)
def test_binding_then_matching_is_matching_with_the_values(
    filter: Filter, values: dict[str, Any], seed: int
) -> None:
    try:
        bound = filter.bind(values)
    except InvalidBinding:  # constants that have no value
        reject()
    note(str(bound))
    assert not bound.variables
    kept = random.Random(seed).sample(sorted(values), 3)
    some = {name: values[name] for name in kept}
    partly = filter.substitute(some)
    assert partly.variables <= filter.variables - some.keys()
    for event in our.nearby(bound, seed=seed, count=15):
        expected = filter.truth(event, values)
        assert bound.truth(event) is expected, event
        assert partly.truth(event, values) is expected, event


@pytest.mark.parametrize(
    ("text", "values", "bound"),
    [
        ("n < :x", {"x": 5}, "n < 5"),
        (":x < n", {"x": 5}, "n > 5"),
        ("n IN (:x, 2)", {"x": 2.0}, "n = 2"),
        ("n != :x AND n != 3", {"x": 1}, "n NOT IN (1, 3)"),
        ("n = :x OR n = 3", {"x": 1}, "n IN (1, 3)"),
        ("n = :x OR n = 3", {"x": 3}, "n = 3"),
        ("s LIKE :x", {"x": "a%"}, "s STARTS WITH 'a'"),
        ("s IN CIDR :x", {"x": "10.1.1.1/8"}, "s IN CIDR '10.0.0.0/8'"),
        ("s = :x IGNORE CASE", {"x": "A"}, "s = 'a' IGNORE CASE"),
        (":x + 1 < n", {"x": 4}, "n > 5"),
        (":x < :y AND n = 1", {"x": 4, "y": 5}, "n = 1"),
        (":x < :y AND n = 1", {"x": 5, "y": 4}, "FALSE"),
        (":x < :y OR n = 1", {"x": 4, "y": 5}, "TRUE"),
        ("n + :x < m", {"x": 4}, "n + 4 < m"),
        ("NOT n IN :x", {"x": frozenset({1, 2})}, "n NOT IN (1, 2)"),
        ("at > :x", {"x": our.TIMES[2]}, "at > TIMESTAMP '2026-01-31T12:00:00Z'"),
    ],
)
def test_a_bound_filter_is_the_one_that_the_text_with_the_constants_is(
    text: str, values: dict[str, Any], bound: str
) -> None:
    found = our.fresh(text).bind(values)
    assert str(found) == bound
    assert found == our.fresh(bound)


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("n > :x * 1.5", {"x": "zzz"}, "parameter :x: * needs numbers, not a string"),
        ("n > m - :x", {"x": True}, "parameter :x: - needs numbers, not a boolean"),
        ("n < 10 / :x", {"x": 0}, "parameter :x = 0 in n < 10 / :x: 10 / 0 has no value"),
        ("n > -:x", {"x": -(2**63)}, "0 - -9223372036854775808 has no value"),
        ("n < ABS(:x)", {"x": -(2**63)}, "ABS(-9223372036854775808) has no value"),
        ("n < LENGTH(:x)", {"x": 5}, "LENGTH(5) has no value"),
        ("n < SQRT(:x)", {"x": -1.0}, "SQRT(-1.0) has no value"),
        ("n + 1 < m + 10 / :x", {"x": 0}, "10 / 0 has no value"),
        (":x < :y AND n = 1", {"x": 5, "y": "a"}, ":x = 5, :y = 'a' in :x < :y: 5 < 'a' compares"),
        ("UPPER(s) LIKE CONCAT(:x, '%', :y)", {"x": "a", "y": "\\"}, "lone backslash"),
        ("LENGTH(s) STARTS WITH :x", {"x": 5}, "parameter :x: STARTS WITH needs a string"),
        ("n + 1 IN (:x, :y)", {"x": 5, "y": "a"}, "mixes a number and a string"),
        ("n + 1 IN (:x * 2, 'a')", {"x": 5}, "mixes a number and a string"),
        ("s STARTS WITH COALESCE(:x, 'a')", {"x": 5}, "needs a string or bytes, not a number"),
    ],
)
def test_what_the_text_with_the_constant_could_not_say_is_refused(
    text: str, values: dict[str, Any], message: str
) -> None:
    filter = our.fresh(text)
    with pytest.raises(InvalidBinding, match=re.escape(message)) as caught:
        filter.bind(values)
    assert caught.value.name in values
    shown = text
    for name, value in values.items():
        shown = shown.replace(f":{name}", show_value(value))
    with pytest.raises((ParseError, LimitExceeded)):
        our.fresh(shown)


@our.examples(150)
@given(our.SEEDS)
def test_what_binding_accepts_every_broker_reads(seed: int) -> None:
    """Thirty pairs of a filter and values an example; about a tenth of them are accepted."""
    rng = random.Random(seed)
    for _ in range(5):
        filter = some_filter(rng)
        if filter is None:
            continue
        for _ in range(6):
            values = some_values(rng)
            reads_back(filter, values)
            reads_back(filter, {"x": values["x"]})


def reads_back(filter: Filter, values: dict[str, Any]) -> None:
    """With these values it is refused by a typed error, or its text stands for it."""
    for bind in (filter.bind, filter.substitute):
        try:
            bound = bind(values)
        except (InvalidBinding, LimitExceeded):
            continue
        again = our.fresh(str(bound))
        assert again == bound
        assert str(again) == str(bound)


@our.examples(100)
@given(our.SEEDS)
def test_what_becomes_of_bound_filters_every_broker_reads(seed: int) -> None:
    """Merged, joined and negated, as routers and authorities do."""
    rng = random.Random(seed)
    bound: list[Filter] = []
    for _ in range(12):
        filter = some_filter(rng)
        if filter is not None:
            with suppress(InvalidInput):
                bound.append(filter.bind(some_values(rng)))
    for one, other in pairwise(bound):
        made = [merge([one, other]), merge(bound[:4])]
        with suppress(LimitExceeded):
            made += [one & other, one | other, ~one]
        for each in made:
            assert our.fresh(str(each)) == each


def test_a_pattern_reads_back_or_is_refused() -> None:
    pattern = parse("a > :x * 2 THEN b = :y WITHIN 5s")
    assert isinstance(pattern, Pattern)
    bound = pattern.bind({"x": 4, "y": "it's"})
    assert parse(str(bound)) == bound
    with pytest.raises(InvalidBinding, match="needs numbers, not a string"):
        pattern.bind({"x": "zzz", "y": 1})
    with pytest.raises(LimitExceeded, match="MAX_TEXT_CHARS"):
        Pattern((our.fresh("a = :x").bind({"x": "'" * 65_000}),) * 3)


def test_a_comparison_with_another_kind_is_unknown_and_no_error() -> None:
    """It is legal SQL, as it is with a constant; only what computes has to have a value."""
    bound = our.fresh("n < :x").bind({"x": "5"})
    assert str(bound) == "n < '5'"
    assert bound.truth({"n": 1}) is None


def test_all_variables_need_a_value_to_bind_and_others_do_not_matter() -> None:
    filter = our.fresh("n < :x AND m < :y")
    with pytest.raises(InvalidBinding, match=r"pass \{'y': ") as caught:
        filter.bind({"x": 1})
    assert caught.value.name == "y"
    assert str(filter.bind({"x": 1, "y": 2, "z": 3})) == "m < 2 AND n < 1"
    assert str(filter.substitute({"x": 1})) == "m < :y AND n < 1"
    assert filter.substitute({"z": 1}) == filter


def test_a_bound_collection_has_a_longest_length() -> None:
    filter = our.fresh("n IN :x")
    for count in (MAX_IN_VALUES - 1, MAX_IN_VALUES):
        assert filter.matches({"n": 1}, {"x": range_list(count)})
        assert not filter.bind({"x": range_list(count)}).variables
    for attempt in (filter.bind, lambda values: filter.matches({"n": 1}, values)):
        with pytest.raises(LimitExceeded, match="MAX_IN_VALUES"):
            attempt({"x": range_list(MAX_IN_VALUES + 1)})


def range_list(count: int) -> list[Any]:
    return list(range(count))


def test_a_bound_text_has_a_longest_length() -> None:
    filter = our.fresh("s = :x")
    assert not filter.bind({"x": "s" * MAX_STRING_CHARS}).variables
    with pytest.raises(InvalidBinding, match="MAX_STRING_CHARS"):
        filter.bind({"x": "s" * (MAX_STRING_CHARS + 1)})
