from __future__ import annotations

from typing import Any

import pytest

import palio
from palio.client.subscribing import (
    check_assembled_by,
    check_on_gap,
    check_values,
    frozen,
    given_values,
    understood,
)
from palio.errors import InvalidBinding, InvalidFilter, InvalidInput, ParseError


def test_a_filter_is_given_as_a_text_or_as_it_is() -> None:
    for text in ("x = 1", "x = 1 THEN x = 2"):
        assert understood(text) == understood(palio.parse(text)) == palio.parse(text)
    with pytest.raises(ParseError):
        understood("x <")
    with pytest.raises(InvalidFilter, match=r"@on takes a text, .* not int"):
        understood(7, "@on")  # type: ignore[arg-type]  # the mistake


def test_values_are_given_in_a_mapping_by_name_or_both() -> None:
    assert given_values(None, {"a": 1}) == {"a": 1}
    assert given_values({"a": 1}, {}) == {"a": 1}
    assert given_values({"values": 1}, {"b": 2}) == {"values": 1, "b": 2}
    with pytest.raises(InvalidBinding, match=":a is given by name and in the mapping"):
        given_values({"a": 1}, {"a": 1})
    with pytest.raises(InvalidInput, match=r"such as \{'values': \[1\]\}, not list"):
        given_values([1], {})  # type: ignore[arg-type]  # the mistake


def test_nobody_changes_a_list_behind_a_subscription() -> None:
    names: list[Any] = ["a"]
    kept = frozen({"names": names, "low": 1})
    names.append("b")
    assert kept == {"names": ("a",), "low": 1}


def test_values_must_fit_the_filter() -> None:
    what = palio.parse("x > :low")
    check_values(what, {"low": 1})
    for values, error in (({}, "no value"), ({"low": 1, "high": 2}, "no parameter :high")):
        with pytest.raises(InvalidBinding, match=error):
            check_values(what, values)


async def _coroutine(gap: object) -> None: ...


@pytest.mark.parametrize(
    ("on_gap", "error"), [(7, "cannot be called"), (_coroutine, "would never run")]
)
def test_who_is_told_of_gaps_can_be_called(on_gap: Any, error: str) -> None:
    check_on_gap(None)
    check_on_gap(print)
    with pytest.raises(InvalidInput, match=error):
        check_on_gap(on_gap)


TWO = palio.parse("x = 1 THEN x = 2")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("anybody", TWO, None, ""), "'client' or 'brokers', not 'anybody'"),
        (("brokers", palio.parse("x = 1"), None, ""), "'x = 1' is one filter"),
        (("brokers", TWO, 0.0, ""), "reorder_s= is for patterns that the client assembles"),
        (("brokers", TWO, None, "d"), "leave durable= out"),
    ],
)
def test_brokers_assemble_patterns_and_nothing_else(given: Any, error: str) -> None:
    assert check_assembled_by("brokers", TWO, None, "")
    assert not check_assembled_by("client", TWO, 1.0, "d")
    with pytest.raises(InvalidInput, match=error):
        check_assembled_by(*given)
