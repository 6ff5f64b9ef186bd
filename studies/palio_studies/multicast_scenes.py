"""Who wants what in a run of the multicast study, what is published there, and what plans make of
it: how each method of the paper brings events to brokers, and which links that takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.multicast.broker_sets import Masks, distinct, masks_of, sizes_of, united, words_of
from palio.multicast.listed import ListedGroups, flooding, ideal
from palio.multicast.merging import approximated
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.planners import PlanLimits, plan
from palio.multicast.plans import GroupPlan
from palio.multicast.traffic import GroupTraffic
from palio.simulation.randomness import Randomness
from palio_studies.multicast_network import CLASSES, Extent, Floats, Longs, Wan, neighbour_graph
from palio_studies.study import Row, Value

NON_REGIONAL: Final = "non-regional"
REGIONAL: Final = "regional"
PUBLISHER_REGIONAL: Final = "publisher-regional"

SUBSCRIPTIONS: Final = 100
"""Of the clients of each broker."""
LEARNED: Final = 20
"""Events from which plans are made, for each that counts."""

ATTRIBUTES: Final = 15
VALUES: Final = 10
FIRST: Final = 0.98
"""How probable it is that a subscription names a value of the first attribute."""
NAMES: Final = (*(f"a{place:02}" for place in range(ATTRIBUTES)), "region")
"""Those of the attributes, and of one besides, whose values are regions."""
ZIPF: Final[Floats] = 1 / np.arange(1, VALUES + 1) / np.sum(1 / np.arange(1, VALUES + 1))

CLUSTERED: Final = "CGM"
LIKENESS: Final = "CGM by likeness"
THRESHOLD: Final = "threshold CGM"
ORDERED: Final = "approximated, in order"
"""The paper's own order of combining groups (multicast 4.4), beside the planner's."""
UNICAST: Final = "unicast"
METHODS: Final = (
    *("ideal", "flooding", CLUSTERED, LIKENESS, THRESHOLD, "neighbours", "approximated"),
    ORDERED,
    UNICAST,
)
UP_TO: Final = 3
"""Brokers of a cluster that threshold CGM has a group for."""


# --- what is wanted and published ---


def decay_for(match: float, regionalism: float = 0.0, regions: int = 1) -> float:
    """How fast attributes lose popularity if so many of the pairs of an event and a subscription
    are to match: attribute `i` is named with probability `FIRST * decay**i`.

    >>> decay = decay_for(0.01)
    >>> float(np.prod(1 - FIRST * decay ** np.arange(ATTRIBUTES) * (1 - ZIPF @ ZIPF))).__round__(6)
    0.01
    """
    wanted = match / (1 - regionalism + regionalism / regions)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        # An event and a subscription have the same value of an attribute by `ZIPF @ ZIPF`.
        named = FIRST * middle ** np.arange(ATTRIBUTES)
        matching = float(np.prod(1 - named * (1 - ZIPF @ ZIPF)))
        low, high = (low, middle) if matching < wanted else (middle, high)
    return low


def drawn_interests(
    random: np.random.Generator, own: Longs, decay: float, regionalism: float
) -> Longs:
    """A subscription a row: the value that it asks of each attribute, and -1 where it asks none.
    With the probability `regionalism` it is for the events of its `own` region only.
    """
    shape = len(own), ATTRIBUTES
    is_named = random.random(shape) < FIRST * decay ** np.arange(ATTRIBUTES)
    values = np.where(is_named, random.choice(VALUES, shape, p=ZIPF), -1)
    return np.column_stack([values, np.where(random.random(len(own)) < regionalism, own, -1)])


def indexed(interests: Longs, brokers: Longs) -> Index:
    """The matching engine of a broker that knows all subscriptions, and at which brokers they
    are.
    """
    index = Index()
    columns = {
        name: pa.array(values, mask=values < 0)
        for name, values in zip(NAMES, interests.T, strict=True)
    }
    every = parse_filter(" AND ".join(f"{name} = :{name}" for name in NAMES))
    index.add_many(np.arange(len(brokers)), every, columns, destinations=brokers)
    return index


def drawn_events(random: np.random.Generator, regions: Longs) -> pa.RecordBatch:
    """Events of these regions."""
    values = random.choice(VALUES, (len(regions), ATTRIBUTES), p=ZIPF)
    return pa.record_batch(dict(zip(NAMES, [*values.T, regions], strict=True)))


def scene_of(parameters: Mapping[str, Value], seed: int) -> Scene:
    """What the parameters and the seed say, and nothing else."""
    count, degree = int(parameters["events"]), float(parameters.get("regionalism", 0.0))
    extent = Extent(stubs=int(parameters.get("stubs", Extent().stubs)))
    wan, random = Wan(extent, Randomness(seed)), np.random.default_rng(seed)
    decay = decay_for(float(parameters["match"]) / 100, degree, extent.regions)
    homes = np.repeat(np.arange(len(wan.subscribers)), SUBSCRIPTIONS)
    index = indexed(drawn_interests(random, wan.regions[homes], decay, degree), homes)

    def published(events: int) -> tuple[Masks, Longs]:
        """By event who wants it, and its publisher."""
        publishers = random.integers(0, extent.publishers, events)
        if parameters.get("kind") == PUBLISHER_REGIONAL:
            regions = wan.regions[len(wan.subscribers) + publishers]
        else:
            regions = random.integers(0, extent.regions, events)
        wanted = np.zeros((events, len(wan.subscribers)), np.bool_)
        for broker, rows in index.route(drawn_events(random, regions)).items():
            wanted[:, broker] = rows
        return wanted, publishers

    learned, _ = published(LEARNED * count)
    traffic = GroupTraffic.counted(wan.subscribers, words_of(learned))
    return Scene(wan, traffic, *published(count), random)


# --- what plans make of it ---


def plans_for(
    wan: Wan, learned: GroupTraffic, published: GroupTraffic, groups: int
) -> dict[str, GroupPlan]:
    """A plan of each method. The approximation and the clusters by likeness are made of what was
    `learned` before, with at most so many `groups`; the ideal one knows what will be `published`.
    """
    regional = PlanLimits(groups=wan.most_groups, clusters=wan.named_clusters)
    alike = replace(regional, clusters=(), cluster_size=len(wan.clusters[0]))
    return {
        "ideal": ideal(published),
        "flooding": flooding(wan.subscribers),
        CLUSTERED: plan(learned, "clustered", regional),
        LIKENESS: plan(learned, "clustered", alike),
        THRESHOLD: plan(learned, "threshold", replace(regional, threshold=UP_TO)),
        "neighbours": nearest(wan, wan.latency_us),
        "approximated": approximated(learned, groups),
        ORDERED: in_order(learned, groups),
        UNICAST: ListedGroups(UNICAST, wan.subscribers, learned.sets[:0]),
    }


def in_order(traffic: GroupTraffic, groups: int) -> ListedGroups:
    """The paper's heuristic: the least probable group, of those the one with the fewest brokers, is
    combined with the one that adds least waste, and what they are together takes its place in the
    order; until so many are left, with that of all brokers.

    >>> sets = [(["b1"], 5), (["b1", "b2"], 1), (["b3"], 5)]
    >>> sorted(in_order(GroupTraffic.of(["b1", "b2", "b3"], sets), groups=3).groups.tolist())
    [[3], [4], [7]]
    """
    everyone = words_of(np.ones((1, len(traffic.brokers)), np.bool_))
    some = (traffic.sets != everyone).any(axis=1)
    sets, shares = traffic.sets[some].copy(), traffic.shares[some].copy()
    sizes = sizes_of(sets)
    order = [(shares[place], int(sizes[place]), place) for place in range(len(sets))]
    heapify(order)
    is_there = np.ones(len(sets), np.bool_)
    for _ in range(len(sets) - max(0, groups - 1)):
        share, size, least = heappop(order)
        while not is_there[least] or (share, size) != (shares[least], sizes[least]):
            share, size, least = heappop(order)
        is_there[least] = False
        common = sizes_of(sets & sets[least])
        waste = share * (sizes - common) + shares * (size - common)
        best = int(np.where(is_there, waste, np.inf).argmin())
        if not is_there[best]:
            break
        sizes[best] += size - common[best]
        sets[best] |= sets[least]
        shares[best] += share
        heappush(order, (shares[best], int(sizes[best]), best))
    left = np.concatenate([sets[is_there], everyone])
    return ListedGroups(ORDERED, traffic.brokers, distinct(left, np.ones(len(left)))[0])


def nearest(wan: Wan, distances: Floats) -> NeighbourGroups:
    """Groups of neighbours by their distances, about as many in all as CGM has."""
    near = neighbour_graph(wan.brokers, distances, wan.most_groups)
    return NeighbourGroups(wan.brokers, near)


class Multicasts(NamedTuple):
    """What is sent to groups: for which event, by which broker, and who hears it."""

    events: Longs
    roots: Longs
    members: Masks


def multicasts(wan: Wan, made: GroupPlan, wanted: Masks, publishers: Longs) -> Multicasts:
    """The sends that bring each event from its publisher to all who want it.

    `publishers` counts those from 0; the columns of `wanted` are the brokers of subscribers. Whom
    no group reaches is sent the event alone.
    """
    brokers = len(made.brokers)
    sets = words_of(np.pad(wanted, ((0, 0), (0, brokers - wanted.shape[1]))))
    found = []
    for publisher in np.unique(publishers).tolist():
        events = np.flatnonzero(publishers == publisher)
        root = len(wan.subscribers) + publisher
        sends = made.sends(sets[events], root)
        roots = np.full(len(sends.groups), root)
        if isinstance(made, NeighbourGroups):
            roots = made.senders(sends.groups)
        members = masks_of(made.members(sends.groups), brokers)
        rows, alone = np.nonzero(masks_of(sends.by_link, brokers))
        found.append(
            Multicasts(
                events[np.concatenate([sends.events, rows])],
                np.concatenate([roots, np.full(len(rows), root)]),
                np.concatenate([members, alone[:, None] == np.arange(brokers)]),
            )
        )
    events, roots, members = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(events, kind="stable")
    members = np.pad(members[order], ((0, 0), (0, len(wan.brokers) - brokers)))
    return Multicasts(events[order], roots[order], members)


class Delivered(NamedTuple):
    """What became of some events by one method."""

    links: Floats
    """By event how many links of each class were crossed, each as often as it was."""
    received: Masks
    """By event which brokers got it."""
    sends: Longs
    """By event the sends, to groups and to brokers alone."""


def delivered(wan: Wan, made: GroupPlan, wanted: Masks, publishers: Longs) -> Delivered:
    """What a plan does with some events."""
    sent = multicasts(wan, made, wanted, publishers)
    links = np.zeros((len(wanted), len(CLASSES)))
    for root in np.unique(sent.roots).tolist():
        rows = np.flatnonzero(sent.roots == root)
        crossed = wan.crossed(root, sent.members[rows])
        for kind in range(len(CLASSES)):
            counts = crossed[:, wan.classes == kind].sum(axis=1)
            links[:, kind] += np.bincount(sent.events[rows], counts, minlength=len(wanted))
    received = united(words_of(sent.members), sent.events, len(wanted))
    return Delivered(
        links, masks_of(received, len(wan.brokers)), np.bincount(sent.events, minlength=len(wanted))
    )


class Scene(NamedTuple):
    """A network, what its clients want, and what is published there."""

    wan: Wan
    learned: GroupTraffic
    """What plans are made of..."""
    wanted: Masks
    """...and by event who wants it, of those that count."""
    publishers: Longs
    random: np.random.Generator

    @property
    def published(self) -> GroupTraffic:
        """The events that count, as traffic."""
        return GroupTraffic.counted(self.wan.subscribers, words_of(self.wanted))

    def plans(self, groups: int) -> dict[str, GroupPlan]:
        """A plan of each method."""
        return plans_for(self.wan, self.learned, self.published, groups)

    def delivered(self, made: GroupPlan) -> Delivered:
        """What became of the events that count by a plan."""
        return delivered(self.wan, made, self.wanted, self.publishers)

    def costs(self, made: GroupPlan) -> Row:
        """What an event cost by a plan, on average."""
        found = self.delivered(made)
        got = found.received[:, : len(self.wan.subscribers)]
        reached = int(found.received.sum())
        wanted = int(self.wanted.sum())
        means = found.links.mean(axis=0).tolist()
        return {
            **dict(zip(CLASSES, means, strict=True)),
            "links": sum(means),
            "sends": float(found.sends.mean()),
            "precision": wanted / reached if reached else 1.0,
            "waste": (reached - wanted) / len(self.wanted),
            "missed": int((self.wanted & ~got).sum()),
            "sent": float(self.wanted.any(axis=1).mean()),
            "plan_groups": made.group_count,
            "joins": float(made.joins[: len(self.wan.subscribers)].mean()),
        }
