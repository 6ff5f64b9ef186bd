"""What it takes a network of awkward shape to take back a broker that starts again.

Whole brokers in virtual time, each with its journal: a chain, where all passes everybody, and a
star, where everybody is a neighbour of one. A broker stops dead and starts again two seconds later.
Counted are messages and names between brokers until all has come to rest, and the CPU seconds of
all brokers together. Then an event goes from one end to the other, and `settled()` names nobody.

    python -m benchmarks.restarts
    python -m benchmarks.restarts star 500 general source-trees
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from palio.node.settings import Settings
from palio.protocol.messages import Advertise, Digest, Done, Facts, Message, Ping, Pong, Route
from palio.routing.algorithms import find_algorithm
from palio.routing.messages import LinkState, LinkTable, TreePlan
from palio.simulation.topologies import Topology, line, star
from palio.simulation.world import World

ROUTINGS: Final = (
    "general",
    "general-advertised",
    "source-trees",
    "flooded",
    "proxies",
    "hierarchical",
)

DOWN_S: Final = 2.0
UP_S: Final = 18.0
"""After so long all has come to rest, the grace of sessions included."""


class Cost(NamedTuple):
    """What one restart took."""

    messages: int
    """Between brokers, questions whether somebody is there left out."""
    names: int
    """Names of brokers in them."""
    cpu_s: float
    """Of all brokers together."""


class Restarts:
    """One network, whose brokers stop and start one by one."""

    def __init__(self, topology: Topology, routing: str) -> None:
        algorithm = find_algorithm(routing)
        self.world = World(settings=Settings(routing=routing))
        self.world.spoils = self._count
        self._messages = self._names = 0
        above = {lower: upper for upper, lower in topology.edges} if algorithm.has_parents else {}
        for name in topology.brokers:
            self.world.add_broker(
                name,
                lambda broker: algorithm.new(broker, incarnation=self.world.at.wall_us),
                parent=above.get(name, ""),
            )
        for one, other in topology.edges:
            self.world.connect(one, other)
        self.world.run(UP_S)
        self._hearer = self.world.client("alice", topology.brokers[0])
        self._teller = self.world.client("bob", topology.brokers[-1])
        self._hearer.subscribe("x >= 0")
        if algorithm.is_advertised:
            self._teller.ask(lambda id: Advertise(id, 1, "x >= 0"))
        self.world.run(2.0)

    def _count(self, sender: str, message: Message) -> bool:
        if sender in self.world.disks and not isinstance(message, Ping | Pong):
            self._messages += 1
            self._names += _names_in(message)
        return False

    def restart(self, name: str) -> Cost:
        """A broker stops and starts; what that took."""
        self._messages = self._names = 0
        since = time.process_time()
        self.world.kill(name)
        self.world.run(DOWN_S)
        self.world.start(name)
        self.world.run(UP_S)
        return Cost(self._messages, self._names, time.process_time() - since)

    def check(self) -> None:
        """An event goes from one end to the other, and all is in force everywhere."""
        before = len(self._hearer.heard)
        self._teller.publish({"x": 1})
        asked = self._hearer.settle()
        self.world.run(5.0)
        if len(self._hearer.heard) != before + 1:
            raise AssertionError(f"{len(self._hearer.heard) - before} of one event came")
        answer = self._hearer.answers.get(asked)
        if not isinstance(answer, Done) or answer.unreached:
            raise AssertionError(f"settled() was answered by {answer}")


def _names_in(message: Message) -> int:
    match message:
        case Facts(facts):
            return sum(1 + len(each.links) for each in facts)
        case Digest(versions):
            return len(versions)
        case Route(LinkState() as state):
            return 1 + len(state.neighbours)
        case Route(LinkTable(states)):
            return sum(1 + len(each.neighbours) for each in states)
        case Route(TreePlan(_, _, links)):
            return 2 * len(links)
    return 0


def victims_of(topology: Topology) -> Iterator[str]:
    """Brokers whose restarts differ: an end, one between, and the first, the middle of a star."""
    yield topology.brokers[-1]
    yield topology.brokers[len(topology.brokers) // 2]
    yield topology.brokers[0]


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    shapes = {"chain": line, "star": star}
    shape, size = (arguments[0], int(arguments[1])) if arguments else ("", 0)
    cases = [(shape, size)] if shape else [("chain", 24), ("star", 60), ("star", 120)]
    print("| network | routing | restarted | messages | names | CPU s |")
    print("|---|---|---|--:|--:|--:|")
    for shape, size in cases:
        topology = shapes[shape](size)
        for routing in arguments[2:] or ROUTINGS:
            network = Restarts(topology, routing)
            for name in victims_of(topology):
                cost = network.restart(name)
                network.check()
                figures = f"{cost.messages:,} | {cost.names:,} | {cost.cpu_s:.1f}"
                print(f"| {shape} of {size} | `{routing}` | {name} | {figures} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
