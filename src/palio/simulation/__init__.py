"""A deterministic virtual network that drives the real routers: clock, links, faults, costs.

>>> from palio.simulation import Network, line
>>> network = Network.of(line(3), seed=7)
>>> alice, bob = network.client("alice", at="b1"), network.client("bob", at="b3")
>>> _ = alice.subscribe("price > 10")
>>> network.run()
>>> bob.publish({"price": 9}, {"price": 11})
>>> network.run()
>>> [delivery.event for delivery in alice.received]
[{'price': 11}]

The same seed gives the same trace, so an application tested on it fails the same way every time.
"""

from __future__ import annotations

from palio.simulation.clients import Client, Delivery
from palio.simulation.links import Link
from palio.simulation.network import Network
from palio.simulation.randomness import Randomness
from palio.simulation.scenario import simulate
from palio.simulation.services import Service, SteadyService
from palio.simulation.topologies import (
    Topology,
    connected_random,
    grid,
    line,
    parse_topology,
    random_tree,
    ring,
    star,
    transit_stub,
    tree,
)
from palio.simulation.trace import Costs, Trace

__all__ = [
    "Client",
    "Costs",
    "Delivery",
    "Link",
    "Network",
    "Randomness",
    "Service",
    "SteadyService",
    "Topology",
    "Trace",
    "connected_random",
    "grid",
    "line",
    "parse_topology",
    "random_tree",
    "ring",
    "simulate",
    "star",
    "transit_stub",
    "tree",
]
