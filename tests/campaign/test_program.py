from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

import pytest

from tests.campaign import program
from tests.campaign.drawing import draw
from tests.campaign.faults import FAULTS
from tests.campaign.judgement import Ending, play
from tests.campaign.program import INTERRUPTED, Tally, main
from tests.campaign.scripts import Breach, Script

ROOT: Final = Path(__file__).parents[2]

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_table_of_what_was_tried(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    monkeypatch.setattr(program, "PROGRESS_S", inf)
    words = ["--first-seed", "7", "--seeds", "2", "--algorithm", "centralized"]
    assert main([*words, "--jobs", jobs]) == 0
    tally = Tally()
    for seed in (7, 8):
        script = draw(seed, "centralized")
        tally.add(script, play(script))
    out, err = capsys.readouterr()
    assert (out, err) == (f"{tally}\n", "")
    assert all(kind in out for kind in FAULTS)
    assert "2 seeds (centralized 2)" in out
    assert "0 failed" in out


def ending(script: Script) -> Ending:
    """What comes of a script where whatever is published is lost."""
    lost = any(step.what == "publish" for step in script.steps)
    return Ending((Breach("lost", "an event"),) if lost else ())


def test_a_seed_that_fails_is_told_at_once_and_as_a_short_test_in_the_end(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "play", ending)
    assert main(["--first-seed", "7", "--seeds", "2", "--algorithm", "acyclic"]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "seed 7: lost: an event",
        "seed 8: lost: an event",
        "seed 7 fails; looking for a short test",
    ]
    table, _, test = out.partition("\n\nfrom ")
    assert table.endswith("\n2 failed")
    assert "def test_seed_7_lost() -> None:" in test
    assert test.count("Step(") == 1
    assert test.endswith("    assert play(script).breaches == ()\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--algorithm", "magic"], "invalid choice: 'magic'"),
        (["--seeds", "0"], "argument --seeds: '0' is not a number from 1 on"),
        (["--first-seed", "-1"], "argument --first-seed: '-1' is not a number from 0 on"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys: Output, arguments: list[str], error: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert error in capsys.readouterr().err


def test_help_has_examples(capsys: Output) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert 'make campaign ARGS="--seeds 1000 --jobs 2"' in capsys.readouterr().out


def test_one_that_is_interrupted_prints_the_table_of_what_was_played(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(script: Script) -> Ending:
        if script.seed == 2:
            raise KeyboardInterrupt
        return Ending(())

    monkeypatch.setattr(program, "play", interrupted)
    assert main(["--seeds", "100"]) == INTERRUPTED
    assert "\n2 seeds (" in capsys.readouterr().out


def test_where_there_is_no_terminal_a_line_tells_the_progress_now_and_then(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "play", lambda _: Ending(()))
    monkeypatch.setattr(program, "PROGRESS_S", 0.0)
    assert main(["--seeds", "2"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "1 of 2 seeds played, 0 failed",
        "2 of 2 seeds played, 0 failed",
    ]


def test_on_a_terminal_the_line_is_rewritten(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "play", lambda _: Ending(()))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["--seeds", "2"]) == 0
    lines = capsys.readouterr().err.split("\r")[1:]
    assert [line.removesuffix("\x1b[K") for line in lines] == [
        "1 of 2 seeds played, 0 failed",
        "2 of 2 seeds played, 0 failed\x1b[K\n",
    ]


# --- processes ---


def campaign(jobs: int) -> subprocess.Popen[bytes]:
    """The program with more seeds than anybody waits for; what it starts has its output, too."""
    command = [sys.executable, "-m", "tests.campaign", "--seeds", "10000", "--jobs", str(jobs)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, cwd=ROOT
    )


def wait_for_handler(process: subprocess.Popen[bytes]) -> None:
    """Wait until it has a handler of its own for SIGTERM."""
    while True:
        status = Path(f"/proc/{process.pid}/status").read_text()
        (handled,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        if int(handled, 16) >> (signal.SIGTERM - 1) & 1:
            return
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)


def ended(process: subprocess.Popen[bytes]) -> bytes:
    """Its errors, once all that have its output have ended."""
    try:
        return process.communicate(timeout=30.0)[1]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("number", "is_for_all", "jobs", "after_s"),
    [
        (signal.SIGINT, True, 2, 1.0),
        pytest.param(signal.SIGINT, True, 2, 4.0, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, False, 2, 0.3, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, False, 1, 0.3, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_ends_all_its_processes_however_often_it_comes(
    number: signal.Signals, is_for_all: bool, jobs: int, after_s: float
) -> None:
    process = campaign(jobs)
    wait_for_handler(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    for _ in range(3):
        (os.killpg if is_for_all else os.kill)(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    assert b"Traceback" not in ended(process)
    assert process.returncode == INTERRUPTED


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that it has started; one of them looks after its semaphores."""
    return [
        int(number)
        for task in Path(f"/proc/{process.pid}/task").iterdir()
        for number in (task / "children").read_text().split()
    ]


@pytest.mark.nightly
def test_its_processes_do_not_outlive_it() -> None:
    process = campaign(2)
    while len(children(process)) < 3:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    process.kill()
    ended(process)


def test_a_process_that_was_killed_is_told() -> None:
    process = campaign(2)
    while len(started := children(process)) < 3:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    os.kill(max(started), signal.SIGKILL)
    assert b"if memory is short, use fewer" in ended(process)
    assert process.returncode == 2
