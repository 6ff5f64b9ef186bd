from __future__ import annotations

from typing import Any

import pytest

from palio.errors import InvalidInput
from palio.routing.algorithms import ALGORITHMS
from palio_studies.names import MATCHINGS
from palio_studies.simulator.scenario import selectors_of, simulate
from tests.routing.helpers import parse

PATTERNED = [each.name for each in ALGORITHMS.values() if each.assembles]


@pytest.mark.parametrize("routing", sorted(ALGORITHMS))
def test_every_algorithm_delivers_the_same_on_a_tree(routing: str) -> None:
    found = simulate("tree:7", routing, seed=3)
    assert found["delivered"] == simulate("tree:7", "acyclic", seed=3)["delivered"] > 0
    assert found["spurious"] == 0
    assert found == simulate("tree:7", routing, seed=3)


@pytest.mark.parametrize("routing", sorted(ALGORITHMS))
def test_every_matching_gives_the_same_counts(routing: str) -> None:
    patterns = 3 if routing in PATTERNED else 0
    found = [
        simulate("tree:7", routing, seed=3, events=30, patterns=patterns, matching=name)
        for name in MATCHINGS
    ]
    assert [each.pop("matching") for each in found] == list(MATCHINGS)
    for each in found:
        del each["trace"]  # of events that go to several, who is sent one first differs
    assert found[0] == found[1] == found[2]


def test_a_matching_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'rete' is no matching; choose one of index, poset"):
        simulate("tree:7", "acyclic", matching="rete")


def test_filters_are_counted_at_all_brokers() -> None:
    found = {
        name: simulate("line:3", name, clients=1, events=0, seed=2)["filters"]
        for name in ("centralized", "acyclic", "hierarchical", "flooded")
    }
    assert found["centralized"] == 1
    assert found["acyclic"] == 3  # at each broker
    assert found["hierarchical"] <= found["acyclic"] <= found["flooded"]


def test_the_classic_order_of_costs() -> None:
    """Events go everywhere up a hierarchy; flooding tells more than covering does."""
    costs = {name: simulate("random-tree:30", name, seed=5) for name in ALGORITHMS}
    assert costs["hierarchical"]["notifications"] > costs["acyclic"]["notifications"]
    assert costs["flooded"]["subscribes"] > costs["acyclic"]["subscribes"]
    assert costs["acyclic"]["stray"] == 0


@pytest.mark.parametrize("routing", PATTERNED)
def test_patterns_are_found_and_cost_nobody_single_events(routing: str) -> None:
    found = simulate("tree:7", routing, seed=3, patterns=5)
    assert found["composites"] > 0
    assert found["stray"] == 0
    assert found["composite_latency_ms"]["mean"] >= 1000  # they wait out the reorder window


def test_the_same_patterns_are_found_on_trees_and_on_graphs() -> None:
    found = {name: simulate("tree:7", name, seed=3, patterns=5) for name in PATTERNED}
    assert len({each["composites"] for each in found.values()}) == 1


def test_to_one_broker_for_all_everything_goes_the_whole_way() -> None:
    near, far = (simulate(f"line:{size}", "centralized", seed=1) for size in (1, 9))
    assert near["notifications"] == near["subscribes"] == 0
    assert far["subscribes"] > 20  # one for each link on the way
    assert far["latency_ms"]["p50"] > 0 == near["latency_ms"]["p50"]
    assert far["link_states"] == 0


def test_latency_is_that_of_the_links() -> None:
    near = simulate("line:1", "acyclic")["latency_ms"]
    assert near == {"mean": 0.0, "p50": 0.0, "p99": 0.0}
    far = simulate("line:9", "acyclic", seed=1)["latency_ms"]
    assert 0 < far["mean"] < far["p99"] <= 80
    assert far["p50"] % 10 == 0  # links of 10 ms each
    assert simulate("line:2", "acyclic", events=0)["latency_ms"] is None


def test_the_name_of_the_topology_is_not_what_its_changes_cost() -> None:
    found = simulate("ring:5", "general")
    assert found["topology"] == "ring:5"
    assert found["link_states"] > 0


@pytest.mark.parametrize(
    ("topology", "routing", "counts", "reason"),
    [
        ("ring:5", "acyclic", {}, "needs a tree"),
        ("ring:5", "advertised", {}, "choose general-advertised$"),
        ("ring:5", "magic", {}, "choose one of general"),
        ("ring:5", "general", {"clients": 0}, "clients is 0; it takes at least 1"),
        ("ring:5", "general", {"events": -1}, "events is -1"),
        ("ring:5", "general-advertised", {"patterns": 21}, "at most every client, 20"),
        ("ring:5", "general-advertised", {"patterns": -1}, "at most every client, 20"),
        ("ring:5", "general", {"patterns": 1}, "choose general-advertised or advertised"),
        ("ring", "general", {}, "is no topology"),
        ("ring:1", "general", {}, "make it ring:3"),
        ("ring:2", "general", {}, "make it ring:3"),
    ],
)
def test_what_cannot_be_run_is_refused(
    topology: str, routing: str, counts: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        simulate(topology, routing, **counts)


@pytest.mark.parametrize("name", MATCHINGS)
def test_every_matching_can_be_had(name: str) -> None:
    new = selectors_of(name)
    selector, other = new(), new()
    selector.add(4, parse("a > :low"), {"low": 1}, 7)
    selector.bind(4, {"low": 3}, parse("a > 3"))
    assert selector.match_event({"a": 4}) == [4]
    assert selector.match_event({"a": 2}) == other.match_event({"a": 4}) == []
    assert (len(selector), len(other)) == (1, 0)
    selector.remove(4)
    assert len(selector) == 0


def test_another_name_is_told_the_choices() -> None:
    with pytest.raises(InvalidInput, match="'rete' is no matching; choose one of index, poset"):
        selectors_of("rete")
