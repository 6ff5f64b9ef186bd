"""What the clients of a run want, and how that changes."""

from __future__ import annotations

import pytest

from palio.multicast.planners import PlanLimits, plan
from palio_studies.multicast_scenes import LEARNED, PUBLISHER_REGIONAL, Clientele, scene_of
from palio_studies.study import Value

COMMON: dict[str, Value] = {"match": 0.1, "stubs": 1, "events": 20}


def test_a_scene_is_the_first_of_its_clientele() -> None:
    one, other = scene_of(COMMON, 1), Clientele(COMMON, 1).scene(LEARNED * 20, 20)
    assert (one.wanted == other.wanted).all()
    assert one.learned.counts.tolist() == other.learned.counts.tolist()
    assert len(one.wanted) == 20
    assert one.learned.events <= LEARNED * 20


def test_events_may_be_of_the_region_of_their_publisher_only() -> None:
    local = {**COMMON, "kind": PUBLISHER_REGIONAL, "regionalism": 1.0}
    scene = scene_of(local, 1)
    regions = scene.wan.regions
    homes = regions[len(scene.wan.subscribers) + scene.publishers]
    assert scene.wanted.any()
    for row, home in zip(scene.wanted, homes, strict=True):
        assert set(regions[: len(row)][row].tolist()) <= {home}


def test_the_costs_of_a_plan_are_means_of_what_is_delivered() -> None:
    scene = scene_of(COMMON, 1)
    made = plan(scene.learned, "clustered", PlanLimits(groups=400))
    found, costs = scene.delivered(made), scene.costs(made)
    assert costs["links"] == pytest.approx(found.links.sum() / 20)
    assert costs["sends"] == pytest.approx(found.sends.mean())
    assert (costs["waste"], costs["precision"], costs["missed"]) == (0.0, 1.0, 0)


def test_without_drift_the_same_is_wanted_for_ever() -> None:
    clientele = Clientele(COMMON, 1)
    before = clientele.interests
    clientele.change(share=0.0)
    for one, other in zip(before, clientele.interests, strict=True):
        assert (one == other).all()
    clientele.change(share=0.25)
    same = (before.values == clientele.interests.values).all(axis=1)
    assert same.mean() == pytest.approx(0.75, abs=0.02)
    assert (before.brokers == clientele.interests.brokers).all()
