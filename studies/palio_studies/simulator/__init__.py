"""A deterministic virtual network that drives the real routers: clock, links, faults, costs.

>>> from palio.simulation import line
>>> from palio_studies.simulator import Network
>>> network = Network.of(line(3), seed=7)
>>> alice, bob = network.client("alice", at="b1"), network.client("bob", at="b3")
>>> _ = alice.subscribe("price > 10")
>>> network.run()
>>> bob.publish({"price": 9}, {"price": 11})
>>> network.run()
>>> [delivery.event for delivery in alice.received]
[{'price': 11}]

The same seed gives the same trace. Whole brokers, with sessions and disks, run in the `World` of
`palio.simulation`, whose clock, randomness and topologies serve here too.
"""

from __future__ import annotations

from palio_studies.simulator.clients import Client, Delivery
from palio_studies.simulator.inbox import Service
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import Network
from palio_studies.simulator.scenario import simulate
from palio_studies.simulator.trace import Costs, Trace

__all__ = [
    "Client",
    "Costs",
    "Delivery",
    "Link",
    "Network",
    "Service",
    "Trace",
    "simulate",
]
