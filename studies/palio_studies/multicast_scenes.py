"""Who wants what in a run of the multicast study, what is published there, and what plans make of
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Masks, words_of
from palio.multicast.plans import GroupPlan
from palio.multicast.traffic import GroupTraffic
from palio.simulation.randomness import Randomness
from palio_studies.multicast_interests import (
    changed_interests,
    decay_for,
    drawn_events,
    drawn_interests,
)
from palio_studies.multicast_network import CLASSES, Extent, Wan, wide_area
from palio_studies.multicast_ways import Delivered, delivered
from palio_studies.study import Row, Value

__all__ = [
    "LEARNED",
    "NON_REGIONAL",
    "PUBLISHER_REGIONAL",
    "REGIONAL",
    "SUBSCRIPTIONS",
    "Clientele",
    "Scene",
    "scene_of",
]

NON_REGIONAL: Final = "non-regional"
REGIONAL: Final = "regional"
PUBLISHER_REGIONAL: Final = "publisher-regional"

SUBSCRIPTIONS: Final = 100
"""Of the clients of each broker."""

LEARNED: Final = 20
"""Events from which plans are made, for each that counts."""


class Scene(NamedTuple):
    """A network, what its clients want, and what is published there."""

    wan: Wan
    learned: GroupTraffic
    """What plans are made of..."""
    wanted: Masks
    """...and by event who wants it, of those that count."""
    publishers: npt.NDArray[np.int64]
    match: float
    """The share of pairs of an event and a subscription that match."""
    decay: float
    random: np.random.Generator

    @property
    def published(self) -> GroupTraffic:
        """The events that count, as traffic."""
        return GroupTraffic.counted(self.wan.subscribers, words_of(self.wanted))

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


class Clientele:
    """A network and what its clients want, which may change."""

    def __init__(self, parameters: Mapping[str, Value], seed: int) -> None:
        self.extent = Extent(stubs=int(parameters.get("stubs", Extent().stubs)))
        self.wan = wide_area(self.extent, Randomness(seed))
        self.random = np.random.default_rng(seed)
        self.degree = float(parameters.get("regionalism", 0.0))
        self.decay = decay_for(float(parameters["match"]) / 100, self.degree, self.extent.regions)
        self._homes: npt.NDArray[np.int64] | None = None
        if parameters.get("kind") == PUBLISHER_REGIONAL:
            self._homes = self.wan.regions[len(self.wan.subscribers) :]
        at = np.repeat(np.arange(len(self.wan.subscribers)), SUBSCRIPTIONS)
        self.interests = drawn_interests(self.random, at, self.decay, self.degree, self.wan.regions)

    def change(self, share: float) -> None:
        """So many of the subscriptions end, and others begin at the same brokers."""
        fresh = drawn_interests(
            self.random, self.interests.brokers, self.decay, self.degree, self.wan.regions
        )
        ended = self.random.random(len(fresh.brokers)) < share
        self.interests = changed_interests(self.interests, fresh, ended)

    def scene(self, learned: int, count: int) -> Scene:
        """`learned` events of which plans are made, and `count` by which they are judged."""
        wan, index = self.wan, self.interests.indexed()
        brokers = len(wan.subscribers)
        before, events = (
            drawn_events(
                self.random, each, self.extent.publishers, self.extent.regions, self._homes
            )
            for each in (learned, count)
        )
        known = self.interests.destinations(index, before, brokers)
        pairs = len(index.match(events.batch()).rows)
        return Scene(
            wan,
            GroupTraffic.counted(wan.subscribers, words_of(known)),
            self.interests.destinations(index, events, brokers),
            events.publishers,
            pairs / (count * len(self.interests.brokers)),
            self.decay,
            self.random,
        )


def scene_of(parameters: Mapping[str, Value], seed: int) -> Scene:
    """What the parameters and the seed say, and nothing else."""
    count = int(parameters["events"])
    return Clientele(parameters, seed).scene(LEARNED * count, count)
