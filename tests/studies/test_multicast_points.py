"""What is run of the multicast study."""

from __future__ import annotations

import pytest

from palio_studies.multicast import STUDY
from palio_studies.multicast_interests import decay_for
from palio_studies.names import Scale
from palio_studies.study import points_of


@pytest.mark.parametrize("scale", list(Scale))
def test_every_point_asks_for_a_match_rate_within_reach(scale: Scale) -> None:
    for point in points_of(STUDY, scale):
        given = point.parameters
        if "match" in given:
            regions = 5 * int(given.get("stubs", 2))
            degree = float(given.get("regionalism", 0.0))
            assert 0 <= decay_for(float(given["match"]) / 100, degree, regions) <= 1


def test_the_longest_runs_begin_first() -> None:
    points = points_of(STUDY, Scale.PAPER)
    assert points[0].experiment == "prices"
    assert points[-1].experiment == "groups"
