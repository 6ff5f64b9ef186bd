"""A group for each subset of a cluster, or for each small one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.clustered import MAX_CLUSTER, MAX_GROUPS, ClusteredGroups, groups_needed
from palio.multicast.plans import received

NAMES = tuple("abcdefghij")
CLUSTERS = [[0, 3, 5, 9], [1, 2, 4], [6, 7, 8]]


@pytest.mark.parametrize("members", range(1, 9))
@pytest.mark.parametrize("threshold", [None, 1, 2, 3, 8, 20])
def test_the_groups_are_as_many_as_the_closed_form_says(
    members: int, threshold: int | None
) -> None:
    places = range(members)
    subsets = {
        each
        for size in range(1, members + 1)
        for each in combinations(places, size)
        if threshold is None or size <= threshold or size == members
    }
    assert groups_needed(members, threshold) == len(subsets)
    plan = ClusteredGroups(NAMES[:members], [list(places)], threshold)
    assert plan.group_count == len(subsets)
    found = masks_of(plan.members(np.arange(plan.group_count)), members)
    assert {tuple(np.flatnonzero(row).tolist()) for row in found} == subsets


@pytest.mark.parametrize("threshold", [None, 1, 2, 3])
def test_an_event_is_sent_once_to_each_cluster_that_wants_it(threshold: int | None) -> None:
    plan = ClusteredGroups(NAMES, CLUSTERS, threshold)
    wanted = np.random.default_rng(8).random((400, 10)) < 0.35
    sends = plan.sends(words_of(wanted))
    got = masks_of(received(plan, sends), 10)
    expected = np.zeros_like(wanted)
    touched = np.zeros(400, np.int64)
    for cluster in CLUSTERS:
        here = wanted[:, cluster]
        touched += here.any(axis=1)
        floods = np.zeros(400, np.bool_) if threshold is None else here.sum(axis=1) > threshold
        expected[:, cluster] = here | floods[:, None]
    assert (got == expected).all()
    assert np.diff(sends.starts).tolist() == touched.tolist()
    assert not sends.by_link.any()


@pytest.mark.parametrize(
    "clusters", [[[0, 1]], [[0, 1], [1, 2]], [[0, 1, 2], []], [[0, 1], [2, 3]]]
)
def test_clusters_have_each_broker_once(clusters: list[list[int]]) -> None:
    with pytest.raises(InvalidInput, match=r"each broker once|one broker at least"):
        ClusteredGroups(("a", "b", "c"), clusters)
    with pytest.raises(InvalidInput, match="threshold"):
        ClusteredGroups(("a", "b", "c"), [[0, 1, 2]], 0)


def test_clusters_are_not_too_large_and_groups_not_too_many() -> None:
    names = tuple(f"b{place}" for place in range(MAX_CLUSTER + 1))
    most = ClusteredGroups(names, [list(range(MAX_CLUSTER)), [MAX_CLUSTER]])
    assert most.group_count == 2**MAX_CLUSTER
    with pytest.raises(LimitExceeded, match="cluster"):
        ClusteredGroups(names, [list(range(MAX_CLUSTER + 1))], 1)
    large = MAX_GROUPS >> MAX_CLUSTER
    names = tuple(f"b{place}" for place in range(MAX_CLUSTER * (large + 1)))
    clusters = [
        list(range(first, first + MAX_CLUSTER)) for first in range(0, len(names), MAX_CLUSTER)
    ]
    with pytest.raises(LimitExceeded, match="number of groups"):
        ClusteredGroups(names, clusters)
    fewer = ClusteredGroups(names[: MAX_CLUSTER * large], clusters[:large])
    assert fewer.group_count == MAX_GROUPS - large
