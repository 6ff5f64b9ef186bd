from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from palio.errors import PalioError
from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.model.events import to_batch, to_batches
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import IllegalMessage, Matching, Peer
from tests.routing.helpers import ALICE, ONE


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
