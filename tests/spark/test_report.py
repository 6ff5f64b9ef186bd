from __future__ import annotations

import json
from pathlib import Path

from palio.spark.report import RankedCount, RunReport, StageTime, write_report

REPORT = RunReport(
    pipeline="orders",
    started="2026-01-01T00:00:00+00:00",
    seconds=1.25,
    stages=(StageTime("read", 1.0, 1_000), StageTime("write", 0.25)),
    events=1_000,
    subscriptions=3,
    rejected=1,
    matches=150,
    matched_subscriptions=2,
    busiest=(RankedCount("a", 100), RankedCount("b", 50)),
    dead=("c",),
    dead_count=1,
    hot=(RankedCount({"id": 7}, 2),),
    skew=1.5,
)


def test_a_report_says_what_there_is_to_say() -> None:
    text = REPORT.markdown()
    for line in (
        "# orders",
        "- events: 1,000",
        "- rejected subscriptions: 1",
        "- fullest partition: 1.5 times the mean",
        "| read | 1.00 | 1,000 |",
        "| write | 0.25 |  |",
        "| a | 100 | 10.00% |",
        '| {"id": 7} | 2 |',
        "1: c",
    ):
        assert line in text.splitlines()


def test_a_report_is_silent_of_what_there_is_not() -> None:
    bare = RunReport(pipeline="p", started="now", seconds=0.0, stages=(), events=0)
    assert bare.markdown().splitlines() == ["# p", "", "now, 0.0 s", "", "- events: 0"]


def test_only_some_dead_filters_are_named() -> None:
    import msgspec

    many = msgspec.structs.replace(REPORT, dead_count=5_000)
    assert "5,000: c, ..." in many.markdown()


def test_a_report_is_written_for_people_and_for_programs(tmp_path: Path) -> None:
    files = write_report(REPORT, tmp_path / "new")
    document = json.loads((tmp_path / "new" / "report.json").read_text())
    assert document["busiest"] == [{"name": "a", "count": 100}, {"name": "b", "count": 50}]
    assert [Path(each).name for each in files] == ["report.md", "report.json"]
    text = (tmp_path / "new" / "report.md").read_text()
    assert text == REPORT.markdown()
