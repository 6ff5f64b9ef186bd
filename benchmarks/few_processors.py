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
from collections import deque
from collections.abc import Iterator
from functools import partial
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
    StreamAck,
)
from palio.routing.algorithms import find_algorithm
from palio.simulation.agenda import MESSAGE, US
from palio.simulation.computers import Action
from palio.simulation.pipes import Planner
from palio.simulation.world import World

ROUTINGS: Final = ("general", "proxies")
ABOUT_EVENTS: Final = Accepted | Carry | Deliver | EntriesStored | Forward | Gaps
SETTLE_S: Final = 40.0
"""How long the brokers have to find each other, while work takes no time."""
DOWN_S: Final = 16.0
UP_S: Final = 60.0
LINK_S: Final = 0.01
CLIENTS: Final = 6
STEP_S: Final = 1.0

TURN: Final = 6
"""Actions of one computer, after which others have their turn."""


class Processors:
    """Whatever a computer does takes `action_us` of one processor, and waits until one has time.

    >>> from palio.simulation.agenda import Agenda
    >>> agenda, done = Agenda(), []
    >>> few = Processors(agenda, count=1, action_us=500)
    >>> for name in ("b1", "b2"):
    ...     few.do(name, lambda name=name: done.append((agenda.now_us, name)))
    >>> _ = agenda.run()
    >>> done
    [(500, 'b1'), (1000, 'b2')]
    """

    def __init__(self, planner: Planner, count: int, action_us: int) -> None:
        self._planner = planner
        self._action_us = action_us
        self._idle = count
        self._todo: dict[str, deque[Action]] = {}
        """By computer, those in front whose turn is next. One at work is not among them..."""
        self._at_work: dict[str, deque[Action]] = {}
        """...but here, with what has come for it meanwhile."""
        self.busy_us = 0
        """What all work has taken so far."""

    def do(self, name: str, action: Action) -> None:
        """A computer is to do something, after all it has to do already."""
        queue = self._at_work.get(name)
        if queue is None:
            queue = self._todo.setdefault(name, deque())
        queue.append(action)
        self._go_on()

    def forget(self, name: str) -> None:
        """A computer has stopped dead: only the turn that it has just now goes on."""
        self._todo.pop(name, None)
        if name in self._at_work:
            self._at_work[name].clear()

    def _go_on(self) -> None:
        while self._idle and self._todo:
            name = next(iter(self._todo))
            queue = self._at_work[name] = self._todo.pop(name)
            actions = [queue.popleft() for _ in range(min(TURN, len(queue)))]
            took_us = len(actions) * self._action_us
            self._idle -= 1
            self.busy_us += took_us
            done = partial(self._done, name, actions)
            self._planner.at(self._planner.now_us + took_us, MESSAGE, done)

    def _done(self, name: str, actions: list[Action]) -> None:
        """A turn is over, and what was done in it takes effect."""
        for action in actions:
            action()
        self._idle += 1
        queue = self._at_work.pop(name)
        if queue:
            self._todo[name] = queue
        self._go_on()


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
        self.world = world = World(
            settings=Settings(routing=routing, discovery=True), latency_s=LINK_S
        )
        world.spoils = self._count
        self._told = 0
        for name in shape.names:
            world.add_broker(
                name,
                lambda broker: algorithm.new(broker, incarnation=world.at.wall_us),
                parent=shape.parents.get(name, "") if algorithm.has_parents else "",
            )
        for one, other in shape.links:
            world.connect(one, other)
        world.run(SETTLE_S)
        self._clients = [world.client(f"client {each}", each) for each in shape.leaves(CLIENTS)]
        for client in self._clients:
            client.subscribe("second >= 0")
        world.run(5.0)
        self._processors = Processors(world.agenda, processors, round(action_s * US))
        world.share(self._processors)

    def _count(self, sender: str, message: Message) -> bool:
        if sender in self.world.disks and not isinstance(
            message, ABOUT_EVENTS | Ping | Pong | StreamAck
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
