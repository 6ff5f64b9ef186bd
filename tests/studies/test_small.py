"""All studies at their small scale, from runs to report, as `palio study` does it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palio.studies.catalogue import study_named
from palio.studies.drawing import series_of
from palio.studies.names import STUDIES, Scale
from palio.studies.report import write_report
from palio.studies.sweeping import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("pyspark", "matplotlib", "markdown_it")),
    reason="needs palio[spark,studies]",
)


def test_all_studies_run_and_report(spark: SparkSession, tmp_path: Path) -> None:
    """In one test, so that it is done once however many processes share the tests."""
    for name in STUDIES:
        swept = sweep(study_named(name), Scale.SMALL, tmp_path, spark)
        assert not swept.failures, swept.failures[0].problem
    reports = write_report(tmp_path)
    assert [each.study.name for each in reports] == list(STUDIES)
    text = (tmp_path / "report.md").read_text()
    for each in reports:
        run = {one.name for one in each.study.experiments if each.results.rows(one.name)}
        assert run == {
            point.experiment for one in each.study.experiments for point in one.points(Scale.SMALL)
        }
        # What little was run for may stay open, but not most of it.
        decided = [one for one in each.judged if one.evidence.holds is not None]
        assert 2 * len(decided) > len(each.judged)
        for figure in each.study.figures:
            assert f"#### {figure.title}" in text
            drawn = f"/{each.study.name}-{figure.name}.svg)" in text
            assert drawn == bool(series_of(figure, each.results))
