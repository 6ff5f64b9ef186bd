"""The runs of the multicast study: from a point to rows."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Masks, words_of
from palio.multicast.clustered import groups_needed
from palio.multicast.clusters import clusters_of, likeness_by_interest, regionalism
from palio.multicast.listed import ListedGroups
from palio.multicast.merging import approximated
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.planners import PlanLimits, compare
from palio.multicast.plans import GroupPlan
from palio_studies.multicast_network import Wan, neighbour_graph
from palio_studies.multicast_prices import PRICES, Optimum, priced_limits
from palio_studies.multicast_queues import EventTimes, journeys
from palio_studies.multicast_scenes import Scene, scene_of
from palio_studies.multicast_ways import Multicasts, multicasts, plans_for
from palio_studies.study import Point, Row

__all__ = [
    "run_approximation",
    "run_groups",
    "run_latency",
    "run_links",
    "run_prices",
]

THRESHOLDS: Final = (1, 2, 3, 4)


def run_links(point: Point) -> list[Row]:
    """What each method makes of some events: links by class, sends, waste, and its groups."""
    scene = scene_of(point.parameters, point.seed)
    plans = plans_for(scene.wan, scene.learned, scene.published, int(point.parameters["groups"]))
    alike = clusters_of(likeness_by_interest(scene.learned), len(scene.wan.clusters[0]))
    seen: Row = {
        "match_found": 100 * scene.match,
        "decay": scene.decay,
        "wanted": float(scene.wanted.sum(axis=1).mean()),
        "regionalism_found": regionalism(
            scene.learned, [each.tolist() for each in scene.wan.clusters]
        ),
        "regions_found": _found_together(scene.wan, alike),
    }
    rows: list[Row] = [
        {"method": name, **scene.costs(made), **seen} for name, made in plans.items()
    ]
    ideal = float(rows[0]["intermediate"])
    return [{**row, "of_ideal": float(row["intermediate"]) / ideal} for row in rows]


def _found_together(wan: Wan, clusters: list[list[int]]) -> float:
    """Of the pairs of brokers in a cluster, the share that is of one region."""
    pairs = [wan.regions[members][:, None] == wan.regions[members] for members in clusters]
    same = sum(int(each.sum()) - len(each) for each in pairs)
    return same / sum(len(each) * (len(each) - 1) for each in pairs)


def run_approximation(point: Point) -> list[Row]:
    """What the approximation makes of some events, beside flooding and what is ideal."""
    scene = scene_of(point.parameters, point.seed)
    groups = int(point.parameters["groups"])
    everyone = ListedGroups("flooding", scene.wan.subscribers, _everyone(scene.wan))
    plans: dict[str, GroupPlan] = {
        "ideal": ListedGroups("ideal", scene.wan.subscribers, scene.published.sets),
        "flooding": everyone,
        "approximated": approximated(scene.learned, groups),
        "approximated, sets known": approximated(scene.published, groups),
    }
    return [{"method": name, **scene.costs(made)} for name, made in plans.items()]


def _everyone(wan: Wan) -> npt.NDArray[np.uint64]:
    return words_of(np.ones((1, len(wan.subscribers)), np.bool_))


def run_latency(point: Point) -> list[Row]:
    """How long each method takes, with queues and ambient load."""
    parameters = point.parameters
    scene = scene_of(parameters, point.seed)
    plans = plans_for(scene.wan, scene.learned, scene.published, int(parameters["groups"]))
    gaps = scene.random.exponential(1 / float(parameters["rate"]), len(scene.wanted))
    traffic = EventTimes(np.cumsum(gaps), scene.publishers, scene.wanted)
    rows: list[Row] = []
    for name, made in plans.items():
        sent = multicasts(scene.wan, made, scene.wanted, scene.publishers)
        found = journeys(scene.wan, traffic, sent, float(parameters["ambient"]), point.seed)
        rows.append(
            {
                "method": name,
                "latency_ms": 1e3 * float(found.seconds.mean()),
                "p99_ms": 1e3 * float(np.quantile(found.seconds, 0.99)),
                "busiest": found.busiest,
                "matched": _matched_on_the_way(sent, scene.wanted),
                "deliveries": len(found.seconds),
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


def run_groups(point: Point) -> list[Row]:
    """How many groups clusters need, exact and by threshold: the closed forms of the planner."""
    brokers, clusters = (int(point.parameters[name]) for name in ("brokers", "clusters"))
    sizes = [len(each) for each in np.array_split(np.arange(brokers), clusters)]
    return [
        {
            "method": "CGM" if threshold is None else f"threshold CGM, up to {threshold}",
            "needed": float(sum(groups_needed(size, threshold) for size in sizes)),
        }
        for threshold in (None, *THRESHOLDS)
    ]


# --- prices ---

BY_LATENCY: Final = "no"
BY_PRICE: Final = "yes"
COMPARED: Final = ("ideal", "flooding", "CGM", "threshold CGM")
CLUSTERS_UP_TO: Final = 2
"""The threshold of the clusters of a hybrid plan: 560 groups in all, of ten clusters of ten."""
PLANNERS: Final = ("approximated", "hybrid")


def run_prices(point: Point) -> list[Row]:
    """What an event costs where links have prices: by planners that know them and that do not,
    beside the exact optimum.
    """
    scene = scene_of(point.parameters, point.seed)
    groups = int(point.parameters["groups"])
    fixed = plans_for(scene.wan, scene.learned, scene.published, groups)
    links = {name: scene.delivered(fixed[name]).links for name in COMPARED}
    links["optimum"] = Optimum(scene.wan).links(scene.wanted, scene.publishers)
    plain = _planned(scene, None, groups)
    rows: list[Row] = []
    for prices, by_class in PRICES.items():
        least = float((links["optimum"] @ by_class).mean())
        found = [(name, BY_LATENCY, each) for name, each in links.items()]
        found += [(name, BY_LATENCY, each) for name, each in plain.items()]
        found += [
            (name, BY_PRICE, each) for name, each in _planned(scene, by_class, groups).items()
        ]
        rows += [
            {
                "prices": prices,
                "planner": name,
                "by_price": by_price,
                "price": float((each @ by_class).mean()),
                "of_optimum": float((each @ by_class).mean()) / least,
            }
            for name, by_price, each in found
        ]
    return rows


def _planned(
    scene: Scene, prices: tuple[float, float, float] | None, groups: int
) -> dict[str, npt.NDArray[np.float64]]:
    """The links that events cross by plans that are made for prices, or without."""
    wan = scene.wan
    limits = priced_limits(wan, prices, groups)
    limits = PlanLimits(**{**vars(limits), "threshold": CLUSTERS_UP_TO})
    distances = wan.latency_us
    if prices is not None:
        by_link = np.array(prices)[wan.classes]
        distances = np.stack([wan.tree(root).paths @ by_link for root in range(len(wan.brokers))])
        distances = np.minimum(distances, distances.T)
    most = len(wan.clusters) << len(wan.clusters[0])
    found = [each.plan for each in compare(scene.learned, limits).plans]
    plans = {each.method: each for each in found if each.method in PLANNERS}
    plans["best"] = found[0]
    plans["neighbours"] = NeighbourGroups(
        wan.brokers, neighbour_graph(wan.brokers, distances, most)
    )
    return {name: scene.delivered(made).links for name, made in plans.items()}
