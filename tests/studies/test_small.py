"""Each study at its small scale, from runs to report, as `palio study` does it.

A usual run plays one of them, another with each commit; the night plays all.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palio_studies.drawing import series_of
from palio_studies.names import STUDIES, Scale
from palio_studies.report import write_report
from palio_studies.study import study_named
from palio_studies.sweeping import sweep
from tests.conftest import share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("pyspark", "matplotlib", "markdown_it")),
    reason="needs palio[spark]",
)


@pytest.mark.parametrize("name", share(STUDIES, 1))
def test_a_study_runs_and_is_reported(name: str, spark: SparkSession, tmp_path: Path) -> None:
    swept = sweep(study_named(name), Scale.SMALL, tmp_path, spark)
    assert not swept.failures, swept.failures[0].problem
    (report,) = write_report(tmp_path)
    study = report.study
    assert study.name == name
    run = {each.name for each in study.experiments if report.results.rows(each.name)}
    assert run == {
        point.experiment for each in study.experiments for point in each.points(Scale.SMALL)
    }
    # What little was run for may stay open, but not most of it.
    decided = [each for each in report.judged if each.evidence.holds is not None]
    assert 2 * len(decided) >= len(report.judged)
    text = (tmp_path / "report.md").read_text()
    for figure in study.figures:
        assert f"#### {figure.title}" in text
        drawn = f"/{study.name}-{figure.name}.svg)" in text
        assert drawn == bool(series_of(figure, report.results))
