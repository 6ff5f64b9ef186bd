"""Without `palio[engine]` all works that needs no batch, and the rest says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import palio
from palio.engine import _Deferred
from palio.errors import InvalidConfiguration
from tests.cli.brokers import PATIENCE_S, broker
from tests.light import COUNT

ROOT = Path(__file__).parents[1]

EVENTS = [{"batch": number, "even": None if number % 2 else True} for number in range(COUNT)]
"""The batch that `tests.light` waits for, of which it leaves some to others."""


def test_a_client_without_arrow_does_all_but_batches(tmp_path: Path) -> None:
    with (
        broker("b1", tmp_path) as url,
        palio.SyncClient(url) as publisher,
        subprocess.Popen(
            [sys.executable, "-m", "tests.light", url],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as light,
    ):
        assert light.stdout is not None
        assert light.stdout.readline() == "ready\n"
        publisher.publish(EVENTS, durable=True)
        output, _ = light.communicate(timeout=PATIENCE_S)
        assert (light.returncode, output) == (0, "done\n")


def test_what_is_missing_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(InvalidConfiguration, match=r"needs absent; pip install 'palio\[engine\]'"):
        _Deferred("absent").array  # noqa: B018  # its use imports it


def test_a_fault_within_a_module_is_not_taken_for_its_absence() -> None:
    with pytest.raises(AttributeError):
        _Deferred("json").absent  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=r"palio\.absent"):
        _Deferred("palio.absent").name  # noqa: B018


def test_nothing_of_the_engine_is_imported_before_it_is_used() -> None:
    program = (
        "import sys, palio, palio.cli.main\n"
        "[getattr(palio, name) for name in palio.__all__]\n"
        "print({'numba', 'numpy', 'pyarrow'} & sys.modules.keys())"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert answer.stdout == b"set()\n"
