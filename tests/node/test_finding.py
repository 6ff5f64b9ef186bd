"""Brokers that have lost a neighbour find others."""

from __future__ import annotations

from palio.node.settings import Settings
from palio.routing.general import General
from palio.simulation.cluster import address_of
from palio.simulation.disks import Disk
from palio.simulation.topologies import Topology, line, star
from palio.simulation.world import World

SETTINGS = Settings(routing="general", find=True, peer_heartbeat_s=1.0)


def world_of(topology: Topology, **options: object) -> World:
    return World.of(topology, General, settings=SETTINGS, **options)


def links_of(world: World, name: str) -> list[str]:
    peers = world.nodes[name].status()["peers"]
    return sorted(each for each, state in peers.items() if state["up"])


def said(world: World, event: str) -> list[tuple[str, object]]:
    return [
        (name, report.details.get("broker"))
        for name, report in world.reports
        if report.event == event
    ]


def test_the_ends_of_a_line_find_each_other_when_its_middle_is_gone() -> None:
    world = world_of(line(3))
    alice, bob = world.client("alice", "b1"), world.client("bob", "b3")
    alice.subscribe("x > 1")
    world.run(1.0)
    world.kill("b2")
    world.run(2.0)
    assert links_of(world, "b1") == ["b3"]
    bob.publish({"x": 1}, {"x": 2})
    world.run(1.0)
    assert [row["x"] for _, _, row in alice.heard] == [2]
    world.start("b2")
    world.run(10.0)
    assert links_of(world, "b1") == ["b2"]
    assert links_of(world, "b3") == ["b2"]
    assert len(said(world, "given_back")) == 1
    bob.publish({"x": 3})
    world.run(1.0)
    assert [row["x"] for _, _, row in alice.heard] == [2, 3]


def test_the_leaves_of_a_star_find_each_other_when_its_middle_is_gone() -> None:
    world = world_of(star(13))
    world.kill("b1")
    world.run(5.0)
    leaves = [name for name in world.nodes if name != "b1"]
    for name in leaves:
        assert links_of(world, name)
    listener = world.client("alice", leaves[0])
    listener.subscribe("TRUE")
    world.run(1.0)
    for number, name in enumerate(leaves):
        world.client(f"p{number}", name).publish({"x": number})
    world.run(2.0)
    assert sorted(row["x"] for _, _, row in listener.heard) == list(range(len(leaves)))
    assert len(said(world, "found")) < 2 * len(leaves)
    world.start("b1")
    world.run(60.0)
    assert {name: links_of(world, name) for name in leaves} == dict.fromkeys(leaves, ["b1"])


def test_whoever_answers_must_be_whom_was_looked_for() -> None:
    world = World(settings=SETTINGS)
    for name in ("b1", "b2", "b3", "b4"):
        world.install(name, General, Disk())
    world.addresses["b3"] = address_of("b4")  # b4 is nobody's neighbour
    for name in ("b1", "b2", "b3", "b4"):
        world.start(name)
    world.connect("b1", "b2")
    world.connect("b2", "b3")
    world.run(1.0)
    world.kill("b2")
    world.cut("b3", "b1")
    world.run(30.0)
    assert links_of(world, "b4") == []
