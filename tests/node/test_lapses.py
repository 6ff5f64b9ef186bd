"""What is lost on the way between brokers is told to those who wanted it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

import pytest
from msgspec.structs import replace

from palio.node.complaints import COMPLAIN_EVERY_S
from palio.node.lapses import WAVES, Lapses
from palio.node.settings import Settings
from palio.node.vouching import LAPSE
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Fact,
    Facts,
    Forward,
    Gap,
    Gaps,
    Hello,
)
from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.algorithms import find_algorithm
from palio.routing.flooded import Flooded
from palio.routing.general import General
from palio.routing.protocol import Router
from palio.simulation.disks import Disk
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import connected_random, line, random_tree, ring
from palio.simulation.world import World
from tests.conftest import seeds, share
from tests.node.lives import Life

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)

LOOK_S: Final = QUICK.heartbeat_s / 5
"""How often a broker looks round."""

TOLD_S: Final = QUICK.peer_grace_s + 2 * LOOK_S + 1.0
"""After a break, or after all is whole, gaps are told within this: with room for the ways."""

PERHAPS: Final = Gap("*", 0, 0, 0)


def _advertised_on_graphs(name: str) -> Router:
    return General(name, Advertised)


ROUTERS: Final[dict[str, Callable[[str], Router]]] = {
    "acyclic": Acyclic,
    "advertised": Advertised,
    "flooded": Flooded,
    "general": General,
    "advertised on graphs": _advertised_on_graphs,
}


def _world(router: str, seed: int) -> tuple[World, list[str], list[tuple[str, str]]]:
    random = Randomness(seed + 5_000)
    if router in ("general", "advertised on graphs"):
        shape = ring(4) if random.chance(0.5) else connected_random(5, 6, random.branch())
    else:
        shape = line(5) if random.chance(0.5) else random_tree(5, random.branch())
    world = World.of(shape, ROUTERS[router], seed=seed, settings=QUICK)
    return world, list(shape.brokers), list(shape.edges)


@pytest.mark.parametrize("seed", seeds(1, nightly=40))
@pytest.mark.parametrize("router", share(ROUTERS, 3))
def test_whatever_is_lost_is_told_whenever_the_network_is_whole_again(
    router: str, seed: int
) -> None:
    world, brokers, edges = _world(router, seed)
    life = Life(seed, world, brokers, announces="advertised" in router)
    life.pass_time(1.0)
    assert not any(map(life.lost, life.listeners))
    for _ in range(2):
        _break(life, edges)
        life.pass_time(life.random.uniform() * 6.0, 0.2)
        _mend(life, edges)
        life.pass_time(4.0)
        world.run(TOLD_S + 4.0)
        life.check()
        _assert_whole(life)


def _break(life: Life, edges: list[tuple[str, str]]) -> None:
    random, world = life.random, life.world
    for _ in range(random.between(1, 3)):
        if random.chance(0.5):
            world.cut(*random.choice(edges))
        else:
            broker = random.choice(life.brokers)
            if broker in world.nodes:
                world.kill(broker)
        life.pass_time(random.uniform() * 1.5, 0.1)


def _mend(life: Life, edges: list[tuple[str, str]]) -> None:
    """In an order of its own, so that now the near link is back first, now the far one."""
    world = life.world
    down = [name for name in life.brokers if name not in world.nodes]
    while down:
        name = down.pop(life.random.below(len(down)))
        if life.random.chance(0.3):  # a broker without a directory of data
            world.disks[name] = Disk(world.random.branch())
        world.start(name)
        life.pass_time(life.random.uniform(), 0.03)
    for edge in edges:
        world.heal(*edge)
        life.pass_time(life.random.uniform() * 0.2, 0.03)


def _assert_whole(life: Life) -> None:
    """Nothing is lost any more, and nobody says so."""
    told = [len(each.told) for each in life.listeners]
    before = [len(life.lost(each)) for each in life.listeners]
    life.pass_time(2.0)
    life.world.run(1.0)
    assert [len(life.lost(each)) for each in life.listeners] == before
    assert [len(each.told) for each in life.listeners] == told


def test_a_line_of_four_is_told_of_what_its_middle_lost() -> None:
    """Neither the listener's broker nor the publisher's is next to the one that is killed."""
    life = Life(0, World.of(line(5), settings=QUICK), ["b1", "b5"])
    listener = life.listeners[1]
    began = life.world.now
    life.pass_time(0.5)
    life.world.kill("b3")
    life.pass_time(0.5)
    life.world.start("b3")
    life.pass_time(3.0)
    lost = life.lost(listener)
    told = [at for at in listener.told if at > began]
    assert len(lost) >= 5
    assert 1 <= len(told) <= 6
    assert max(lost) < max(told) <= max(lost) + TOLD_S


def test_a_link_that_stays_down_is_told_once() -> None:
    life = Life(0, World.of(line(4), settings=QUICK), ["b1", "b4"])
    listener = life.listeners[1]
    told = len(listener.told)
    life.world.cut("b2", "b3")
    life.pass_time(TOLD_S + 20.0, 0.5)
    assert len(listener.told) == told + 1
    assert listener.told[-1] <= life.lost(listener)[0] + TOLD_S


def test_a_link_that_is_back_within_the_grace_loses_nothing_and_is_not_told() -> None:
    life = Life(0, World.of(line(4), settings=QUICK), ["b1", "b4"])
    told = [list(each.told) for each in life.listeners]
    for _ in range(20):
        life.world.cut("b2", "b3")
        life.pass_time(0.2)
        life.world.heal("b2", "b3")
        life.pass_time(0.5)
    life.world.run(3.0)
    assert not any(map(life.lost, life.listeners))
    assert [each.told for each in life.listeners] == told


def test_a_link_that_comes_and_goes_is_told_no_more_than_once_a_look() -> None:
    """Not by the broken link's ends, nor by brokers further away."""
    world = World.of(line(6), settings=QUICK)
    life = Life(0, world, ["b1", "b6"])
    before, began = len(life.listeners[1].told), world.now
    facts = len(_lapses(world, "b6"))
    for _ in range(100):
        world.kill("b2")
        world.run(0.02)
        world.start("b2")
        world.run(0.08)
    world.run(5.0)
    told = life.listeners[1].told[before:]
    looks = (world.now - began) / LOOK_S
    assert len(told) <= looks
    assert min(b - a for a, b in pairwise(told)) >= LOOK_S * 0.99
    assert len(_lapses(world, "b6")) - facts <= 6  # the newest of each broker, however many came


def _lapses(world: World, broker: str) -> list[Fact]:
    facts = world.nodes[broker]._core.durability.registry.facts()
    return [each for each in facts if each.subject == LAPSE]


@pytest.mark.parametrize("routing", ["hierarchical", "proxies"])
def test_a_hierarchy_is_told_above_and_below(routing: str) -> None:
    algorithm = find_algorithm(routing)
    world = World(settings=QUICK)
    for name, parent in (("root", ""), ("middle", "root"), ("leaf", "middle")):
        new = partial(algorithm.new, has_parent=bool(parent))
        world.add_broker(name, new, parent if algorithm.has_parents else "")
    world.connect("middle", "root")
    world.connect("leaf", "middle")
    world.run(1.0)
    life = Life(0, world, ["root", "leaf"])
    for _ in range(2):
        world.kill("middle")
        life.pass_time(1.0)
        world.start("middle")
        life.pass_time(3.0)
        world.run(TOLD_S)
        assert all(map(life.lost, life.listeners))
        life.check()
        _assert_whole(life)


def test_events_that_waited_for_a_slow_neighbour_and_were_dropped_are_told() -> None:
    """Its clients are told by the brokers beyond it, however far."""
    settings = replace(QUICK, window_bytes=4_000, queue_bytes=8_000)
    life = Life(0, World.of(line(4), settings=settings), ["b1", "b4"])
    listener, publisher = life.listeners[1], life.publishers[0]
    told = len(listener.told)
    for _ in range(200):
        seq = publisher.publish({"x": 1, "text": "x" * 500})
        life.published.append((life.world.now, publisher, seq))
    life.world.run(TOLD_S)
    assert life.lost(listener)
    assert told < len(listener.told) <= told + 5
    life.check()


def test_an_event_that_a_neighbour_could_not_take_is_told_beyond_it() -> None:
    life = Life(0, World.of(line(3), settings=QUICK), ["b1", "b3"])
    listener = life.listeners[1]
    told = len(listener.told)
    life.world.spoils = lambda who, message: who == "b1" and isinstance(message, Forward)
    life.pass_time(0.01)
    life.world.run(5.0)
    life.world.spoils = lambda _who, _message: False
    life.world.run(TOLD_S)
    assert life.lost(listener)
    assert len(listener.told) > told
    life.check()


def test_who_wants_nothing_is_told_nothing() -> None:
    life = Life(0, World.of(line(2), settings=QUICK), ["b1", "b2"])
    life.world.kill("b2")
    life.pass_time(0.5)
    life.world.start("b2")
    life.pass_time(4.0)
    assert life.listeners[0].gaps == [PERHAPS] * len(life.listeners[0].gaps) != []
    assert life.publishers[0].gaps == []


def test_a_client_cannot_say_that_something_was_lost() -> None:
    world = World.of(line(2), settings=QUICK)
    victim, mallory = world.client("victim", "b2"), world.client("mallory", "b1")
    victim.subscribe("x >= 0")
    world.run(3.0)
    victim.gaps.clear()
    for message in (Facts((Fact("b1", 1 << 60, LAPSE),)), Gaps((PERHAPS,))):
        link = world.open_client("mallory", "b1")
        assert link is not None
        world.send("mallory", link, Hello("client", "mallory", PROTOCOL_VERSION))
        world.send("mallory", link, message)
        world.run(3.0)
    world.run(COMPLAIN_EVERY_S)
    refused = [each.details["reason"] for who, each in world.reports if each.event == "refused"]
    assert any("Facts is not for clients" in each for each in refused)
    assert any("Gaps is not for clients" in each for each in refused)
    assert victim.gaps == []
    assert mallory.gaps == []


def test_a_broker_that_speaks_of_lapses_all_the_time_is_told_once_a_look() -> None:
    """Facts are numbered; whatever their number, a client hears one gap between two looks."""
    world = World.of(line(2), settings=QUICK)
    victim = world.client("victim", "b2")
    victim.subscribe("x >= 0")
    world.run(3.0)
    victim.gaps.clear()
    began = world.now
    node, host = world.nodes["b1"], world.host("b1")
    for _ in range(300):
        node._core.durability.registry.lapse()
        node.wake_at = world.now
        host.tick(host.alarm_at)
        world.run(0.01)
    world.run(2.0)
    assert 1 <= len(victim.gaps) <= (world.now - began) / LOOK_S


def test_waves_that_are_answered_at_once_or_never() -> None:
    sent: list[Callable[[], None]] = []
    lapses = Lapses(sent.append)
    assert lapses.take() == (False, False)
    lapses.ways_changed()
    lapses.ways_changed()
    assert len(sent) == 1, "one wave at a time, however often ways change"
    assert lapses.take() == (True, True), "at once, though no wave is answered"
    for number in range(WAVES):
        assert lapses.take() == (False, False)
        sent[number]()
    assert len(sent) == WAVES + 1, "what changed while a wave was on its way has waves of its own"
    sent[WAVES]()
    assert lapses.take() == (True, True)
    assert len(sent) == WAVES + 1
    at_once = Lapses(lambda then: then())
    at_once.ways_changed()
    assert at_once.take() == (True, True)
    assert at_once.take() == (False, False)


def test_what_others_are_not_told_yet_waits_and_clients_here_are_told() -> None:
    lapses = Lapses(lambda _then: None)
    lapses.note()
    assert lapses.take(may_tell=False) == (False, True)
    assert lapses.take(may_tell=False) == (False, False)
    assert lapses.take() == (True, False)
    assert lapses.take() == (False, False)
