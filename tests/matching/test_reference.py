"""The oracle itself, on cases small enough to see."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from palio.errors import InvalidBinding
from palio.language import parse_filter
from palio.matching import Reference
from palio.model import to_batches

EVENTS: Final[list[dict[str, Any]]] = [{"x": 1}, {"x": 5, "y": "a"}, {"y": "b"}, {"x": 9, "y": "a"}]


@pytest.fixture
def engine() -> Reference:
    filled = Reference()
    filled.add(3, parse_filter("x > :low"), {"low": 4}, destination=30)
    filled.add(1, parse_filter("y = 'a' OR x = 1"))
    filled.add(2, parse_filter("x > 8"), destination=30)
    return filled


def pairs(engine: Reference) -> list[tuple[int, int]]:
    (batch,) = to_batches(EVENTS)
    rows, keys = engine.match(batch)
    return list(zip(rows.tolist(), keys.tolist(), strict=True))


def test_match_is_sorted_by_row_and_key(engine: Reference) -> None:
    assert pairs(engine) == [(0, 1), (1, 1), (1, 3), (3, 1), (3, 2), (3, 3)]


def test_bind_changes_one_filter_and_keeps_other_values(engine: Reference) -> None:
    engine.bind(3, {"low": 8})
    assert pairs(engine) == [(0, 1), (1, 1), (3, 1), (3, 2), (3, 3)]


@pytest.mark.parametrize("values", [{"low": None}, {"high": 1}, {"low": float("nan")}])
def test_a_bad_bind_changes_nothing(engine: Reference, values: dict[str, object]) -> None:
    before = pairs(engine)
    with pytest.raises(InvalidBinding):
        engine.bind(3, values)  # type: ignore[arg-type]  # the point of the test
    assert pairs(engine) == before


def test_a_filter_without_its_values_is_not_added(engine: Reference) -> None:
    with pytest.raises(InvalidBinding, match=":low has no value"):
        engine.add(9, parse_filter("x > :low"))
    assert len(engine) == 3


def test_add_replaces_and_remove_forgets(engine: Reference) -> None:
    engine.add(1, parse_filter("x = 9"))
    engine.remove(3)
    assert pairs(engine) == [(3, 1), (3, 2)]
    with pytest.raises(KeyError):
        engine.remove(3)


def test_route_is_by_destination(engine: Reference) -> None:
    (batch,) = to_batches(EVENTS)
    routes = engine.route(batch)
    assert {name: np.flatnonzero(mask).tolist() for name, mask in routes.items()} == {
        1: [0, 1, 3],
        30: [1, 3],
    }


def test_count_leaves_out_what_matches_nothing(engine: Reference) -> None:
    engine.add(7, parse_filter("x > 100"))
    (batch,) = to_batches(EVENTS)
    assert engine.count(batch) == {1: 3, 2: 1, 3: 2}


def test_an_event_without_attributes_is_an_event() -> None:
    engine = Reference()
    engine.add(1, parse_filter("x IS NULL"))
    (batch,) = to_batches([{}, {}])
    assert engine.match(batch).rows.tolist() == [0, 1]
