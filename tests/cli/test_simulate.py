from __future__ import annotations

from typing import Final

import pytest

from palio.routing.algorithms import ALGORITHMS
from palio_studies.names import MATCHINGS
from palio_studies.simulate import table
from palio_studies.simulator.scenario import simulate
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
