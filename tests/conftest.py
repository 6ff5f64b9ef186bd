"""What every test shares: the profile, one seed that is always printed, and the nightly switch.

PALIO_PROFILE   `default`: the same examples in every run; `nightly`: many more, and new ones
PALIO_SEED      repeats a run; left out, it is 0 by default and drawn for a nightly run
"""

from __future__ import annotations

import os
import random
import secrets
import zlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.modes import umask
from tests.spark.cluster import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROFILE: Final = os.environ.get("PALIO_PROFILE", "default")
NIGHTLY: Final = PROFILE == "nightly"

# Deadlines and the check for slow generation measure how busy the machine is.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=10_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
if PROFILE not in ("default", "nightly"):
    raise pytest.UsageError(f"PALIO_PROFILE is {PROFILE!r}; it is either default or nightly")
settings.load_profile(PROFILE)

# Workers of a parallel run inherit the environment and so the drawn seed.
SEED: Final = int(
    os.environ.setdefault("PALIO_SEED", str(secrets.randbits(32)) if NIGHTLY else "0")
)


# Whatever JVM a test starts lives for seconds, or does little; commands start theirs by themselves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)


def pytest_report_header() -> str:
    return f"palio: profile {PROFILE}, seed {SEED} (repeat with PALIO_SEED={SEED})"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # With xdist's `--dist loadgroup` one process runs all that need a session of Spark.
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
    if NIGHTLY:
        return
    skipped = [item for item in items if item.get_closest_marker("nightly")]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        items[:] = [item for item in items if item not in skipped]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"repeat with PALIO_SEED={SEED}"))
    return report


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
