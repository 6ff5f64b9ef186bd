from __future__ import annotations

import pytest

from palio.node.settings import Settings
from palio.routing.algorithms import find_algorithm
from palio.simulation.topologies import Topology, line, ring
from palio.simulation.world import World
from tests.campaign.actors import Actor
from tests.campaign.faults import Faults

SETTINGS = Settings(
    routing="general", discovery=True, heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0
)


def faults_in(topology: Topology) -> Faults:
    world = World.of(topology, find_algorithm("general").new, settings=SETTINGS)
    return Faults(world, topology.edges, is_meshed=True)


def actor(world: World, name: str, broker: str) -> Actor:
    found = world.clients[name] = Actor(world, name, broker)
    found.connect()
    world.run(0.5)
    return found


def reported(world: World, event: str) -> list[str]:
    return [name for name, report in world.reports if report.event == event]


@pytest.mark.parametrize("afterwards", ["undo", "restart", "replace"])
def test_a_drained_broker_keeps_nothing_and_is_there_again(afterwards: str) -> None:
    faults = faults_in(ring(4))
    world = faults.world
    alice, bob = actor(world, "alice", "b1"), actor(world, "bob", "b3")
    alice.hear_of("kept", "x >= 0", durable=True)
    world.run(0.5)
    alice.stay_away(12.0)
    bob.publish({"x": 1}, durable=True)
    world.run(6.0)
    before = world.disks["b1"]
    faults.cause("drain", ("b1", afterwards, 10.0))
    assert alice.moves_s == [world.now]
    assert not bob.moves_s
    world.run(11.0)
    assert reported(world, "drain_finished") == ["b1"]
    assert ("b1" in reported(world, "drain_cancelled")) is (afterwards == "undo")
    assert (world.disks["b1"] is not before) is (afterwards == "replace")
    assert [each.broker for each in faults.blanks] == (["b1"] if afterwards == "replace" else [])
    world.run(8.0)
    assert "b1" in world.nodes
    assert not faults.operators.under_way
    assert not faults.breaks
    assert [each.seq for heard in alice.durable.values() for each in heard] == [1]


def test_a_broker_that_has_not_handed_over_all_stays_in_service() -> None:
    faults = faults_in(ring(4))
    world = faults.world
    world.client("carol", "b1").acknowledges = False
    faults.cause("drain", ("b1", "replace", 0.5))
    world.run(3.0)
    assert reported(world, "drain_cancelled") == ["b1"]
    assert "b1" in world.nodes
    assert not faults.operators.under_way


@pytest.mark.parametrize(("topology", "is_needed"), [(ring(4), False), (line(3), True)])
def test_a_link_that_is_parted_comes_back(topology: Topology, *, is_needed: bool) -> None:
    faults = faults_in(topology)
    world = faults.world
    faults.cause("part", ("b1", "b2", 7.0))
    world.run(6.5)
    assert not world.is_linked("b1", "b2")
    assert faults.is_broken
    world.run(6.0)
    assert world.is_linked("b1", "b2")
    assert not faults.operators.under_way
    assert bool(faults.breaks) is is_needed
    world.drop("b1", "b2")
    world.run(1.0)
    assert world.is_linked("b1", "b2"), "it is dialled as before"


def test_two_links_without_which_there_is_no_way_are_a_break() -> None:
    faults = faults_in(ring(4))
    world = faults.world
    faults.cause("part", ("b1", "b2", 7.0))
    faults.cause("part", ("b1", "b4", 7.0))
    world.run(20.0)
    ((began_s, ended_s),) = faults.breaks
    assert began_s == pytest.approx(1.0)
    assert ended_s == pytest.approx(8.0, abs=1.0)


@pytest.mark.parametrize("stops", [False, True])
def test_a_link_that_is_added_ends(stops: bool) -> None:
    """Though its broker does not run when it is to."""
    faults = faults_in(ring(4))
    world = faults.world
    faults.cause("link", ("b1", "b3", 3.0))
    world.run(2.0)
    assert world.is_linked("b1", "b3")
    if stops:
        world.kill("b1")
        world.run(3.0)
        assert faults.operators.under_way == [("link", "b1", "b3")]
        world.start("b1")
    world.run(20.0)
    assert not world.is_linked("b1", "b3")
    assert not faults.operators.under_way
    assert not faults.breaks


def test_nothing_is_done_at_a_broker_that_does_not_run_nor_where_there_is_a_link() -> None:
    faults = faults_in(line(3))
    faults.world.kill("b1")
    faults.cause("drain", ("b1", "undo", 1.0))
    faults.cause("part", ("b1", "b2", 1.0))
    faults.cause("link", ("b2", "b3", 1.0))
    assert not faults.operators.under_way
