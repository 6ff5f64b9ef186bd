"""Commands in installations that lack an extra: one line says what to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Final

import pytest

from palio.cli.extras import EXTRAS, missing_extra
from tests.cli.helpers import Palio

ROOT: Final = Path(__file__).parents[2]

IMPORTED_AS: Final = {"pyjwt": "jwt"}
"""Distributions whose modules have other names."""

PLAN: Final = """name = "p"

[source]
format = "rate"

[[sinks]]
of = "events"
path = "out"
"""

WITHOUT: Final = """
import sys
from palio.cli.main import run

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
run(sys.argv[2:])
"""
"""The command, in an interpreter that cannot import some packages."""


def without(extra: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = ",".join(EXTRAS[extra])
    command = [sys.executable, "-c", WITHOUT, hidden, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("extra", "package", "arguments"),
    [
        ("server", "cryptography", ["keys", "create", "{}/key"]),
        ("server", "cryptography", ["keys", "list", "{}"]),
        ("server", "cryptography", ["token", "create", "ann", "--key", "{}/key"]),
        ("server", "cryptography", ["token", "inspect", "-"]),
        ("server", "cryptography", ["token", "revoke", "number", "--file", "{}/revoked"]),
        ("spark", "Spark", ["pipeline", "run", "{}/pipeline.toml"]),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, list) else each,
)
def test_what_is_missing_is_told_in_one_line(
    extra: str, package: str, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "pipeline.toml").write_text(PLAN)
    done = without(extra, *(each.format(tmp_path) for each in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert re.fullmatch(
        rf"palio: .*{package}.* pip install 'palio\[{extra}\]'", last.removesuffix(".")
    ), last


def test_a_pipeline_is_checked_without_spark(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(PLAN)
    done = without("spark", "pipeline", "check", str(tmp_path / "pipeline.toml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1. ")


def test_a_package_of_no_extra_is_a_fault_of_palio() -> None:
    assert missing_extra(ModuleNotFoundError("no", name="palio.nowhere")) is None
    assert missing_extra(ModuleNotFoundError("no")) is None


def test_the_extras_are_those_of_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        names = {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in declared[extra]}
        imported = {IMPORTED_AS.get(name, name) for name in names}
        assert imported == set(packages) - {"py4j"}  # which pyspark brings


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate"],
        ["simulate", "--topology", "ring:12"],
        ["study"],
        ["study", "--help"],
        ["study", "run", "siena", "--out", "runs"],
    ],
)
def test_commands_of_the_studies_are_listed_and_say_how_to_install_them(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints())
    assert f"\n  {arguments[0]} " in palio("--help").out
    line = "this needs the package palio-studies, which is not installed; pip install palio-studies"
    assert palio(*arguments) == (2, "", f"palio: {line}\n")
