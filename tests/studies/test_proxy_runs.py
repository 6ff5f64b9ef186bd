"""Numbers of a run, against what can be said of them beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from palio_studies.proxy_network import ProxyNetwork, ProxyScenario
from palio_studies.proxy_runs import (
    REGISTERED,
    SHORTENED,
    compare_designs,
    compare_organizations,
    with_shortcuts,
)
from palio_studies.simulator import Network
from palio_studies.study import Point, Value


def organized(locality: float = 0.0, network: str = "random") -> dict[str, dict[str, Any]]:
    given: dict[str, Value] = {"network": network, "proxies": 16, "locality": locality, "wishes": 2}
    rows = compare_organizations(Point("locality", given, 1))
    return {str(row["organization"]): row for row in rows}


def designed(sources: int, receivers: int) -> dict[str, dict[str, Any]]:
    given: dict[str, Value] = {
        "network": "random",
        "proxies": 16,
        "sources": sources,
        "receivers": receivers,
    }
    return {str(row["design"]): row for row in compare_designs(Point("designs", given, 1))}


def test_the_mesh_takes_the_shortest_ways_and_knows_what_anybody_wants() -> None:
    rows = organized()
    assert rows["mesh"]["stretch"] == pytest.approx(1.0)
    assert rows["mesh"]["lines"] == rows["mesh"]["lines_most"] == 16 * 2
    assert rows["mesh"]["entries"] == rows["mesh, one tree"]["entries_most"]
    assert rows["hierarchy"]["stretch"] > 1
    assert rows["hierarchy"]["entries"] < rows["mesh"]["entries"]


def test_shortcuts_trade_state_for_latency() -> None:
    rows = organized(1.0)
    plain, shortened, mesh = (rows[name] for name in ("hierarchy", SHORTENED, "mesh"))
    assert mesh["latency_ms"] <= shortened["latency_ms"] < plain["latency_ms"]
    assert plain["entries"] < shortened["entries"] < mesh["entries"]


@pytest.mark.parametrize(("wanted", "stretch", "entries"), [(1, 1.0, 4 + 1 / 3), (2, 1.5, 4.0)])
def test_a_shortcut_is_there_where_what_it_skips_outweighs_its_entries(
    wanted: int, stretch: float, entries: float
) -> None:
    """From b2 to b3, beside two links over the root. It carries the one type that b2 offers."""
    links = {("b1", "b2"): 10, ("b1", "b3"): 10, ("b2", "b3"): 10}
    drawn = ProxyNetwork(("b1", "b2", "b3"), links, "b1", {"b2": "b1", "b3": "b1"})
    offered = {"b2": "t0", "b1": "t1"}
    kinds = list(offered.values())[:wanted]
    scenario = ProxyScenario(drawn, drawn.distances(), offered, {"b1": [], "b2": [], "b3": kinds})
    row = with_shortcuts(scenario, 4.0)
    assert row["stretch"] == stretch
    assert row["entries"] == pytest.approx(entries)


def test_where_subscriptions_stop_at_sources_sporadic_events_miss_subscribers() -> None:
    rows = organized(1.0)
    by_paper, here = rows[REGISTERED], rows["hierarchy"]
    assert by_paper["entries"] == here["entries"]
    assert by_paper["entries_most"] == here["entries_most"]
    assert by_paper["lines_most"] < here["lines_most"]
    assert by_paper["sporadic"] < here["sporadic"] == 1


def test_designs_have_the_state_and_heartbeats_that_section_ii_says() -> None:
    rows = designed(3, 5)
    distributed, single, several = rows["distributed"], rows["single proxy"], rows["multi-proxy"]
    assert (distributed["source_lines"], distributed["lines_all"]) == (5, 15)
    assert (distributed["watched_pairs"], distributed["watched_most"]) == (15, 5)
    assert (single["lines_most"], single["lines_all"], single["source_lines"]) == (5, 5, 0)
    assert (single["watched_pairs"], single["watched_most"]) == (8, 8)
    assert several["watched_pairs"] == 3 + 5 + 15
    assert several["source_lines"] == 0
    assert distributed["stretch"] == pytest.approx(1.0)
    assert single["latency_ms"] >= distributed["latency_ms"]


def test_one_proxy_sends_a_copy_to_each_receiver_that_is_elsewhere() -> None:
    rows = designed(1, 40)
    assert 30 <= rows["single proxy"]["most_sent"] <= 40
    assert rows["multi-proxy"]["most_sent"] <= 15


def test_an_event_that_is_lost_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    carried = Network.publish

    def lose_one(network: Network, client: Any, parcel: Any) -> None:
        if parcel.rows[0]["number"]:
            carried(network, client, parcel)

    monkeypatch.setattr(Network, "publish", lose_one)
    with pytest.raises(AssertionError, match="was to hear"):
        organized()
    with pytest.raises(AssertionError, match="was to hear"):
        designed(3, 2)
