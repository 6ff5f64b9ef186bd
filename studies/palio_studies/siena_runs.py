"""The experiments of siena's study: what is run at each scale, and what of it becomes rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from palio.model.patterns import Pattern
from palio.routing.trees import shortest_paths
from palio.simulation.randomness import Randomness
from palio_studies.names import Scale
from palio_studies.siena_scenario import (
    Interests,
    ManyKinds,
    ManySequences,
    Played,
    SitePlan,
    SteadyPlan,
    flow,
    found_by_parties,
    play,
    sites_of,
)
from palio_studies.siena_sites import Architecture, CostClass
from palio_studies.simulator.clients import Client
from palio_studies.study import SEEDS, Experiment, Point, Row, grid, points_at

BEHAVIOUR: Final = {"m": 4, "n": 5, "p": 2, "q": 5}
"""Of all runs but those that say otherwise: an object publishes 20, a party takes 10 of them."""

MODEL_DEGREE: Final = 3.2806
"""Of a site among 100, as it follows from the chances of links and from being connected: the test
of `simulator.site_networks` computes it."""

CAPACITY: Final = 100.0
"""Notifications a second that each direction of a link carries: one takes 10 ms, as long as it
is then on its way."""

PATTERN_RATE: Final = 10.0
"""Notifications a second of all objects, where nothing depends on how fast they come."""

SHOWN_LOADS: Final = 99
"""As many as a tree of 100 sites has links."""


# --- runs ---


def _played(point: Point) -> Played:
    """The run of a point; one with a skew is about kinds of events that are wanted so."""
    given = point.parameters
    interests = ManyKinds(float(given["skew"])) if "skew" in given else Interests()
    return play(msgspec.convert(dict(given), SitePlan), point.seed, interests)


def run_costs(point: Point) -> list[Row]:
    """What a run cost, and by what it is to be divided. `is_below` says that it belongs to the
    picture of distributed architectures below saturation.
    """
    played = _played(point)
    tally = played.tally
    is_distributed = point.parameters["architecture"] != Architecture.CENTRALIZED
    costs = {each: tally.cost(each) for each in CostClass}
    total = sum(costs.values())
    ignored = tally.ignored()
    plain, ours = tally.messages()
    published, subscribed = max(1, played.published), max(1, played.subscribed)
    return [
        {
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
            "ignored": ignored.notifications,
            "ignored_links": ignored.links,
            "ignored_cost": ignored.cost,
            "worst_site": max(tally.by_site().values()),
            "plain_messages": plain,
            "messages": ours,
        }
    ]


def run_breakdown(point: Point) -> list[Row]:
    """One run by class of cost, and by what is called a message."""
    tally = _played(point).tally
    plain, ours = tally.messages()
    amounts = [("cost", each.name.lower(), tally.cost(each)) for each in CostClass]
    del amounts[CostClass.UPKEEP]  # none of the paper's architectures has any
    amounts += [("messages", "plain siena", plain), ("messages", "Palio", ours)]
    return [{"of": of, "what": what, "amount": amount} for of, what, amount in amounts]


def run_loads(point: Point) -> list[Row]:
    """One run by site and by link, the busiest first."""
    tally = _played(point).tally
    return [
        {"of": of, "rank": rank, "cost": cost}
        for of, paid in (("site", tally.by_site().values()), ("link", tally.by_link().values()))
        for rank, cost in enumerate(sorted(paid, reverse=True)[:SHOWN_LOADS], 1)
    ]


def run_networks(point: Point) -> list[Row]:
    """Degrees and distances of one network."""
    sites = sites_of(int(point.parameters["sites"]), Randomness(point.seed))
    size = len(sites.names)
    degrees = [len(near) for near in sites.graph.values()]
    steps = {site: dict.fromkeys(near, 1) for site, near in sites.graph.items()}
    hops = [
        distance
        for site in sites.names
        for distance in shortest_paths(steps, site).distances.values()
    ]
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


def run_load(point: Point) -> list[Row]:
    """Links with a capacity: how long notifications take, and how busy the busiest link is."""
    interests = ManyKinds(0.0)
    load = float(point.parameters["load"])
    rates = {"rate": load * CAPACITY, "capacity": CAPACITY}
    plan = msgspec.convert({**point.parameters, **rates}, SteadyPlan)

    def ask(client: Client, random: Randomness) -> None:
        client.subscribe(interests.filter(random))

    run = flow(plan, point.seed, interests, ask)
    busiest, latencies = run.busiest_link, run.latencies_ms
    return [
        {
            "latency_ms": float(np.mean(latencies)),
            "slow_ms": float(np.percentile(latencies, 95)),
            "delivered": len(latencies),
            "busiest": busiest.share,
            "bearable": load / busiest.share,
            "at_root": float(run.sites.centre in busiest.ends),
        }
    ]


def run_delegation(point: Point) -> list[Row]:
    """Parties that want patterns, assembled by servers (`pa`) or by the parties (`aa`)."""
    given = point.parameters
    plan = msgspec.convert({**given, "rate": PATTERN_RATE}, SteadyPlan)
    sources, steps = int(given["sources"]), int(given["steps"])
    interests = ManySequences(objects=plan.objects, sources=sources, steps=steps)
    is_delegated = plan.architecture is Architecture.PATTERNS
    patterns: list[Pattern] = []

    def ask(client: Client, random: Randomness) -> None:
        patterns.append(interests.pattern(random))
        if is_delegated:
            client.subscribe_pattern(patterns[-1])
        else:
            client.subscribe(patterns[-1].any_step)

    run = flow(plan, point.seed, interests, ask)
    by_servers = sum(len(each.found) for each in run.parties)
    return [
        {
            "occurrences": by_servers if is_delegated else found_by_parties(run, patterns),
            "notification_cost": run.tally.cost(CostClass.NOTIFICATION),
            "carried_cost": run.tally.carried(),
            "subscription_cost": run.tally.cost(CostClass.SUBSCRIPTION),
        }
    ]


# --- their parameters ---

FOUR: Final = ("ce", "hs", "as", "aa")
"""The architectures of the paper."""

BEYOND_OBJECTS: Final = 10
"""Objects of interest where not these are what is studied."""

CENTRALIZED_PARTIES: Final = 1_000
"""More are not run with one server: its cost has grown in step with them for long."""

LOADED_OBJECTS: Final = 100
"""Where links have a capacity: so many, that no single place decides what is busy."""

LOAD_SEEDS: Final = {Scale.SMALL: SEEDS[Scale.SMALL], Scale.BEYOND: 6}
"""Twice as many as elsewhere: networks differ in what their busiest link is."""

NETWORK_SEEDS: Final = dict.fromkeys(Scale, 10)
SIZE_SEEDS: Final = {**SEEDS, Scale.SMALL: 1}

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


def _sizes(architectures: Sequence[str], sizes: Sequence[int], crowds: Sequence[float]) -> Sets:
    """The paper's applications among more sites, with so many parties for each site."""
    return [
        {**each, "parties_per_site": crowd}
        for size in sizes
        for crowd in crowds
        for each in _sets(architectures, (BEYOND_OBJECTS,), (round(crowd * size),), (size,))
    ]


def _skewed(sets: Sets) -> Sets:
    """Ten kinds of events: wanted alike, and some far more than others."""
    return [{**each, "skew": skew} for each in sets for skew in (0.0, 1.0)]


def _load(
    architectures: Sequence[str],
    parties: Sequence[int],
    publications: int,
    loads: Sequence[float],
) -> Sets:
    """Few parties, so that most notifications are for nobody, and as many as sites."""
    return grid(
        architecture=architectures,
        objects=(LOADED_OBJECTS,),
        parties=parties,
        publications=(publications,),
        load=loads,
    )


def _delegation(parties: Sequence[int], steps: Sequence[int], publications: int) -> Sets:
    """Patterns over one object and over two, for few parties and many; longer and shorter ones."""
    return grid(
        architecture=("aa", "pa"),
        objects=(BEYOND_OBJECTS,),
        parties=parties,
        publications=(publications,),
        sources=(1, 2),
        steps=steps,
    )


def _work(point: Point) -> float:
    """About how long a run takes: events and requests, and ten times what a graph needs; source
    trees are long in being told of all links.
    """
    given: Mapping[str, Any] = point.parameters
    if "publications" in given:
        crossings: float = given["publications"] * (10.0 + given["parties"])
        return crossings * (5 if given["architecture"] == "st" else 1)
    if "objects" not in given:
        return float(given["sites"])
    published = given["objects"] * given["m"] * given["n"]
    received = given["parties"] * given["p"] * (given["q"] + 3)
    for_sites = 1000 if point.experiment == "graphs" else 10
    return float(4 * published + 2 * received + given["sites"] * for_sites)


def _experiment(
    name: str,
    run: Callable[[Point], list[Row]],
    *,
    seeds: Mapping[Scale, int] = SEEDS,
    **sets: Iterable[Mapping[str, Any]],
) -> Experiment:
    """An experiment with its sets of parameters by the names of scales."""
    by_scale = {Scale(scale): each for scale, each in sets.items()}
    return Experiment(name, run, points_at(name, by_scale, seeds), weight=_work)


EXPERIMENTS: Final = (
    _experiment(
        "networks",
        run_networks,
        seeds=NETWORK_SEEDS,
        small=grid(sites=(100,)),
        paper=grid(sites=(100,)),
        beyond=grid(sites=(100, 1_000)),
    ),
    _experiment(
        "costs",
        run_costs,
        small=_costs((1, 10, 100), (1, 10, 100, 300, 1_000)),
        paper=_costs((1, 10, 100, 1_000), (1, 3, 10, 30, 60, 100, 300, 1_000, 3_000, 10_000)),
    ),
    _experiment(
        "breakdown",
        run_breakdown,
        small=_sets(FOUR, (10,), (1, 100)),
        paper=_sets(FOUR, (100,), (1, 10, 100, 1_000)),
    ),
    _experiment(
        "loads",
        run_loads,
        small=_sets(("hs", "as", "aa"), (1, 100), (100,)),
        paper=_sets(("hs", "as", "aa"), (1, 1_000), (100,)),
    ),
    _experiment(
        "vain", run_costs, small=_vain((1, 10, 100)), paper=_vain((1, 2, 5, 10, 20, 50, 100))
    ),
    _experiment("wanted", run_costs, small=_wanted((1, 100)), paper=_wanted((1, 10, 100, 1_000))),
    _experiment(
        "growth",
        run_costs,
        small=_growth((100, 1_000)),
        paper=_growth((100, 1_000)),
        beyond=_growth((100, 1_000, 10_000)),
    ),
    _experiment(
        "sizes",
        run_costs,
        seeds=SIZE_SEEDS,
        small=_sizes(("hs", "as"), (100, 1_000), (1.0,)),
        beyond=_sizes(FOUR, (100, 1_000, 10_000), (0.1, 1.0, 3.0, 10.0)),
    ),
    _experiment(
        "graphs",
        run_costs,
        small=_sets(("as", "ge", "st"), (1,), (10,)),
        paper=_sets(("as", "ge", "st"), (1, 100), (10, 100)),
        beyond=_sets(("hs", "as", "hy", "fs"), (1, 100), (1, 10, 100, 1_000)),
    ),
    _experiment(
        "interests",
        run_costs,
        small=_skewed(_sets(("as", "fs"), (10,), (10,))),
        beyond=_skewed(_sets(("hs", "as", "aa", "fs"), (100,), (10, 100, 1_000))),
    ),
    _experiment(
        "load",
        run_load,
        seeds=LOAD_SEEDS,
        small=_load(("hs", "as"), (10,), 1_500, (0.5, 4.0)),
        beyond=_load(("hs", "as", "hy", "st"), (10, 100), 5_000, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
    ),
    _experiment(
        "delegation",
        run_delegation,
        small=_delegation((10,), (3,), 100),
        beyond=[
            *_delegation((3, 10, 30, 100, 300, 1_000), (3,), 1_000),
            *_delegation((10,), (2, 5, 8), 1_000),
        ],
    ),
)
