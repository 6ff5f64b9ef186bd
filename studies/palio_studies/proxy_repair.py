"""The proxy study's failures: what it costs to notice one in a group, and to mend it (proxy IV).

A group is a parent and its children, whole brokers with all settings at their defaults. With
*spare* links each child is linked with the next as well, so that one without its parent can find
another. A client of the first child publishes; each broker has one that listens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from palio.protocol.messages import Message, Ping, Pong
from palio.routing.algorithms import find_algorithm
from palio.simulation import Topology
from palio.simulation.world import World
from palio_studies.study import Point, Row

__all__ = ["FAULTS", "mend_group"]

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
VICTIM: Final = "b3"
"""A child."""

_CARRIES: Final = frozenset({"Publish", "Accepted", "Forward", "Deliver", "Carry", "Took", "Seen"})
"""Messages about events and what was seen of them; heartbeats and these apart, the rest mends."""


class Fault(NamedTuple):
    """What happens to a group, and how it ends."""

    begin: Callable[[World, int], None]
    end: Callable[[World, int], None]
    down: str
    """The broker that is not there meanwhile."""


def _silence(world: World, broker: str, size: int) -> None:
    for other in (f"b{number}" for number in range(1, size + 1)):
        if other != broker:
            world.hold(broker, other, FAULT_S)
            world.hold(other, broker, FAULT_S)


def _nothing(_: World, _size: int) -> None:
    """Silence ends by itself."""


FAULTS: Final[Mapping[str, Fault]] = {
    "none": Fault(_nothing, _nothing, ""),
    "child silent": Fault(lambda world, size: _silence(world, VICTIM, size), _nothing, VICTIM),
    "child killed": Fault(
        lambda world, _: world.kill(VICTIM), lambda world, _: world.start(VICTIM), VICTIM
    ),
    "parent silent": Fault(lambda world, size: _silence(world, PARENT, size), _nothing, PARENT),
    "parent killed": Fault(
        lambda world, _: world.kill(PARENT), lambda world, _: world.start(PARENT), PARENT
    ),
}


def mend_group(point: Point) -> list[Row]:
    """A row: heartbeats of a group of brokers, and what a fault costs it."""
    given = point.parameters
    spare = bool(given["spare"])
    return [_mended(int(given["brokers"]), str(given["fault"]), point.seed, spare=spare)]


class _Group:
    """A world with everything counted that its brokers send."""

    def __init__(self, size: int, *, spare: bool, seed: int) -> None:
        links = [(0, child) for child in range(1, size)]
        if spare:
            links += [(child, child + 1) for child in range(1, size - 1)]
        new = find_algorithm("proxies").new
        self.world = World.of(
            Topology.of(size, links),
            lambda name: new(name, has_parent=name != PARENT),
            seed=seed,
        )
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

    def _count(self, sender: str, message: Message) -> bool:
        """Everything that a broker sends is shown to this; nothing of it is spoilt."""
        if isinstance(message, Ping | Pong):
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


def _mended(size: int, name: str, seed: int, *, spare: bool) -> Row:
    group = _Group(size, spare=spare, seed=seed)
    world, fault = group.world, FAULTS[name]
    group.beats.clear()
    world.run(IDLE_S)
    beats, parent_beats = sum(group.beats.values()), group.beats[PARENT]
    group.publish_for(BEFORE_S)
    group.sent.clear()
    begun = world.now
    fault.begin(world, size)
    noticed = group.publish_for(FAULT_S)
    ended = world.now
    fault.end(world, size)
    group.publish_for(AFTER_S + LATE_S)
    for _ in range(round(LATE_S / STEP_S)):
        group.published.pop()  # there was no time to hear these
    others = [each for each in group.listeners if each != fault.down]
    down = [each for each in group.listeners if each == fault.down]
    return {
        "beats_per_s": beats / IDLE_S,
        "parent_beats_per_s": parent_beats / IDLE_S,
        "noticed_s": 0.0 if noticed is None else noticed - begun,
        "is_noticed": noticed is not None,
        "mending_messages": sum(group.sent.values()),
        "others_missed_s": group.last_missed(others, begun) - begun,
        "others_after_s": max(0.0, group.last_missed(others, begun) - ended),
        "back_after_s": group.last_missed(down, ended) - ended,
    }
