from __future__ import annotations

import numpy as np
import pytest

from palio.errors import LimitExceeded, NotSupported
from palio.multicast import epochs
from palio.multicast.clustered import ClusteredGroups
from palio.multicast.epochs import Epoch
from palio.multicast.listed import ListedGroups, flooding
from palio.multicast.neighbours import NeighbourGroups

BROKERS = ("b1", "b2", "b3", "b4")


def test_every_broker_is_carried_to_in_one_way() -> None:
    epoch = Epoch(1, ClusteredGroups(BROKERS, [[0, 1], [2, 3]]))
    for bits in range(1, 16):
        wanted = [name for place, name in enumerate(BROKERS) if bits >> place & 1]
        carried = epoch.carriage([*wanted, "x"])
        assert carried.by_link == ("x",)
        named = [name for _, names in carried.groups for name in names]
        assert sorted(named) == wanted
        for group, names in carried.groups:
            assert set(names) <= set(epoch.members(group))


def test_whom_no_group_has_is_reached_by_links() -> None:
    epoch = Epoch(1, ListedGroups("ideal", BROKERS, np.array([[3]], np.uint64)))
    assert epoch.carriage(["b1", "b2"]).groups == ((0, ("b1", "b2")),)
    assert epoch.carriage(["b1", "b3"]).by_link == ("b1", "b3")
    assert epoch.groups_of("b2") == (0,)
    assert epoch.groups_of("b3") == ()
    assert (epoch.place("b2", 0), epoch.place("b3", 0), epoch.place("b1", 9)) == (1, -1, -1)
    assert epoch.members(9) == ()


def test_a_plan_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotSupported, match="another method"):
        Epoch(1, NeighbourGroups(("b1", "b2"), {"b1": {"b2": 1}, "b2": {"b1": 1}}))
    clusters = ClusteredGroups(BROKERS, [[0, 1, 2, 3]])
    monkeypatch.setattr(epochs, "MAX_GROUPS_IN_USE", 15)
    assert Epoch(1, clusters).members(0)
    monkeypatch.setattr(epochs, "MAX_GROUPS_IN_USE", 14)
    with pytest.raises(LimitExceeded, match="MAX_GROUPS_IN_USE"):
        Epoch(1, clusters)


def test_flooding_has_one_group() -> None:
    assert Epoch(1, flooding(BROKERS)).brokers == BROKERS
