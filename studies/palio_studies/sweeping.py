"""Run the points of a study on Spark: each once, whatever is killed meanwhile.

    DIR/siena/plan.json                     the scale, and which points there are to be
    DIR/siena/runs/costs-9f8a....parquet    the rows of one point, there whole or not at all
    DIR/siena/costs.parquet                 all rows of an experiment, once all points are there

Workers write the files of runs themselves, so what they have done is kept when the driver dies.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from palio import __version__, files
from palio.errors import InvalidInput
from palio_studies.names import Scale
from palio_studies.results import table_of
from palio_studies.study import Point, Row, Study, points_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAN: Final = "plan.json"
RUNS: Final = "runs"
LOCK: Final = ".lock"
CPU_S: Final = b"cpu_s"
"""In the metadata of a run's file: how long its process computed."""

TASKS_PER_CORE: Final = 16
"""So many tasks a core: enough that none waits long for another, few enough to cost nothing."""

DIGITS: Final = 16
"""Of a digest of code: enough that two of some thousand versions do not agree by chance."""

CORES_UNTOLD: Final = 16
"""Taken to be there where Spark does not say."""

WATCHED_S: Final = 1.0
"""How often it is counted how many runs are done."""

_COLUMNS: Final[dict[str, pa.DataType]] = {"point": pa.int64(), "problem": pa.string()}
FAILED: Final = pa.schema(_COLUMNS)

Told: TypeAlias = Callable[[int], object]
"""Told how many runs are done."""


class FailedRun(msgspec.Struct, frozen=True):
    """A run that raised."""

    point: Point
    problem: str
    """The traceback."""


class Swept(msgspec.Struct, frozen=True):
    """How a sweep ended."""

    points: int
    kept: int
    """Runs that were there before it began."""
    failures: tuple[FailedRun, ...] = ()
    cpu_s: float = 0.0
    """CPU time of all runs, those that were kept too; 0 if one failed."""


class SweepPlan(msgspec.Struct, frozen=True):
    """The content of a directory: one scale of a study, run by one version of Palio."""

    study: str
    scale: str
    version: str
    points: int
    code: str = ""
    """A digest of that version's modules."""
    cpu_s: float = 0.0
    """CPU time of all runs, once all are there."""


def sweep(
    study: Study, scale: Scale, directory: Path, spark: SparkSession, told: Told | None = None
) -> Swept:
    """Run what is not there yet, and put the rows of each experiment together.

    Runs that raise are told at the end; the others go on, and a later sweep tries them again.
    """
    # Workers on other machines have other working directories.
    home = files.make_inside(files.make_directory(directory).absolute(), study.name)
    with files.held(home / LOCK, wait=False) as is_ours:
        if not is_ours:
            raise InvalidInput(
                f"another sweep runs in {str(home)!r}; let it end, or choose another directory"
            )
        runs = files.make_inside(home, RUNS)
        points = points_of(study, scale)
        plan = SweepPlan(study.name, scale, __version__, len(points), own_code())
        keep_plan(home, plan)
        for leftover in runs.glob(".*.unfinished"):
            leftover.unlink(missing_ok=True)
        there = {path.stem for path in runs.glob("*.parquet")}
        missing = [point for point in points if point.name not in there]
        for experiment in study.experiments:  # what was put together may be of another scale
            (home / f"{experiment.name}.parquet").unlink(missing_ok=True)
        names = {point.name for point in points}

        def tell() -> None:
            if told is not None:
                told(sum(path.stem in names for path in runs.glob("*.parquet")))

        failures = _run_all(study, missing, runs, spark, tell)
        kept = len(points) - len(missing)
        if failures:
            return Swept(len(points), kept, failures)
        cpu_s = put_together(study, points, home)
        keep_plan(home, msgspec.structs.replace(plan, cpu_s=cpu_s))
        return Swept(len(points), kept, cpu_s=cpu_s)


def keep_plan(home: Path, plan: SweepPlan) -> None:
    """Write down what is to be in a directory; refused where runs of other code are."""
    path = home / PLAN
    if path.exists():
        before = msgspec.json.decode(path.read_bytes(), type=SweepPlan)
        if (before.version, before.code) != (plan.version, plan.code):
            raise InvalidInput(
                f"{str(home)!r} has runs of other code, Palio {before.version} (digest "
                f"{before.code or 'unknown'}), and this is {plan.version} ({plan.code}): their "
                "numbers may differ; choose another directory"
            )
    with files.replaced(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(plan)))


def _run_all(
    study: Study, points: Sequence[Point], runs: Path, spark: SparkSession, tell: Callable[[], None]
) -> tuple[FailedRun, ...]:
    """Run points on Spark; Ctrl-C ends them, and leaves what is whole."""
    if not points:
        return ()
    tasks = min(len(points), TASKS_PER_CORE * _cores_of(spark))
    runners = {each.name: each.run for each in study.experiments}
    task = _Task(runners, points, str(runs), tasks, own_code())
    done = spark.range(0, tasks, 1, tasks).mapInArrow(task, "point long, problem string")
    # Spark is asked in a thread: a signal that comes while it is must not be handled within.
    with ThreadPoolExecutor(1) as thread:
        reports = thread.submit(done.collect)
        try:
            while not wait([reports], WATCHED_S).done:
                tell()
        except KeyboardInterrupt:
            _cancel(spark)
            wait([reports])
            raise
    tell()
    return tuple(FailedRun(points[row.point], row.problem) for row in reports.result())


def _cancel(spark: SparkSession) -> None:
    context = getattr(spark, "sparkContext", None)
    if context is None:
        spark.interruptAll()
    else:
        context.cancelAllJobs()


def _cores_of(spark: SparkSession) -> int:
    """How many cores Spark has; over Spark Connect nobody says, and a few more tasks do no harm."""
    context = getattr(spark, "sparkContext", None)
    return context.defaultParallelism if context is not None else CORES_UNTOLD


class _Task(msgspec.Struct, frozen=True):
    """The work of a worker: the points that were dealt to it, one after the other."""

    runners: Mapping[str, Callable[[Point], list[Row]]]
    points: Sequence[Point]
    runs: str
    tasks: int
    code: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run them; a line for each that raised."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                failed = [
                    {"point": place, "problem": problem}
                    for place, problem in self._share(cast(int, number))
                ]
                yield pa.RecordBatch.from_pylist(failed, FAILED)

    def _share(self, number: int) -> Iterator[tuple[int, str]]:
        home = Path(self.runs)
        if not home.is_dir():
            problem = f"this worker does not see {self.runs}: give a directory that all share"
            yield number, problem
            return
        if own_code() != self.code:
            yield number, "this worker has other code of Palio: install the same everywhere"
            return
        for place in range(number, len(self.points), self.tasks):
            point = self.points[place]
            try:
                began = time.process_time()
                rows = self.runners[point.experiment](point)
                write_run(home, point, rows, time.process_time() - began)
            except Exception:  # noqa: BLE001  # whatever a run raises is told, and the others go on
                yield place, traceback.format_exc()


def write_run(runs: Path, point: Point, rows: Sequence[Row], cpu_s: float) -> None:
    """Keep the rows of a point, with its parameters and seed before what was measured."""
    own: Row = {**dict(sorted(point.parameters.items())), "seed": point.seed}
    if clash := [name for row in rows[:1] for name in row if name in own]:
        raise InvalidInput(
            f"a run of {point.experiment!r} measures {clash[0]!r}, a parameter of its own"
        )
    with files.replaced(runs / f"{point.name}.parquet", shared=True) as file:
        table = table_of([own | row for row in rows])
        pq.write_table(table.replace_schema_metadata({CPU_S: f"{cpu_s:.6f}"}), file)


def put_together(study: Study, points: Sequence[Point], home: Path) -> float:
    """Write a file for each experiment, in the order of their points: always the same.

    What their runs took is returned, in seconds of CPU.
    """
    cpu_s = 0.0
    for experiment in study.experiments:
        own = sorted((each for each in points if each.experiment == experiment.name), key=_order)
        if not own:
            continue
        tables = [pq.read_table(home / RUNS / f"{point.name}.parquet") for point in own]
        cpu_s += sum(float(table.schema.metadata[CPU_S]) for table in tables)
        bare = [table.replace_schema_metadata(None) for table in tables]
        whole = pa.concat_tables(bare, promote_options="permissive")
        with files.replaced(home / f"{experiment.name}.parquet") as file:
            pq.write_table(whole, file)
    return cpu_s


def _order(point: Point) -> tuple[object, ...]:
    """By parameters, then by seed; values of several types are kept apart."""
    parameters = sorted(point.parameters.items())
    return (*((name, type(value).__name__, value) for name, value in parameters), point.seed)


@cache
def own_code() -> str:
    """A digest of all modules of Palio and its studies as they are installed here.

    >>> len(own_code())
    16
    """
    return digest_of(resources.files("palio"), resources.files("palio_studies"))


def digest_of(*packages: Traversable) -> str:
    """A digest of the names and texts of the modules of packages."""
    digest = hashlib.sha256()
    for package in packages:
        digest.update(b"package\n")
        for name, module in _modules(package, ""):
            text = module.read_bytes()
            digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:DIGITS]


def _modules(folder: Traversable, above: str) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        if each.is_dir():
            yield from _modules(each, f"{above}{each.name}/")
        elif each.name.endswith(".py"):
            yield f"{above}{each.name}", each
