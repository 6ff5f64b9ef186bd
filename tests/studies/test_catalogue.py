"""All studies are there, whole: what they name exists, and what they draw is run."""

from __future__ import annotations

import pytest

from palio.errors import InvalidInput
from palio_studies.catalogue import study_named
from palio_studies.names import STUDIES, Scale
from palio_studies.study import points_of


def test_an_unknown_study_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'podc' is no study; it is one of"):
        study_named("podc")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_whole(name: str) -> None:
    study = study_named(name)
    assert study.name == name
    assert study.title
    assert study.paper
    assert study.method
    experiments = {each.name for each in study.experiments}
    assert {figure.experiment for figure in study.figures} <= experiments
    for what in (study.figures, study.claims, study.choices, study.experiments):
        names = [each.name for each in what]
        assert names
        assert len(set(names)) == len(names)
    for scale in Scale:
        points = points_of(study, scale)
        assert points
        assert len({point.name for point in points}) == len(points)
        assert {point.experiment for point in points} <= experiments
    assert {point.experiment for point in points_of(study, Scale.SMALL)} <= experiments
