"""What clients of the multicast study want, how that changes, and which links each method crosses:
counted again by walking, and never somebody left out.
"""

from __future__ import annotations

import numpy as np
import pytest

from palio.multicast.broker_sets import masks_of, named, words_of
from palio.multicast.listed import ListedGroups
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.planners import PlanLimits, plan
from palio.multicast.plans import GroupPlan
from palio.multicast.traffic import GroupTraffic
from palio_studies.multicast_network import CLASSES
from palio_studies.multicast_scenes import (
    CLUSTERED,
    FIRST,
    LEARNED,
    LIKENESS,
    METHODS,
    PUBLISHER_REGIONAL,
    THRESHOLD,
    UNICAST,
    decay_for,
    delivered,
    drawn_events,
    drawn_interests,
    in_order,
    indexed,
    multicasts,
    plans_for,
    scene_of,
)
from palio_studies.study import Value
from tests.studies.test_multicast_network import small_wan, walked

COMMON: dict[str, Value] = {"match": 0.1, "stubs": 1, "events": 20}
OWN = np.arange(120) % 3
"""The regions of some subscriptions."""
WAN = small_wan()
SUBSCRIBERS = len(WAN.subscribers)
RANDOM = np.random.default_rng(11)
WANTED = RANDOM.random((150, SUBSCRIBERS)) < RANDOM.random((150, 1)) * 0.6
PUBLISHERS = RANDOM.integers(0, len(WAN.publishers), 150)


@pytest.mark.parametrize("regionalism", [0.0, 0.5, 1.0])
def test_destinations_are_those_of_comparing_each_pair(regionalism: float) -> None:
    random = np.random.default_rng(5)
    wishes = drawn_interests(random, OWN, 0.6, regionalism)
    brokers = np.arange(len(wishes)) % 6
    events = drawn_events(random, random.integers(0, 3, 200))
    values = np.column_stack([column.to_numpy() for column in events.columns])
    matches = ((wishes[None] < 0) | (wishes[None] == values[:, None])).all(axis=2)
    assert 0 < matches.sum() < matches.size
    routed = indexed(wishes, brokers).route(events)
    for broker in range(6):
        expected = matches[:, brokers == broker].any(axis=1)
        assert (routed.get(broker, np.zeros(200, np.bool_)) == expected).all()


@pytest.mark.parametrize(("match", "regionalism"), [(0.1, 0.0), (0.03, 0.0), (0.03, 0.9)])
def test_so_many_pairs_match_as_the_decay_was_chosen_for(match: float, regionalism: float) -> None:
    random = np.random.default_rng(1)
    wishes = drawn_interests(
        random, np.arange(2_400) % 3, decay_for(match, regionalism, 3), regionalism
    )
    events = drawn_events(random, random.integers(0, 3, 2_000))
    pairs = len(indexed(wishes, np.zeros(2_400, np.int64)).match(events).rows)
    assert pairs / (2_000 * 2_400) == pytest.approx(match, rel=0.1)


def test_popularity_decays_and_regions_are_those_of_the_broker() -> None:
    own = np.arange(12_000) % 3
    wishes = drawn_interests(np.random.default_rng(2), own, 0.5, 0.25)
    is_named = wishes >= 0
    named = is_named.mean(axis=0)
    assert named[:3] == pytest.approx([FIRST, FIRST / 2, FIRST / 4], rel=0.05)
    assert named[-1] == pytest.approx(0.25, rel=0.1)
    assert (wishes[:, -1] == own)[is_named[:, -1]].all()


def test_a_scene_learns_from_so_many_times_the_events_that_count() -> None:
    scene = scene_of(COMMON, 1)
    assert len(scene.wanted) == 20
    assert 0 < scene.learned.events <= LEARNED * 20


def test_events_may_be_of_the_region_of_their_publisher_only() -> None:
    local = {**COMMON, "kind": PUBLISHER_REGIONAL, "regionalism": 1.0}
    scene = scene_of(local, 1)
    regions = scene.wan.regions
    homes = regions[len(scene.wan.subscribers) + scene.publishers]
    assert scene.wanted.any()
    for row, home in zip(scene.wanted, homes, strict=True):
        assert set(regions[: len(row)][row].tolist()) <= {home}


@pytest.mark.parametrize("groups", [1, 2, 5, 20, 200])
def test_groups_are_combined_in_the_papers_order(groups: int) -> None:
    random = np.random.default_rng(groups)
    drawn = random.random((60, SUBSCRIBERS)) < random.random((60, 1)) * 0.5
    masks = [*np.unique(drawn[drawn.any(axis=1)], axis=0)]
    counts = random.permutation(len(masks)) + 1.0  # no two are as probable
    names = [[f"s{place + 1}" for place in np.flatnonzero(mask)] for mask in masks]
    traffic = GroupTraffic.of(WAN.subscribers, zip(names, counts.tolist(), strict=True))
    left = [({*name}, count) for name, count in zip(names, counts.tolist(), strict=True)]
    while len(left) > max(0, groups - 1):
        least = min(left, key=lambda one: (one[1], len(one[0])))
        left.remove(least)
        if not left:
            break

        def waste(other: tuple[set[str], float], one: tuple[set[str], float] = least) -> float:
            return one[1] * len(other[0] - one[0]) + other[1] * len(one[0] - other[0])

        best = min(left, key=waste)
        left.remove(best)
        left.append((best[0] | least[0], best[1] + least[1]))
    found = in_order(traffic, groups)
    wasted = [
        sum(
            count * (min(len(each) for each in plan if each >= {*name}) - len(name))
            for name, count in zip(names, counts.tolist(), strict=True)
        )
        for plan in (
            [{*each} for each, _ in left] + [{*WAN.subscribers}],
            [{*named(row, WAN.subscribers)} for row in found.groups],
        )
    ]
    assert wasted[0] == pytest.approx(wasted[1], rel=0.1)  # of equal waste either is taken
    assert found.group_count <= groups


def test_the_costs_of_a_plan_are_means_of_what_is_delivered() -> None:
    scene = scene_of(COMMON, 1)
    made = plan(scene.learned, "clustered", PlanLimits(groups=400))
    found, costs = scene.delivered(made), scene.costs(made)
    assert costs["links"] == pytest.approx(found.links.sum() / 20)
    assert costs["sends"] == pytest.approx(found.sends.mean())
    assert (costs["waste"], costs["precision"], costs["missed"]) == (0.0, 1.0, 0)


def some_plans() -> dict[str, GroupPlan]:
    """Made of half of the events; the ideal one of all."""
    learned, published = (
        GroupTraffic.counted(WAN.subscribers, words_of(each)) for each in (WANTED[:75], WANTED)
    )
    return plans_for(WAN, learned, published, groups=12)


PLANS = some_plans()


def links_walked(made: GroupPlan, event: int) -> list[int]:
    """The links by class that an event crosses, by following the plan one send at a time."""
    root = SUBSCRIBERS + int(PUBLISHERS[event])
    wide = np.zeros((1, len(made.brokers)), np.bool_)
    wide[0, :SUBSCRIBERS] = WANTED[event]
    sends = made.sends(words_of(wide), root)
    counts = [0] * len(CLASSES)
    members = masks_of(made.members(sends.groups), len(made.brokers))
    from_whom = [root] * len(members)
    if isinstance(made, NeighbourGroups):
        from_whom = made.senders(sends.groups).tolist()
    heard = [np.flatnonzero(each).tolist() for each in members]
    for alone in np.flatnonzero(masks_of(sends.by_link, len(made.brokers))[0]).tolist():
        heard.append([alone])
        from_whom.append(root)
    for sender, group in zip(from_whom, heard, strict=True):
        for link in walked(WAN, sender, group):
            counts[WAN.classes[link]] += 1
    return counts


@pytest.mark.parametrize("name", METHODS)
def test_links_are_those_of_walking_each_send_and_everyone_gets_what_he_wants(name: str) -> None:
    found = delivered(WAN, PLANS[name], WANTED, PUBLISHERS)
    assert [links_walked(PLANS[name], event) for event in range(150)] == found.links.tolist()
    got = found.received[:, :SUBSCRIBERS]
    assert not (WANTED & ~got).any()
    if name in {"ideal", CLUSTERED, LIKENESS, UNICAST}:
        assert (got == WANTED).all()
    else:
        assert (got > WANTED).any(), "an imprecise method that wastes nothing tests nothing"
    assert not found.sends[~WANTED.any(axis=1)].any()
    least = delivered(WAN, PLANS["ideal"], WANTED, PUBLISHERS).links.sum(axis=1)
    if name != "neighbours":  # they may go other ways than the shortest
        assert (found.links.sum(axis=1) >= least).all()
    assert found.links.sum() > least.sum() or name == "ideal"


def test_clusters_send_once_to_each_in_which_somebody_wants_the_event() -> None:
    assert tuple(PLANS) == METHODS
    clusters = WAN.regions[:SUBSCRIBERS]
    for name in (CLUSTERED, THRESHOLD):
        sends = delivered(WAN, PLANS[name], WANTED, PUBLISHERS).sends
        assert sends.tolist() == [len(set(clusters[row].tolist())) for row in WANTED]


def test_what_no_group_carries_goes_to_each_broker_alone() -> None:
    none = ListedGroups("none", WAN.subscribers, words_of(WANTED[:0]))
    sent = multicasts(WAN, none, WANTED, PUBLISHERS)
    assert (sent.members.sum(axis=1) == 1).all()
    assert len(sent.events) == WANTED.sum()
    assert (sent.roots == SUBSCRIBERS + PUBLISHERS[sent.events]).all()
