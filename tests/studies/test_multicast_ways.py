"""Which links each method crosses: counted again by walking, and never somebody left out."""

from __future__ import annotations

import numpy as np
import pytest

from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.listed import ListedGroups
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.plans import GroupPlan
from palio.multicast.traffic import GroupTraffic
from palio_studies.multicast_network import CLASSES
from palio_studies.multicast_ways import (
    CLUSTERED,
    LIKENESS,
    METHODS,
    THRESHOLD,
    UNICAST,
    delivered,
    multicasts,
    plans_for,
)
from tests.studies.test_multicast_network import small_wan, walked

WAN = small_wan()
SUBSCRIBERS = len(WAN.subscribers)
RANDOM = np.random.default_rng(11)
WANTED = RANDOM.random((150, SUBSCRIBERS)) < RANDOM.random((150, 1)) * 0.6
PUBLISHERS = RANDOM.integers(0, len(WAN.publishers), 150)


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


def test_all_methods_have_plans() -> None:
    assert tuple(PLANS) == METHODS


@pytest.mark.parametrize("name", METHODS)
def test_links_are_those_of_walking_each_send(name: str) -> None:
    found = delivered(WAN, PLANS[name], WANTED, PUBLISHERS)
    assert [links_walked(PLANS[name], event) for event in range(150)] == found.links.tolist()


@pytest.mark.parametrize("name", METHODS)
def test_everyone_who_wants_an_event_gets_it(name: str) -> None:
    found = delivered(WAN, PLANS[name], WANTED, PUBLISHERS)
    got = found.received[:, :SUBSCRIBERS]
    assert not (WANTED & ~got).any()
    if name in {"ideal", CLUSTERED, LIKENESS, UNICAST}:
        assert (got == WANTED).all()
    else:
        assert (got > WANTED).any(), "an imprecise method that wastes nothing tests nothing"
    assert not found.sends[~WANTED.any(axis=1)].any()


def test_no_method_crosses_fewer_links_than_the_ideal() -> None:
    links = {
        name: delivered(WAN, made, WANTED, PUBLISHERS).links.sum(axis=1)
        for name, made in PLANS.items()
    }
    for name in METHODS:
        if name != "neighbours":  # they may go other ways than the shortest
            assert (links[name] >= links["ideal"]).all(), name
    assert links["neighbours"].sum() > links["ideal"].sum()


def test_clusters_send_once_to_each_in_which_somebody_wants_the_event() -> None:
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
