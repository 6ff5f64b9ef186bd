"""How each method of the multicast paper brings events to brokers, and which links that takes."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Masks, masks_of, united, words_of
from palio.multicast.listed import ListedGroups, flooding, ideal
from palio.multicast.merging import approximated
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.planners import PlanLimits, plan
from palio.multicast.plans import GroupPlan
from palio.multicast.traffic import GroupTraffic
from palio_studies.multicast_network import CLASSES, Wan, neighbour_graph

__all__ = [
    "CLUSTERED",
    "LIKENESS",
    "METHODS",
    "THRESHOLD",
    "UNICAST",
    "Delivered",
    "Multicasts",
    "delivered",
    "multicasts",
    "plans_for",
]

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CLUSTERED: Final = "CGM"
LIKENESS: Final = "CGM by likeness"
THRESHOLD: Final = "threshold CGM"
UNICAST: Final = "unicast"
METHODS: Final = (
    *("ideal", "flooding", CLUSTERED, LIKENESS, THRESHOLD, "neighbours", "approximated"),
    UNICAST,
)

UP_TO: Final = 3
"""Brokers of a cluster that threshold CGM has a group for."""


class Multicasts(NamedTuple):
    """What is sent to groups: for which event, by which broker, and who hears it."""

    events: Longs
    roots: Longs
    members: Masks


class Delivered(NamedTuple):
    """What became of some events by one method."""

    links: Floats
    """By event how many links of each class were crossed, each as often as it was."""
    received: Masks
    """By event which brokers got it."""
    sends: Longs
    """By event the sends, to groups and to brokers alone."""


def plans_for(
    wan: Wan, learned: GroupTraffic, published: GroupTraffic, groups: int
) -> dict[str, GroupPlan]:
    """A plan of each method. The approximation and the clusters by likeness are made of what was
    `learned` before, with at most so many `groups`; the ideal one knows what will be `published`.
    """
    clusters = tuple(tuple(wan.brokers[place] for place in each) for each in wan.clusters)
    size = max(map(len, clusters))
    most = len(clusters) << size
    near = neighbour_graph(wan.brokers, wan.latency_us, most)
    return {
        "ideal": ideal(published),
        "flooding": flooding(wan.subscribers),
        CLUSTERED: plan(learned, "clustered", PlanLimits(groups=most, clusters=clusters)),
        LIKENESS: plan(learned, "clustered", PlanLimits(groups=most, cluster_size=size)),
        THRESHOLD: plan(
            learned, "threshold", PlanLimits(groups=most, clusters=clusters, threshold=UP_TO)
        ),
        "neighbours": NeighbourGroups(wan.brokers, near),
        "approximated": approximated(learned, groups),
        UNICAST: ListedGroups(UNICAST, wan.subscribers, learned.sets[:0]),
    }


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
