"""What tests on Spark share, besides the session of all."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.spark.brokers import Broker, serving

collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all tests of a file."""
    with serving(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets that have no path are kept in a directory of the test's own."""
    monkeypatch.setenv("PALIO_CACHE", str(tmp_path_factory.mktemp("cache")))
