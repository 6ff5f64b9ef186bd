"""One Spark session for all tests of a process, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.spark.brokers import Broker, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With xdist's `--dist loadgroup` one process runs all that need a session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; its JVM has gone when the tests are over."""
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all tests of a file."""
    with serving(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets that have no path are kept in a directory of the test's own."""
    monkeypatch.setenv("PALIO_CACHE", str(tmp_path_factory.mktemp("cache")))
