from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.language.cesql.functions import FUNCTIONS, find, missing
from palio.language.cesql.values import Failed, Value

numbers = st.integers(-8, 8)
texts = st.text("abc\U0001f600", max_size=6)


def call(name: str, *arguments: Value) -> Value:
    function = find(name, len(arguments))
    assert function is not None
    return function.body(*arguments)


def test_every_function_is_listed_under_its_name() -> None:
    for name, overloads in FUNCTIONS.items():
        assert name == name.upper()
        assert {each.name for each in overloads} == {name}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("ABS", {1}),
        ("CONCAT", {0, 1, 2, 3, 4}),
        ("CONCAT_WS", {1, 2, 3, 4}),
        ("LEFT", {2}),
        ("SUBSTRING", {2, 3}),
        ("NOSUCH", set()),
    ],
)
def test_a_function_is_found_by_name_and_number_of_arguments(name: str, counts: set[int]) -> None:
    assert {count for count in range(5) if find(name, count)} == counts


def test_parameters_of_a_variadic_function() -> None:
    function = find("CONCAT_WS", 3)
    assert function is not None
    assert [function.parameter(place) for place in range(3)] == [str, str, str]


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("NOSUCH", 1, "there is no function NOSUCH; there are ABS, BOOL, CONCAT"),
        ("LEFT", 3, "LEFT takes 2 arguments, not 3"),
        ("SUBSTRING", 1, "SUBSTRING takes 2 or 3 arguments, not 1"),
        ("CONCAT_WS", 0, "CONCAT_WS takes 1 or more arguments, not 0"),
    ],
)
def test_what_is_missing_is_named_with_what_there_is(name: str, count: int, message: str) -> None:
    assert missing(name, count).startswith(message)


def test_trim_takes_what_unicode_calls_white_space_and_nothing_else() -> None:
    separators = {
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] == "Z"
    }
    white = separators | set("\t\n\v\f\r\x85")
    trimmed = {chr(code) for code in range(0x3100) if not call("TRIM", chr(code))}
    assert trimmed == white


@given(texts, numbers)
def test_left_and_right_split_a_text(text: str, count: int) -> None:
    if count < 0:
        for name in ("LEFT", "RIGHT"):
            with pytest.raises(Failed, match=name) as failed:
                call(name, text, count)
            assert failed.value.value == text
            assert failed.value.error.kind == "functionEvaluation"
        return
    left, right = call("LEFT", text, count), call("RIGHT", text, count)
    assert left == "".join(list(text)[:count])
    assert right == "".join(reversed(list(reversed(text))[:count]))


@given(texts, numbers, st.none() | numbers)
def test_substring_counts_from_one_or_from_the_end(
    text: str, position: int, length: int | None
) -> None:
    arguments = (text, position) if length is None else (text, position, length)
    places = {place + 1: character for place, character in enumerate(text)}
    start = position if position > 0 else len(text) + 1 + position
    if abs(position) > len(text) or (length or 0) < 0:
        with pytest.raises(Failed, match="SUBSTRING") as failed:
            call("SUBSTRING", *arguments)
        assert failed.value.value == ""
        return
    end = len(text) if length is None else start + length - 1
    wanted = "".join(places.get(place, "") for place in range(start, end + 1))
    assert call("SUBSTRING", *arguments) == ("" if position == 0 else wanted)


@given(st.lists(texts, max_size=4), texts)
def test_concat_ws_puts_the_delimiter_between(parts: list[str], delimiter: str) -> None:
    assert call("CONCAT_WS", delimiter, *parts) == delimiter.join(parts)
    assert call("CONCAT", *parts) == "".join(parts)
