"""What `pip install palio` alone brings is small, and is all that a client needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

import palio
from tests.cli.brokers import PATIENCE_S, broker
from tests.test_engine import EVENTS, ROOT

MAX_BYTES: Final = 60_000_000
"""With all that it depends on; the engine alone takes 450 MB."""

PIP_S: Final = 300.0
"""How long pip may take to install a handful of packages."""


def installed(folder: Path) -> Path:
    """The interpreter of an empty environment with a wheel of Palio; skip where none can be built,
    as there is no index to take the packages from.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    wheel = folder / f"palio-{palio.__version__}-py3-none-any.whl"
    for command in (
        [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)],
        [*pip, f"--python={python}", "install", str(wheel)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_S, check=False)
        if done.returncode:
            pytest.skip(f"pip cannot install Palio, which needs an index: {done.stderr[-300:]}")
    return python


@pytest.mark.nightly
def test_a_bare_installation_is_small_and_does_all_but_batches(tmp_path: Path) -> None:
    python = installed(tmp_path)
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    assert sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) < MAX_BYTES
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (
        broker("b1", tmp_path / "data") as url,
        palio.SyncClient(url) as publisher,
        subprocess.Popen(
            [python, ROOT / "tests" / "light.py", url],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as light,
    ):
        assert light.stdout is not None
        assert light.stdout.readline() == "ready\n"
        publisher.publish(EVENTS, durable=True)
        output, _ = light.communicate(timeout=PATIENCE_S)
        assert (light.returncode, output) == (0, "done\n")
        for command, answer in (
            (["pub", '{"x": 1}', "--broker", url], "1 event published"),
            (["test", "x > :y", '{"x": 1}', "--param", "y=0"], "match"),
            (["explain", "x > :y", '{"x": 1}', "--param", "y=0"], "x is 1, :y is 0"),
            (["serve"], "pip install 'palio[engine]'"),
        ):
            told = subprocess.run(
                [python, "-m", "palio", *command],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert answer in told.stdout + told.stderr
