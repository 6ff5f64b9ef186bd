"""Links that end after ways lead round them."""

from __future__ import annotations

from palio.node.settings import Settings
from palio.routing.general import General
from palio.simulation.topologies import line
from palio.simulation.world import World

FIND = Settings(routing="general", discovery=True)


def test_events_on_their_way_take_others_before_a_link_ends() -> None:
    """A stand-in is given back while events go over it: each comes once, none is lost, and there is
    no gap but that for the broker that was killed.
    """
    world = World.of(line(3), General, settings=FIND)
    alice, bob = world.client("alice", "b1"), world.client("bob", "b3")
    alice.subscribe("TRUE")
    world.kill("b2")
    world.run(3.0)
    world.start("b2")
    for number in range(1_000):
        bob.publish({"x": number})
        world.run(0.01)
    world.run(20.0)
    assert len(alice.gaps) == 1
    assert any(report.event == "fallback_link_closed" for _, report in world.reports)
    assert [row["x"] for _, _, row in alice.heard] == list(range(1_000))
