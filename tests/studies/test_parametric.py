from __future__ import annotations

import pytest

from palio_studies.names import Scale
from palio_studies.parametric import STUDY
from palio_studies.parametric_runs import WAYS
from palio_studies.study import points_of


@pytest.mark.parametrize("scale", Scale)
def test_all_ways_are_run_on_the_same_seeds(scale: Scale) -> None:
    seen: dict[str, set[tuple[object, ...]]] = {}
    for point in points_of(STUDY, scale):
        of = dict(point.parameters)
        if (point.experiment, scale) == ("scaling", Scale.SMALL):
            continue
        way = str(of.pop("way"))
        seen.setdefault(way, set()).add((point.experiment, *sorted(of.items()), point.seed))
    assert set(seen) == set(WAYS)
    assert len({frozenset(each) for each in seen.values()}) == 1
