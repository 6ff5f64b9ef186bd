"""What is lost on the way between brokers is told to those who wanted it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import pytest
from msgspec.structs import replace

from palio.node.fact_verifier import LOSS_REPORT
from palio.node.loss_reports import (
    QUIET_SWEEPS,
    TIMEOUT_SWEEPS,
    WAVES,
    Absences,
    Affected,
    LossReports,
)
from palio.node.rate_limited_log import LOG_INTERVAL_S
from palio.node.settings import Settings
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
from palio.simulation.topologies import Topology, connected_random, line, random_tree, ring
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
    incarnation = Life(seed, world, brokers, announces="advertised" in router)
    incarnation.pass_time(1.0)
    assert not any(map(incarnation.lost, incarnation.listeners))
    for _ in range(2):
        _break(incarnation, edges)
        incarnation.pass_time(incarnation.random.uniform() * 6.0, 0.2)
        _mend(incarnation, edges)
        incarnation.pass_time(4.0)
        world.run(TOLD_S + 4.0)
        incarnation.check()
        _assert_whole(incarnation)


def _break(incarnation: Life, edges: list[tuple[str, str]]) -> None:
    random, world = incarnation.random, incarnation.world
    for _ in range(random.between(1, 3)):
        if random.chance(0.5):
            world.cut(*random.choice(edges))
        else:
            broker = random.choice(incarnation.brokers)
            if broker in world.nodes:
                world.kill(broker)
        incarnation.pass_time(random.uniform() * 1.5, 0.1)


def _mend(incarnation: Life, edges: list[tuple[str, str]]) -> None:
    """In an order of its own, so that now the near link is back first, now the far one."""
    world = incarnation.world
    down = [name for name in incarnation.brokers if name not in world.nodes]
    while down:
        name = down.pop(incarnation.random.below(len(down)))
        if incarnation.random.chance(0.3):  # a broker without a directory of data
            world.disks[name] = Disk(world.random.branch())
        world.start(name)
        incarnation.pass_time(incarnation.random.uniform(), 0.03)
    for edge in edges:
        world.heal(*edge)
        incarnation.pass_time(incarnation.random.uniform() * 0.2, 0.03)


def _assert_whole(incarnation: Life) -> None:
    """Nothing is lost any more, and nobody says so."""
    told = [len(each.told) for each in incarnation.listeners]
    before = [len(incarnation.lost(each)) for each in incarnation.listeners]
    incarnation.pass_time(2.0)
    incarnation.world.run(1.0)
    assert [len(incarnation.lost(each)) for each in incarnation.listeners] == before
    assert [len(each.told) for each in incarnation.listeners] == told


def test_a_line_of_four_is_told_of_what_its_middle_lost() -> None:
    """Neither the listener's broker nor the publisher's is next to the one that is killed."""
    incarnation = Life(0, World.of(line(5), settings=QUICK), ["b1", "b5"])
    listener = incarnation.listeners[1]
    began = incarnation.world.now
    incarnation.pass_time(0.5)
    incarnation.world.kill("b3")
    incarnation.pass_time(0.5)
    incarnation.world.start("b3")
    incarnation.pass_time(3.0)
    lost = incarnation.lost(listener)
    told = [at for at in listener.told if at > began]
    assert len(lost) >= 5
    assert 1 <= len(told) <= 6
    assert max(lost) < max(told) <= max(lost) + TOLD_S


def test_a_link_that_stays_down_is_told_once() -> None:
    incarnation = Life(0, World.of(line(4), settings=QUICK), ["b1", "b4"])
    listener = incarnation.listeners[1]
    told = len(listener.told)
    incarnation.world.cut("b2", "b3")
    incarnation.pass_time(TOLD_S + 20.0, 0.5)
    assert len(listener.told) == told + 1
    assert listener.told[-1] <= incarnation.lost(listener)[0] + TOLD_S


def test_a_link_that_is_back_within_the_grace_loses_nothing_and_is_not_told() -> None:
    incarnation = Life(0, World.of(line(4), settings=QUICK), ["b1", "b4"])
    told = [list(each.told) for each in incarnation.listeners]
    for _ in range(20):
        incarnation.world.cut("b2", "b3")
        incarnation.pass_time(0.2)
        incarnation.world.heal("b2", "b3")
        incarnation.pass_time(0.5)
    incarnation.world.run(3.0)
    assert not any(map(incarnation.lost, incarnation.listeners))
    assert [each.told for each in incarnation.listeners] == told


def test_a_link_that_comes_and_goes_is_told_no_more_than_once_a_look() -> None:
    """Not by the broken link's ends, nor by brokers further away."""
    world = World.of(line(6), settings=QUICK)
    incarnation = Life(0, world, ["b1", "b6"])
    before, began = len(incarnation.listeners[1].told), world.now
    facts = len(_loss_reports(world, "b6"))
    for _ in range(100):
        world.kill("b2")
        world.run(0.02)
        world.start("b2")
        world.run(0.08)
    world.run(5.0)
    told = incarnation.listeners[1].told[before:]
    looks = (world.now - began) / LOOK_S
    assert len(told) <= looks
    assert min(b - a for a, b in pairwise(told)) >= LOOK_S * 0.99
    assert (
        len(_loss_reports(world, "b6")) - facts <= 6
    )  # the newest of each broker, however many came


def _loss_reports(world: World, broker: str) -> list[Fact]:
    facts = world.nodes[broker]._core.durability.cluster_state.facts()
    return [each for each in facts if each.subject == LOSS_REPORT]


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
    incarnation = Life(0, world, ["root", "leaf"])
    for _ in range(2):
        world.kill("middle")
        incarnation.pass_time(1.0)
        world.start("middle")
        incarnation.pass_time(3.0)
        world.run(TOLD_S)
        assert all(map(incarnation.lost, incarnation.listeners))
        incarnation.check()
        _assert_whole(incarnation)


def test_events_that_waited_for_a_slow_neighbour_and_were_dropped_are_told() -> None:
    """Its clients are told by the brokers beyond it, however far."""
    settings = replace(QUICK, window_bytes=4_000, queue_bytes=8_000)
    incarnation = Life(0, World.of(line(4), settings=settings), ["b1", "b4"])
    listener, publisher = incarnation.listeners[1], incarnation.publishers[0]
    told = len(listener.told)
    for _ in range(200):
        seq = publisher.publish({"x": 1, "text": "x" * 500})
        incarnation.published.append((incarnation.world.now, publisher, seq))
    incarnation.world.run(TOLD_S)
    assert incarnation.lost(listener)
    assert told < len(listener.told) <= told + 5
    incarnation.check()


def test_an_event_that_a_neighbour_could_not_take_is_told_beyond_it() -> None:
    incarnation = Life(0, World.of(line(3), settings=QUICK), ["b1", "b3"])
    listener = incarnation.listeners[1]
    told = len(listener.told)
    incarnation.world.spoils = lambda who, message: who == "b1" and isinstance(message, Forward)
    incarnation.pass_time(0.01)
    incarnation.world.run(5.0)
    incarnation.world.spoils = lambda _who, _message: False
    incarnation.world.run(TOLD_S)
    assert incarnation.lost(listener)
    assert len(listener.told) > told
    incarnation.check()


def test_who_wants_nothing_is_told_nothing() -> None:
    incarnation = Life(0, World.of(line(2), settings=QUICK), ["b1", "b2"])
    incarnation.world.kill("b2")
    incarnation.pass_time(0.5)
    incarnation.world.start("b2")
    incarnation.pass_time(4.0)
    gaps = incarnation.listeners[0].gaps
    assert gaps
    assert {each.publisher for each in gaps} == {"*"}
    assert all(re.match(r"b\d: ", each.reason) for each in gaps)
    assert incarnation.publishers[0].gaps == []


def test_a_client_cannot_say_that_something_was_lost() -> None:
    world = World.of(line(2), settings=QUICK)
    victim, mallory = world.client("victim", "b2"), world.client("mallory", "b1")
    victim.subscribe("x >= 0")
    world.run(3.0)
    victim.gaps.clear()
    for message in (Facts((Fact("b1", 1 << 60, LOSS_REPORT),)), Gaps((PERHAPS,))):
        end = world.open_client("mallory", "b1")
        assert end is not None
        end.send(Hello("client", "mallory", PROTOCOL_VERSION))
        end.send(message)
        world.run(3.0)
    world.run(LOG_INTERVAL_S)
    refused = [
        each.details["reason"] for who, each in world.reports if each.event == "connection_rejected"
    ]
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
        node._core.durability.cluster_state.report_loss("it broke")
        node.wake_at = world.now
        host.tick(host.alarm_at)
        world.run(0.01)
    world.run(2.0)
    assert 1 <= len(victim.gaps) <= (world.now - began) / LOOK_S


def test_what_a_broker_writes_into_a_lapse_does_nothing_to_terminals() -> None:
    world = World.of(line(2), settings=QUICK)
    victim = world.client("victim", "b2")
    victim.subscribe("x >= 0")
    world.run(3.0)
    victim.gaps.clear()
    node, host = world.nodes["b1"], world.host("b1")
    node._core.durability.cluster_state.report_loss("\x1b[2J" + "x" * 10_000)
    node.wake_at = world.now
    host.tick(host.alarm_at)
    world.run(3.0)
    (gap,) = victim.gaps
    assert gap.reason.startswith("b1: '\\x1b[2Jxxx")
    assert len(gap.reason) < 300


def _nothing() -> None:
    pass


def looks(
    loss_reports: LossReports, most: int = 2 * TIMEOUT_SWEEPS, **how: bool
) -> tuple[int, int]:
    """After how many looks others are told, and after how many clients here are; 0 for never."""
    news = told = 0
    for look in range(1, most + 1):
        why, reasons = loss_reports.take(**how)
        news, told = news or look * bool(why), told or look * bool(reasons)
    return news, told


QUIET: Final = QUIET_SWEEPS + 1
PATIENT: Final = TIMEOUT_SWEEPS + 1


def test_what_is_noted_is_told_to_others_and_then_here_after_some_looks() -> None:
    loss_reports = LossReports("b1", lambda _then: None, _nothing, lambda: (Affected.NONE, []))
    assert looks(loss_reports) == (0, 0)
    loss_reports.note("it broke")
    assert looks(loss_reports, 1) == (0, 0)
    loss_reports.note("it broke")
    assert looks(loss_reports) == (QUIET - 1, 2 * QUIET - 1)
    loss_reports.note_here("b2: it broke")
    assert looks(loss_reports) == (0, QUIET)
    loss_reports.note("it broke")
    assert looks(loss_reports, may_report=False) == (0, 0)
    assert looks(loss_reports) == (1, 1 + QUIET)


def test_a_gap_has_the_reasons_of_those_who_saw_the_break() -> None:
    loss_reports = LossReports("b1", lambda _then: None, _nothing, lambda: (Affected.NONE, []))
    loss_reports.note("the session with 'b2' ended")
    for broker in ("b3", "b3", "b4", "b5", "b6"):
        loss_reports.note_here(f"{broker}: it broke")
    taken = [loss_reports.take() for _ in range(2 * QUIET)]
    assert [reasons for _, reasons in taken if reasons] == [
        "b3: it broke; b4: it broke; b5: it broke",
        "b1: the session with 'b2' ended",
    ]


def test_waves_that_are_answered_at_once_or_never() -> None:
    sent: list[Callable[[], None]] = []
    loss_reports = LossReports("b1", sent.append, _nothing, lambda: (Affected.NONE, []))
    loss_reports.paths_changed("it broke")
    loss_reports.paths_changed("it broke")
    assert len(sent) == 1, "one wave at a time, however often ways change"
    assert looks(loss_reports) == (PATIENT, PATIENT + QUIET), "though no wave is answered"
    for number in range(WAVES):
        assert looks(loss_reports) == (0, 0)
        sent[number]()
    assert len(sent) == WAVES + 1, "what changed while a wave was on its way has waves of its own"
    sent[WAVES]()
    assert looks(loss_reports) == (QUIET, 2 * QUIET)
    assert len(sent) == WAVES + 1
    at_once = LossReports("b1", lambda then: then(), _nothing, lambda: (Affected.NONE, []))
    at_once.paths_changed("it broke")
    assert looks(at_once) == (QUIET, 2 * QUIET)


@pytest.mark.parametrize(
    ("missed", "told"),
    [
        (Affected.NONE, (0, 0)),
        (Affected.LOCAL, (0, QUIET)),
        (Affected.ALL, (QUIET, 2 * QUIET)),
    ],
)
def test_who_is_told_of_a_neighbour_that_joins(missed: Affected, told: tuple[int, int]) -> None:
    loss_reports = LossReports("b1", lambda then: then(), _nothing, lambda: (missed, ["b2"]))
    loss_reports.peer_joined()
    assert looks(loss_reports) == told


def away() -> Absences:
    """Those of `b0`, which stands between `b1` with `b2`, and `b3`."""
    return Absences(lambda broker: {"b1", "b2"} if broker in {"b1", "b2"} else {broker})


def test_brokers_that_were_away_and_lived_on_were_missed() -> None:
    seen = away()
    seen.update({"b1", "b2", "b3"})
    assert seen.judge() == (Affected.NONE, []), "they are met for the first time"
    seen.update({"b3"})
    assert seen.judge() == (Affected.NONE, []), "they are away still"
    seen.forget(["b1"])
    seen.update({"b1", "b3"})
    assert seen.judge() == (Affected.NONE, []), "it was started anew"
    seen.update({"b1", "b2", "b3"})
    assert seen.judge() == (Affected.ALL, ["b2"])
    assert seen.judge() == (Affected.NONE, []), "that was found out"


def test_one_that_was_started_anew_before_anybody_saw_it_gone_was_not_missed() -> None:
    seen = away()
    seen.update({"b1"})
    seen.forget(["b1"])
    seen.update(set())
    seen.update({"b1"})
    assert seen.judge() == (Affected.NONE, [])
    seen.update(set())
    seen.update({"b1"})
    assert seen.judge() == (Affected.ALL, ["b1"]), "in this incarnation it was away"


@pytest.mark.parametrize(
    ("has_published", "missed"), [(False, Affected.NONE), (True, Affected.ALL)]
)
def test_what_one_took_before_it_met_anybody_is_missed(
    has_published: bool, missed: Affected
) -> None:
    seen = away()
    seen.tables_in_force(has_published=has_published)
    seen.update({"b1"})
    seen.tables_in_force(has_published=has_published)
    assert seen.judge()[0] is missed
    seen.tables_in_force(has_published=True)
    assert seen.judge()[0] is Affected.NONE, "it is not alone any more"


def test_who_starts_misses_its_network_alone_unless_it_joins_two_parts() -> None:
    seen = away()
    seen.begin(["b1", "b2", "b3"])
    seen.update({"b1", "b2"})
    assert seen.judge() == (Affected.LOCAL, ["b1", "b2"])
    assert seen.judge() == (Affected.NONE, [])
    seen = away()
    seen.begin(["b1", "b2", "b3"])
    seen.update({"b1", "b3"})
    assert seen.judge() == (Affected.ALL, ["b1", "b3"]), "nobody else has joined these"
    seen = away()
    seen.begin(["b1", "b2", "b3"])
    seen.forget(["b3"])
    seen.update({"b1", "b2", "b3"})
    assert seen.judge() == (Affected.LOCAL, ["b1", "b2"]), "b3 has missed nothing"


# --- how many gaps one break is ---


def gaps_after(
    world: World, brokers: Sequence[str], stop: Callable[[str], None]
) -> list[tuple[int, ...]]:
    """Each of some brokers in turn is stopped and started again, while somebody publishes at the
    first: how many gaps the listeners at the others are told.
    """
    incarnation = Life(0, world, list(world.nodes))
    del incarnation.publishers[1:]
    incarnation.pass_time(1.0)
    found = []
    for broker in brokers:
        before = [len(each.told) for each in incarnation.listeners]
        stop(broker)
        incarnation.pass_time(1.0)
        world.start(broker)
        incarnation.pass_time(TOLD_S + 2.0)
        told = [
            len(each.told) - was for each, was in zip(incarnation.listeners, before, strict=True)
        ]
        del told[incarnation.brokers.index(broker)]
        found.append(tuple(told))
    incarnation.check()
    return found


def _leave(world: World, broker: str) -> None:
    host = world.host(broker)
    host.leave()
    for _ in range(100):
        if host.machine.is_free_to_go:
            break
        world.run(0.05)
    host.close("the broker stops")
    world.run(0.05)
    world.kill(broker)


@pytest.mark.parametrize("shape", [ring(4), ring(5)])
def test_brokers_of_a_ring_that_stop_in_order_are_missed_by_their_own_clients_alone(
    shape: Topology,
) -> None:
    world = World.of(shape, General, settings=QUICK)
    found = gaps_after(world, shape.brokers[1:], partial(_leave, world))
    assert set(found) == {(0,) * (len(shape.brokers) - 1)}


def test_a_broker_of_a_line_that_stops_in_order_parts_the_others() -> None:
    world = World.of(line(3), General, settings=QUICK)
    assert gaps_after(world, ["b2"], partial(_leave, world)) == [(1, 1)]


@pytest.mark.parametrize("router", [General, Acyclic])
def test_the_last_broker_of_a_line_that_stops_in_order_parts_nobody(
    router: Callable[[str], Router],
) -> None:
    world = World.of(line(3), router, settings=QUICK)
    assert gaps_after(world, ["b3"], partial(_leave, world)) == [(0, 0)]


def test_an_inner_broker_that_is_killed_is_told_once() -> None:
    world = World.of(ring(4), General, settings=QUICK)
    assert gaps_after(world, ["b2", "b3"], world.kill) == [(1, 1, 1)] * 2


@pytest.mark.parametrize("has_its_disk", [True, False])
def test_what_a_broker_took_before_it_met_its_network_is_told(has_its_disk: bool) -> None:
    world = World.of(line(2), General, settings=QUICK)
    ear, mouth = world.client("ear", "b1"), world.client("mouth", "b2")
    ear.subscribe("x >= 0")
    world.run(3.0)
    _leave(world, "b2")
    world.cut("b1", "b2")
    if not has_its_disk:
        world.disks["b2"] = Disk(world.random.branch())
    world.start("b2")
    world.run(1.0)
    mouth.publish({"x": 1})
    world.run(1.0)
    ear.gaps.clear()
    world.heal("b1", "b2")
    world.run(TOLD_S + 2.0)
    assert ear.gaps == [replace(PERHAPS, reason="b2: no path led to b1")]
    assert ear.heard == []
