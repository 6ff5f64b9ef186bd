"""Codes order values exactly as coordinates do, for columns of either number type."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.matching.compile.cuts import (
    SMALL_TABLE,
    TABLE_SHARE,
    TABLE_SPAN,
    CutCollector,
    Numbers,
    Universe,
    cuts_at,
    number_cut,
    number_cuts,
    ordered,
    past_numbers,
)
from palio.model.values import INT64_MAX, INT64_MIN, Kind, successor
from tests.strategies import NUMBERS, POOLS, neighbours

WHOLE = [number for number in NUMBERS if isinstance(number, int)]
FLOATS = [float(number) for number in NUMBERS if not math.isinf(number)]


def cuts_of(numbers: Numbers) -> list[tuple[int, int, bool]]:
    return list(
        zip(numbers.ints.tolist(), numbers.floats.tolist(), numbers.beyond.tolist(), strict=True)
    )


@pytest.mark.parametrize("values", [WHOLE, FLOATS], ids=["int64", "float64"])
def test_columns_of_cuts_are_the_cuts_one_by_one(values: list[int | float]) -> None:
    column = np.array(values)
    assert cuts_of(number_cuts(column)) == [number_cut(value) for value in values]
    past = [successor(Kind.NUMBER, value) for value in values]
    expected = [number_cut(place) for place in past if isinstance(place, int | float)]
    assert cuts_of(past_numbers(column)) == expected


@given(st.lists(st.integers(-(2**65), 2**65) | st.floats(allow_nan=False), max_size=60))
def test_many_coordinates_have_the_cuts_that_each_has(places: list[int | float]) -> None:
    assert cuts_of(cuts_at(places)) == [number_cut(place) for place in places]


def test_ordered_floats() -> None:
    floats = sorted({*FLOATS, math.inf, -math.inf})
    keys = ordered(np.array(floats)).tolist()
    assert keys == sorted(keys)
    assert ordered(np.array([-0.0])).tolist() == ordered(np.array([0.0])).tolist() == [0]


@pytest.mark.parametrize("kind", list(Kind))
def test_codes_agree_with_order(kind: Kind, rng: random.Random) -> None:
    places = [(kind, coordinate_of(value)) for value in rng.sample(POOLS[kind], 2)]
    universe = universe_of(cuttable(kind, places))
    values = [value for _, place in places for value in candidates(kind, place)]
    for _, cut in cuttable(kind, places):
        codes: dict[bool, list[int]] = {False: [], True: []}
        for value in values:
            codes[coordinate_of(value) >= cut].append(universe.code_of("x", value))
        assert max(codes[False], default=-1) < min(codes[True]), cut
        if kind is not Kind.NUMBER:
            written = cut.encode() if isinstance(cut, str) else cut
            assert universe.code_at_cut("x", kind, written) == min(codes[True])
        assert max(codes[True]) < int(universe.code_counts[0])
    assert universe.code_of("x", None) == 0
    assert universe.code_of("x", math.nan) == 1


def universe_of(places: Sequence[tuple[Kind, object]]) -> Universe:
    """The universe of one attribute with cuts at some coordinates."""
    gathered = CutCollector(["x"])
    for kind, place in places:
        if kind is Kind.NUMBER:
            assert isinstance(place, int | float)
            gathered.add_numbers(np.array([0]), Numbers.of_cuts([number_cut(place)]))
        else:
            gathered.add(0, kind, [place.encode() if isinstance(place, str) else place])
    return gathered.universe([])[0]


def cuttable(kind: Kind, places: list[tuple[Kind, object]]) -> list[tuple[Kind, object]]:
    if kind is Kind.BOOL:
        return [(kind, True)]
    return [(kind, place) for _, place in places if place not in ("", b"", -math.inf)]


def coordinate_of(value: object) -> Any:
    from palio.model.values import canonical, coordinate

    return coordinate(canonical(value))


def candidates(kind: Kind, place: object) -> list[object]:
    from palio.model.values import canonical, from_coordinate, kind_of

    near = neighbours(from_coordinate(kind, place))  # type: ignore[arg-type]  # a coordinate
    return [canonical(value) for value in near if kind_of(value) is kind]


def test_tables_reach_to_the_ends_of_int64() -> None:
    places = [(Kind.NUMBER, INT64_MAX), (Kind.NUMBER, INT64_MAX - 1), (Kind.NUMBER, 2.0**63)]
    universe = universe_of(places)
    base = int(universe.bases[0, Kind.NUMBER])
    codes = [universe.code_of("x", value) - base for value in (INT64_MIN, INT64_MAX, 2.0**63)]
    assert codes == [0, 2, 3]
    assert universe.table.tolist() == [1, 2]


def test_the_largest_float_has_infinity_behind_it_and_says_nothing() -> None:
    largest = float(np.finfo(np.float64).max)
    found = past_numbers(np.array([largest, -largest, 5e-324, -5e-324, 0.0]))
    assert found.floats[0] == ordered(np.array([np.inf]))[0]


@pytest.mark.parametrize(
    ("count", "span", "size"),
    [
        (2, SMALL_TABLE - 1, SMALL_TABLE),
        (2, SMALL_TABLE, 0),
        (100, TABLE_SHARE * 100 - 1, TABLE_SHARE * 100),
        (100, TABLE_SHARE * 100, 0),
        (5_000, TABLE_SPAN - 1, TABLE_SPAN),
        (5_000, TABLE_SPAN, 0),
    ],
)
def test_tables_take_no_more_than_their_cuts_are_worth(count: int, span: int, size: int) -> None:
    cuts = number_cuts(np.array([*range(count - 1), span]))
    universe = Universe.of_numbers(("x",), np.array([0, count], np.int32), cuts)
    assert len(universe.table) == size
    values = np.array([-1, 0, count, span - 1, span, span + 1])
    ranks = [0, 1, count - 1, count - 1, count, count]
    assert (universe.codes_of_numbers("x", values) - universe.bases[0, 1]).tolist() == ranks
    if size:
        assert universe.table[[0, count, span - 1]].tolist() == [1, count - 1, count - 1]
