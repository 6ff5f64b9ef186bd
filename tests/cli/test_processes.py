from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

import pytest

from palio.cli.processes import one_signal, results
from palio.errors import PalioError

WORKING: Final = """
import sys, time
from palio.cli.processes import one_signal, results

jobs, call_s, count = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
try:
    with one_signal(at_once=jobs == 1) as has_ended:
        print("begun", flush=True)
        try:
            for number, _ in enumerate(results(time.sleep, [call_s] * count, jobs, has_ended)):
                if number == 0:
                    print("working", flush=True)
        except KeyboardInterrupt:
            time.sleep(0.3)  # what comes now changes nothing
            raise
except KeyboardInterrupt:
    time.sleep(0.1)  # nor now
    sys.exit(7)
"""


def working(jobs: int, call_s: float, count: int = 100_000) -> subprocess.Popen[bytes]:
    """A program with more processes; what it starts has its output open, too."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKING, str(jobs), str(call_s), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def said_by(process: subprocess.Popen[bytes]) -> bytes:
    """What it still says, until all that have its output have ended."""
    try:
        return b"".join(process.communicate(timeout=30.0))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_call_is_answered_once(jobs: int) -> None:
    assert sorted(results(abs, range(-50, 0), jobs, lambda: False)) == list(range(1, 51))


def test_what_fails_in_another_process_fails_here() -> None:
    with pytest.raises(ValueError, match="no number"):
        list(results(int, ["no number"], 2, lambda: False))


def test_it_ends_once_it_is_to_end() -> None:
    heard = iter([False] * 3 + [True] * 10)
    with pytest.raises(KeyboardInterrupt):
        list(results(abs, range(10_000), 2, lambda: next(heard)))


def test_one_that_dies_is_told() -> None:
    with pytest.raises(PalioError, match=r"one of 2 processes was killed; .* use fewer"):
        list(results(signal.raise_signal, [signal.SIGKILL], 2, lambda: False))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("is_for_all", [False, True])
@pytest.mark.parametrize(("jobs", "call_s"), [(1, 0.001), (2, 0.001), (3, 100.0)])
def test_a_signal_ends_all_whenever_it_comes(
    number: signal.Signals, after_s: float, is_for_all: bool, jobs: int, call_s: float
) -> None:
    process = working(jobs, call_s)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    for _ in range(3):
        (os.killpg if is_for_all else os.kill)(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    assert said_by(process) in (b"", b"working\n")
    assert process.returncode == 7


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.06, 0.1])
def test_a_signal_as_the_last_processes_end_counts(after_s: float) -> None:
    process = working(2, 0.0, count=1)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"begun\n", b"working\n"]
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    is_over = process.poll() is not None
    process.send_signal(signal.SIGTERM)
    said_by(process)
    assert process.returncode == 7 or is_over or process.returncode == -signal.SIGTERM


def test_they_do_not_outlive_whoever_began_them() -> None:
    process = working(2, 0.001)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"begun\n", b"working\n"]
    process.kill()
    said_by(process)


def test_what_fails_is_told_before_other_calls_end() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="must be non-negative"):
        list(results(time.sleep, [100.0, -1.0], 2, lambda: False))
    assert time.monotonic() - began < 30.0


def test_where_no_signal_came_they_are_handled_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with one_signal(at_once=True) as has_ended:
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    assert not has_ended()
