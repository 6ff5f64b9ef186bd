"""A hierarchy of brokers that share few processors: several are killed, and come back.

Whole brokers in virtual time, as many as `benchmarks.healing` runs as processes, on links of 10 ms.
Whatever a broker does takes some time of one of the processors, and waits until one has time. So
all of them are late while much is to be told, as on a machine that has too little time for so many.
A client publishes an event a second; told is when it last came late to one of the others, when
brokers had no more to tell each other of the network, and how many messages they needed.

    python -m benchmarks.few_processors
    python -m benchmarks.few_processors --brokers 50 --action-ms 1.4 general
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks.healing_network import Hierarchy, hierarchy
from palio.node.settings import Settings
from palio.protocol.messages import (
    Accepted,
    Carry,
    Deliver,
    EntriesStored,
    Forward,
    Gaps,
    Message,
    Ping,
    Pong,
    Seen,
)
from palio.routing.algorithms import find_algorithm
from palio.simulation.world import World

__all__ = ["ROUTINGS", "Healed", "Shared"]

ROUTINGS: Final = ("general", "proxies")
ABOUT_EVENTS: Final = Accepted | Carry | Deliver | EntriesStored | Forward | Gaps
SETTLE_S: Final = 40.0
"""How long the brokers have to find each other, while work takes no time."""
DOWN_S: Final = 16.0
UP_S: Final = 60.0
LINK_S: Final = 0.01
CLIENTS: Final = 6
STEP_S: Final = 1.0


class Healed(NamedTuple):
    """What came of one change."""

    late_until_s: float
    """After so long the last event came late."""
    rest_s: float
    """After so long brokers had no more to tell each other of the network."""
    messages: int
    """That they told each other until then."""
    work_s: float
    """Of all processors together."""


class Shared:
    """One network, and its processors."""

    def __init__(self, shape: Hierarchy, routing: str, *, processors: int, action_s: float) -> None:
        algorithm = find_algorithm(routing)
        self.victims = shape.several()
        self.world = world = World(settings=Settings(routing=routing, find=True), latency_s=LINK_S)
        world.spoils = self._count
        self._told = 0
        for name in shape.names:
            world.add_broker(
                name,
                lambda broker: algorithm.new(broker, life=world.at.wall_us),
                parent=shape.parents.get(name, "") if algorithm.has_parents else "",
            )
        for one, other in shape.links:
            world.connect(one, other)
        world.run(SETTLE_S)
        self._clients = [world.client(f"client {each}", each) for each in shape.leaves(CLIENTS)]
        for client in self._clients:
            client.subscribe("second >= 0")
        world.run(5.0)
        self._processors = world.share(processors, action_s)

    def _count(self, sender: str, message: Message) -> bool:
        if sender in self.world.disks and not isinstance(
            message, ABOUT_EVENTS | Ping | Pong | Seen
        ):
            self._told += 1
        return False

    def kill(self) -> Healed:
        """Every third broker that has others above and below stops dead."""
        for name in self.victims:
            self.world.kill(name)
        return self._healed(DOWN_S)

    def start(self, up_s: float = UP_S) -> Healed:
        """They are back."""
        for name in self.victims:
            self.world.start(name)
        return self._healed(up_s)

    def _healed(self, seconds: float) -> Healed:
        began_us, late_until_s, rest_s, messages = self._processors.busy_us, 0.0, 0.0, 0
        for number in range(round(seconds / STEP_S)):
            before = [len(client.heard) for client in self._clients]
            self._told = 0
            self._clients[0].publish({"second": number})
            self.world.run(STEP_S)
            after = (number + 1) * STEP_S
            heard = [len(client.heard) for client in self._clients]
            if any(now == then for now, then in zip(heard, before, strict=True)):
                late_until_s = after
            if self._told:
                rest_s = after
                messages += self._told
        work_s = (self._processors.busy_us - began_us) / 1e6
        return Healed(late_until_s, rest_s, messages, work_s)


def rows(
    count: int, routings: tuple[str, ...], processors: int, action_s: float
) -> Iterator[list[str]]:
    """A table, line by line."""
    yield ["routing", "inner brokers", "late until, s", "at rest, s", "messages", "work, s"]
    yield ["---", "---", *["--:"] * 4]
    for routing in routings:
        network = Shared(hierarchy(count), routing, processors=processors, action_s=action_s)
        for what, found in (("killed", network.kill()), ("back", network.start())):
            numbers = f"{found.late_until_s:.0f}", f"{found.rest_s:.0f}"
            yield [routing, what, *numbers, f"{found.messages:,}", f"{found.work_s:.1f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("routings", nargs="*", default=ROUTINGS)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--action-ms", type=float, default=0.7, help="what one action takes")
    given = parser.parse_args()
    actions_s = given.action_ms / 1e3
    for row in rows(given.brokers, tuple(given.routings), given.processors, actions_s):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
