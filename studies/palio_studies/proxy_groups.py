"""The proxy study's runs on whole brokers: heartbeats of a group, and its failures (IV-F)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from palio.protocol import messages
from palio.routing.algorithms import find_algorithm
from palio.simulation import Topology
from palio.simulation.world import World
from palio_studies.study import Point, Row

IDLE_S: Final = 30.0
"""So long heartbeats are counted while nothing else happens."""

BEFORE_S: Final = 5.0
FAULT_S: Final = 30.0
"""How long a fault stays: longer than silence is noticed."""

AFTER_S: Final = 20.0
STEP_S: Final = 0.5
"""Between two events: what is missed is known to so much."""

LATE_S: Final = 2.0
"""What takes longer than this is missed: links take 10 ms."""

PARENT: Final = "b1"
SOURCE: Final = "b2"
CHILD: Final = "b3"

_CARRIES: Final = frozenset(
    {"Publish", "Accepted", "Forward", "Deliver", "Carry", "EntriesStored", "StreamAck"}
)
"""Messages about events and what was seen of them; heartbeats and these apart, the rest mends."""


class Fault(NamedTuple):
    """The broker that is not there for a while, killed or silent."""

    down: str = ""
    is_killed: bool = False

    def begin(self, world: World) -> None:
        """Silence ends by itself."""
        if self.is_killed:
            world.kill(self.down)
        elif self.down:
            for other in world.nodes:
                if other != self.down:
                    world.hold(self.down, other, FAULT_S)
                    world.hold(other, self.down, FAULT_S)


FAULTS: Final[Mapping[str, Fault]] = {
    "none": Fault(),
    "child silent": Fault(CHILD),
    "child killed": Fault(CHILD, is_killed=True),
    "parent silent": Fault(PARENT),
    "parent killed": Fault(PARENT, is_killed=True),
}


class _Group:
    """A parent and its children, whole brokers with all settings at their defaults, and everything
    counted that they send. With *spare* links each child is linked with the next as well, so that
    one without its parent can find another. A client of the first child publishes; each broker has
    one that listens.
    """

    def __init__(self, size: int, *, spare: bool, seed: int) -> None:
        links = [(0, child) for child in range(1, size)]
        if spare:
            links += [(child, child + 1) for child in range(1, size - 1)]
        new = find_algorithm("proxies").new
        shape = Topology.of(size, links)
        self.world = World.of(shape, lambda name: new(name, has_parent=name != PARENT), seed=seed)
        self.world.spoils = self._count
        self.sent: Counter[str] = Counter()
        self.beats: Counter[str] = Counter()
        self.source = self.world.client("source", SOURCE)
        self.listeners = {name: self.world.client(f"l-{name}", name) for name in self.world.nodes}
        for listener in self.listeners.values():
            listener.subscribe("number >= 0")
        self.published: list[float] = []
        self.heard: dict[str, dict[int, float]] = {name: {} for name in self.listeners}
        """When each listener heard each event."""
        self._looked_at = dict.fromkeys(self.listeners, 0)
        self.reported = 0
        self.world.run(BEFORE_S)

    def _count(self, sender: str, message: messages.Message) -> bool:
        """Everything that a broker sends is shown to this; nothing of it is spoilt."""
        if isinstance(message, messages.Ping | messages.Pong):
            self.beats[sender] += sender in self.world.disks
        elif type(message).__name__ not in _CARRIES:
            self.sent[type(message).__name__] += sender in self.world.disks
        return False

    def publish_for(self, seconds: float) -> float | None:
        """Publish on and on; when a lost neighbour was first reported, if one was."""
        noticed = None
        for _ in range(round(seconds / STEP_S)):
            self.source.publish({"number": len(self.published)})
            self.published.append(self.world.now)
            for _ in range(5):
                self.world.run(STEP_S / 5)
                self._listen()
                new = self.world.reports[self.reported :]
                self.reported = len(self.world.reports)
                if noticed is None and any(report.event == "peer_down" for _, report in new):
                    noticed = self.world.now
        return noticed

    def _listen(self) -> None:
        for name, listener in self.listeners.items():
            for _, _, row in listener.heard[self._looked_at[name] :]:
                self.heard[name].setdefault(int(row["number"]), self.world.now)
            self._looked_at[name] = len(listener.heard)

    def last_missed(self, names: Iterable[str], since: float) -> float:
        """The end of the time, from a moment on, in which some of these missed something."""
        last = since
        for name in names:
            for number, at in enumerate(self.published):
                if at >= since and self.heard[name].get(number, inf) > at + LATE_S:
                    last = max(last, at + STEP_S)
        return last


def mend_group(point: Point) -> list[Row]:
    """A row: heartbeats of a group of brokers, and what a fault costs it."""
    given = point.parameters
    size = int(given["brokers"])
    group = _Group(size, spare=bool(given["spare"]), seed=point.seed)
    world, fault = group.world, FAULTS[str(given["fault"])]
    group.beats.clear()
    world.run(IDLE_S)
    beats = sum(group.beats.values())
    group.publish_for(BEFORE_S)
    group.sent.clear()
    begun = world.now
    fault.begin(world)
    noticed = group.publish_for(FAULT_S)
    ended = world.now
    if fault.is_killed:
        world.start(fault.down)
    group.publish_for(AFTER_S + LATE_S)
    del group.published[-round(LATE_S / STEP_S) :]  # there was no time to hear these
    missed = group.last_missed([name for name in group.listeners if name != fault.down], begun)
    back = group.last_missed([fault.down] if fault.down else [], ended)
    return [
        {
            "beats_per_s": beats / IDLE_S,
            "multicast_beats_per_s": size * (size - 1) / world.settings.peer_heartbeat_s,
            "noticed_s": 0.0 if noticed is None else noticed - begun,
            "is_noticed": noticed is not None,
            "mending_messages": sum(group.sent.values()),
            "others_missed_s": missed - begun,
            "others_after_s": max(0.0, missed - ended),
            "back_after_s": back - ended,
        }
    ]
