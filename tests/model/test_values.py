"""Values: what is one, which are equal, and the line on which each has a next one."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidEvent, InvalidFilter, LimitExceeded
from palio.model.limits import MAX_NAME_CHARS, MAX_STRING_CHARS
from palio.model.values import (
    INT64_MAX,
    INT64_MIN,
    TOP,
    Coordinate,
    Kind,
    canonical,
    check_name,
    check_operand_size,
    checked,
    coordinate,
    from_coordinate,
    is_nan,
    kind_of,
    lowest,
    past_prefix,
    past_prefix_bytes,
    successor,
)
from tests import strategies as our


class Level(IntEnum):
    HIGH = 3


class Colour(StrEnum):
    RED = "red"


class Mixed(str, Enum):  # noqa: UP042  # the older spelling, whose `str` is the member's name
    RED = "red"


class Named(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Nowhere(tzinfo):
    """A zone that does not say how far it is from UTC."""

    def utcoffset(self, _: datetime | None) -> None: ...

    def dst(self, _: datetime | None) -> None: ...

    def tzname(self, _: datetime | None) -> None: ...


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Side(Enum):
    BUY = "buy"


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (True, True),
        (1, 1),
        (1.0, 1.0),
        ("a", "a"),
        (b"a", b"a"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        (NOON, NOON),
        (NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), NOON),
        (Level.HIGH, 3),
        (Colour.RED, "red"),
        (Mixed.RED, "red"),
        (Named("own"), "own"),
        (np.int8(3), 3),
        (np.uint64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.array(3), 3),
        (Side.BUY, "buy"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2026, 1, 31), "2026-01-31"),
        (Decimal("0.10"), 0.1),
        (Decimal("1E+400"), math.inf),
        ("\U0010ffff", "\U0010ffff"),
    ],
    ids=our.shown,
)
def test_what_is_a_value_becomes_plain(given_: object, expected: object) -> None:
    plain = checked(given_)
    assert plain == expected
    assert type(plain) is type(expected)


@pytest.mark.parametrize(
    "given_",
    [
        *(None, [], {}, object(), 1j, timedelta(1), NOON.replace(tzinfo=None)),
        *(NOON.replace(tzinfo=Nowhere()), INT64_MAX + 1, INT64_MIN - 1, np.uint64(2**63)),
        *("\ud800", "a\udfff", np.array([1, 2]), np.array([]), np.complex128(1)),
        *(np.datetime64("2026-01-31"), np.datetime64("2026-01-31", "ns"), np.timedelta64(1, "ns")),
        *(datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),),
        *(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),),
    ],
    ids=our.shown,
)
def test_what_is_no_value_is_refused(given_: object) -> None:
    with pytest.raises(InvalidEvent, match=r"\w"):
        checked(given_)


def test_nan_is_a_value() -> None:
    assert is_nan(checked(Decimal("sNaN")))
    assert is_nan(checked(math.nan))
    assert not is_nan("nan")
    assert kind_of(math.nan) is Kind.NUMBER


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (2.0, 2),
        (-0.0, 0),
        (0.5, 0.5),
        (float(2**53), 2**53),
        (-float(2**63), INT64_MIN),
        (float(2**63), float(2**63)),
        (1e300, 1e300),
        (math.inf, math.inf),
        (True, True),
        ("2", "2"),
    ],
)
def test_equal_numbers_become_identical(given_: object, expected: object) -> None:
    value = canonical(given_)
    assert value == expected
    assert type(value) is type(expected)


@our.examples(200)
@given(our.NUMBERS_AT_LARGE, our.NUMBERS_AT_LARGE)
def test_canonical_numbers_are_equal_exactly_when_the_numbers_are(
    one: int | float, other: int | float
) -> None:
    a, b = canonical(one), canonical(other)
    assert (a == b) == (one == other)
    assert (repr(a) == repr(b)) == (one == other)


# --- the line ---


@our.examples(300)
@given(st.sampled_from(Kind), st.data())
def test_the_successor_is_the_next_value(kind: Kind, data: st.DataObject) -> None:
    """Greater, and with no value of the universe between."""
    place: Any = coordinate(canonical(data.draw(our.values(kind))))
    between: Any = coordinate(canonical(data.draw(our.values(kind))))
    after: Any = successor(kind, place)
    assert place < after
    assert not place < between < after
    for near in our.neighbours(from_coordinate(kind, place)):
        if kind_of(near) is kind:
            assert not place < coordinate(canonical(near)) < after


@our.examples(200)
@given(our.NUMBERS_AT_LARGE)
def test_the_successor_of_a_number_is_the_nearest_of_integers_and_floats(
    number: int | float,
) -> None:
    place: Any = coordinate(canonical(number))
    after = successor(Kind.NUMBER, place)
    if place == math.inf:
        assert after is TOP
        return
    assert isinstance(after, int | float)
    assert repr(canonical(after)) == repr(after)
    floor = math.floor(place) if math.isfinite(place) else INT64_MIN - 1
    nearest = [math.nextafter(float(place), math.inf), float(place)]
    whole = [each for each in (floor + 1, INT64_MIN) if INT64_MIN <= each <= INT64_MAX]
    assert after == min(each for each in (*nearest, *whole) if each > place)


@pytest.mark.parametrize(
    ("kind", "place", "after"),
    [
        (Kind.NUMBER, 0, 5e-324),
        (Kind.NUMBER, -5e-324, 0),
        (Kind.NUMBER, 1, 1.0000000000000002),
        (Kind.NUMBER, 2**53 - 1, 2**53),
        (Kind.NUMBER, 2**53, 2**53 + 1),
        (Kind.NUMBER, -(2**53) - 1, -(2**53)),
        (Kind.NUMBER, INT64_MAX, float(2**63)),
        (Kind.NUMBER, math.nextafter(-float(2**63), -math.inf), INT64_MIN),
        (Kind.NUMBER, 1.7976931348623157e308, math.inf),
        (Kind.NUMBER, -math.inf, -1.7976931348623157e308),
        (Kind.NUMBER, math.inf, TOP),
        (Kind.BOOL, False, True),
        (Kind.BOOL, True, TOP),
        (Kind.STRING, "", "\0"),
        (Kind.STRING, "\U0010ffff", "\U0010ffff\0"),
        (Kind.BYTES, b"\xff", b"\xff\0"),
    ],
)
def test_successors(kind: Kind, place: Any, after: Coordinate) -> None:
    found = successor(kind, place)
    assert found is TOP if after is TOP else found == after
    assert type(found) is type(after)


def test_the_last_instant_has_nothing_after_it() -> None:
    last: Any = coordinate(canonical(datetime.max.replace(tzinfo=UTC)))
    first: Any = coordinate(canonical(datetime.min.replace(tzinfo=UTC)))
    assert successor(Kind.TIME, last) is TOP
    assert successor(Kind.TIME, last - 1) == last
    assert lowest(Kind.TIME) == first


@our.examples(200)
@given(st.sampled_from(Kind), st.data())
def test_coordinates_keep_order_and_come_back(kind: Kind, data: st.DataObject) -> None:
    a, b = (canonical(data.draw(our.values(kind))) for _ in range(2))
    one: Any = coordinate(a)
    other: Any = coordinate(b)
    assert (a < b) == (one < other)  # type: ignore[operator]  # one kind
    assert from_coordinate(kind, one) == a
    assert lowest(kind) <= one < TOP


def test_top_is_above_everything_and_equal_to_itself() -> None:
    for place in (math.inf, "\U0010ffff", b"\xff", True, 10**30):
        assert place < TOP
        assert (place > TOP, place >= TOP, place <= TOP) == (False, False, True)
    same = copy.copy(TOP)
    assert (same > TOP, same >= TOP, same < TOP, same <= TOP) == (False, True, False, True)
    assert pickle.loads(pickle.dumps(TOP)) is TOP
    assert copy.deepcopy(TOP) is TOP
    assert repr(TOP) == "TOP"


@our.examples(200)
@given(our.TEXTS, our.TEXTS)
def test_past_prefix_ends_the_interval_of_a_prefix(prefix: str, text: str) -> None:
    end: Any = past_prefix(prefix)
    assert (prefix <= text < end) == text.startswith(prefix)
    assert prefix + text < end
    assert end is TOP or end.encode()  # it is text, no lone surrogate


@our.examples(200)
@given(st.binary(max_size=3) | st.sampled_from(our.BLOBS), st.binary(max_size=4))
def test_past_prefix_of_bytes(prefix: bytes, data: bytes) -> None:
    end: Any = past_prefix_bytes(prefix)
    assert (prefix <= data < end) == data.startswith(prefix)
    assert prefix + data < end


def test_past_prefix_steps_over_surrogates_and_carries() -> None:
    assert past_prefix("\ud7ff") == "\ue000"
    assert past_prefix("a\U0010ffff\U0010ffff") == "b"
    assert past_prefix("\U0010ffff") is TOP
    assert past_prefix("") is TOP
    assert past_prefix_bytes(b"a\xff") == b"b"


# --- names and sizes ---


@pytest.mark.parametrize("name", ["", None, 5, b"a", "\ud800"])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidFilter, match="name"):
        check_name(name, InvalidFilter)


def test_a_name_of_any_characters_is_one() -> None:
    for name in (" ", "a b", "\0", '"', "😀", "é", "and"):
        check_name(name, InvalidEvent)


def test_names_and_operands_have_a_longest_length() -> None:
    check_name("n" * MAX_NAME_CHARS, InvalidEvent)
    with pytest.raises(LimitExceeded, match="MAX_NAME_CHARS"):
        check_name("n" * (MAX_NAME_CHARS + 1), InvalidEvent)
    for text in ("s", b"s"):
        check_operand_size(text * MAX_STRING_CHARS)
        with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
            check_operand_size(text * (MAX_STRING_CHARS + 1))


def test_every_kind_has_a_noun() -> None:
    assert [kind.noun for kind in Kind] == [
        "a boolean",
        "a number",
        "a string",
        "bytes",
        "a timestamp",
    ]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ({"b": 1}, "name nested values with points: palio.model.flatten does"),
        (Fraction(1, 3), "here float or str of it"),
        (PurePosixPath("a"), "here str of it"),
        (timedelta(1), r"here its \.total_seconds"),
    ],
)
def test_what_is_no_value_is_told_what_to_give_instead(value: object, remedy: str) -> None:
    with pytest.raises(InvalidEvent, match=remedy):
        checked(value)
