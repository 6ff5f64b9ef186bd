"""Guards confirm what their rows admit, for batches and for single events."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from palio.errors import InvalidEvent
from palio.language.parsing import parse_filter
from palio.matching import warming
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.model import functions, to_batches
from palio.model.limits import MAX_COMPUTED_CHARS
from tests.matching.test_index import check_equal, parsed

TEXTS: Final = (
    "x = 1 AND LENGTH(s) > 2",
    "x = 1 OR y = 1 AND LENGTH(s) > 1",  # rows in two layers
    "x > 0 AND LENGTH(s) > 1 OR y > 0 AND LENGTH(s) > 2",
    "x < 2",
    "LENGTH(s) = 3",
)

EVENTS: Final[list[dict[str, Any]]] = [
    {"x": x, "y": y, "s": "abcd"[:length]} for x in range(3) for y in range(3) for length in (1, 3)
]


def filled(engine: Any) -> Any:
    for key, text in enumerate(TEXTS):
        engine.add(key, parsed(text), destination=key % 2)
    return engine


@pytest.mark.parametrize("merged", [False, True])
def test_a_filter_with_rows_in_two_layers_is_one_filter(*, merged: bool) -> None:
    warming.warm()
    index, reference = filled(Index()), filled(Reference())
    if merged:
        index.merge()
    assert any(layer.guarded for layer in index.explain_plan(1).layers)
    check_equal(index, reference, EVENTS)
    for batch in to_batches(EVENTS):
        assert index.count(batch) == reference.count(batch)
    for event in EVENTS:
        assert index.match_event(event).tolist() == reference.match_event(event).tolist()
        assert index.route_event(event) == reference.route_event(event)


def test_a_guard_goes_with_its_filter() -> None:
    warming.warm()
    index, reference = filled(Index()), filled(Reference())
    index.merge()
    for engine in (index, reference):
        engine.remove(1)
        engine.add(2, parsed("x = 2 AND LENGTH(s) > 2"))
    check_equal(index, reference, EVENTS)
    assert index.match_event({"x": 2, "s": "abc"}).tolist() == [2, 4]


@pytest.mark.parametrize("text", ["x = 1 AND LENGTH(s) > 2", "x > 1"], ids=["guarded", "recent"])
def test_what_is_no_event_is_refused_by_every_layer(text: str) -> None:
    warming.warm()
    index = Index()
    index.add(1, parsed(text))
    with pytest.raises(InvalidEvent):
        index.match_event({"other": object()})


COMPUTING: Final = (
    "x = 1 AND UPPER(s) != 'A'",
    "TRIM(s) LIKE 'a%a_' OR y = 2 AND s CONTAINS t",
    "s < t OR CONCAT(s, t) > 'a'",
    "SUBSTRING(s, -2) IN ('aa', t)",
    "COALESCE(t, s) ENDS WITH 'a'",
    "CESQL 'LOWER(s) = t OR LENGTH(s) > 4096'",
    "LENGTH(s) > 4096",
    "x < 2 AND s != t IGNORE CASE",
)


@pytest.mark.parametrize("merged", [False, True])
def test_long_texts_are_unknown_to_every_engine(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random, *, merged: bool
) -> None:
    """Below the limit the answers are those of evaluation without one."""
    warming.warm()
    engines = (Index(), Reference())
    filters = [parse_filter(text) for text in COMPUTING]
    for engine in engines:
        for key, filter in enumerate(filters):
            engine.add(key, filter)
    if merged:
        engines[0].merge()
    events = []
    for _ in range(60):
        letter = rng.choice("aA \xe4")
        length = rng.choice([1, 3, MAX_COMPUTED_CHARS - 1, MAX_COMPUTED_CHARS, 5_000, 70_000])
        event: dict[str, Any] = {"x": rng.randrange(3), "y": rng.randrange(3), "s": letter * length}
        events.append(event | ({"t": rng.choice(["a", letter])} if rng.random() < 0.7 else {}))
    expected = [[key for key, each in enumerate(filters) if each.matches(e)] for e in events]
    for engine in engines:
        for step in (1, 7, 60):
            for first in range(0, len(events), step):
                some = events[first : first + step]
                (batch,) = to_batches(some)
                matches = engine.match(batch)
                found = [matches.keys[matches.rows == row].tolist() for row in range(len(some))]
                assert found == expected[first : first + step], (type(engine), step)
        assert [engine.match_event(event).tolist() for event in events] == expected
    monkeypatch.setattr(functions, "MAX_COMPUTED_CHARS", 1 << 20)
    for event, keys in zip(events, expected, strict=True):
        unbounded = [key for key, each in enumerate(filters) if each.matches(event)]
        if len(event["s"]) < MAX_COMPUTED_CHARS:
            assert unbounded == keys
        assert set(keys) <= set(unbounded)
