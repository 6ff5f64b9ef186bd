"""Patterns: over whose events they are, and that parties find what servers find."""

from __future__ import annotations

import pytest

from palio.model.patterns import Pattern
from palio.simulation.randomness import Randomness
from palio_studies.siena_patterns import ManySequences, found_by_parties
from palio_studies.siena_sites import Architecture
from palio_studies.siena_steady import Flow, SteadyPlan, flow
from palio_studies.simulator.clients import Client


@pytest.mark.parametrize("sources", [1, 2, 3])
def test_a_pattern_takes_its_objects_in_turn(sources: int) -> None:
    wishes, random = ManySequences(objects=5, sources=sources, steps=6), Randomness(1)
    for _ in range(20):
        kinds = [str(step).partition(" AND ")[0] for step in wishes.pattern(random).steps]
        assert len(set(kinds[:sources])) == sources
        assert kinds == (kinds[:sources] * 6)[:6]


def test_an_object_publishes_what_it_advertised() -> None:
    wishes, random = ManySequences(objects=5, sources=1, steps=2), Randomness(1)
    for thing in range(5):
        advertisement = wishes.advertisement(thing, random)
        assert advertisement.announces(wishes.event(thing, 0, random), open=False)


def test_the_filter_of_a_party_is_what_any_step_of_its_pattern_wants() -> None:
    wishes = ManySequences(objects=5, sources=2, steps=3)
    assert wishes.filter(0, Randomness(4)) == wishes.pattern(Randomness(4)).any_step


def played(architecture: str) -> tuple[Flow, list[Pattern]]:
    wishes = ManySequences(objects=4, sources=2, steps=2)
    patterns: list[Pattern] = []
    plan = SteadyPlan(
        architecture=Architecture(architecture), objects=4, parties=8, publications=80, rate=10.0
    )

    def ask(client: Client, number: int, random: Randomness) -> None:
        patterns.append(wishes.pattern(random))
        if architecture == "pa":
            client.subscribe_pattern(patterns[number])
        else:
            client.subscribe(patterns[number].any_step)

    return flow(plan, 2, wishes, ask), patterns


def test_parties_find_what_servers_find() -> None:
    by_parties, patterns = played("aa")
    by_servers, same = played("pa")
    assert patterns == same
    found = sum(len(each.found) for each in by_servers.parties)
    assert found_by_parties(by_parties, patterns) == found > 8


def test_servers_bring_fewer_notifications_to_parties() -> None:
    by_parties, _ = played("aa")
    by_servers, _ = played("pa")
    assert sum(len(each.received) for each in by_servers.parties) == 0
    assert by_servers.network.costs.notifications < by_parties.network.costs.notifications
