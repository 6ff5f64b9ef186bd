"""How long events are on their way: links with capacities and queues, carrying other traffic too.

Each direction of a link sends one event after the other, in the order in which they came. What else
is on it, the *ambient* load, arrives by chance and waits in the same queue. Brokers match one event
after the other.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Masks
from palio_studies.multicast_network import Wan
from palio_studies.multicast_ways import Multicasts

__all__ = [
    "EVENT_BYTES",
    "MATCHING_S",
    "MEGABITS",
    "EventTimes",
    "Journeys",
    "LinkQueue",
    "journeys",
]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

EVENT_BYTES: Final = 1_000
MEGABITS: Final = (622.0, 155.0, 100.0)
"""A second and class of links: OC-12, OC-3, and a local network."""
MATCHING_S: Final = 0.000_1
"""What a broker takes to match an event with the subscriptions of all."""

FORGOTTEN_AFTER: Final = 10.0
"""Relaxation times after which a queue has forgotten what was in it."""


class EventTimes(NamedTuple):
    """Events as they are published."""

    times_s: Floats
    publishers: Longs
    wanted: Masks


class Journeys(NamedTuple):
    """How long events took, and how busy the network was."""

    seconds: Floats
    """From publishing to a broker that wants the event, which has matched it; each event and
    each such broker."""
    busiest: float
    """The share of the time in which the busiest link sent events."""


class LinkQueue:
    """One direction of a link: what is sent through it waits for what came before.

    Ambient load comes in packets by chance, of sizes by chance, as large as events on average. So
    without events the work that waits has the distribution of an M/M/1 queue. It is drawn from that
    if the link has been left alone for long, and packet by packet if it has not.

    >>> idle = LinkQueue(0.5, 0.0, Random(1))
    >>> idle.sent(10.0), idle.sent(10.25)
    (10.5, 11.0)
    """

    def __init__(self, service_s: float, ambient: float, random: Random) -> None:
        self._service_s = service_s
        self._ambient = ambient
        self._random = random
        self._free_at = self._seen_at = float("-inf")
        self.busy_s = 0.0
        """How long it took to send events alone."""
        self._memory_s = FORGOTTEN_AFTER * service_s / (1 - ambient**0.5) ** 2

    def sent(self, now: float) -> float:
        """When an event that comes now has left; the next must not come earlier."""
        if self._ambient:
            self._let_others_in(now)
        self._free_at = max(self._free_at, now) + self._service_s
        self._seen_at = now
        self.busy_s += self._service_s
        return self._free_at

    def _let_others_in(self, now: float) -> None:
        draw = self._random
        if self._free_at + self._memory_s < now:
            if draw.random() < self._ambient:
                self._free_at = now + draw.expovariate((1 - self._ambient) / self._service_s)
            return
        rate = self._ambient / self._service_s
        comes = self._seen_at + draw.expovariate(rate)
        while comes < now:
            self._free_at = max(self._free_at, comes) + draw.expovariate(1 / self._service_s)
            comes += draw.expovariate(rate)


Branches: TypeAlias = dict[str, list[tuple[str, LinkQueue, float]]]
"""Of a tree: for each node the next ones, the queues on the way there, and how long it takes."""


class _Run:
    """One method, from the first event to the last delivery."""

    def __init__(self, wan: Wan, traffic: EventTimes, sent: Multicasts, ambient: float, seed: int):
        random = Random(seed)
        self._wan = wan
        self._traffic = traffic
        self._queues = {
            way: LinkQueue(8 * EVENT_BYTES / (1e6 * MEGABITS[kind]), ambient, random)
            for link, kind in zip(wan.links, wan.classes.tolist(), strict=True)
            for way in (link, link[::-1])
        }
        self._places = {name: place for place, name in enumerate(wan.brokers)}
        self._matched_at = [0.0] * len(wan.brokers)
        """When each broker has matched all that came."""
        self._sends: dict[tuple[int, int], list[Masks]] = {}
        """What a broker sends of an event."""
        whole = zip(sent.events.tolist(), sent.roots.tolist(), sent.members, strict=True)
        for event, root, members in whole:
            self._sends.setdefault((event, root), []).append(members)
        self._trees: dict[tuple[int, bytes], Branches] = {}
        self._agenda: list[tuple[float, int, int, str, Branches | None]] = []
        """When, a number, which event, where: it comes along a tree; without one it is matched."""
        self._pushed = 0

    def run(self) -> Journeys:
        """Publish all, and go on until nothing is on its way."""
        times = self._traffic.times_s.tolist()
        for event, publisher in enumerate(self._traffic.publishers.tolist()):
            self._push(times[event], event, self._wan.publishers[publisher], {})
        seconds = []
        while self._agenda:
            now, _, event, node, tree = heappop(self._agenda)
            place = self._places.get(node, -1)
            if tree is None:
                if self._traffic.wanted[event, place]:
                    seconds.append(now - times[event])
                for members in self._sends.get((event, place), ()):
                    self._forward(now, event, node, self._tree(place, members))
            elif place >= 0:
                self._matched_at[place] = max(self._matched_at[place], now) + MATCHING_S
                self._push(self._matched_at[place], event, node, None)
            else:
                self._forward(now, event, node, tree)
        busiest = max(queue.busy_s for queue in self._queues.values())
        return Journeys(np.array(seconds), busiest / times[-1])

    def _push(self, when: float, event: int, node: str, tree: Branches | None) -> None:
        self._pushed += 1
        heappush(self._agenda, (when, self._pushed, event, node, tree))

    def _forward(self, now: float, event: int, node: str, tree: Branches) -> None:
        for below, queue, latency_s in tree.get(node, ()):
            self._push(queue.sent(now) + latency_s, event, below, tree)

    def _tree(self, root: int, members: Masks) -> Branches:
        """The way that the network brings something to a group."""
        key = root, members.tobytes()
        if key not in self._trees:
            parents = self._wan.tree(root).parents
            tree: Branches = {}
            joined = {self._wan.brokers[root]}
            for member in np.flatnonzero(members).tolist():
                node = self._wan.brokers[member]
                while node not in joined:
                    joined.add(node)
                    above = parents[node]
                    way = self._queues[above, node], self._wan.graph[above][node] / 1e6
                    tree.setdefault(above, []).append((node, *way))
                    node = above
            self._trees[key] = tree
        return self._trees[key]


def journeys(
    wan: Wan, traffic: EventTimes, sent: Multicasts, ambient: float, seed: int
) -> Journeys:
    """How long events take by one method, if other traffic takes the share `ambient` of each link.

    The columns of `traffic.wanted` are the brokers of subscribers.
    """
    spare = len(wan.brokers) - traffic.wanted.shape[1]
    widened = traffic._replace(wanted=np.pad(traffic.wanted, ((0, 0), (0, spare))))
    return _Run(wan, widened, sent, ambient, seed).run()
