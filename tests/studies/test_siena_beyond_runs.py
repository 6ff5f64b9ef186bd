"""Runs beyond the paper: their points, and what their rows must agree with."""

from __future__ import annotations

import pytest

from palio_studies.names import Scale
from palio_studies.siena_beyond_runs import BEYOND_EXPERIMENTS
from palio_studies.study import Experiment, Point, Row, Value

BY_NAME = {each.name: each for each in BEYOND_EXPERIMENTS}


def row_of(experiment: str, architecture: str, seed: int = 1, /, **parameters: Value) -> Row:
    fixed: dict[str, Value] = {"objects": 10, "parties": 5, "publications": 60}
    point = Point(experiment, fixed | {"architecture": architecture} | parameters, seed)
    (row,) = BY_NAME[experiment].run(point)
    return row


@pytest.mark.parametrize("experiment", BEYOND_EXPERIMENTS, ids=lambda each: each.name)
@pytest.mark.parametrize("scale", list(Scale))
def test_points_are_of_their_experiment_each_once(experiment: Experiment, scale: Scale) -> None:
    points = list(experiment.points(scale))
    assert {each.experiment for each in points} <= {experiment.name}
    assert len({each.name for each in points}) == len(points)
    assert all(experiment.weight(each) > 0 for each in points)
    assert bool(points) == (scale is not Scale.PAPER)


@pytest.mark.parametrize(
    ("experiment", "architecture", "own"),
    [("load", "hs", {"load": 4.0}), ("delegation", "pa", {"sources": 2, "steps": 3})],
)
def test_a_row_depends_on_its_point_alone(
    experiment: str, architecture: str, own: dict[str, Value]
) -> None:
    one, again = (row_of(experiment, architecture, **own) for _ in range(2))
    assert one == again
    assert row_of(experiment, architecture, 2, **own) != one


def test_the_load_that_is_bearable_is_the_same_at_any_load() -> None:
    rows = [row_of("load", "hs", load=load) for load in (0.5, 4.0)]
    assert float(rows[0]["bearable"]) == pytest.approx(float(rows[1]["bearable"]), rel=1e-3)
    assert float(rows[1]["busiest"]) == pytest.approx(8 * float(rows[0]["busiest"]), rel=1e-3)
    assert rows[0]["delivered"] == rows[1]["delivered"]
    assert 0 < float(rows[0]["latency_ms"]) <= float(rows[0]["slow_ms"])
    assert float(rows[0]["latency_ms"]) < float(rows[1]["latency_ms"])


def test_a_hierarchy_bears_less_where_most_is_ignored() -> None:
    hierarchy, peers = (row_of("load", each, load=1.0) for each in ("hs", "as"))
    assert hierarchy["at_root"] == 1.0
    assert float(hierarchy["bearable"]) < float(peers["bearable"])
    assert hierarchy["delivered"] == peers["delivered"]


@pytest.mark.parametrize("sources", [1, 2])
def test_delegation_finds_the_same_for_less(sources: int) -> None:
    by_parties, by_servers = (
        row_of("delegation", each, sources=sources, steps=3) for each in ("aa", "pa")
    )
    assert by_parties["occurrences"] == by_servers["occurrences"]
    assert int(by_parties["notification_cost"]) > int(by_servers["notification_cost"])
    assert by_parties["carried_cost"] == by_parties["notification_cost"]


def test_composites_count_for_each_of_their_events_in_what_is_carried() -> None:
    row = row_of("delegation", "pa", sources=1, steps=3)
    assert int(row["occurrences"]) > 0
    assert row["carried_cost"] == 3 * int(row["notification_cost"]) > 0
