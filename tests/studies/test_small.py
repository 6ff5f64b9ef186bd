"""All studies at their small scale, from runs to report, as `palio study` does it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palio.studies.catalogue import study_named
from palio.studies.names import STUDIES, Scale
from palio.studies.report import report_of, write_report
from palio.studies.results import read_results
from palio.studies.sweeping import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("pyspark", "matplotlib", "markdown_it")),
    reason="needs palio[spark,studies]",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of them are run."""
    return tmp_path_factory.mktemp("studies")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_whole(name: str, spark: SparkSession, home: Path) -> None:
    study = study_named(name)
    swept = sweep(study, Scale.SMALL, home, spark)
    assert not swept.failures, swept.failures[0].problem
    results = read_results(home, study)
    assert {each.name for each in study.experiments if results.rows(each.name)} == {
        point.experiment for each in study.experiments for point in each.points(Scale.SMALL)
    }
    found = report_of(study, home)
    assert found is not None
    # What little was run for may stay open, but not most of it.
    decided = [one for one in found.judged if one.evidence.holds is not None]
    assert 2 * len(decided) > len(found.judged)
    assert all(one.claim.reason for one in decided if not one.evidence.holds)


def test_the_report_has_them_all(spark: SparkSession, home: Path) -> None:
    for name in STUDIES:  # kept, if the tests above ran here
        sweep(study_named(name), Scale.SMALL, home, spark)
    reports = write_report(home)
    assert [each.study.name for each in reports] == list(STUDIES)
    text = (home / "report.md").read_text()
    for each in reports:
        assert f"### Claims of {each.study.name}" in text
        for figure in each.study.figures:
            assert f"#### {figure.title}" in text
