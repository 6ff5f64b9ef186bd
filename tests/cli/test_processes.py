from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

import pytest

from palio.cli.processes import one_signal, results
from palio.errors import PalioError

WORKING: Final = """
import sys, time
from palio.cli.processes import one_signal, results

with one_signal(at_once=False) as has_ended:
    print("begun", flush=True)
    try:
        for _ in results(time.sleep, [0.001] * 100_000, 2, has_ended):
            if sys.argv[1:]:
                print("working", flush=True)
                sys.argv[1:] = []
    except KeyboardInterrupt:
        time.sleep(0.3)  # what comes now changes nothing
        sys.exit(7)
"""


def working(*words: str) -> subprocess.Popen[bytes]:
    """A program with two more processes; what it starts has its output open, too."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKING, *words],
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
        list(results(os._exit, [1], 2, lambda: False))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("is_for_all", [False, True])
def test_a_signal_ends_all_whenever_it_comes(
    number: signal.Signals, after_s: float, is_for_all: bool
) -> None:
    process = working()
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    for _ in range(3):
        (os.killpg if is_for_all else os.kill)(process.pid, number)
    assert said_by(process) == b""
    assert process.returncode == 7


def test_they_do_not_outlive_whoever_began_them() -> None:
    process = working("tell")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"begun\n", b"working\n"]
    process.kill()
    said_by(process)


def test_where_no_signal_came_they_are_handled_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with one_signal(at_once=True) as has_ended:
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    assert not has_ended()
