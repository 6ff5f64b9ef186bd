"""Guards confirm what their rows admit, for batches and for single events."""

from __future__ import annotations

from typing import Any, Final

import pytest

from palio.errors import InvalidEvent
from palio.matching import warming
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.model import to_batches
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
