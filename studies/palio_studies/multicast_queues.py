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

from palio.multicast.broker_sets import Masks
from palio_studies.multicast_network import Floats, Longs, Wan
from palio_studies.multicast_scenes import Multicasts, multicasts, scene_of
from palio_studies.study import Point, Row

EVENT_BYTES: Final = 1_000
MEGABITS: Final = (622.0, 155.0, 100.0)
"""A second and class of links: OC-12, OC-3, and a local network."""
MATCHING_S: Final = 0.000_1
"""What a broker takes to match an event with the subscriptions of all."""

AMBIENT: Final = 0.3
"""The share of each link that other traffic takes."""

FORGOTTEN_AFTER: Final = 10.0
"""Relaxation times after which a queue has forgotten what was in it."""


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
        self._memory_s = FORGOTTEN_AFTER * service_s / (1 - ambient**0.5) ** 2

    def sent(self, now: float) -> float:
        """When an event that comes now has left; the next must not come earlier."""
        if self._ambient:
            self._let_others_in(now)
        self._free_at = max(self._free_at, now) + self._service_s
        self._seen_at = now
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


class EventTimes(NamedTuple):
    """Events as they are published."""

    times_s: Floats
    publishers: Longs
    wanted: Masks
    """Its columns are the brokers of subscribers."""


Branches: TypeAlias = dict[str, list[tuple[str, LinkQueue, float]]]
"""Of a tree: for each node the next ones, the queues on the way there, and how long it takes."""


class QueuedWan:
    """A network whose links have queues, for the events of one method. Other traffic takes the
    share `ambient` of each link.
    """

    def __init__(self, wan: Wan, ambient: float, seed: int) -> None:
        random = Random(seed)
        self._wan = wan
        self._queues = {
            way: LinkQueue(8 * EVENT_BYTES / (1e6 * MEGABITS[kind]), ambient, random)
            for link, kind in zip(wan.links, wan.classes.tolist(), strict=True)
            for way in (link, link[::-1])
        }
        self._trees: dict[tuple[int, bytes], Branches] = {}
        self._agenda: list[tuple[float, int, int, str, Branches | None]] = []
        """When, a number, which event, where: it comes along a tree; without one it is matched."""
        self._pushed = 0

    def carry(self, traffic: EventTimes, sent: Multicasts) -> Floats:
        """Publish all events; the seconds that each takes to each broker that wants it, which has
        matched it then.
        """
        places = {name: place for place, name in enumerate(self._wan.brokers)}
        matched_at = dict.fromkeys(self._wan.brokers, 0.0)
        sends: dict[tuple[int, int], list[Masks]] = {}
        for event, root, members in zip(
            sent.events.tolist(), sent.roots.tolist(), sent.members, strict=True
        ):
            sends.setdefault((event, root), []).append(members)
        times = traffic.times_s.tolist()
        for event, publisher in enumerate(traffic.publishers.tolist()):
            self._push(times[event], event, self._wan.publishers[publisher], {})
        seconds = []
        while self._agenda:
            now, _, event, node, tree = heappop(self._agenda)
            if tree is None:
                place = places[node]
                if place < len(self._wan.subscribers) and traffic.wanted[event, place]:
                    seconds.append(now - times[event])
                for members in sends.get((event, place), ()):
                    self._forward(now, event, node, self._tree(place, members))
            elif node in places:
                matched_at[node] = max(matched_at[node], now) + MATCHING_S
                self._push(matched_at[node], event, node, None)
            else:
                self._forward(now, event, node, tree)
        return np.array(seconds)

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
            tree = self._trees[key] = {}
            joined = {self._wan.brokers[root]}
            for member in np.flatnonzero(members).tolist():
                node = self._wan.brokers[member]
                while node not in joined:
                    joined.add(node)
                    above = parents[node]
                    way = self._queues[above, node], self._wan.graph[above][node] / 1e6
                    tree.setdefault(above, []).append((node, *way))
                    node = above
        return self._trees[key]


def run_latency(point: Point) -> list[Row]:
    """How long each method takes, with queues and ambient load."""
    rate = float(point.parameters["rate"])
    scene = scene_of(point.parameters, point.seed)
    plans = scene.plans(int(point.parameters["groups"]))
    gaps = scene.random.exponential(1 / rate, len(scene.wanted))
    traffic = EventTimes(np.cumsum(gaps), scene.publishers, scene.wanted)
    rows: list[Row] = []
    for name, made in plans.items():
        sent = multicasts(scene.wan, made, scene.wanted, scene.publishers)
        found = QueuedWan(scene.wan, AMBIENT, point.seed).carry(traffic, sent)
        rows.append(
            {
                "method": name,
                "latency_ms": 1e3 * float(found.mean()),
                "matched": _matched_on_the_way(sent, scene.wanted),
                "deliveries": len(found),
                "wanted": int(scene.wanted.sum()),
            }
        )
    return rows


def _matched_on_the_way(sent: Multicasts, wanted: Masks) -> float:
    """How many brokers match an event before it is delivered, the first and the last among them.

    The sends of an event are in the order in which it spreads.
    """
    brokers = np.ones((len(wanted), sent.members.shape[1]), np.int64)
    for event, root, members in zip(sent.events, sent.roots, sent.members, strict=True):
        brokers[event, members] = brokers[event, root] + 1
    return float(brokers[:, : wanted.shape[1]][wanted].mean())
