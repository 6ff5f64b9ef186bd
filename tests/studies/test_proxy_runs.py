"""Numbers of a run, against what can be said of them beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from palio_studies.proxy_runs import (
    SHORTENED,
    compare_designs,
    compare_organizations,
    compare_prices,
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
    assert shortened["shortcuts"] > plain["shortcuts"] == 0
    assert mesh["latency_ms"] <= shortened["latency_ms"] < plain["latency_ms"]
    assert plain["entries"] < shortened["entries"] < mesh["entries"]
    assert plain["requests"] < shortened["requests"]


def test_the_less_a_shortcut_has_to_be_worth_the_more_there_are() -> None:
    given: dict[str, Value] = {"network": "grid", "proxies": 16, "locality": 1.0, "wishes": 2}
    counts = [
        int(compare_prices(Point("prices", given | {"price": price}, 1))[0]["shortcuts"])
        for price in (0.1, 1.0, 100.0)
    ]
    assert counts[0] > counts[1] > counts[2] == 0


def test_local_interest_is_nearer() -> None:
    for organization in ("mesh", "hierarchy"):
        far, near = (organized(share)[organization]["latency_ms"] for share in (0.0, 1.0))
        assert near < far


def test_a_run_is_the_same_again() -> None:
    assert organized(0.5) == organized(0.5)
    assert designed(2, 3) == designed(2, 3)


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
    with pytest.raises(AssertionError, match="of 3 events"):
        designed(3, 2)
