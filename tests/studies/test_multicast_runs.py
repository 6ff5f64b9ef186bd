"""The runs of the multicast study, at a size that takes no time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from palio.multicast.clustered import ClusteredGroups
from palio.simulation.randomness import Randomness
from palio_studies.multicast_network import CLASSES, Extent, Wan, neighbour_graph
from palio_studies.multicast_queues import run_latency
from palio_studies.multicast_runs import (
    run_endpoints,
    run_groups,
    run_links,
    run_matching_sets,
    run_network,
)
from palio_studies.multicast_scenes import (
    METHODS,
    NON_REGIONAL,
    PUBLISHER_REGIONAL,
    REGIONAL,
)
from palio_studies.study import Point, Row, Value

Run = Callable[[Point], list[Row]]

COMMON: dict[str, Value] = {
    "kind": REGIONAL,
    "match": 1.0,
    "regionalism": 0.5,
    "stubs": 1,
    "events": 40,
}
QUEUED: dict[str, Value] = {**COMMON, "groups": 20, "rate": 500.0}
RUNS: list[tuple[Run, dict[str, Value]]] = [
    (run_links, {**COMMON, "groups": 20}),
    (run_latency, QUEUED),
]


@pytest.mark.parametrize(("run", "parameters"), RUNS)
def test_a_run_depends_on_its_point_alone(run: Run, parameters: dict[str, Value]) -> None:
    rows = run(Point("x", parameters, 1))
    assert rows == run(Point("x", dict(reversed(parameters.items())), 1))
    assert rows != run(Point("x", parameters, 2))
    assert len({tuple(row) for row in rows}) == 1, "rows differ in their columns"
    assert not {*rows[0]} & {*parameters, "seed"}, "a parameter is measured"


@pytest.mark.parametrize("kind", [NON_REGIONAL, REGIONAL, PUBLISHER_REGIONAL])
def test_all_methods_bring_events_to_all_who_want_them(kind: str) -> None:
    rows = run_links(Point("x", {**COMMON, "kind": kind, "groups": 20}, 1))
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        assert row["missed"] == 0
        assert float(row["links"]) >= float(rows[0]["links"])
        assert float(row["precision"]) == pytest.approx(
            float(row["wanted"]) / (float(row["wanted"]) + float(row["waste"]))
        )


def test_total_regionalism_is_found_and_stays_within_a_region() -> None:
    everywhere, regional, local = (
        run_links(Point("x", {**COMMON, "kind": kind, "regionalism": degree, "groups": 20}, 1))[0]
        for kind, degree in ((REGIONAL, 0.0), (REGIONAL, 1.0), (PUBLISHER_REGIONAL, 1.0))
    )
    assert float(everywhere["regionalism_found"]) < 0.1
    assert regional["regionalism_found"] == pytest.approx(1.0)
    assert regional["regions_found"] == 1.0
    assert local["backbone"] == 0.0 < float(regional["backbone"])


def test_what_is_sent_at_once_is_matched_twice_and_hop_by_hop_more_often() -> None:
    rows = {row["method"]: row for row in run_latency(Point("x", QUEUED, 1))}
    assert {name for name, row in rows.items() if row["matched"] == 2.0} == {*rows} - {"neighbours"}
    assert float(rows["neighbours"]["matched"]) > 2
    assert all(row["deliveries"] == row["wanted"] for row in rows.values())


def test_groups_are_as_many_as_plans_have() -> None:
    rows = run_groups(Point("groups", {"brokers": 14, "clusters": 3}, 1))
    brokers = tuple(f"b{place}" for place in range(14))
    clusters = [each.tolist() for each in np.array_split(np.arange(14), 3)]
    for row, threshold in zip(rows, (None, 1, 2, 3, 4), strict=True):
        assert row["needed"] == ClusteredGroups(brokers, clusters, threshold).group_count


@pytest.mark.parametrize(
    ("clusters", "groups", "endpoints"), [(1, 1_000, 9), (1, 1_023, 10), (10, 10_230, 100)]
)
def test_endpoints_are_those_whose_groups_are_within_the_limit(
    clusters: int, groups: int, endpoints: int
) -> None:
    given: dict[str, Value] = {"clusters": clusters, "most_groups": groups}
    assert run_endpoints(Point("endpoints", given, 1)) == [{"endpoints": endpoints}]


def test_matching_sets_are_disjoint_and_together_all_events() -> None:
    shares = {row["set"]: row["share"] for row in run_matching_sets(Point("matching-sets", {}, 1))}
    # a = 1 in a quarter of the events, b <= 2 in three quarters, c >= 2 in half
    assert shares == {
        "none": 0.75 * 0.25,
        "s2": 0.75 * 0.75,
        "s1": 0.25 * 0.25 * 0.5,
        "s1 s3": 0.25 * 0.25 * 0.5,
        "s1 s2": 0.25 * 0.75 * 0.5,
        "s1 s2 s3": 0.25 * 0.75 * 0.5,
    }


def test_a_map_has_every_link_and_each_pair_of_neighbours_once() -> None:
    rows = run_network(Point("network", {}, 1))
    wan = Wan(Extent(), Randomness(1))
    links = [row["kind"] for row in rows if row["of"] == "link"]
    assert Counter(links) == Counter(CLASSES[kind] for kind in wan.classes)
    near = neighbour_graph(wan.brokers, wan.latency_us, wan.most_groups)
    pairs = sum(map(len, near.values())) // 2
    assert len(rows) == len(links) + pairs
    places = {(row["x"], row["y"]) for row in rows} | {(row["to_x"], row["to_y"]) for row in rows}
    assert len(places) == len(wan.graph)
