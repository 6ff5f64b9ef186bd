"""Killed with kill -9 between any two steps: nothing is lost and nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("pyspark")

from tests.spark.brokers import serving

CARRIER = Path(__file__).with_name("carrier.py")

RESTARTS = int(os.environ.get("PALIO_RESTARTS", "20"))

EVENTS = 2_000


def carrier(*arguments: str) -> subprocess.Popen[str]:
    """The program in a process group of its own, which its JVM and workers are in too."""
    return subprocess.Popen(
        [sys.executable, str(CARRIER), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.nightly
def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    draw = random.Random(6)
    with serving(tmp_path / "broker") as broker:
        broker.subscribe("in", "x >= 0")
        broker.subscribe("out", "y >= 0")
        for first in range(0, EVENTS, 5):
            broker.publish(*({"x": x} for x in range(first, first + 5)), first=1 + first)
        checkpoint = str(tmp_path / "checkpoint")
        for _ in range(RESTARTS):
            process = carrier(broker.url, checkpoint)
            assert process.stdout is not None
            for _ in range(draw.randrange(1, 4)):
                process.stdout.readline()
            Event().wait(draw.uniform(0, 2))  # any step of a micro-batch
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        process = carrier(broker.url, checkpoint, "drain")
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        found = sorted(event["y"] for _, event in broker.taken("out", "y >= 0"))
        assert found == list(range(EVENTS))
        assert broker.waiting("in", "x >= 0") == []
