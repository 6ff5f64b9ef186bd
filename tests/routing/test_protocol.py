from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import PalioError
from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.model.events import to_batch, to_batches
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import FEW_FILTERS, IllegalMessage, Matching, Peer, Selector
from palio.routing.reference_selector import ReferenceSelector
from tests.routing.helpers import ALICE, ONE
from tests.strategies import SEEDS, examples, filters, nearby


def test_events_are_rows_or_columns() -> None:
    (batch,) = to_batches([{"a": 1}, {"a": 2}, {"a": 3}])
    for events in (
        Parcel("p", batch).stamped("p", 0, 0),
        RowParcel("p", [{"a": 1}, {"a": 2}, {"a": 3}]),
    ):
        some = events.select(np.array([True, False, True]))
        assert some.seqs == (0, 2)
        assert [row["a"] for row in some.rows] == [1, 3]
        assert [each.num_rows for each in some.batches] == [2]
        assert events.select(np.array([True, True, True])) is events


def test_rows_of_changing_types_are_several_batches() -> None:
    events = RowParcel("p", [{"a": 1}, {"a": "x"}])
    assert [each.num_rows for each in events.batches] == [1, 1]


def test_peers_differ_in_role_or_name() -> None:
    assert len({Peer.client("a"), Peer.broker("a"), Peer.master("a"), Peer.client("b")}) == 4
    assert str(Peer.master("a")) == "master a"


def test_an_illegal_message_names_its_sender() -> None:
    error = IllegalMessage(ONE, "why")
    assert isinstance(error, PalioError)
    assert str(error) == "broker s1 sent an illegal message: why"


def test_attaching_twice_and_detaching_strangers_are_mistakes() -> None:
    broker = Acyclic("b")
    broker.attach(ALICE)
    with pytest.raises(ValueError, match="attached already"):
        broker.attach(ALICE)
    with pytest.raises(ValueError, match="not attached"):
        broker.detach(ONE)


@pytest.mark.parametrize("matcher", [Reference, Index])
def test_one_event_is_routed_as_it_is(matcher: Callable[[], Matcher]) -> None:
    selector = Matching(matcher())
    selector.add(1, parse_filter("x > :low"), {"low": 1}, destination=7)
    selector.add(2, parse_filter("y = 1"), {}, destination=8)
    for row, expected in (({"x": 2}, [7]), ({"x": 2, "y": 1}, [7, 8]), ({"x": 1}, [])):
        found = selector.route(RowParcel("p", [row], seqs=(3,)))
        assert list(found) == expected
        assert all(mask.tolist() == [True] for mask in found.values())
        assert selector.route(Parcel("p", to_batch(row))).keys() == found.keys()


class Counting(Reference):
    """An engine that counts how often it is asked about a single event."""

    asked = 0

    def match_event(self, event: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        self.asked += 1
        return super().match_event(event)


@pytest.mark.parametrize(
    ("text", "is_short"),
    [
        ("x > 0 AND y = 1 AND s != 'a' AND z <= 2.5", True),
        ("x > 0 AND y = 1 AND s != 'a' AND z <= 2.5 AND w = 1", False),
        ("x = 1 OR y = 1", False),
        ("x IN (1, 2)", False),
        ("s LIKE '%a'", False),
        ("x + y > 1", False),
    ],
)
def test_few_short_filters_are_tried_without_the_engine(text: str, is_short: bool) -> None:
    engine = Counting()
    selector = Matching(engine)
    for key in range(FEW_FILTERS):
        selector.add(key, parse_filter(text if key == 3 else "x > 0"), {}, destination=1)
    selector.match_event({"x": 1})
    assert engine.asked == (not is_short)


def test_with_more_filters_the_engine_is_asked_until_all_are_gone() -> None:
    engine = Counting()
    selector = Matching(engine)
    for key in range(FEW_FILTERS + 1):
        assert (len(selector.match_event({"x": 1})), engine.asked) == (key, 0)
        selector.add(key, parse_filter("x > :low"), {"low": 0}, destination=1)
    assert len(selector.match_event({"x": 1})) == FEW_FILTERS + 1
    for key in range(FEW_FILTERS + 1):
        selector.remove(key)
        assert len(selector.match_event({"x": 1})) == FEW_FILTERS - key
    asked = engine.asked
    selector.add(1, parse_filter("x > :low"), {"low": 0}, destination=1)
    assert selector.match_event({"x": 1}) == [1]
    selector.bind(1, {"low": 1}, parse_filter("x > 1"))
    assert selector.match_event({"x": 1}) == []
    assert engine.asked == asked == FEW_FILTERS + 1


@given(st.lists(filters(), min_size=1, max_size=6), SEEDS)
@examples(60)
def test_an_event_matches_the_same_filters_with_and_without_the_engine(
    asked: list[Filter], seed: int
) -> None:
    selectors: list[Selector] = [Matching(Reference()), Matching(Index()), ReferenceSelector()]
    for key, each in enumerate(asked):
        for selector in selectors:
            selector.add(key, each, {}, destination=0)
    for event in nearby(*asked, seed=seed, count=8):
        expected = [key for key, each in enumerate(asked) if each.matches(event)]
        assert [sorted(each.match_event(event)) for each in selectors] == [expected] * 3
