"""A cluster answers as this machine and the oracle do, whether workers die or not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from palio.spark import match
from palio.spark.matches import HOWS
from tests.spark import cluster_job
from tests.spark.cluster import PATIENCE_S, Cluster, Daemon, await_that, cluster, environment
from tests.spark.oracle import answers, drawn_events, drawn_subscriptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.nightly  # six JVMs


class Run:
    """What the program found on a cluster, and which tasks were begun how often."""

    def __init__(self, home: Path, running: Cluster) -> None:
        draw = random.Random(6)
        self.events, self.subscriptions = drawn_events(draw), drawn_subscriptions(draw)
        self.path = home / "events.parquet"
        pq.write_table(self.events, self.path, row_group_size=200)
        rows = home / "subscriptions.jsonl"
        rows.write_text("\n".join(map(json.dumps, self.subscriptions)))
        for how in HOWS:
            (home / how).mkdir()
        self.begun_again: dict[str, int] = {}
        program = [sys.executable, cluster_job.__file__, running.url, str(self.path), str(rows)]
        driver = subprocess.Popen(
            [*program, str(home), ",".join(HOWS), *HOWS],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        try:
            for how in HOWS:
                self._kill_a_worker(home / how, running, driver)
            _, errors = driver.communicate(timeout=PATIENCE_S)
            assert driver.returncode == 0, errors
        finally:
            if driver.returncode is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.communicate()
        self.found = json.loads((home / "found.json").read_text())
        self.expected = answers(self.events, self.subscriptions)

    def _kill_a_worker(self, barrier: Path, running: Cluster, driver: Any) -> None:
        """Kill one that has a task under way, and let the job go on when that task is elsewhere."""

        def begun(worker: Daemon) -> set[str]:
            """The tasks that a worker has begun, as `stage-partition`."""
            return {
                each.name.split("-", 1)[1].rsplit("-", 2)[0]
                for each in barrier.glob("begun-*")
                if each.read_text().startswith(f"{worker.home}/")
            }

        def busy() -> Daemon | None:
            assert driver.poll() is None, driver.stderr.read()
            alive = [each for each in running.workers if each.process.returncode is None]
            return alive[0] if all(map(begun, alive)) else None

        worker = await_that(busy, "a task on each worker")
        lost = begun(worker)
        worker.kill()
        running.add_workers(1)
        (barrier / "go").touch()
        others = [each for each in running.workers if each is not worker]
        await_that(lambda: lost <= set().union(*map(begun, others)), "its tasks elsewhere")
        self.begun_again[barrier.name] = len(lost)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("cluster")
    with cluster(home / "spark") as running:
        yield Run(home, running)


@pytest.mark.parametrize("how", HOWS)
def test_a_cluster_finds_what_the_oracle_finds(run: Run, how: str) -> None:
    assert run.expected[how]
    assert run.found[how] == run.expected[how]
    assert run.found[f"{how}, path"] == run.expected[how]


@pytest.mark.parametrize("how", HOWS)
def test_nothing_is_missing_or_twice_when_a_worker_dies(run: Run, how: str) -> None:
    assert run.begun_again[how]
    assert run.found[f"{how}, held up"] == run.expected[how]


def test_this_machine_alone_finds_the_same(run: Run, spark: SparkSession) -> None:
    found = match(spark.createDataFrame(run.events), run.subscriptions, columns=["id"])
    assert cluster_job.rows(found) == run.found["pairs"]
