"""What applications' tests get: URLs of real brokers, which end with the test."""

from __future__ import annotations

from pathlib import Path

import pytest

import palio

pytest_plugins = ["pytester"]

SUITE = """
import pytest
import palio

def test_a_program_that_connects_by_url(palio_url, tmp_path):
    with palio.SyncClient(palio_url, name="ann") as client:
        kept = client.subscribe("EXISTS price", durable_name="kept")
        client.publish({"price": 9.5}, durable=True)
        assert kept.receive(timeout=30)["price"] == 9.5

async def test_brokers_that_reach_each_other(urls):
    async with palio.connect(urls[0]) as one, palio.connect(urls[1]) as other:
        heard = await other.subscribe("price < 10")
        await heard.settled()
        await one.publish({"price": 9.5})
        assert (await heard.receive(timeout=30))["price"] == 9.5

@pytest.fixture
def urls(palio_urls):
    return palio_urls(2)
"""


def test_tests_get_urls_of_real_brokers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(palio.__file__).absolute().parents[1]))
    pytester.makeconftest('pytest_plugins = ["palio.testing.fixtures"]')
    pytester.makepyfile(SUITE)
    outcome = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-o", "asyncio_mode=auto")
    outcome.assert_outcomes(passed=2)
