"""The experiments of siena's study: what is run at each scale, and what of it becomes rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from palio_studies.names import Scale
from palio_studies.siena_scenario import SitePlan, play
from palio_studies.siena_sites import Architecture, CostClass
from palio_studies.study import SEEDS, Experiment, Point, Row, grid, points_at

BEHAVIOUR: Final = {"m": 4, "n": 5, "p": 2, "q": 5}
"""Of all runs but those that say otherwise: an object publishes 20, a party takes 10 of them."""

# --- runs ---


def run_costs(point: Point) -> list[Row]:
    """What a run cost, and by what it is to be divided. `is_below` says that it belongs to the
    picture of distributed architectures below saturation.
    """
    played = play(msgspec.convert(dict(point.parameters), SitePlan), point.seed)
    tally = played.tally
    is_distributed = point.parameters["architecture"] != Architecture.CENTRALIZED
    costs = {each: tally.cost(each) for each in CostClass}
    total = sum(costs.values())
    published, subscribed = max(1, played.published), max(1, played.subscribed)
    return [
        {
            "is_distributed": is_distributed,
            "is_below": is_distributed and len(played.parties) <= len(played.sites.names),
            "total": total,
            **{f"{each.name.lower()}_cost": cost for each, cost in costs.items()},
            "requests": played.requests,
            "published": played.published,
            "subscribed": played.subscribed,
            "delivered": played.network.costs.delivered,
            "cost_per_request": total / max(1, played.requests),
            "cost_per_subscription": costs[CostClass.SUBSCRIPTION] / subscribed,
            "links_per_subscription": tally.crossings(CostClass.SUBSCRIPTION) / subscribed,
            "cost_per_notification": costs[CostClass.NOTIFICATION] / published,
            "worst_site": max(tally.by_site().values()),
        }
    ]


# --- their parameters ---

FOUR: Final = ("ce", "hs", "as", "aa")
"""The architectures of the paper."""

CENTRALIZED_PARTIES: Final = 1_000
"""More are not run with one server: its cost has grown in step with them for long."""

Sets = list[dict[str, Any]]


def _sets(
    architectures: Sequence[str],
    objects: Sequence[int],
    parties: Sequence[int],
    sites: Sequence[int] = (100,),
    **behaviour: int,
) -> Sets:
    """All combinations."""
    sets = grid(architecture=architectures, objects=objects, parties=parties, sites=sites)
    return [{**each, **BEHAVIOUR, **behaviour} for each in sets]


def _costs(objects: Sequence[int], parties: Sequence[int]) -> Sets:
    return [
        each
        for each in _sets(FOUR, objects, parties)
        if each["architecture"] != "ce" or each["parties"] <= CENTRALIZED_PARTIES
    ]


def _vain(counts: Sequence[int]) -> Sets:
    """The degenerate cases: n publications for nobody, and for ten parties that take one each."""
    return [
        each
        for count in counts
        for crowd, p in ((0, 0), (10, 1))
        for each in _sets(("hs", "as"), (1,), (crowd,), m=1, n=count, p=p, q=1)
    ]


def _wanted(parties: Sequence[int]) -> Sets:
    """One object of which every notification is wanted, in time and to the last."""
    return _sets(("hs", "as"), (1,), parties, p=BEHAVIOUR["m"])


def _growth(sites: Sequence[int]) -> Sets:
    """One object and one party among more and more sites."""
    return _sets(("hs", "as"), (1,), (1,), sites)


def _work(point: Point) -> float:
    """About how long a run takes, by events and requests."""
    given: Mapping[str, Any] = point.parameters
    published = given["objects"] * given["m"] * given["n"]
    received = given["parties"] * given["p"] * (given["q"] + 3)
    return float(4 * published + 2 * received + given["sites"] * 10)


def _experiment(name: str, **sets: Iterable[Mapping[str, Any]]) -> Experiment:
    """An experiment with its sets of parameters by the names of scales."""
    by_scale = {Scale(scale): each for scale, each in sets.items()}
    return Experiment(name, run_costs, points_at(name, by_scale, SEEDS), weight=_work)


EXPERIMENTS: Final = (
    _experiment(
        "costs",
        small=_costs((1, 10, 100), (1, 10, 100, 300, 1_000)),
        paper=_costs((1, 10, 100, 1_000), (1, 3, 10, 30, 60, 100, 300, 1_000, 3_000, 10_000)),
    ),
    _experiment("vain", small=_vain((1, 10, 100)), paper=_vain((1, 2, 5, 10, 20, 50, 100))),
    _experiment("wanted", small=_wanted((1, 100)), paper=_wanted((1, 10, 100, 1_000))),
    _experiment(
        "growth",
        small=_growth((100, 1_000)),
        paper=_growth((100, 1_000)),
        beyond=_growth((100, 1_000, 10_000)),
    ),
)
