"""Hop by hop."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.neighbours import MAX_NEIGHBOURS, NeighbourGroups
from palio.routing.trees import shortest_paths
from tests.multicast.plans import ring_of

BROKERS = tuple(f"b{place}" for place in range(8))


@pytest.mark.parametrize("publisher", range(8))
def test_an_event_goes_down_the_shortest_ways_and_nowhere_else(publisher: int) -> None:
    graph = ring_of(8)
    plan = NeighbourGroups(BROKERS, graph)
    wanted = np.random.default_rng(publisher).random((100, 8)) < 0.3
    sends = plan.sends(words_of(wanted), publisher)
    members = masks_of(plan.members(sends.groups), 8)
    senders = plan.senders(sends.groups).tolist()
    parents = shortest_paths(graph, BROKERS[publisher]).parents
    for row in range(100):
        on_ways = set()
        for place in np.flatnonzero(wanted[row]).tolist():
            name = BROKERS[place]
            while name != BROKERS[publisher]:
                on_ways.add(name)
                name = parents[name]
        mine = members[sends.starts[row] : sends.starts[row + 1]]
        got = [BROKERS[place] for send in mine for place in np.flatnonzero(send).tolist()]
        assert sorted(got) == sorted(on_ways), "somebody gets it twice, in vain or not at all"
        for sender, send in zip(senders[sends.starts[row] :], mine, strict=False):
            assert {parents[BROKERS[to]] for to in np.flatnonzero(send)} == {BROKERS[sender]}


def test_a_broker_is_not_cut_off_and_has_not_too_many_neighbours() -> None:
    lost = NeighbourGroups(("b1", "b2"), {})
    with pytest.raises(InvalidInput, match="no path leads from 'b1' to 'b2'"):
        lost.sends(np.array([[2]], np.uint64))
    names = tuple(f"b{place}" for place in range(MAX_NEIGHBOURS + 2))
    star = {name: {"b0": 1} for name in names[1:]}
    star["b0"] = dict.fromkeys(names[1:], 1)
    with pytest.raises(LimitExceeded, match="neighbours"):
        NeighbourGroups(names, star)
    fewer = {name: {"b0": 1} for name in names[1:-1]}
    fewer["b0"] = dict.fromkeys(names[1:-1], 1)
    most = NeighbourGroups(names[:-1], fewer)
    assert most.group_count == 2**MAX_NEIGHBOURS - 1 + MAX_NEIGHBOURS
