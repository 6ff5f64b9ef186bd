"""`palio study` as a user meets it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from palio_studies.command import ProgressLines
from palio_studies.names import STUDIES
from tests.cli.helpers import Palio
from tests.cli.test_main import HEAVY


@pytest.mark.parametrize("command", ["list", "run", "report"])
def test_the_commands_are_found_and_have_help_and_json(palio: Palio, command: str) -> None:
    assert f"\n  {command} " in palio("study", "--help").out
    outcome = palio("study", command, "--help")
    assert outcome.status == 0
    assert f"Usage: palio study {command} [OPTIONS]" in outcome.out
    assert "  --json " in outcome.out


def test_help_loads_no_study_and_no_simulator() -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from palio.cli.main import run\n"
        "run(sys.argv[1:])"
    )
    for arguments, expected in (
        (["--help"], set()),
        (["study", "-h"], {"command", "names"}),
        (["simulate", "-h"], {"names", "simulate"}),
    ):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        loaded = set(done.stderr.split())
        assert {each for each in loaded if each.startswith("palio_studies.")} == {
            f"palio_studies.{each}" for each in expected
        }
        assert not HEAVY & {each.partition(".")[0] for each in loaded}


def test_studies_are_listed(palio: Palio) -> None:
    outcome = palio("study", "list", "--json")
    assert outcome.status == 0
    assert [each["name"] for each in outcome.document["studies"]] == list(STUDIES)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")
def test_an_unknown_study_is_told_before_spark_starts(palio: Palio, tmp_path: Path) -> None:
    outcome = palio("study", "run", "podc", "--output", str(tmp_path))
    assert outcome.status == 2
    assert "'podc' is no study" in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_directory_without_studies_has_no_report(palio: Palio, tmp_path: Path) -> None:
    outcome = palio("study", "report", str(tmp_path))
    assert outcome.status == 2
    assert "has no study; run one first" in outcome.err


def test_without_a_terminal_a_line_tells_what_is_done_once_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = iter((0.0, 59.0, 60.0, 60.0, 131.0, 131.0))  # it is asked if more are done
    lines = ProgressLines("siena", 2_000, lambda: next(clock))
    for done in (0, 10, 20, 20, 2_000):
        lines.tell(done)
    assert capsys.readouterr().err.splitlines() == [
        f"palio: siena: {done} of 2,000 runs done" for done in ("0", "20", "2,000")
    ]
