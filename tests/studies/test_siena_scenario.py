"""A scenario is the same for all architectures, depends on its seed alone, and is paid for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from palio.errors import InvalidInput
from palio.simulation.randomness import Randomness
from palio_studies.siena_behaviour import Behaviour
from palio_studies.siena_scenario import Played, SitePlan, play, sites_of
from palio_studies.siena_sites import Architecture
from palio_studies.siena_tally import CostClass

BEHAVIOUR = Behaviour(advertisements=2, publications=3, subscriptions=2, receipts=2)


def played(architecture: Architecture, seed: int = 1, parties: int = 5) -> Played:
    plan = SitePlan(architecture=architecture, objects=2, parties=parties, behaviour=BEHAVIOUR)
    return play(plan, seed)


def test_who_publishes_what_when_does_not_depend_on_the_architecture() -> None:
    hierarchy, peers = played(Architecture.HIERARCHICAL), played(Architecture.ACYCLIC)
    assert hierarchy.sites.prices == peers.sites.prices
    for one, other in (
        (hierarchy.objects, peers.objects),
        (hierarchy.parties, peers.parties),
    ):
        assert [each.client.broker for each in one] == [each.client.broker for each in other]
    start = [each.network.agenda.now_us for each in (hierarchy, peers)]
    assert start[0] > 0
    gaps = [
        [after - before for each in run.objects for before, after in pairwise(each.published_us)]
        for run in (hierarchy, peers)
    ]
    assert gaps[0] == gaps[1]


def test_a_seed_gives_the_same_numbers_again_and_another_does_not() -> None:
    one, again, other = (played(Architecture.ADVERTISED, seed) for seed in (1, 1, 2))
    assert one.tally.by_link() == again.tally.by_link()
    assert one.tally.by_link() != other.tally.by_link()


def test_all_that_is_wanted_arrives_with_one_server_and_with_many() -> None:
    for architecture in (Architecture.CENTRALIZED, Architecture.ACYCLIC, Architecture.ADVERTISED):
        run = played(architecture)
        assert run.published == 2 * 6
        assert run.subscribed == 5 * 2
        assert run.requests == 2 * 2 * (3 + 2) + 5 * 4
        assert run.network.costs.delivered == 5 * 4


def test_only_clients_of_one_server_pay_for_their_own_requests() -> None:
    central = played(Architecture.CENTRALIZED)
    peers = played(Architecture.ACYCLIC, parties=0)
    assert central.tally.cost(CostClass.ADVERTISEMENT) > 0
    assert sum(peers.tally.cost(each) for each in CostClass) == 0


def test_sizes_that_are_not_planned_are_refused() -> None:
    with pytest.raises(InvalidInput, match="choose one of 100, 1000, 10000"):
        sites_of(99, Randomness(1))
