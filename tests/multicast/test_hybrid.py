"""Clusters and approximation together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from palio.multicast.broker_sets import sizes_of
from palio.multicast.clustered import ClusteredGroups
from palio.multicast.listed import HybridGroups
from palio.multicast.merging import approximated
from palio.multicast.plans import GroupPlan, measure, received
from tests.multicast.plans import RING, some_traffic


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("send_price", [0.0, 1.0, 5.0])
def test_each_event_goes_the_cheaper_way(seed: int, send_price: float) -> None:
    traffic = some_traffic(seed)
    edge = ClusteredGroups(traffic.brokers, [[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    across = approximated(traffic, 10)
    both = HybridGroups(edge, across, send_price)

    def costs(plan: GroupPlan) -> npt.NDArray[np.float64]:
        sends = plan.sends(traffic.sets)
        return send_price * np.diff(sends.starts) + sizes_of(received(plan, sends))

    assert costs(both).tolist() == np.minimum(costs(edge), costs(across)).tolist()
    report = measure(both, traffic)
    assert report.groups == edge.group_count + across.group_count
    assert len(both.joins) == RING
