"""`benchmarks.routing` at its smallest size: a row for every algorithm and every matching."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import routing, routing_algorithms
from benchmarks.routing_algorithms import GRAPH, TREE, Workload, algorithms, matchings, thresholds
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio_studies.names import MATCHINGS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing_algorithms, "ROUNDS", 1)
    monkeypatch.setattr(routing_algorithms, "CHANGES", 3)
    monkeypatch.setattr(routing_algorithms, "GC_THRESHOLDS", (700, 10, 10))


def test_every_algorithm_is_compared_on_each_network_that_it_is_for() -> None:
    rows = algorithms(clients=20, events=10)
    graphs = [each.name for each in ALGORITHMS.values() if each.graph is GraphKind.GRAPH]
    assert [each["routing"] for each in rows if each["network"] == TREE] == list(ALGORITHMS)
    assert [each["routing"] for each in rows if each["network"] == GRAPH] == graphs
    assert all(each["filters"] and each["requests"] for each in rows)
    assert all(f"CPU s {name}" in each for name in MATCHINGS for each in rows)


def test_every_matching_has_a_row_and_matches_the_same() -> None:
    single = partial(Workload, event=lambda rng: {"a": int(rng.integers(40))})
    rows = matchings([single(name="in one chain", filters=thresholds(40))])
    assert [each["matching"] for each in rows] == list(MATCHINGS)
    assert len({each["matches"] for each in rows}) == 1
    assert 0 < rows[1]["tried"] <= 40


def test_the_page_has_what_ran_last(tmp_path: Path) -> None:
    page = tmp_path / "routing.md"
    page.write_text("before\n<!-- end of measured -->\nafter\n".replace("before", routing.BEGIN))
    routing.renew({"algorithms": [{"n": 1_000}]}, tmp_path)
    assert "| 1,000 |" not in page.read_text()  # only once there are both tables
    routing.renew({"matchings": [{"m": "x"}]}, tmp_path)
    assert json.loads((tmp_path / "routing.json").read_text()).keys() == set(routing.SHORT)
    assert "| n |\n| --- |\n| 1,000 |\n\n| m |" in page.read_text()
    assert page.read_text().endswith("<!-- end of measured -->\nafter\n")
