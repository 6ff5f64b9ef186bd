"""Fixtures for pytest: real brokers on loopback, for applications that connect by URL.

Name the module in a `conftest.py`: `pytest_plugins = ["palio.testing.fixtures"]`. It needs
`palio[server]`, and takes about a second for each broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palio.testing.fleet import Fleet


@pytest.fixture
def palio_urls(tmp_path: Path) -> Iterator[Callable[[int], list[str]]]:
    """Start brokers that reach each other: `palio_urls(3)` returns their URLs. They and their data
    last as long as the test.
    """
    loop = asyncio.new_event_loop()
    fleets: list[Fleet] = []

    def start(count: int) -> list[str]:
        folder = tmp_path / f"brokers-{len(fleets)}"
        folder.mkdir()
        fleet = Fleet(tuple(f"b{number + 1}" for number in range(count)), folder)
        loop.run_until_complete(fleet.__aenter__())
        fleets.append(fleet)
        return [fleet.url(name) for name in fleet.names]

    yield start
    for fleet in fleets:
        loop.run_until_complete(fleet.stop())
    loop.close()


@pytest.fixture
def palio_url(palio_urls: Callable[[int], list[str]]) -> str:
    """The URL of a broker that this test has for itself."""
    (url,) = palio_urls(1)
    return url
