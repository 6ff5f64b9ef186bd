from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from palio.cli import bench as bench_module
from palio.cli.bench import bench, is_available
from palio.errors import InvalidInput
from tests.cli.helpers import Palio

CHECKOUT: Final = Path(__file__).parents[2]

PROGRAM: Final = """
import os, sys
print(os.getcwd(), *sys.argv[1:])
sys.exit(3)
"""


def test_a_benchmark_runs_in_its_checkout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "some.py").write_text(PROGRAM)
    status = bench("some", ["--full", "--json"], package=tmp_path / "src" / "palio")
    assert status == 3
    assert capfd.readouterr() == (f"{tmp_path} --full --json\n", "")


def test_without_a_checkout_the_way_to_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not part of the installed package"):
        bench("matching", [], package=tmp_path / "site-packages" / "palio")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["bench", "matching"], []),
        (["bench", "matching", "--full"], ["--full"]),
        (["bench", "matching", "--full", "--json"], ["--full", "--json"]),
        (["bench", "network", "--json"], ["--json"]),
        (
            ["bench", "peers", "--seconds", "0.5", "--only", "palio,nats", "--rows", "quiet"],
            ["--seconds", "0.5", "--only", "palio,nats", "--rows", "quiet"],
        ),
        (["bench", "routing", "--only", "matchings"], ["--only", "matchings"]),
        (["bench", "peers", "--docs", "docs/measured"], ["--docs", "docs/measured"]),
    ],
)
def test_what_the_command_runs(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, arguments: list[str], options: list[str]
) -> None:
    ran: list[Any] = []

    def run(name: str, given: list[str]) -> int:
        ran.append((name, given))
        return 0

    monkeypatch.setattr(bench_module, "bench", run)
    assert palio(*arguments) == (0, "", "")
    assert ran == [(arguments[1], options)]


@pytest.mark.parametrize("name", ["matching", "network", "peers", "routing", "stress"])
def test_the_checkout_has_what_the_command_names(name: str) -> None:
    assert (CHECKOUT / "benchmarks" / f"{name}.py").is_file()


def test_benchmarks_are_offered_where_there_are_some(tmp_path: Path) -> None:
    assert is_available()
    assert not is_available(tmp_path / "src" / "palio")
