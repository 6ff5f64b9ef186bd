"""The multicast study: `palio study run multicast`. What each way to choose groups costs a network.

Runs are in `multicast_runs`, what is run in `multicast_points`; then `multicast_figures`, and in
`multicast_claims` the claims and the causes where they fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from palio_studies.multicast_claims import CLAIMS
from palio_studies.multicast_drift import FEW_OF, MEMBERSHIP_BYTES
from palio_studies.multicast_figures import FIGURES
from palio_studies.multicast_interests import ATTRIBUTES, FIRST, VALUES
from palio_studies.multicast_network import CLASSES, LATENCY_US
from palio_studies.multicast_points import (
    AMBIENT,
    DRIFT_SIZES,
    DRIFTS,
    EVENTS,
    EXPERIMENTS,
    GROUPS,
    MATCHES,
    QUEUED,
    RATES,
)
from palio_studies.multicast_queues import EVENT_BYTES, MATCHING_S, MEGABITS
from palio_studies.multicast_scenes import LEARNED, SUBSCRIPTIONS
from palio_studies.multicast_ways import UP_TO
from palio_studies.names import Scale
from palio_studies.study import Choice, Study

__all__ = ["STUDY"]


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
        "drift",
        f"{_list(f'{each:.0%}' for each in DRIFTS[Scale.PAPER])} of the subscriptions at each "
        f"broker are others in each period; {DRIFT_SIZES[Scale.PAPER]['learned']:,} events a "
        "period are known when the next plan is made",
        "none: a static set of subscriptions, which may change in practice",
        "a lower rate of change is as fewer periods",
    ),
    Choice(
        "making plans anew",
        f"after 1, 2 or 4 periods, never, or one group in {FEW_OF} each period",
        "in idle times; all groups in the worst case",
        f"A plan's text crosses a tree to all brokers; to join or leave takes {MEMBERSHIP_BYTES} "
        "bytes on each link to the publisher. A plan has addresses of its own, so brokers join "
        "all its groups; how many are other groups is measured beside.",
    ),
    Choice(
        "plans by prices",
        "the price of a broker is its part of the links that it shares within its region; that of "
        "a send the way into a region; neighbours are chosen, and their ways found, by price",
        "left open",
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

**Drift.** Subscriptions change from period to period. A plan is made of the events of the period
before the one in which it comes into use; what an event costs by it is counted in links, and so is
what it takes to bring the plan into use.
""",
    choices=CHOICES,
    experiments=EXPERIMENTS,
    figures=FIGURES,
    claims=CLAIMS,
)
