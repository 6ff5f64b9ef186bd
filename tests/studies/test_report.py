"""A report has every figure, choice and claim, and says which fail and why."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from palio import __version__
from palio.errors import InvalidInput
from palio_studies import report
from palio_studies.names import Scale
from palio_studies.study import points_of
from palio_studies.sweeping import SweepPlan, keep_plan, put_together, write_run
from tests.studies import toy

pytestmark = pytest.mark.skipif(
    find_spec("matplotlib") is None or find_spec("markdown_it") is None,
    reason="needs palio[studies]",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy as the only study there is, run."""
    study = toy.study()
    monkeypatch.setattr(report, "STUDIES", ("toy",))
    monkeypatch.setattr(report, "study_named", lambda _: study)
    points = points_of(study, Scale.SMALL)
    runs = tmp_path / "toy/runs"
    runs.mkdir(parents=True)
    keep_plan(runs.parent, SweepPlan("toy", "small", __version__, len(points)))
    for point in points:
        write_run(runs, point, toy.walk(point), 0.5)
    put_together(study, points, runs.parent)
    return tmp_path


def test_a_report_reads_like_an_evaluation(home: Path) -> None:
    (found,) = report.write_report(home)
    assert [one.evidence.holds for one in found.judged] == [True, False, None]
    text = (home / "report.md").read_text()
    assert "| [toy](#toy) | small | 6 | 0.0 | 1 | 1 | 1 |" in text
    assert "| steps | lost or not given | 1 to 100 | none was given |" in text
    assert "| Fast is faster \\| than slow. | more |" in text
    assert "- *slower*: It is not. (Found on a Monday.)" in text
    assert "### Table 1: ways\n\n| gait | steps |\n|---|---|\n" in text
    assert "![Figure 1: the way](figures/toy-way.svg)" in text
    assert "Both grow. [Numbers](figures/toy-way.csv)." in text
    assert "Not run at this scale (small)." in text
    for name in ("way", "gaits"):
        for suffix in ("svg", "png", "csv"):
            assert (home / "figures" / f"toy-{name}.{suffix}").exists()


def test_html_has_the_same(home: Path) -> None:
    report.write_report(home)
    text = (home / "report.html").read_text()
    assert '<h2 id="toy">toy</h2>' in text
    assert '<img src="figures/toy-way.svg" alt="Figure 1: the way"' in text
    assert "<td>Fast is faster | than slow.</td>" in text


def test_without_a_study_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="palio study run"):
        report.write_report(tmp_path)


def test_half_a_study_is_not_reported(home: Path) -> None:
    (home / "toy/walk.parquet").unlink()
    with pytest.raises(InvalidInput, match="not all runs of toy are there"):
        report.write_report(home)
