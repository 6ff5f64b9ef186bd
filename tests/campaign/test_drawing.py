from __future__ import annotations

from collections import Counter

import pytest

from palio.errors import InvalidInput
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio.simulation.topologies import Topology
from tests.campaign.drawing import APART, GATEWAY, ROUTINGS, STOPS, draw
from tests.campaign.faults import FAULTS, REFUSALS
from tests.campaign.plays import WORK

SEEDS = range(300)


def test_a_seed_is_one_script() -> None:
    assert [draw(seed) for seed in range(20)] == [draw(seed) for seed in range(20)]
    assert len({repr(draw(seed)) for seed in range(20)}) == 20


def test_every_algorithm_and_every_fault_is_drawn() -> None:
    scripts = [draw(seed) for seed in SEEDS]
    assert {each.routing for each in scripts} == set(ALGORITHMS)
    assert {fault for each in scripts for fault in each.faults} == set(FAULTS)
    assert any(each.gate for each in scripts)
    assert any(each.grants for each in scripts)
    assert any(not each.faults for each in scripts)
    assert any(each.faults - {"crash"} == set(REFUSALS) for each in scripts)
    deeds = {step.what for each in scripts for step in each.steps} - set(FAULTS)
    assert deeds == (
        {"join", "hear", "change", "tune", "end", "publish", "offer", "move", "move over"}
        | {"harm", "apply", "seek", "cancel", "withdraw", *WORK}
    )
    texts = [step.words[2] for each in scripts for step in each.steps if step.what == "hear"]
    assert any(" THEN " in text for text in texts)
    casting = [each for each in scripts if each.multicast]
    assert {each.routing for each in casting} == {"flooded", "source-trees"}
    assert all(any(step.what == "apply" for step in each.steps) for each in casting)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_network_is_one_that_its_algorithm_is_for(routing: str) -> None:
    for seed in range(30):
        script = draw(seed, routing)
        assert Topology(script.brokers, script.edges).is_connected
        assert (script.gate is not None) is (routing == GATEWAY)
        if routing == GATEWAY:
            continue
        assert script.routing == routing
        kind = ALGORITHMS[routing].graph
        if kind is GraphKind.TREE:
            assert len(script.edges) == len(script.brokers) - 1
        assert (kind is GraphKind.ALONE) is (len(script.brokers) == 1)


def test_steps_are_in_order_and_of_those_who_are_there() -> None:
    for seed in range(50):
        script = draw(seed)
        clients = {step.words[0] for step in script.steps if step.what == "join"}
        later = [step.at_s for step in script.steps if step.at_s >= 4.0]
        assert later == sorted(later)
        for step in script.steps:
            if step.what in {"hear", "change", "tune", "end", "publish", "move", "move over"}:
                assert step.words[0] in clients


def test_brokers_stop_amid_durable_events_for_who_is_away() -> None:
    found = 0
    for seed in SEEDS:
        script = draw(seed)
        for step in script.steps:
            if step.what != "away":
                continue
            listener, seconds = step.words
            homes = [each.words[1] for each in script.steps if each.words[:1] == (listener,)]
            found += any(
                each.what in STOPS
                and each.words[0] == homes[0]
                and step.at_s < each.at_s < step.at_s + seconds
                for each in script.steps
            )
    assert found > len(SEEDS) // 10


def test_a_disk_refuses_some_of_what_clients_have_written_and_its_broker_stops() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        steps = draw(seed).steps
        for spotty in (each for each in steps if each.what == "spotty"):
            soon = [each for each in steps if 0 <= each.at_s - spotty.at_s < 0.5]
            met.update({each.what for each in soon})
            met["durable"] += any(each.what == "publish" and each.words[1] for each in soon)
            met["stopped"] += any(
                each.what == "crash" and each.words[0] == spotty.words[0] for each in soon
            )
    assert all(met[each] > 5 for each in ("durable", "stopped", "move", "move over", "end"))


def test_durable_subscriptions_move_while_a_clock_is_ahead_and_links_are_gone() -> None:
    scripts = [draw(seed) for seed in SEEDS]
    both = [each for each in scripts if "clock" in each.faults and each.faults & APART]
    moving = [each for each in both if any(step.what == "move" for step in each.steps)]
    assert len(moving) > len(SEEDS) // 25


def test_an_algorithm_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no routing algorithm"):
        draw(1, "magic")
