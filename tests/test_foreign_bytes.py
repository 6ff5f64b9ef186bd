"""Whatever is altered in what honest ends wrote, its reader neither ends nor hangs: it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import NIGHTLY, SEED
from tests.foreign_bytes import DOORS

ROOT: Final = Path(__file__).parents[1]

CASES: Final = 10_000 if NIGHTLY else 8
"""Of each door; 10,000 of all take a quarter of an hour."""


@pytest.mark.parametrize("doors", [[door] for door in DOORS] if NIGHTLY else [[*DOORS]])
def test_no_door_lets_in_what_ends_the_process(tmp_path: Path, doors: list[str]) -> None:
    command = [sys.executable, "-m", "tests.foreign_bytes", str(tmp_path), str(SEED), str(CASES)]
    done = subprocess.run([*command, *doors], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (done.returncode, lines[-1:], done.stderr[-3_000:])
    for door in doors:
        assert len([line for line in lines if line.startswith(f"{door} ")]) == CASES
