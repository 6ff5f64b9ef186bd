from __future__ import annotations

from palio.simulation.topologies import line
from palio.simulation.world import World


def test_connections_of_clients_that_are_over_are_forgotten() -> None:
    world = World.of(line(1))
    alice, bob = world.client("alice", "b1"), world.client("bob", "b1")
    for _ in range(5):
        alice.cut()
        bob.suspend()
        world.run(1.0)
        bob.resume("b1")
        world.kill("b1")
        world.start("b1")
        world.run(10.0)
    assert alice.is_connected
    assert bob.is_connected
    assert len(world._pipes) == 2
