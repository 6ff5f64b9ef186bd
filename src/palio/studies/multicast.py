"""The multicast study: `palio study run multicast`. What each way to choose groups costs a network.

Claims and the causes where they fail are in `multicast_claims`, runs in `multicast_runs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from palio.studies.multicast_claims import CLAIMS
from palio.studies.multicast_interests import ATTRIBUTES, FIRST, VALUES
from palio.studies.multicast_network import CLASSES, LATENCY_US
from palio.studies.multicast_prices import PRICES
from palio.studies.multicast_queues import EVENT_BYTES, MATCHING_S, MEGABITS
from palio.studies.multicast_runs import (
    LEARNED,
    NON_REGIONAL,
    PUBLISHER_REGIONAL,
    REGIONAL,
    SUBSCRIPTIONS,
    run_approximation,
    run_groups,
    run_latency,
    run_links,
    run_prices,
)
from palio.studies.multicast_ways import LIKENESS, THRESHOLD, UP_TO
from palio.studies.names import Scale
from palio.studies.study import SEEDS, Axis, Choice, Experiment, Figure, Point, Study, with_seeds

__all__ = ["STUDY"]

Parameters = dict[str, Any]

MATCHES: Final = {
    Scale.SMALL: (0.01, 0.1, 1.0, 10.0),
    Scale.PAPER: (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    Scale.BEYOND: (0.01, 0.1, 1.0),
}
"""Match rates, in %."""

DEGREES: Final = {
    Scale.SMALL: (0.0, 0.6, 0.9, 1.0),
    Scale.PAPER: (0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0),
    Scale.BEYOND: (0.0, 0.9, 1.0),
}
COMMON: Final = 1.0
"""The match rate at which both kinds of regionalism are run, in %."""
REGIONAL_MATCHES: Final = {Scale.SMALL: (1.0,), Scale.PAPER: (0.1, 1.0), Scale.BEYOND: (0.1,)}

EVENTS: Final = {Scale.SMALL: 200, Scale.PAPER: 1_000, Scale.BEYOND: 1_000}
GROUPS: Final = {Scale.SMALL: 512, Scale.PAPER: 2_048, Scale.BEYOND: 2_048}
"""Of the approximation."""
BUDGETS: Final = {
    Scale.SMALL: (16, 256, 2_048),
    Scale.PAPER: (16, 64, 256, 1_024, 4_096),
    Scale.BEYOND: (16_384,),
}
QUEUED: Final = {Scale.SMALL: 300, Scale.PAPER: 300, Scale.BEYOND: 300}
"""Events whose latency is measured."""
RATES: Final = {
    Scale.SMALL: (100.0, 8_000.0),
    Scale.PAPER: (100.0, 1_000.0, 4_000.0, 8_000.0),
    Scale.BEYOND: (1_000.0,),
}
AMBIENT: Final = 0.3
LOADS: Final = {Scale.SMALL: (), Scale.PAPER: (0.0, 0.6, 0.9), Scale.BEYOND: (0.95,)}
PRICED_SEEDS: Final = 5
"""A run with prices makes ten plans, and takes ten times as long as others."""
STUBS: Final = {Scale.SMALL: (2,), Scale.PAPER: (2,), Scale.BEYOND: (4, 8)}
"""Stubs of each of the five backbone routers: 100 brokers, or 200 and 400."""


def _sized(scale: Scale) -> Iterable[Parameters]:
    for stubs in STUBS[scale]:
        yield {"stubs": stubs, "events": EVENTS[scale], "groups": GROUPS[scale]}


def _match_rates(scale: Scale) -> Iterable[Point]:
    found = [
        {**sized, "kind": NON_REGIONAL, "match": match, "regionalism": 0.0}
        for sized in _sized(scale)
        for match in MATCHES[scale]
    ]
    return with_seeds("match-rate", found, SEEDS[scale])


def _regionalism(scale: Scale) -> Iterable[Point]:
    found = [
        {**sized, "kind": kind, "match": match, "regionalism": degree}
        for sized in _sized(scale)
        for kind in (REGIONAL, PUBLISHER_REGIONAL)
        for match in REGIONAL_MATCHES[scale]
        for degree in DEGREES[scale]
        if kind == REGIONAL or match == COMMON
    ]
    return with_seeds("regionalism", found, SEEDS[scale])


def _approximation(scale: Scale) -> Iterable[Point]:
    found = [
        {"match": match, "events": EVENTS[scale], "groups": groups}
        for match in ((1.0,) if scale is Scale.SMALL else (0.1, 1.0))
        for groups in BUDGETS[scale]
    ]
    return with_seeds("approximation", found, SEEDS[scale])


def _latency(scale: Scale) -> Iterable[Point]:
    cases = [(0.1, 0.0), (1.0, 0.0), (1.0, 1.0)]
    queues = [(*case, rate, AMBIENT) for case in cases for rate in RATES[scale]]
    queues += [(*case, 1_000.0, load) for case in cases[:2] for load in LOADS[scale]]
    found = [
        {
            "kind": REGIONAL,
            "match": match,
            "regionalism": degree,
            "rate": rate,
            "ambient": ambient,
            "events": QUEUED[scale],
            "groups": 512,
        }
        for match, degree, rate, ambient in queues
    ]
    return with_seeds("latency", found, SEEDS[scale])


def _groups(scale: Scale) -> Iterable[Point]:
    sizes = (100,) if scale is Scale.SMALL else (25, 50, 75, 100, 125, 150, 200)
    found = [
        {"brokers": brokers, "clusters": clusters}
        for brokers in sizes
        for clusters in (5, 10, 20)
        if brokers >= clusters
    ]
    return with_seeds("groups", found, 1)


def _prices(scale: Scale) -> Iterable[Point]:
    cases = [(0.1, 0.0), (1.0, 0.0)]
    if scale is not Scale.SMALL:
        cases.append((1.0, 0.9))
    found = [
        {
            "kind": REGIONAL,
            "match": match,
            "regionalism": degree,
            "events": 60 if scale is Scale.SMALL else 1_000,
            "groups": 1_152 if scale is Scale.SMALL else 2_048,
        }
        for match, degree in cases
    ]
    return with_seeds("prices", found, min(SEEDS[scale], PRICED_SEEDS))


EXPERIMENTS: Final = (
    Experiment("match-rate", run_links, _match_rates, weight=lambda _: 4.0),
    Experiment("regionalism", run_links, _regionalism, weight=lambda _: 4.0),
    Experiment("approximation", run_approximation, _approximation, weight=lambda _: 3.0),
    Experiment("latency", run_latency, _latency, weight=lambda _: 3.0),
    Experiment("groups", run_groups, _groups, weight=lambda _: 0.1),
    Experiment("prices", run_prices, _prices, weight=lambda _: 20.0),
)


def _list(numbers: Iterable[object]) -> str:
    return ", ".join(map(str, numbers))


CHOICES: Final = (
    Choice(
        "network",
        "5 backbone routers with 2 stubs each of 10 routers; a broker of subscribers at each stub "
        "router, 4 brokers of publishers in 4 of the stubs",
        "transit-stub by the Georgia Tech models; 4 publishing and 100 subscribing brokers",
        "The picture of the network is lost. Each seed draws another one, by the model.",
    ),
    Choice(
        "latencies",
        "; ".join(
            f"{name} {low / 1e3:g} to {high / 1e3:g} ms"
            for name, (low, high) in zip(CLASSES, LATENCY_US, strict=True)
        ),
        "labels in the lost picture",
        "what is usual between cities, within a region, and within a house",
    ),
    Choice(
        "capacities",
        "; ".join(f"{name} {rate:g} Mbit/s" for name, rate in zip(CLASSES, MEGABITS, strict=True)),
        "OC class backbone and intermediate links, high-speed LAN at the fringe; numbers lost",
        "OC-12, OC-3 and a LAN of the time",
    ),
    Choice(
        "ambient load",
        f"{AMBIENT:.0%} of each link, and swept from 0 to 90%",
        "an average, uniform over the network; its number lost",
        "exponential packets by chance, as large as events on average",
    ),
    Choice(
        "subscriptions",
        f"{SUBSCRIPTIONS} a broker",
        "lost",
        "10,000 in all, as in the tree's paper",
    ),
    Choice(
        "attributes",
        f"{ATTRIBUTES} of {VALUES} values by Zipf's law (exponent 1), and one for the region",
        "fifteen; the number of values is lost",
        "the region's attribute stands apart, so that degree 0 is the non-regional case",
    ),
    Choice(
        "popularity",
        f"attribute i is named with probability {FIRST} x decay^i; the decay is computed from the "
        "match rate wanted, by degree of regionalism",
        "the decay is varied; its numbers are lost",
        "so the match rate stays the same when regionalism rises, as in the paper's figure",
    ),
    Choice(
        "match rates",
        f"{_list(MATCHES[Scale.PAPER])}%",
        "axis lost",
        "from an event for one broker to an event for nearly all",
    ),
    Choice(
        "clusters",
        "the ten stubs; by likeness: ten of ten brokers, found from the events learned",
        "manually assigned by location",
        "the same, and what a planner finds that knows no location",
    ),
    Choice(
        "threshold", f"up to {UP_TO} brokers of a cluster", "lost", "1,760 groups instead of 10,230"
    ),
    Choice(
        "neighbours",
        "the lightest links that join all brokers, then the nearest pairs, as far as 10,240 groups "
        "in all allow",
        "by proximity, about as many groups in all as the other methods",
    ),
    Choice(
        "approximation",
        f"{GROUPS[Scale.PAPER]:,} groups ({GROUPS[Scale.SMALL]} at small scale), made of "
        f"{LEARNED} times as many events as are counted, drawn before them",
        "about as many groups as CGM; made from the subscriptions, without rare attributes",
        "It is made of traffic. With 10,230 groups it would take most of the time; a figure "
        "shows what more groups give. A set that was not learned goes to the cheapest group with "
        "all of it.",
    ),
    Choice(
        "precision of neighbours",
        "brokers between that do not want the event count as waste",
        "counted as precise",
        "They get it in vain, and that is what fringe links pay for.",
    ),
    Choice(
        "events",
        f"{EVENTS[Scale.PAPER]:,} a run of {EVENT_BYTES:,} bytes, 10 seeds; for latencies "
        f"{QUEUED[Scale.PAPER]} a run",
        "a number that gives a small error at 95% confidence; lost",
        "intervals are in the figures",
    ),
    Choice(
        "event rates",
        f"{_list(f'{each:g}' for each in RATES[Scale.PAPER])} a second, Poisson",
        "lost",
    ),
    Choice(
        "matching",
        f"{MATCHING_S * 1e6:g} us a broker and event, one after the other",
        "modelled; of the order of microseconds; number lost",
        "The engine takes 12 us for these subscriptions here; the rest is for what a broker does "
        "besides.",
    ),
    Choice("prices", "1 for a link of each class, and 10 for one class in turn", "none given"),
    Choice(
        "plans by prices",
        "the price of a broker is its part of the links that it shares within its region; that of "
        "a send the way into a region; neighbours are chosen, and their ways found, by price",
        "left open",
    ),
)

SHORT: Final = {
    LIKENESS: "CGM, alike",
    THRESHOLD: "threshold",
    "approximated": "approx.",
    **{f"{match}": f"match rate {match:g}%" for match in MATCHES[Scale.PAPER]},
    **{prices: prices.removesuffix(" dear").removesuffix(" prices") for prices in PRICES},
}
"""What is long, in pictures."""

METHOD_AXIS: Final = Axis("method", "method")
MATCH_AXIS: Final = Axis("match", "match rate, % of subscriptions an event", log=True)
DEGREE_AXIS: Final = Axis("regionalism", "degree of regionalism")


def _by_class() -> Iterable[Figure]:
    notes = {
        "backbone": "Who sends several times pays here.",
        "intermediate": "Methods differ while events are for few; then flooding is as good.",
        "fringe": "What is imprecise, or goes by brokers between, pays here.",
    }
    for number, (name, note) in enumerate(notes.items(), start=1):
        yield Figure(
            f"match-{name}",
            f"Non-regional subscriptions ({number} of 3): {name} links",
            "match-rate",
            MATCH_AXIS,
            Axis(name, f"{name} links an event", log=True),
            lines=("method",),
            names=SHORT,
            caption=note,
        )


FIGURES: Final = (
    Figure(
        "groups",
        "Group requirements: CGM and threshold CGM",
        "groups",
        Axis("brokers", "brokers"),
        Axis("needed", "groups in all", log=True),
        lines=("method",),
        panels="clusters",
        caption="A panel for each number of clusters. CGM doubles with each broker more a cluster.",
    ),
    Figure(
        "groups-used",
        "Summary of methods: groups that the plans have",
        "match-rate",
        METHOD_AXIS,
        Axis("plan_groups", "groups in all", log=True),
        where={"match": 1.0},
        names=SHORT,
        bars=True,
        caption="At a match rate of 1%. The ideal plan has one for each set that occurred in the "
        "run. Groups of neighbours are known to neighbours only.",
    ),
    Figure(
        "joins",
        "Summary of methods: groups that a broker joins",
        "match-rate",
        METHOD_AXIS,
        Axis("joins", "groups a broker", log=True),
        where={"match": 1.0},
        names=SHORT,
        bars=True,
    ),
    Figure(
        "sends",
        "Summary of methods: sends an event",
        "match-rate",
        MATCH_AXIS,
        Axis("sends", "sends an event", log=True),
        lines=("method",),
        names=SHORT,
    ),
    Figure(
        "precision",
        "Summary of methods: precision",
        "match-rate",
        MATCH_AXIS,
        Axis("precision", "brokers that want it of those that get it"),
        lines=("method",),
        names=SHORT,
    ),
    *_by_class(),
    Figure(
        "wanted",
        "How many brokers want an event",
        "match-rate",
        MATCH_AXIS,
        Axis("wanted", "brokers of 100 that want an event"),
        caption="A low match rate is enough for most brokers to want most events.",
    ),
    Figure(
        "regional-intermediate",
        "Effect of regionalism on intermediate links",
        "regionalism",
        DEGREE_AXIS,
        Axis("intermediate", "intermediate links an event", log=True),
        lines=("method",),
        names=SHORT,
        panels="match",
        where={"kind": REGIONAL},
        caption="A panel for each match rate, in %, which stays the same as regionalism rises.",
    ),
    Figure(
        "regional-relative",
        "Effect of regionalism relative to ideal multicast",
        "regionalism",
        DEGREE_AXIS,
        Axis("of_ideal", "intermediate links, times the ideal's", log=True),
        lines=("method",),
        names=SHORT,
        panels="match",
        where={"kind": REGIONAL},
    ),
    Figure(
        "publisher-regional",
        "The same if events are of their publisher's region",
        "regionalism",
        DEGREE_AXIS,
        Axis("intermediate", "intermediate links an event", log=True),
        lines=("method",),
        names=SHORT,
        panels="match",
        where={"kind": PUBLISHER_REGIONAL},
    ),
    Figure(
        "regionalism-found",
        "Regionalism that the planner finds in the traffic",
        "regionalism",
        DEGREE_AXIS,
        Axis("regionalism_found", "regionalism found"),
        lines=("match",),
        names=SHORT,
        where={"kind": REGIONAL, "method": "ideal"},
        caption="Of what is wanted together, the share that stays in a region, beyond chance. A "
        "line for each match rate, in %.",
    ),
    Figure(
        "approximation",
        "What more groups give the approximation",
        "approximation",
        Axis("groups", "groups allowed", log=True),
        Axis("intermediate", "intermediate links an event"),
        lines=("method",),
        names=SHORT,
        panels="match",
        caption="A panel for each match rate, in %. 'Sets known': made of the very events that are "
        "counted, as if every set of brokers had been foreseen.",
    ),
    Figure(
        "latency",
        "Latency by event rate",
        "latency",
        Axis("rate", "events a second in all", log=True),
        Axis("latency_ms", "from publishing to a broker, ms"),
        lines=("method",),
        names=SHORT,
        panels="match",
        where={"ambient": AMBIENT, "regionalism": 0.0},
        caption="A panel for each match rate, in %. Means; 30% ambient load.",
    ),
    Figure(
        "latency-ambient",
        "Latency by ambient load",
        "latency",
        Axis("ambient", "share of links that other traffic takes"),
        Axis("latency_ms", "from publishing to a broker, ms"),
        lines=("method",),
        names=SHORT,
        panels="match",
        where={"rate": 1_000.0, "regionalism": 0.0},
        caption="A panel for each match rate, in %, at 1,000 events a second.",
    ),
    Figure(
        "prices",
        "Weighted sums: what an event costs where one class of links is dear",
        "prices",
        Axis("planner", "method"),
        Axis("of_optimum", "price, times the optimum"),
        lines=("prices",),
        names={**SHORT, **{each: each for each in PRICES}},
        panels="match",
        where={"by_price": "no", "regionalism": 0.0},
        bars=True,
        caption="A panel for each match rate, in %; ten times the price for one class. The optimum "
        "is that of the cheapest trees along any links, and exact.",
    ),
    *(
        Figure(
            f"prices-{planner}",
            f"Plans that know the prices: {planner}",
            "prices",
            Axis("prices", "prices"),
            Axis("of_optimum", "price, times the optimum"),
            lines=("by_price",),
            panels="match",
            where={"planner": planner, "regionalism": 0.0},
            bars=True,
            names={**SHORT, "yes": "knows the prices", "no": "does not"},
        )
        for planner in ("hybrid", "neighbours")
    ),
)

STUDY: Final = Study(
    name="multicast",
    title="Multicast groups for content-based publish/subscribe",
    paper="Opyrchal, Astley, Auerbach, Banavar, Strom, Sturman: Exploiting IP Multicast in "
    "Content-Based Publish-Subscribe Systems, 2000",
    method="""
The plans are those of `palio plan`; destinations are what the matching engine says of real filters
and events. Routers know the shortest ways by latency, and bring what is sent to a group along the
tree from the sender; a link counts once for each send that crosses it. **Ideal** has a group for
each set of brokers that occurs. **Flooding** sends to all what anybody wants. **CGM** sends once
to each cluster in which the event is wanted, to a group of just those brokers; **threshold CGM**
to the whole cluster, if they are many. **Neighbours** (link matching) sends hop by hop to the
groups of those neighbours that lie on the way. **Approximated** sends once, to the least group with
all who want it. **Unicast** sends to each broker alone.

Latencies are of a simulation in which each direction of a link sends one event after the other,
among other traffic, and each broker matches one after the other. **Optimum** is the cheapest tree
that joins the publisher with all who want the event, along whichever links, and is exact.
""",
    choices=CHOICES,
    experiments=EXPERIMENTS,
    figures=FIGURES,
    claims=CLAIMS,
)
