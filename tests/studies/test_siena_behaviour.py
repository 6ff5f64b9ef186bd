"""Objects and parties do what the paper says, as often as it says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from palio.language.parsing import parse_advertisement, parse_filter
from palio.simulation import Randomness, line
from palio_studies.siena_behaviour import Behaviour, InterestedParty, ObjectOfInterest
from palio_studies.simulator import Delivery, Network

BEHAVIOUR = Behaviour(advertisements=3, publications=4, subscriptions=2, receipts=3)


def run(behaviour: Behaviour) -> tuple[ObjectOfInterest, InterestedParty, list[Delivery], Network]:
    network = Network.of(line(2), seed=1)
    taken: list[Delivery] = []
    thing = ObjectOfInterest(
        network,
        network.client("o", "b1"),
        behaviour,
        Randomness(1),
        advertisement=parse_advertisement("kind = 1"),
        events=lambda number: {"kind": 1, "number": number},
    )
    party = InterestedParty(
        network,
        network.client("p", "b2"),
        behaviour,
        filter=parse_filter("kind = 1"),
        taken=taken.append,
    )
    network.run()
    return thing, party, taken, network


def test_an_object_advertises_publishes_and_withdraws_over_and_over() -> None:
    thing, _, _, _ = run(BEHAVIOUR)
    assert len(thing.published_us) == 12
    assert thing.requests == 3 * (1 + 4 + 1)
    assert thing.published_us == sorted(thing.published_us)


def test_a_party_takes_what_it_waits_for_and_no_more() -> None:
    _, party, taken, network = run(BEHAVIOUR)
    assert len(taken) == 2 * 3
    assert [each.seq for each in taken] == list(range(6))
    assert party.requests == 4
    assert party.subscribed == 2
    assert network.costs.unsubscribes == 2


def test_a_party_that_waits_in_vain_stays() -> None:
    behaviour = Behaviour(advertisements=1, publications=2, subscriptions=1, receipts=3)
    _, party, taken, _ = run(behaviour)
    assert len(taken) == 2
    assert party.requests == 1


def test_gaps_are_those_of_a_poisson_process() -> None:
    behaviour = Behaviour(
        advertisements=1, publications=4_000, subscriptions=0, receipts=1, gap_ms=10
    )
    thing, party, _, _ = run(behaviour)
    times = [0, *thing.published_us]
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(10_000, rel=0.06)
    spread = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert spread**0.5 == pytest.approx(mean, rel=0.1)
    assert party.requests == 0
