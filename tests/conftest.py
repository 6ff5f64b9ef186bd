"""Shared by all tests: the profile, the seed of the run, and the switch for nightly tests.

PALIO_PROFILE   `default`: few examples, the same in every run of a commit; `nightly`: many
PALIO_SEED      repeats a run; the default is a number from the commit, so that each commit tries
                other examples than the one before, and a drawn one for a nightly run
"""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.modes import umask
from tests.spark.cluster import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

# Compiling the sources anew in every process that a test starts would double what it costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

PROFILE: Final = os.environ.get("PALIO_PROFILE", "default")
NIGHTLY: Final = PROFILE == "nightly"

# Deadlines and the check for slow generation measure how busy the machine is.
for name, examples in {"default": 40, "nightly": 10_000}.items():
    settings.register_profile(
        name,
        database=None,  # what failed in an earlier run is repeated by its seed
        deadline=None,
        max_examples=examples,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
if PROFILE not in ("default", "nightly"):
    raise pytest.UsageError(f"PALIO_PROFILE is {PROFILE!r}; it is either default or nightly")
settings.load_profile(PROFILE)

if not NIGHTLY:
    # Constants of all modules that happen to be loaded would be among what is drawn: a test alone,
    # or on another worker, would try other examples. To collect them also takes seconds.
    pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda _path: False)


def seed_of_the_commit() -> int:
    """A number that is the same for every run of a commit; 0 outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=7", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(answer.stdout[:7], 16)


# Workers of a parallel run inherit the environment and so the seed.
SEED: Final = int(
    os.environ.get("PALIO_SEED") or (secrets.randbits(32) if NIGHTLY else seed_of_the_commit())
)
os.environ["PALIO_SEED"] = str(SEED)


WINDOWS: Final = 20
"""Of seeds for usual runs: PALIO_SEED=0 to 19 play all of them."""


def seeds(count: int, *, nightly: int) -> range:
    """Seeds for storms: in a usual run `count` of them, which rotate with the seed of the run.

    They are one of a few windows, and each of these has been played: what turns a run red is the
    change, and no rare fault from long ago. A night plays seeds that are new.
    """
    if NIGHTLY:
        return range(SEED, SEED + nightly)
    first = SEED % WINDOWS * count
    return range(first, first + count)


def share(cases: Iterable[T], count: int) -> list[T]:
    """So many cases of a list, others with every seed of the run; by night all of them."""
    whole = list(cases)
    if NIGHTLY or count >= len(whole):
        return whole
    chosen = random.Random(SEED).sample(range(len(whole)), count)
    return [whole[index] for index in sorted(chosen)]


# Whatever JVM a test starts lives for seconds, or does little; commands start theirs by themselves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis draws from the seed of the run, unless it was given one."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from all that was imported and collected, which stays."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for processes that they started."""
    return 1 + (os.cpu_count() or 1)


def pytest_report_header() -> str:
    return f"palio: profile {PROFILE}, seed {SEED} (repeat with PALIO_SEED={SEED})"


IN_A_GROUP: Final = re.compile(r'xdist_group\("(\w+)"\)|usefixtures\("(spark)"\)|\b(spark): SparkS')
"""What a file says that is to run in one process with others: they share what is dear to make."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests of a file, so that they share its fixtures, and all of a group.

    xdist's own groups are a suffix of the names of tests, which pytest 9.2 drops without a word.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    groups = {
        path.relative_to(config.rootpath).as_posix(): said[said.lastindex or 0]
        for path in Path(__file__).parent.rglob("test_*.py")
        if (said := IN_A_GROUP.search(path.read_text("utf-8")))
    }

    class InGroups(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return groups.get(file, file)

    return InGroups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if NIGHTLY:
        return
    skipped = {item for item in items if item.get_closest_marker("nightly")}
    if skipped:
        config.hook.pytest_deselected(items=[*skipped])
        items[:] = [item for item in items if item not in skipped]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"repeat with PALIO_SEED={SEED}"))
    return report


@pytest.fixture(autouse=True)
def signals_and_logs_are_as_before() -> Iterator[None]:
    """A test leaves Ctrl-C as it was: processes that later tests start inherit what is ignored. And
    the log, as what it wrote to is closed when it is over.
    """
    logger = logging.getLogger("palio")
    handlers, level = [*logger.handlers], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number that depends on the run's seed and the test, but not on which tests ran before."""
    return zlib.crc32(f"{SEED} {request.node.nodeid}".encode())


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Randomness for one test; numpy users take `numpy.random.default_rng(seed)`."""
    return random.Random(seed)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores for all tests of a process; its JVM has gone when they are over."""
    import palio.spark

    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALIO_CACHE", str(cache))
        running = palio.spark.session(
            "local[2]",
            spark_sql_shuffle_partitions=2,
            spark_ui_showConsoleProgress=False,
            spark_sql_warehouse_dir=str(cache / "warehouse"),
        )
        yield running
        palio.spark.stop(running)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that makes files does so under several umasks."""
    with umask(request.param):
        yield
