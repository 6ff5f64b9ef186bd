from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.language.cesql import Error, Result, Value
from palio.language.cesql.values import (
    INTEGER_MAX,
    INTEGER_MIN,
    REQUIRED_ATTRIBUTES,
    STRING_ATTRIBUTES,
    Failed,
    Type,
    attribute,
    cast,
    exists,
    text_of,
)
from tests.language.cesql.strategies import attribute_values, values

TYPES: tuple[Type, ...] = (bool, int, str)


def nested(levels: int) -> list[Any]:
    """A list too deep for `repr`."""
    inner: list[Any] = []
    for _ in range(levels):
        inner = [inner]
    return inner


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (True, True),
        (False, False),
        (5, 5),
        (INTEGER_MAX, INTEGER_MAX),
        (INTEGER_MAX + 1, "2147483648"),
        (INTEGER_MIN, INTEGER_MIN),
        (INTEGER_MIN - 1, "-2147483649"),
        (2**63 - 1, "9223372036854775807"),
        ("", ""),
        ("5", "5"),
        (9.5, "9.5"),
        (5.0, "5.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (b"", ""),
        (b"hi", "aGk="),
        (bytearray(b"hi"), "aGk="),
        (b"\xff\xfe", "//4="),
        (datetime(2024, 5, 17, 8, 30, tzinfo=UTC), "2024-05-17T08:30:00Z"),
        (datetime(2024, 5, 17, 8, 30, 0, 250, tzinfo=UTC), "2024-05-17T08:30:00.000250Z"),
        (
            datetime(2024, 5, 17, 10, 30, tzinfo=timezone(timedelta(hours=2))),
            "2024-05-17T08:30:00Z",
        ),
        (datetime(33, 1, 1, tzinfo=UTC), "0033-01-01T00:00:00Z"),
        (np.int64(5), 5),
        (np.float64(9.5), "9.5"),
        (np.bool_(True), True),
    ],
)
def test_an_attribute_is_seen_as_a_cesql_value(raw: Any, seen: Value) -> None:
    value = attribute({"ext": raw}, "ext")
    assert (value, type(value)) == (seen, type(seen))


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {},
        (1,),
        nested(100_000),
        Unspeakable(),
        np.zeros(2),
        Decimal(1),
        2**63,
        10**5000,
        datetime(2024, 5, 17, tzinfo=UTC).replace(tzinfo=None),
    ],
    ids=lambda raw: f"{type(raw).__name__}",
)
def test_what_is_no_attribute_is_a_generic_error(raw: Any) -> None:
    with pytest.raises(Failed, match="ext") as failed:
        attribute({"ext": raw}, "ext")
    assert failed.value.error.kind == "generic"


@pytest.mark.parametrize("name", sorted(STRING_ATTRIBUTES))
@pytest.mark.parametrize("raw", [5, True, b"hi", 9.5, datetime(2024, 5, 17, tzinfo=UTC)])
def test_what_cloudevents_defines_as_a_string_must_be_one(name: str, raw: Any) -> None:
    with pytest.raises(Failed, match=f"{name!r}.*CloudEvents") as failed:
        attribute({name: raw}, name)
    assert failed.value.error.kind == "generic"
    assert attribute({name: "5"}, name) == "5"


def test_time_is_a_timestamp_or_its_text() -> None:
    assert attribute({"time": "today"}, "time") == "today"
    assert attribute({"time": datetime(2024, 5, 17, tzinfo=UTC)}, "time") == "2024-05-17T00:00:00Z"


@pytest.mark.parametrize("event", [{}, {"ext": None}])
def test_null_is_absent(event: Mapping[str, Any]) -> None:
    assert not exists(event, "ext")
    with pytest.raises(Failed, match="no attribute 'ext'") as failed:
        attribute(event, "ext")
    assert failed.value.error.kind == "missingAttribute"


def test_required_attributes_exist_always() -> None:
    assert all(exists({}, name) for name in REQUIRED_ATTRIBUTES)
    assert exists({"ext": False}, "ext")
    assert not exists({}, "subject")


@given(attribute_values)
def test_every_value_of_the_data_model_has_a_text(raw: Any) -> None:
    value = attribute({"ext": raw}, "ext")
    assert cast(value, str) == text_of(raw)


@given(values, st.sampled_from(TYPES))
def test_a_cast_makes_the_type_it_was_asked_for(value: Value, target: Type) -> None:
    try:
        made = cast(value, target)
    except Failed:
        assert isinstance(value, str)
    else:
        assert type(made) is target
        assert cast(made, target) == made


@pytest.mark.parametrize(("text", "target"), [("five", int), ("yes", bool)])
def test_a_cast_that_fails_says_what_of(text: str, target: Type) -> None:
    with pytest.raises(Failed, match=f"{text!r} is no") as failed:
        cast(text, target)
    assert failed.value.error.kind == "cast"


@given(st.booleans() | st.integers(INTEGER_MIN, INTEGER_MAX))
def test_a_cast_to_string_and_back_is_the_identity(value: Value) -> None:
    assert cast(cast(value, str), type(value)) == value


@given(
    st.from_regex(r"[+-]?[0-9]{1,12}", fullmatch=True)
    | st.text(st.sampled_from("+-019 _."), max_size=6)
    | st.text(st.characters(categories=["Nd", "Po", "Pd"]), max_size=4)
)
def test_an_integer_is_ascii_digits_with_a_sign_within_32_bits(text: str) -> None:
    valid = re.fullmatch("[+-]?[0-9]+", text) and INTEGER_MIN <= int(text) <= INTEGER_MAX
    try:
        number = cast(text, int)
    except Failed:
        assert not valid
    else:
        assert valid
        assert number == int(text)


def test_an_endless_number_is_a_cast_error() -> None:
    with pytest.raises(Failed, match=r"'9{60}\.\.\.' is no Integer"):
        cast("9" * 100_000, int)
    assert cast("0" * 100_000 + "7", int) == 7


@pytest.mark.parametrize("value", [False, 1, 0, "true", "TRUE", ""])
def test_only_true_itself_matches(value: Value) -> None:
    assert not Result(value).matches


def test_true_matches_unless_there_is_an_error() -> None:
    assert Result(True).matches
    assert not Result(True, Error("generic", "odd")).matches


def test_a_result_unpacks() -> None:
    value, error = Result(3)
    assert value == 3
    assert error is None


def test_a_failure_carries_the_error_and_the_value() -> None:
    failed = Failed("math", "too large", 7)
    assert failed.error == Error("math", "too large")
    assert failed.value == 7
    assert str(failed) == "too large"
