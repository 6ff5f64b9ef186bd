"""`palio study` as a user meets it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from palio_studies.names import STUDIES
from tests.cli.helpers import Palio


def test_studies_are_listed(palio: Palio) -> None:
    outcome = palio("study", "list", "--json")
    assert outcome.status == 0
    assert [each["name"] for each in outcome.document["studies"]] == list(STUDIES)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")
def test_an_unknown_study_is_told_before_spark_starts(palio: Palio, tmp_path: Path) -> None:
    outcome = palio("study", "run", "podc", "--out", str(tmp_path))
    assert outcome.status == 2
    assert "'podc' is no study" in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_directory_without_studies_has_no_report(palio: Palio, tmp_path: Path) -> None:
    outcome = palio("study", "report", str(tmp_path))
    assert outcome.status == 2
    assert "has no study; run one first" in outcome.err
