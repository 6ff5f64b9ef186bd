"""The same seeds give the same numbers here and on a standalone cluster with two workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from palio import files
from palio_studies.catalogue import study_named
from palio_studies.names import STUDIES, Scale
from palio_studies.study import points_of
from palio_studies.sweeping import put_together, write_run
from tests.conftest import NIGHTLY

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")

QUICKEST: Final = "proxy"
"""The one study that every test run sends to a cluster; the night sends all."""

EACH: Final = 1 if NIGHTLY else 8
"""Of so many runs of an experiment one is the cluster's. It finds the others done, as after a kill;
they are copies of the one before, at both places."""


def run_on_cluster(name: str, home: Path) -> None:
    """As a user does it, on two workers of one core each."""
    from tests.spark.cluster import MEMORY, PATIENCE_S, cluster, environment

    with cluster(home / "cluster") as running:
        settings = environment() | {
            "SPARK_EXECUTOR_MEMORY": MEMORY,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "palio", "study", "run", name, "--out", str(home / "far")]
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
    """In this process, without Spark. The cluster is left one run of `EACH`."""
    study = study_named(name)
    points = points_of(study, Scale.SMALL)
    runs, there = (files.make_directory(home / place / name / "runs") for place in ("near", "far"))
    for experiment in study.experiments:
        own = [point for point in points if point.experiment == experiment.name]
        for start in range(0, len(own), EACH):
            first, *others = own[start : start + EACH]
            write_run(runs, first, experiment.run(first), 0.0)
            for place, other in product((runs, there), others):
                shutil.copy(runs / f"{first.name}.parquet", place / f"{other.name}.parquet")
    put_together(study, points, runs.parent)


@pytest.mark.parametrize(
    "name",
    [
        each if each == QUICKEST else pytest.param(each, marks=pytest.mark.nightly)
        for each in STUDIES
    ],
)
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
