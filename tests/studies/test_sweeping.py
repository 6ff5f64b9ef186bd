"""Every run is kept once, whole or not at all, and the same wherever it ran."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio import files
from palio.errors import InvalidInput
from palio_studies import sweeping
from palio_studies.names import Scale
from palio_studies.results import read_results
from palio_studies.study import Point, points_of
from palio_studies.sweeping import (
    PLAN,
    SweepPlan,
    digest_of,
    own_code,
    put_together,
    sweep,
    write_run,
)
from tests.studies import toy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")


@pytest.fixture(autouse=True, scope="module")
def by_value() -> Iterator[None]:
    """Workers take the toy's functions as they are: they cannot import tests."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(toy)  # type: ignore[no-untyped-call]  # has no types
    yield
    cloudpickle.unregister_pickle_by_value(toy)  # type: ignore[no-untyped-call]  # likewise


def test_rows_are_those_of_a_run_in_this_process(spark: SparkSession, tmp_path: Path) -> None:
    study, told = toy.study(), list[int]()
    swept = sweep(study, Scale.PAPER, tmp_path, spark, told.append)
    assert (swept.points, swept.kept, swept.failures) == (12, 0, ())
    assert told[-1] == 12
    expected = [
        {**point.parameters, "seed": point.seed, **row}
        for point in points_of(study, Scale.PAPER)
        for row in toy.walk(point)
    ]
    for row in expected:
        row.pop("pid")
    found = read_results(tmp_path / "toy").rows("walk")
    assert {row.pop("pid") for row in found}.isdisjoint({os.getpid()})
    assert found == sorted(expected, key=lambda row: (row["size"], row["seed"], row["way"]))


def test_a_larger_scale_takes_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    study = toy.study()
    sweep(study, Scale.SMALL, tmp_path, spark)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "toy/runs").iterdir()}
    swept = sweep(study, Scale.PAPER, tmp_path, spark)
    assert (swept.points, swept.kept) == (12, 6)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert sweep(study, Scale.PAPER, tmp_path, spark).kept == 12
    plan = msgspec.json.decode((tmp_path / "toy" / PLAN).read_bytes(), type=SweepPlan)
    assert (plan.scale, plan.points) == ("paper", 12)


def test_no_numbers_of_another_scale_stay(spark: SparkSession, tmp_path: Path) -> None:
    study = toy.study()
    sweep(study, Scale.SMALL, tmp_path, spark)
    assert len(read_results(tmp_path / "toy").rows("walk")) == 12
    broken = toy.study(sizes=(1, 13))
    assert sweep(broken, Scale.PAPER, tmp_path, spark).failures
    assert not read_results(tmp_path / "toy")


def test_a_run_that_raises_is_told_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    study = toy.study(sizes=(1, 13, 2))
    swept = sweep(study, Scale.PAPER, tmp_path, spark)
    assert {each.point.parameters["size"] for each in swept.failures} == {13}
    assert {each.point.seed for each in swept.failures} == {1, 2, 3}
    assert all("an unlucky size" in each.problem for each in swept.failures)
    assert len(list((tmp_path / "toy/runs").iterdir())) == 6
    assert not read_results(tmp_path / "toy")  # never half of an experiment
    again = sweep(study, Scale.PAPER, tmp_path, spark)
    assert (again.kept, len(again.failures)) == (6, 3)


def test_one_sweep_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    home = files.make_directory(tmp_path / "toy")
    with (
        files.held(home / ".lock"),
        pytest.raises(InvalidInput, match="another sweep runs in"),
    ):
        sweep(toy.study(), Scale.SMALL, tmp_path, spark)


def test_runs_of_another_version_are_not_mixed(spark: SparkSession, tmp_path: Path) -> None:
    sweep(toy.study(), Scale.SMALL, tmp_path, spark)
    path = tmp_path / "toy" / PLAN
    plan = msgspec.json.decode(path.read_bytes(), type=SweepPlan)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(plan, version="0.0")))
    with pytest.raises(InvalidInput, match=r"has runs of other code, Palio 0\.0"):
        sweep(toy.study(), Scale.SMALL, tmp_path, spark)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(plan, code="other")))
    with pytest.raises(InvalidInput, match=r"has runs of other code.*digest other"):
        sweep(toy.study(), Scale.SMALL, tmp_path, spark)


def test_a_worker_with_other_code_runs_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "own_code", lambda: "other")  # in this process, not in workers
    swept = sweep(toy.study(), Scale.SMALL, tmp_path, spark)
    assert swept.failures
    assert all("this worker has other code" in each.problem for each in swept.failures)
    assert not list((tmp_path / "toy/runs").iterdir())


def test_what_runs_take_is_kept_with_them(spark: SparkSession, tmp_path: Path) -> None:
    swept = sweep(toy.study(), Scale.SMALL, tmp_path, spark)
    assert swept.cpu_s > 0
    plan = msgspec.json.decode((tmp_path / "toy" / PLAN).read_bytes(), type=SweepPlan)
    assert plan.cpu_s == swept.cpu_s
    assert sweep(toy.study(), Scale.SMALL, tmp_path, spark).cpu_s == swept.cpu_s


def test_leftovers_of_a_killed_worker_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    runs = files.make_directory(tmp_path / "toy/runs")
    (runs / ".walk-1.parquet.abc.unfinished").write_bytes(b"PAR1")
    sweep(toy.study(), Scale.SMALL, tmp_path, spark)
    assert not list(runs.glob(".*"))


def test_a_measure_must_not_hide_a_parameter(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="measures 'size', a parameter"):
        write_run(tmp_path, Point("walk", {"size": 1}, 1), [{"size": 2}], 0.0)


def test_experiments_are_equal_files_on_one_core_and_on_two(
    spark: SparkSession, tmp_path: Path
) -> None:
    study = toy.study()
    sweep(study, Scale.PAPER, tmp_path / "two", spark)
    runs = files.make_directory(tmp_path / "one/toy/runs")
    points = points_of(study, Scale.PAPER)
    for point in points:
        write_run(runs, point, toy.walk(point), 0.5)
    put_together(study, points, runs.parent)
    one, two = (
        pq.read_table(tmp_path / each / "toy/walk.parquet").drop_columns("pid")
        for each in ("one", "two")
    )
    assert one.equals(two)
    assert isinstance(one, pa.Table)


@pytest.mark.nightly
def test_ctrl_c_ends_a_sweep_and_leaves_what_is_done(tmp_path: Path) -> None:
    from tests.spark.cluster import PATIENCE_S, await_that, environment

    driver = subprocess.Popen(
        [sys.executable, toy.__file__, str(tmp_path)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    runs = tmp_path / "out/toy/runs"
    try:
        await_that(
            lambda: runs.exists() and len(list(runs.glob("*.parquet"))) == toy.HELD_AT,
            "some runs are done",
        )
        driver.send_signal(signal.SIGINT)
        _, told = driver.communicate(timeout=PATIENCE_S)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in told
    assert "Py4J" not in told
    assert len(list(runs.glob("*.parquet"))) == toy.HELD_AT


def test_nothing_is_run_twice_after_a_kill(spark: SparkSession, tmp_path: Path) -> None:
    from tests.spark.cluster import await_that, environment

    driver = subprocess.Popen(
        [sys.executable, toy.__file__, str(tmp_path)],
        env=environment(),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    runs = tmp_path / "out/toy/runs"
    try:
        await_that(
            lambda: (
                len(list(runs.glob("*.parquet"))) == toy.HELD_AT and (tmp_path / "held").exists()
            ),
            "some runs are done, and one is held",
        )
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    held = Path("/proc") / (tmp_path / "held").read_text()
    await_that(lambda: not held.exists(), "the run that was going on has gone with its driver")
    done = {path.name: path.read_bytes() for path in runs.glob("*.parquet")}
    (tmp_path / "go").touch()
    study = toy.study(home=str(tmp_path))
    swept = sweep(study, Scale.PAPER, tmp_path / "out", spark)
    assert (swept.points, swept.kept) == (12, toy.HELD_AT)
    assert all((runs / name).read_bytes() == content for name, content in done.items())
    ledger = (tmp_path / "ledger").read_text().split()
    assert sorted(ledger) == sorted(point.name for point in points_of(study, Scale.PAPER))


# --- whose code ran ---


def _package(home: Path, modules: dict[str, str]) -> Path:
    for name, text in modules.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return home


def test_it_depends_on_the_modules_alone(tmp_path: Path) -> None:
    modules = {"a.py": "x = 1\n", "sub/b.py": "y = 2\n"}
    one = digest_of(_package(tmp_path / "one", modules))
    more = {**modules, "sub/__pycache__/b.pyc": "?", "notes.txt": "!"}
    assert digest_of(_package(tmp_path / "more", more)) == one
    others = (
        {"a.py": "x = 2\n", "sub/b.py": "y = 2\n"},
        {"a.py": "x = 1\n", "b.py": "y = 2\n"},
        {"a.py": "x = 1\n", "sub/c.py": "y = 2\n"},
        {"a.py": "x = 1\nsub/b.py y = 2\n"},
    )
    found = {digest_of(_package(tmp_path / str(n), each)) for n, each in enumerate(others)}
    assert len(found | {one}) == 5


def test_a_package_that_workers_get_as_a_zip_file_is_the_same_code(tmp_path: Path) -> None:
    home = _package(tmp_path / "one", {"a.py": "x = 1\n", "sub/b.py": "y = 2\n"})
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in home.rglob("*.py"):
            archive.write(path, f"one/{path.relative_to(home)}")
    assert digest_of(zipfile.Path(tmp_path / "all.zip", "one/")) == digest_of(home)


def test_a_module_that_goes_to_another_package_is_other_code(tmp_path: Path) -> None:
    one, two = ({"a.py": "x = 1\n", "b.py": "y = 2\n"}, {"c.py": "z = 3\n"})
    before = digest_of(_package(tmp_path / "p", one), _package(tmp_path / "q", two))
    two["b.py"] = one.pop("b.py")
    after = digest_of(_package(tmp_path / "r", one), _package(tmp_path / "s", two))
    assert before != after


def test_it_is_that_of_palio_and_its_studies() -> None:
    import palio
    import palio_studies

    packages = (Path(*each.__path__) for each in (palio, palio_studies))
    assert own_code() == digest_of(*packages)
