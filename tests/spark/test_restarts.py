"""A streaming query killed with -9 between any two steps: nothing is lost, nothing doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Final

import pytest

pytest.importorskip("pyspark")

from tests.spark import restarted
from tests.spark.brokers import Broker, serving
from tests.spark.cluster import PATIENCE_S, environment

PUBLISHED: Final = 40
"""Events that are added before each start, five to a publication."""

LIMITS: Final = {1: 50, 2: 30, 3: 10, 4: 1}
"""Subscriptions `y < limit`; `y` is less than 50, so that the first hears everything."""

DEATHS: Final = [
    *((point, 1 + at % 2) for at, point in enumerate(restarted.POINTS)),
    *[("later", 0)] * 8,
]
"""Where to die, and for the how manieth time one comes there."""


def subscribe(home: Path, version: int) -> None:
    """Put a version of the subscriptions where the program finds it at its next start."""
    rows = [
        {"id": 100 * version + number, "filter": f"y < {limit}"} for number, limit in LIMITS.items()
    ]
    (home / "subscriptions.jsonl").write_text("\n".join(map(json.dumps, rows)))


def started(broker: Broker, home: Path, *death: str) -> subprocess.Popen[str]:
    """The program in a process group of its own, which its JVM is in too."""
    (home / "ticks").unlink(missing_ok=True)
    return subprocess.Popen(
        [sys.executable, restarted.__file__, broker.url, str(home), *death],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def died(process: subprocess.Popen[str], point: str, draw: random.Random) -> None:
    """See to it that it is killed, by itself or from here."""
    try:
        if point == "later":
            assert process.stdout is not None
            for _ in range(draw.randrange(1, 4)):
                assert process.stdout.readline()
            Event().wait(draw.uniform(0, 2))  # any step of a micro-batch
            os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGKILL, f"{point}: {errors}"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def heard(broker: Broker) -> dict[int, list[int]]:
    """The ids of subscriptions that came with each event, as often as they came."""
    found: dict[int, list[int]] = {}
    for _, event in broker.taken("out", "subscription > 0"):
        found.setdefault(event["x"], []).append(event["subscription"])
    return found


@pytest.mark.nightly  # each death is another start of Spark
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    """Each start puts other ids in force: a batch that is run again keeps those that it had."""
    draw = random.Random(6)
    published = 0
    with serving(tmp_path / "broker") as broker:
        broker.subscribe("in", "y >= 0")
        broker.subscribe("out", "subscription > 0")
        for version, (point, times) in enumerate([*DEATHS, ("", 0)]):
            for first in range(published, published + PUBLISHED, 5):
                broker.publish(
                    *({"x": x, "y": x % 50} for x in range(first, first + 5)), first=1 + first
                )
            published += PUBLISHED
            subscribe(tmp_path, version)
            if point:
                died(started(broker, tmp_path, point, str(times)), point, draw)
            if version % 5 == 4:  # the broker's machine as well
                broker.kill()
                broker.start()
        process = started(broker, tmp_path)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        found = heard(broker)
        assert broker.waiting("in", "y >= 0") == []
    assert sorted(found) == list(range(published))
    versions: Counter[int] = Counter()
    for x, ids in found.items():
        version = ids[0] // 100
        wanted = [number for number, limit in LIMITS.items() if x % 50 < limit]
        assert sorted(ids) == [100 * version + number for number in wanted]
        versions[version] += 1
    assert len(versions) > 1
