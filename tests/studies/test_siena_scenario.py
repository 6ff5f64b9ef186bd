"""A scenario depends on its seed alone, is the same for all architectures, and is paid for."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from palio.errors import InvalidInput
from palio.simulation.randomness import Randomness
from palio_studies.siena_scenario import (
    ADVERTISEMENT,
    FILTER,
    Played,
    SitePlan,
    play,
    sites_of,
)
from palio_studies.siena_sites import CostClass

# --- what is published and wanted ---


def test_an_object_publishes_what_it_advertised_and_parties_ask_for() -> None:
    event = {"kind": 1, "number": 3}
    assert ADVERTISEMENT.announces(event)
    assert FILTER.matches(event)


def test_sizes_that_are_not_planned_are_refused() -> None:
    with pytest.raises(InvalidInput, match="choose one of 100, 1000, 10000"):
        sites_of(99, Randomness(1))


# --- applications that come and go ---


def played(
    architecture: str = "as", seed: int = 1, parties: int = 5, objects: int = 2, **changed: float
) -> Played:
    given = {"m": 2, "n": 3, "p": 2, "q": 2} | changed
    plan = {"architecture": architecture, "objects": objects, "parties": parties, **given}
    return play(msgspec.convert(plan, SitePlan), seed)


def test_who_publishes_what_when_does_not_depend_on_the_architecture() -> None:
    hierarchy, peers = played("hs"), played("as")
    assert hierarchy.sites.prices == peers.sites.prices
    for one, other in zip(hierarchy.objects, peers.objects, strict=True):
        assert one.client.broker == other.client.broker
        gaps = [
            [after - before for before, after in pairwise(each.published_us)]
            for each in (one, other)
        ]
        assert gaps[0] == gaps[1]
    for a, b in zip(hierarchy.parties, peers.parties, strict=True):
        assert a.client.broker == b.client.broker


def test_a_seed_gives_the_same_numbers_again_and_another_does_not() -> None:
    one, again, other = (played("aa", seed) for seed in (1, 1, 2))
    assert one.tally.by_link() == again.tally.by_link()
    assert one.tally.by_link() != other.tally.by_link()


@pytest.mark.parametrize("architecture", ["ce", "as", "aa"])
def test_all_that_is_wanted_arrives_with_one_server_and_with_many(architecture: str) -> None:
    run = played(architecture)
    assert [each.requests for each in run.objects] == [2 * (1 + 3 + 1)] * 2
    assert [(each.requests, each.subscribed) for each in run.parties] == [(4, 2)] * 5
    assert (run.published, run.subscribed, run.requests) == (2 * 6, 5 * 2, 2 * 10 + 5 * 4)
    assert run.network.costs.delivered == 5 * 4


def test_a_party_that_waits_in_vain_stays() -> None:
    run = played(parties=1, objects=1, m=1, n=2, p=1, q=3)
    assert run.network.costs.delivered == 2
    assert [each.requests for each in run.parties] == [1]


def test_gaps_are_those_of_a_poisson_process() -> None:
    run = played(parties=1, objects=1, m=1, n=4_000, p=0, q=1, gap_ms=10)
    times = run.objects[0].published_us
    assert times == sorted(times)
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(10_000, rel=0.06)
    spread = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert spread**0.5 == pytest.approx(mean, rel=0.1)
    assert run.parties[0].requests == 0


def test_only_clients_of_one_server_pay_for_their_own_requests() -> None:
    central, peers = played("ce"), played("as", parties=0)
    assert central.tally.cost(CostClass.ADVERTISEMENT) > 0
    assert sum(peers.tally.cost(each) for each in CostClass) == 0
