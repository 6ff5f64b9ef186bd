from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from palio.cli import simulate as simulate_module
from palio.cli.simulate import table
from palio.routing.algorithms import ALGORITHMS
from palio.simulation.matchings import MATCHINGS
from palio.simulation.scenario import simulate
from tests.cli.helpers import Palio

RING: Final = ["simulate", "--topology", "ring:12", "--routing", "general", "--seed", "7"]


def test_the_costs_of_a_scenario_as_json(palio: Palio) -> None:
    found = palio(*RING, "--json").document
    assert found == simulate("ring:12", "general", seed=7)
    assert found["topology"] == "ring:12"
    assert found["notifications"] > found["delivered"] > 0


def test_the_costs_of_a_scenario_for_people(palio: Palio) -> None:
    status, out, err = palio(*RING)
    assert (status, err) == (0, "")
    assert out.rstrip("\n") == table(simulate("ring:12", "general", seed=7))
    assert out.startswith("ring:12, general, seed 7: 12 brokers, 12 links, 20 clients, 100 events")
    assert "link states, joins and leaves" in out
    assert "advertisements" not in out  # none were sent, so there is no line of them
    assert "occurrences" not in out


def test_another_seed_is_another_run(palio: Palio) -> None:
    assert palio(*RING).out != palio(*RING[:-1], "8").out


def test_another_matching_is_the_same_run(palio: Palio) -> None:
    found, usual = (
        palio(*RING, *more, "--json").document for more in (["--matching", "poset"], [])
    )
    assert (found["matching"], usual["matching"]) == ("poset", "reference")
    assert found["delivered"] == usual["delivered"]


def test_patterns_are_counted(palio: Palio) -> None:
    words = ("--topology", "tree:7", "--routing", "advertised", "--patterns", "4")
    found = palio("simulate", *words, "--json").document
    assert found["composites"] > 0
    assert "occurrences of patterns" in palio("simulate", *words).out


def test_the_trace_is_a_line_a_step(palio: Palio, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    words = ("--topology", "line:3", "--routing", "acyclic", "--events", "3", "--trace", str(path))
    found = palio("simulate", *words, "--json").document
    lines = path.read_text().splitlines()
    assert found["trace"] == simulate("line:3", "acyclic", events=3)["trace"]
    assert lines[0].startswith("10.000 b1 -> b2")  # the brokers meet
    assert lines[4].split()[1:3] == ["c0", "->"]
    assert sum(": Events " in line and line.split()[1][0] == "c" for line in lines) == 3
    assert [float(line.split()[0]) for line in lines] == sorted(
        float(line.split()[0]) for line in lines
    )


def test_a_trace_that_cannot_be_written_is_refused(palio: Palio, tmp_path: Path) -> None:
    status, out, err = palio(*RING, "--trace", str(tmp_path / "missing" / "trace.txt"))
    assert (status, out) == (2, "")
    assert "cannot be written" in err
    assert "No such file" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--topology", "moon:5"], "'moon:5' is no topology; write a shape of grid, line,"),
        (["--routing", "magic"], "choose one of general, general-advertised"),
        (
            ["--routing", "acyclic"],
            "acyclic needs a tree and ring:12 has cycles; choose general, source-trees",
        ),
        (["--routing", "advertised"], "choose general-advertised"),
        (
            ["--patterns", "1"],
            "general assembles no patterns; choose general-advertised or advertised",
        ),
        (["--routing", "general-advertised", "--patterns", "21"], "at most every client, 20"),
        (["--matching", "rete"], "choose one of index, poset, reference"),
        (["--clients", "0"], "greater than or equal to 1"),
        (["--events", "-1"], "greater than or equal to 0"),
    ],
)
def test_bad_input_is_told_with_the_choices(palio: Palio, words: list[str], problem: str) -> None:
    status, out, err = palio("simulate", *words)
    assert (status, out) == (2, "")
    assert problem in " ".join(err.split())


def test_bad_input_as_json(palio: Palio) -> None:
    status, out, err = palio("simulate", "--topology", "moon", "--json")
    assert (status, err) == (2, "")
    assert "is no topology" in out


def test_help_names_every_topology_and_every_algorithm(palio: Palio) -> None:
    text = palio("simulate", "--help").out.replace("-\n", "-")
    for name in (*ALGORITHMS, *MATCHINGS):
        assert name in text
    for shape in ("line", "star", "ring", "tree", "grid", "random-tree", "random", "transit-stub"):
        assert f"{shape}:" in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {
        "seed": 1,
        "clients": 3,
        "events": 4,
        "patterns": 0,
        "matching": "poset",
    }
    for stream, is_shown in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        simulate_module.simulate("line:2", "acyclic", **options, trace=None, as_json=True)
        assert ("Publishing" in stream.getvalue()) is is_shown
