"""The same seeds give the same numbers here and on a standalone cluster with two workers."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from palio import files
from palio_studies.names import STUDIES, Scale
from palio_studies.study import points_of, study_named
from palio_studies.sweeping import put_together, write_run

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")


def run_on_cluster(name: str, home: Path) -> None:
    """As a user does it, on two workers of one core each."""
    from tests.spark.cluster import MEMORY, PATIENCE_S, cluster, environment

    with cluster(home / "cluster") as running:
        settings = environment() | {
            "SPARK_EXECUTOR_MEMORY": MEMORY,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [
            sys.executable,
            "-m",
            "palio",
            "study",
            "run",
            name,
            "--output",
            str(home / "far"),
        ]
        done = subprocess.run(
            [*command, "--master", running.url],
            env=settings,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr


def run_here(name: str, home: Path) -> None:
    """In this process, without Spark."""
    study = study_named(name)
    points = points_of(study, Scale.SMALL)
    runs = files.make_directory(home / "near" / name / "runs")
    experiments = {each.name: each for each in study.experiments}
    for point in points:
        write_run(runs, point, experiments[point.experiment].run(point), 0.0)
    put_together(study, points, runs.parent)


@pytest.mark.nightly
@pytest.mark.parametrize("name", STUDIES)
def test_a_cluster_finds_the_same_numbers(name: str, tmp_path: Path) -> None:
    run_here(name, tmp_path)
    run_on_cluster(name, tmp_path)
    drawn = [each for each in study_named(name).experiments if list(each.points(Scale.SMALL))]
    for experiment in drawn:
        near, far = (
            pq.read_table(tmp_path / place / name / f"{experiment.name}.parquet")
            for place in ("near", "far")
        )
        timed = [each for each in near.column_names if each in experiment.timed]
        assert near.drop_columns(timed).equals(far.drop_columns(timed)), experiment.name
