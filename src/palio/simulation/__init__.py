"""Whole brokers on a virtual clock: their disks, connections and clients, and what breaks there.

>>> from palio.simulation import World, line
>>> world = World.of(line(3), seed=7)
>>> alice, bob = world.client("alice", "b1"), world.client("bob", "b3")
>>> _ = alice.subscribe("price > 10")
>>> world.run(1.0)
>>> _ = bob.publish({"price": 9}, {"price": 11})
>>> world.run(1.0)
>>> [row["price"] for _, _, row in alice.heard]
[11]

The same seed gives the same run, so a failure repeats exactly. Tests of applications use
`palio.testing.Network`, which is built on this package.
"""

from __future__ import annotations

from palio.simulation.randomness import Randomness
from palio.simulation.topologies import (
    Topology,
    connected_random,
    grid,
    line,
    parse_topology,
    random_tree,
    ring,
    star,
    tree,
)
from palio.simulation.world import World

__all__ = [
    "Randomness",
    "Topology",
    "World",
    "connected_random",
    "grid",
    "line",
    "parse_topology",
    "random_tree",
    "ring",
    "star",
    "tree",
]
