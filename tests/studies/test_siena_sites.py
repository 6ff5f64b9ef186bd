"""Architectures lie on the sites; the tally of costs agrees with the simulator's own counts."""

from __future__ import annotations

import pytest

from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.row_parcels import RowParcel
from palio.routing.messages import Advertise, Batch, Subscribe, Update
from palio.simulation.randomness import Randomness
from palio_studies.siena_scenario import SitePlan, play
from palio_studies.siena_sites import Architecture, CostClass, CostTally, Sites, lay
from palio_studies.simulator.site_networks import SiteNetwork, draw_sites

TRIANGLE = SiteNetwork(4, 2, ((0, 1), (0, 2), (1, 2), (2, 3)), (5, 2, 2, 7))
"""b1 and b2 are transit sites; between them the way by b3 is shorter than the link."""


def test_the_tree_has_the_shortest_ways_from_a_transit_site() -> None:
    sites = Sites(TRIANGLE)
    assert sites.centre == "b1"
    assert sites.tree == [("b1", "b3"), ("b3", "b2"), ("b3", "b4")]
    assert sites.way("b4") == [("b4", "b3"), ("b3", "b1")]
    assert sites.way("b1") == []


@pytest.mark.parametrize("architecture", list(Architecture))
def test_each_architecture_delivers_to_who_asked_and_pays_for_links(
    architecture: Architecture,
) -> None:
    sites = Sites(draw_sites(Randomness(1), stubs=1, stub_size=3))
    network = lay(architecture, sites, seed=1)
    if architecture is Architecture.CENTRALIZED:
        assert list(network.routers) == [sites.centre]
        return
    alice, bob = network.client("alice", "b16"), network.client("bob", "b8")
    alice.subscribe("kind = 1")
    bob.advertise("kind >= 1")
    network.run()
    before = network.costs.priced
    bob.publish({"kind": 1}, {"kind": 2})
    network.run()
    assert [each.event["kind"] for each in alice.received] == [1]
    assert network.costs.priced > before


# --- costs ---

CHAIN = Sites(SiteNetwork(3, 1, ((0, 1), (1, 2)), (5, 7)))


@pytest.mark.parametrize("architecture", list(Architecture))
def test_costs_are_those_of_the_simulator_and_the_same_by_class_link_and_site(
    architecture: Architecture,
) -> None:
    plan = SitePlan(architecture=architecture, objects=3, parties=12, m=2, n=3, p=2, q=2)
    played = play(plan, 3)
    tally, costs = played.tally, played.network.costs
    at_rest = lay(architecture, Sites(draw_sites(Randomness(3).branch())), seed=3).costs
    classes = sum(tally.cost(each) for each in CostClass)
    assert classes == sum(tally.by_link().values())
    assert 2 * classes == sum(tally.by_site().values())
    assert tally.crossings(CostClass.NOTIFICATION) == costs.notifications - at_rest.notifications
    requests = sum(
        getattr(costs, name) - getattr(at_rest, name) for name in ("subscribes", "unsubscribes")
    )
    assert tally.crossings(CostClass.SUBSCRIPTION) == requests
    assert classes >= costs.priced - at_rest.priced  # what is joined is paid for once there


def test_requests_count_one_by_one_and_a_batch_once() -> None:
    tally = CostTally(CHAIN)
    filter = parse_filter("a = 1")
    tally.crossed("b1", "b2", Batch((Subscribe(0, filter), Subscribe(1, parse_filter("b = 1")))))
    assert tally.cost(CostClass.SUBSCRIPTION) == 10
    tally.crossed("b2", "b3", Batch((Update(0, {"x": 1}, 1),)))
    assert tally.cost(CostClass.SUBSCRIPTION) == 10 + 14
    assert tally.by_link() == {("b1", "b2"): 10, ("b2", "b3"): 14}
    assert tally.by_site() == {"b1": 10, "b2": 24, "b3": 14}


def test_a_client_away_from_its_server_pays_for_its_way() -> None:
    tally = CostTally(CHAIN)
    tally.remote("alice", CHAIN.way("b3"))
    tally.crossed("alice", "b1", RowParcel("alice", [{"a": 1}]))
    tally.crossed("b1", "alice", Batch((Advertise(0, parse_advertisement("a = 1")),)))
    assert tally.cost(CostClass.NOTIFICATION) == tally.cost(CostClass.ADVERTISEMENT) == 12
    assert tally.crossings(CostClass.NOTIFICATION) == 2
    assert tally.by_site() == {"b1": 10, "b2": 24, "b3": 14}
