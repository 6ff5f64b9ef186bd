"""Events by multicast groups, between whole brokers on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from palio.multicast.listed import flooding
from palio.multicast.packing import pack
from palio.node.settings import Settings
from palio.protocol.messages import Apply, Done
from palio.routing.algorithms import find_algorithm
from palio.routing.protocol import Router
from palio.simulation.member import Member
from palio.simulation.topologies import Topology
from palio.simulation.world import World

SETTINGS = Settings(multicast=True, heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


def star(spokes: int) -> Topology:
    """A broker `b0` in the middle of others."""
    names = tuple(f"b{place}" for place in range(spokes + 1))
    return Topology(names, tuple(("b0", name) for name in names[1:]))


def world_of(
    topology: Topology, routing: str = "flooded", settings: Settings = SETTINGS, seed: int = 0
) -> World:
    """A world whose brokers have a multicast way."""
    world = World(seed=seed, settings=settings)

    def router(name: str) -> Router:
        return find_algorithm(routing).new(name, life=world.wall_us)

    for name in topology.brokers:
        world.add_broker(name, router)
    for edge in topology.edges:
        world.connect(*edge)
    world.run(1.0)
    return world


def apply(world: World, operator: Member, brokers: Sequence[str]) -> None:
    """All brokers are one group from now on."""
    text = pack(flooding(tuple(brokers))) if brokers else ""
    id = operator.ask(lambda id: Apply(id, text))
    world.run(1.0)
    assert isinstance(operator.answers[id], Done)


def hearing(world: World, *names: str, filter: str = "x > 0") -> dict[str, Member]:
    """A client at each broker that hears `filter`."""
    members = {name: world.client(f"at-{name}", name) for name in names}
    for each in members.values():
        each.subscribe(filter)
    world.run(1.0)
    return members


def flows(world: World, name: str) -> dict[str, Any]:
    """What a broker says of its flows."""
    found: dict[str, Any] = world.nodes[name].status()["multicast"]
    return found


def heard(member: Member) -> list[int]:
    return [row["x"] for _, _, row in member.heard]


@pytest.mark.parametrize("routing", ["flooded", "source-trees"])
def test_an_event_for_all_is_cast_once_and_heard_by_all(routing: str) -> None:
    topology = star(4)
    world = world_of(topology, routing)
    members = hearing(world, *topology.brokers)
    publisher = world.client("pub", "b0")
    apply(world, publisher, topology.brokers)
    publisher.publish({"x": 1}, {"x": 2})
    for number in range(3, 6):
        publisher.publish({"x": number})
    world.run(1.0)
    assert all(heard(each) == [1, 2, 3, 4, 5] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 4


def test_an_event_that_no_datagram_takes_goes_by_links() -> None:
    world = world_of(star(3))
    members = hearing(world, "b1", "b2", "b3")
    publisher = world.client("pub", "b0")
    apply(world, publisher, star(3).brokers)
    names = {f"{place}".zfill(250): True for place in range(300)}
    publisher.publish({"x": 1})
    publisher.publish({"x": 2, **names})
    publisher.publish({"x": 3})
    world.run(1.0)
    assert all(heard(each) == [1, 2, 3] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 2
