"""Patterns against the global reference, in storms with and without faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from palio.routing.patterns import reading
from palio.routing.patterns.router import Patterned
from tests.conftest import seeds
from tests.routing.pattern_storms import PatternStorm
from tests.routing.scenarios import Storm

SEEDS: Final = seeds(6, nightly=3_000)

ROOT: Final = Path(__file__).parents[2]

PROGRAM: Final = """
from tests.routing.pattern_storms import PatternStorm
storm = PatternStorm(11, graph=True)
storm.run_wild()
print(storm.network.trace.hash, storm.network.trace.count)
"""


@pytest.fixture(autouse=True)
def _slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every other seed events are read later than they come, and a few at once."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("seed", 0) % 2:
        monkeypatch.setattr(reading, "READ_AT_ONCE", 0)
        monkeypatch.setattr(reading, "SLICE", 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_steady_storm_on_a_tree(seed: int) -> None:
    PatternStorm(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_steady_storm_on_a_graph(seed: int) -> None:
    PatternStorm(seed, graph=True).run(rounds=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_wild_storm_on_a_graph(seed: int) -> None:
    PatternStorm(seed, graph=True).run_wild()


@pytest.mark.parametrize("seed", SEEDS)
def test_single_events_go_on_as_before(seed: int) -> None:
    Storm(seed, Patterned).run()


def test_storms_are_not_empty() -> None:
    """In them monitors move, and find what they look for."""
    found = moves = 0
    for seed in range(15):
        storm = PatternStorm(seed)
        storm.run(rounds=2)
        found += sum(len(client.found) for client in (*storm.clients, *storm.gone))
        moves += storm.moves
    assert found > 10
    assert moves > 10


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'studies'}:{ROOT}"},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert int(found.pop().split()[1]) > 50
