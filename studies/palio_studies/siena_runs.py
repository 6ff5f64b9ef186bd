"""The experiments of siena's study: what is run at each scale, and what of it becomes rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

import msgspec

from palio.simulation.randomness import Randomness
from palio_studies.names import Scale
from palio_studies.siena_behaviour import Behaviour
from palio_studies.siena_interests import ManyKinds
from palio_studies.siena_scenario import Played, SitePlan, play, sites_of
from palio_studies.siena_sites import Architecture, Sites
from palio_studies.siena_tally import CostClass
from palio_studies.study import SEEDS, Experiment, Point, Row, Value, with_seeds

__all__ = ["BEHAVIOUR", "BEYOND_OBJECTS", "EXPERIMENTS", "MODEL_DEGREE"]

BEHAVIOUR: Final = Behaviour(advertisements=4, publications=5, subscriptions=2, receipts=5)
"""Of all runs but those that say otherwise: an object publishes 20, a party takes 10 of them."""

MODEL_DEGREE: Final = 3.2806
"""Of a site among 100, as it follows from the chances of links and from being connected: the test
of `simulation.site_networks` computes it."""

FOUR: Final = ("ce", "hs", "as", "aa")
"""The architectures of the paper."""

BEYOND_OBJECTS: Final = 10
"""Objects of interest where not these are what is studied."""

ONCE: Final = 10
"""Parties of the degenerate case in which each takes one notification."""

CENTRALIZED_PARTIES: Final = 1_000
"""More are not run with one server: its cost has grown in step with them for long."""


def cost_row(played: Played, architecture: Architecture) -> Row:
    """What a run cost, and by what it is to be divided. `is_below` says that it belongs to the
    picture of distributed architectures below saturation.
    """
    tally = played.tally
    is_distributed = architecture is not Architecture.CENTRALIZED
    costs = {each: tally.cost(each) for each in CostClass}
    total = sum(costs.values())
    ignored = tally.ignored()
    plain, ours = tally.messages()
    return {
        "is_below": is_distributed and len(played.parties) <= len(played.sites.names),
        "total": total,
        **{f"{each.name.lower()}_cost": cost for each, cost in costs.items()},
        "requests": played.requests,
        "published": played.published,
        "subscribed": played.subscribed,
        "delivered": played.network.costs.delivered,
        "cost_per_request": total / max(1, played.requests),
        "cost_per_subscription": costs[CostClass.SUBSCRIPTION] / max(1, played.subscribed),
        "links_per_subscription": tally.crossings(CostClass.SUBSCRIPTION)
        / max(1, played.subscribed),
        "cost_per_notification": costs[CostClass.NOTIFICATION] / max(1, played.published),
        "ignored": ignored.notifications,
        "ignored_links": ignored.links,
        "ignored_cost": ignored.cost,
        "worst_site": max(tally.by_site().values()),
        "plain_messages": plain,
        "messages": ours,
    }


def _behaviour_of(parameters: Mapping[str, Value]) -> Behaviour:
    return Behaviour(
        advertisements=int(parameters["m"]),
        publications=int(parameters["n"]),
        subscriptions=int(parameters["p"]),
        receipts=int(parameters["q"]),
    )


def plan_of(point: Point) -> SitePlan:
    """What a point asks for."""
    parameters = point.parameters
    return SitePlan(
        architecture=Architecture(str(parameters["architecture"])),
        objects=int(parameters["objects"]),
        parties=int(parameters["parties"]),
        sites=int(parameters["sites"]),
        behaviour=_behaviour_of(parameters),
    )


def run_costs(point: Point) -> list[Row]:
    """One run, one row."""
    plan = plan_of(point)
    return [cost_row(play(plan, point.seed), plan.architecture)]


def run_interests(point: Point) -> list[Row]:
    """One run in which not all want the same."""
    plan = plan_of(point)
    interests = ManyKinds(float(point.parameters["skew"]))
    return [cost_row(play(plan, point.seed, interests), plan.architecture)]


def run_breakdown(point: Point) -> list[Row]:
    """One run by class of cost, and by what is called a message."""
    tally = play(plan_of(point), point.seed).tally
    plain, ours = tally.messages()
    rows: list[Row] = [
        {"of": "cost", "what": each.name.lower(), "amount": tally.cost(each)}
        for each in CostClass
        if each is not CostClass.UPKEEP  # none of the paper's architectures has any
    ]
    for what, amount in (("plain siena", plain), ("Palio", ours)):
        rows.append({"of": "messages", "what": what, "amount": amount})
    return rows


def run_loads(point: Point) -> list[Row]:
    """One run by site and by link, the busiest first."""
    tally = play(plan_of(point), point.seed).tally
    rows: list[Row] = []
    for of, paid in (("site", tally.by_site().values()), ("link", tally.by_link().values())):
        for rank, cost in enumerate(sorted(paid, reverse=True)[:SHOWN_LOADS], 1):
            rows.append({"of": of, "rank": rank, "cost": cost})
    return rows


SHOWN_LOADS: Final = 99
"""As many as a tree of 100 sites has links."""


def run_networks(point: Point) -> list[Row]:
    """Degrees and distances of one network."""
    sites = sites_of(int(point.parameters["sites"]), Randomness(point.seed))
    degrees = [len(near) for near in sites.graph.values()]
    hops = [distance for site in sites.names for distance in _hops_from(sites, site).values()]
    size = len(sites.names)
    return [
        {
            "links": len(sites.prices),
            "mean_degree": sum(degrees) / size,
            "greatest_degree": max(degrees),
            "mean_hops": sum(hops) / (size * (size - 1)),
            "diameter": max(hops),
            "mean_price": sum(sites.prices.values()) / len(sites.prices),
            "tree_depth": max(len(sites.way(site)) for site in sites.names),
        }
    ]


def _hops_from(sites: Sites, start: str) -> dict[str, int]:
    hops, waiting = {start: 0}, deque([start])
    while waiting:
        site = waiting.popleft()
        for near in sites.graph[site]:
            if near not in hops:
                hops[near] = hops[site] + 1
                waiting.append(near)
    return hops


# --- the points ---


def _sets(
    architectures: Iterable[str],
    objects: Iterable[int],
    parties: Iterable[int],
    sites: int = 100,
    behaviour: Behaviour = BEHAVIOUR,
) -> Iterator[dict[str, Any]]:
    """Parameters of all combinations."""
    for architecture, thing, party in product(architectures, objects, parties):
        yield {
            "architecture": architecture,
            "objects": thing,
            "parties": party,
            "sites": sites,
            "m": behaviour.advertisements,
            "n": behaviour.publications,
            "p": behaviour.subscriptions,
            "q": behaviour.receipts,
        }


def _costs_points(scale: Scale) -> Iterable[Point]:
    match scale:
        case Scale.SMALL:
            sets = _sets(FOUR, (1, 10, 100), (1, 10, 100, 300, 1_000))
        case Scale.PAPER:
            parties = (1, 3, 10, 30, 60, 100, 300, 1_000, 3_000, 10_000)
            sets = _sets(FOUR, (1, 10, 100, 1_000), parties)
        case _:
            return ()
    return with_seeds("costs", filter(_is_affordable, sets), SEEDS[scale])


def _is_affordable(parameters: Mapping[str, Any]) -> bool:
    is_centralized = parameters["architecture"] == Architecture.CENTRALIZED
    return not is_centralized or parameters["parties"] <= CENTRALIZED_PARTIES


def _breakdown_points(scale: Scale) -> Iterable[Point]:
    match scale:
        case Scale.SMALL:
            sets = _sets(FOUR, (10,), (1, 100))
        case Scale.PAPER:
            sets = _sets(FOUR, (100,), (1, 10, 100, 1_000))
        case _:
            return ()
    return with_seeds("breakdown", sets, SEEDS[scale])


def _loads_points(scale: Scale) -> Iterable[Point]:
    match scale:
        case Scale.SMALL:
            sets = _sets(("hs", "as", "aa"), (1, 100), (100,))
        case Scale.PAPER:
            sets = _sets(("hs", "as", "aa"), (1, 1_000), (100,))
        case _:
            return ()
    return with_seeds("loads", sets, SEEDS[scale])


def _vain_points(scale: Scale) -> Iterable[Point]:
    """The degenerate cases: n publications for nobody, and for parties that take one each."""
    match scale:
        case Scale.SMALL:
            counts: tuple[int, ...] = (1, 10, 100)
        case Scale.PAPER:
            counts = (1, 2, 5, 10, 20, 50, 100)
        case _:
            return ()
    sets = [
        parameters
        for parties, count in product((0, ONCE), counts)
        for parameters in _sets(
            ("hs", "as"), (1,), (parties,), behaviour=Behaviour(1, count, min(1, parties), 1)
        )
    ]
    return with_seeds("vain", sets, SEEDS[scale])


def _wanted_points(scale: Scale) -> Iterable[Point]:
    """One object of which every notification is wanted, in time and to the last."""
    match scale:
        case Scale.SMALL:
            parties: tuple[int, ...] = (1, 100)
        case Scale.PAPER:
            parties = (1, 10, 100, 1_000)
        case _:
            return ()
    behaviour = msgspec.structs.replace(BEHAVIOUR, subscriptions=BEHAVIOUR.advertisements)
    return with_seeds(
        "wanted", _sets(("hs", "as"), (1,), parties, behaviour=behaviour), SEEDS[scale]
    )


def _growth_points(scale: Scale) -> Iterable[Point]:
    """One object and one party among more and more sites."""
    match scale:
        case Scale.SMALL | Scale.PAPER:
            sizes: tuple[int, ...] = (100, 1_000)
        case _:
            sizes = (100, 1_000, 10_000)
    sets = [each for size in sizes for each in _sets(("hs", "as"), (1,), (1,), sites=size)]
    return with_seeds("growth", sets, SEEDS[scale])


def _sizes_points(scale: Scale) -> Iterable[Point]:
    """The paper's applications among more sites, with so many parties for each site."""
    match scale:
        case Scale.SMALL:
            sizes: tuple[int, ...] = (100, 1_000)
            crowds: tuple[float, ...] = (1.0,)
            shown: tuple[str, ...] = ("hs", "as")
        case Scale.BEYOND:
            sizes, crowds, shown = (100, 1_000, 10_000), (0.1, 1.0, 3.0, 10.0), FOUR
        case _:
            return ()
    sets = [
        each | {"parties_per_site": crowd}
        for size, crowd in product(sizes, crowds)
        for each in _sets(shown, (BEYOND_OBJECTS,), (round(crowd * size),), sites=size)
    ]
    return with_seeds("sizes", sets, 1 if scale is Scale.SMALL else SEEDS[scale])


def _graphs_points(scale: Scale) -> Iterable[Point]:
    """General graphs; beyond the paper a hybrid, and peers without covering."""
    match scale:
        case Scale.SMALL:
            sets = _sets(("as", "ge", "st"), (1,), (10,))
        case Scale.PAPER:
            sets = _sets(("as", "ge", "st"), (1, 100), (10, 100))
        case _:
            sets = _sets(("hs", "as", "hy", "fs"), (1, 100), (1, 10, 100, 1_000))
    return with_seeds("graphs", sets, SEEDS[scale])


def _interests_points(scale: Scale) -> Iterable[Point]:
    """Ten kinds of events: wanted alike, and some far more than others."""
    match scale:
        case Scale.BEYOND:
            sets = _sets(("hs", "as", "aa", "fs"), (100,), (10, 100, 1_000))
        case Scale.SMALL:
            sets = _sets(("as", "fs"), (10,), (10,))
        case _:
            return ()
    skewed = [each | {"skew": skew} for each in sets for skew in (0.0, 1.0)]
    return with_seeds("interests", skewed, SEEDS[scale])


def _networks_points(scale: Scale) -> Iterable[Point]:
    sizes = (100, 1_000) if scale is Scale.BEYOND else (100,)
    return with_seeds("networks", ({"sites": size} for size in sizes), 10)


def _work(point: Point) -> float:
    """About how long a run takes: events and requests, and ten times what a graph needs."""
    parameters = point.parameters
    size = int(parameters["sites"])
    if "objects" not in parameters:
        return float(size)
    published = int(parameters["objects"]) * int(parameters["m"]) * int(parameters["n"])
    received = int(parameters["parties"]) * int(parameters["p"]) * (int(parameters["q"]) + 3)
    return 4.0 * published + 2.0 * received + size * (1000 if point.experiment == "graphs" else 10)


EXPERIMENTS: Final = (
    Experiment("networks", run_networks, _networks_points, weight=_work),
    Experiment("costs", run_costs, _costs_points, weight=_work),
    Experiment("breakdown", run_breakdown, _breakdown_points, weight=_work),
    Experiment("loads", run_loads, _loads_points, weight=_work),
    Experiment("vain", run_costs, _vain_points, weight=_work),
    Experiment("wanted", run_costs, _wanted_points, weight=_work),
    Experiment("growth", run_costs, _growth_points, weight=_work),
    Experiment("sizes", run_costs, _sizes_points, weight=_work),
    Experiment("graphs", run_costs, _graphs_points, weight=_work),
    Experiment("interests", run_interests, _interests_points, weight=_work),
)
