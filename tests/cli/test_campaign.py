from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from palio.cli import campaign as campaign_module
from palio.cli.campaign import CampaignTally
from palio.cli.main import INTERRUPTED
from palio.protocol.streams import Stream
from palio.simulation.campaign import FAULTS, PHASES, Breach, Ending, draw, play
from tests.cli.brokers import PROGRAM
from tests.cli.helpers import Palio


def test_a_table_of_what_was_tried(palio: Palio) -> None:
    status, out, err = palio("campaign", "--seeds", "3", "--from", "7")
    assert (status, err) == (0, "")
    tally = CampaignTally()
    for seed in (7, 8, 9):
        tally.add(play(draw(seed)))
    assert out.rstrip("\n") == tally.table
    assert all(kind in out for kind in FAULTS)
    assert "0 failed" in out


def test_the_same_as_json_and_in_several_processes(palio: Palio) -> None:
    words = ("campaign", "--seeds", "4", "--routing", "acyclic", "--json")
    found = palio(*words).document
    assert (found["seeds"], found["failed"]) == (4, [])
    assert found["routings"] == {"acyclic": 4}
    assert found == palio(*words, "--jobs", "2").document
    counts = [found["faults"][kind][phase] for kind in FAULTS for phase in PHASES]
    assert sum(counts) == sum(sum(play(draw(each, "acyclic")).seen.values()) for each in range(4))


def test_a_seed_that_fails_is_told_as_a_short_test(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stream, "resume", lambda *_: [])  # what was lost is not sent again
    status, out, err = palio("campaign", "--seeds", "3", "--routing", "acyclic")
    assert status == 1
    assert "palio: seed " in err
    assert "from palio.simulation.campaign import Script, Step, play" in out
    assert "assert play(script).breaches == ()" in out
    assert out.count("Step(") < 12
    failed = palio("campaign", "--seeds", "3", "--routing", "acyclic", "--json")
    assert failed.status == 1
    assert '"kind"' in failed.out
    assert "def test" not in failed.out


def test_an_algorithm_that_there_is_not_is_refused(palio: Palio) -> None:
    status, out, err = palio("campaign", "--routing", "magic")
    assert (status, out) == (2, "")
    assert "'magic' is no routing algorithm; choose one of general" in err


def test_one_that_is_interrupted_tells_what_it_has(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[int] = []

    def interrupted(routing: str, seed: int) -> Ending:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(seed)
        lost = (Breach("lost", "an event"),) if seed == 0 else ()
        return msgspec.structs.replace(play(draw(seed, routing)), breaches=lost)

    monkeypatch.setattr(campaign_module, "_outcome", interrupted)
    status, out, err = palio("campaign", "--seeds", "100")
    assert status == INTERRUPTED
    assert "2 seeds (" in out
    assert "palio: seed 0: lost: an event" in err, "told at once, not at the end"


def test_where_there_is_no_terminal_a_line_tells_now_and_then_how_far_it_is(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign_module, "TOLD_AFTER_S", 0.0)
    _, _, err = palio("campaign", "--seeds", "2", "--routing", "acyclic")
    assert err.splitlines() == [
        "palio: 1 of 2 seeds played, 0 failed",
        "palio: 2 of 2 seeds played, 0 failed",
    ]


def handles(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (handled,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(handled, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_its_processes_however_often_it_comes(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "campaign", "--seeds", "100000", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        while not handles(process, signal.SIGTERM):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        for _ in range(3):
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        _, err = process.communicate(timeout=30.0)  # until all that have its output have ended
        assert process.returncode == INTERRUPTED
        assert b"Traceback" not in err
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30.0)
