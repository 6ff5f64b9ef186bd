"""Forms answer as the model does, only sooner."""

from __future__ import annotations

import math

import pytest

from palio.model.relations import covers
from palio.model.values import TOP, Kind
from palio.routing.normalized import ANY_KIND, Box, form_of, measure
from palio.simulation import Randomness
from tests.conftest import seeds
from tests.routing.helpers import parse
from tests.routing.scenarios import random_event, random_filter


@pytest.mark.parametrize("seed", seeds(5, nightly=300))
def test_a_form_covers_and_matches_as_its_filter_does(seed: int) -> None:
    random = Randomness(seed)
    filters = [random_filter(random) for _ in range(30)]
    events = [random_event(random) for _ in range(20)]
    events += [{"a": math.nan}, {"a": True}, {"a": "x"}, {"a": 3.5}, {"a": None}]
    for one in filters:
        form = form_of(one)
        assert [form.test(each) for each in events] == [one.matches(each) for each in events]
        for other in filters:
            assert form.covers(form_of(other)) in (None, covers(one, other))


def test_only_one_interval_an_attribute_is_plain() -> None:
    plain = form_of(parse("a > 1 AND a < 5 AND b = 'x'")).plain
    assert plain is not None
    assert {name: interval[0] for name, interval in plain.items()} == {
        "a": Kind.NUMBER,
        "b": Kind.STRING,
    }
    for text in ("a != 1", "a > 1 OR b > 1", "a IS NULL", "a > 5 AND a < 1", "a > b"):
        assert form_of(parse(text)).plain is None, text


def test_what_is_not_plain_is_left_to_the_relation() -> None:
    wide, narrow = form_of(parse("a > 1")), form_of(parse("a IN (3, 7)"))
    assert (wide.covers(narrow), narrow.covers(wide)) == (None, None)


def test_the_points_of_a_filter_are_the_values_it_insists_on() -> None:
    assert form_of(parse("a > 1 AND b = 'x'")).points == (("b", Kind.STRING, "x"),)
    assert form_of(parse("a >= 2 AND a <= 2")).points == (("a", Kind.NUMBER, 2),)
    assert form_of(parse("a = 1 AND b = 2")).points == (
        ("a", Kind.NUMBER, 1),
        ("b", Kind.NUMBER, 2),
    )
    assert form_of(parse("a > 1")).points == ()
    assert form_of(parse("a = 1 OR a = 2")).points == ()


def test_the_rest_of_a_filter_is_asked_about_events_with_its_first_point() -> None:
    alone, one, two = (
        form_of(parse(text)).rest
        for text in ("a = 1", "a = 1 AND b > 2", "a = 1 AND b > 2 AND c = 3")
    )
    assert alone({"a": 1})
    assert [one({"a": 1, **b}) for b in ({"b": 3}, {"b": 2}, {"b": "3"}, {})] == [True] + [
        False
    ] * 3
    assert not one({"a": 1, "b": float("nan")})
    assert [two({"a": 1, "b": 3, **c}) for c in ({"c": 3}, {"c": 4}, {})] == [True, False, False]


def test_equal_filters_share_one_form() -> None:
    assert form_of(parse("a > 1 AND b = 2")) is form_of(parse("a > 1 AND b = 2"))


def test_measures_keep_the_order() -> None:
    for places in (
        ["", "a", "ab", "abcdef", "abcdefg", "b", "é"],
        [b"", b"\x00", b"\x01", b"\xff"],
        [-(2**53) - 1, -1.5, 0, 2**53, 2**53 + 1, TOP],
    ):
        found = [measure(each) for each in places]
        assert found == sorted(found)


@pytest.mark.parametrize("seed", seeds(3, nightly=300))
def test_whatever_a_filter_covers_lies_in_its_boxes(seed: int) -> None:
    random = Randomness(seed)
    filters = [random_filter(random) for _ in range(25)]
    for one in filters:
        for other in filters:
            if covers(one, other):
                for inner in form_of(other).boxes:
                    assert any(_holds(outer, inner) for outer in form_of(one).boxes)


def _holds(outer: Box, inner: Box) -> bool:
    sides = {side.name: side for side in inner.sides}
    for side in outer.sides:
        other = sides.get(side.name)
        if other is None or side.kind not in (ANY_KIND, other.kind):
            return False
        if side.point is not None and side.point != other.point:
            return False
        (low, high), (least, most) = side.bounds, other.bounds
        if not low <= least <= most <= high:
            return False
    return True
