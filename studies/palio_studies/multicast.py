"""The multicast study: `palio study run multicast`. What each way to choose groups costs a network.

Runs are in `multicast_runs`, claims and the causes where they fail in `multicast_claims`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from palio_studies.multicast_claims import CLAIMS, DEAR
from palio_studies.multicast_network import CLASSES, LATENCY_US
from palio_studies.multicast_queues import AMBIENT, EVENT_BYTES, MATCHING_S, MEGABITS
from palio_studies.multicast_runs import (
    EVENTS,
    EXAMPLES,
    EXPERIMENTS,
    GROUPS,
    MATCHES,
    QUEUED,
    RATES,
)
from palio_studies.multicast_scenes import (
    ATTRIBUTES,
    CLUSTERED,
    FIRST,
    LEARNED,
    LIKENESS,
    ORDERED,
    REGIONAL,
    SUBSCRIPTIONS,
    THRESHOLD,
    UP_TO,
    VALUES,
)
from palio_studies.names import Scale
from palio_studies.results import Results
from palio_studies.study import Axis, Choice, Figure, Study, Table


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
        f"{AMBIENT:.0%} of each link",
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
        "It is made of traffic. With 10,230 groups it would take most of the time. A set that was "
        "not learned goes to the cheapest group with all of it.",
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
    Choice(
        "prices",
        f"1 for a link of each class, and {DEAR:g} for one class in turn",
        "none given",
    ),
)

SHORT: Final = {
    LIKENESS: "CGM, alike",
    THRESHOLD: "threshold",
    "approximated": "approx.",
    ORDERED: "approx., in order",
    **{f"{match}": f"match rate {match:g}%" for match in MATCHES[Scale.PAPER]},
}
"""What is long, in pictures."""


def _figure(
    experiment: str, x: Axis, name: str, title: str, y: Axis, caption: str = "", **more: Any
) -> Figure:
    """A line for each method, if nothing else is said."""
    given = {"lines": ("method",), "names": SHORT, **more}
    return Figure(name, title, experiment, x, y, caption=caption, **given)


_by_match = partial(
    _figure, "match-rate", Axis("match", "match rate, % of subscriptions an event", log=True)
)
_at_one = partial(
    _figure, "match-rate", Axis("method", "method"), lines=(), where={"match": 1.0}, bars=True
)
_by_degree = partial(
    _figure,
    "regionalism",
    Axis("regionalism", "degree of regionalism"),
    panels="match",
    where={"kind": REGIONAL},
)
_of_latency = partial(
    _figure, "latency", y=Axis("latency_ms", "from publishing to a broker, ms"), panels="match"
)
INTERMEDIATE: Final = Axis("intermediate", "intermediate links an event", log=True)
PAYS: Final = {
    "backbone": "Who sends several times pays here.",
    "intermediate": "Methods differ while events are for few; then flooding is as good.",
    "fringe": "What is imprecise, or goes by brokers between, pays here.",
}
"""Of which links which methods take many."""

_on_map = partial(
    Figure,
    experiment="network",
    x=Axis("x", "x"),
    y=Axis("y", "y"),
    to=("to_x", "to_y"),
    lines=("kind",),
)
FIGURES: Final = (
    _figure(
        "endpoints",
        Axis("clusters", "clusters"),
        "endpoints",
        "Figure 1: endpoints that CGM supports",
        Axis("endpoints", "brokers"),
        "A line for each number of groups that there may be.",
        lines=("most_groups",),
        names={"1000": "1,000 groups", "10000": "10,000 groups", "100000": "100,000 groups"},
    ),
    _figure(
        "matching-sets",
        Axis("set", "subscriptions that want it"),
        "matching-sets",
        "Figure 3: subscriptions and their disjoint matching sets",
        Axis("share", "share of all events"),
        "; ".join(f"{name}: {text}" for name, text in EXAMPLES.items())
        + "; a, b and c are from 0 to 3. The ideal plan has a group for each set but the last.",
        lines=(),
        bars=True,
    ),
    _on_map(
        "network",
        "Figure 5: the network",
        where={"of": "link"},
        caption="The first seed's. Brokers lie just outside their routers; those of publishers "
        "inside.",
    ),
    _on_map(
        "neighbours",
        "Figure 6: the neighbours of brokers",
        where={"of": "neighbours"},
        caption="The same network.",
    ),
    _figure(
        "groups",
        Axis("brokers", "brokers"),
        "groups",
        "Group requirements: CGM and threshold CGM",
        Axis("needed", "groups in all", log=True),
        "A panel for each number of clusters. CGM doubles with each broker more a cluster.",
        panels="clusters",
    ),
    _at_one(
        "groups-used",
        "Summary of methods: groups that the plans have",
        Axis("plan_groups", "groups in all", log=True),
        "At a match rate of 1%. The ideal plan has one for each set that occurred in the "
        "run. Groups of neighbours are known to neighbours only.",
    ),
    _at_one(
        "joins",
        "Summary of methods: groups that a broker joins",
        Axis("joins", "groups a broker", log=True),
    ),
    _by_match(
        "sends", "Summary of methods: sends an event", Axis("sends", "sends an event", log=True)
    ),
    _by_match(
        "precision",
        "Summary of methods: precision",
        Axis("precision", "brokers that want it of those that get it"),
    ),
    *(
        _by_match(
            f"match-{name}",
            f"Non-regional subscriptions ({number} of 3): {name} links",
            Axis(name, f"{name} links an event", log=True),
            note,
        )
        for number, (name, note) in enumerate(PAYS.items(), start=1)
    ),
    _by_degree(
        "regional-intermediate",
        "Effect of regionalism on intermediate links",
        INTERMEDIATE,
        "A panel for each match rate, in %, which stays the same as regionalism rises.",
    ),
    _by_degree(
        "regional-relative",
        "Effect of regionalism relative to ideal multicast",
        Axis("of_ideal", "intermediate links, times the ideal's", log=True),
    ),
    _of_latency(
        Axis("rate", "events a second in all", log=True),
        "latency",
        "Latency by event rate",
        caption="A panel for each match rate, in %. Means; 30% ambient load.",
        where={"regionalism": 0.0},
    ),
)

FORMULAS: Final[Mapping[str, tuple[str, ...]]] = {
    "ideal": ("1", "1", "2^n - 1", "2^(n-1)", "dynamic", "hard"),
    "flooding": ("wanted / n", "1", "1", "1", "static", "trivial"),
    CLUSTERED: ("1", "at most c", "c (2^(n/c) - 1)", "2^(n/c - 1)", "static", "moderate"),
    THRESHOLD: (
        *("1 up to t a cluster", "at most c", "c (1 + sum of C(n/c, i), i to t)"),
        *("1 + sum of C(n/c - 1, i - 1)", "static", "moderate"),
    ),
    "neighbours": (
        *("below 1 by brokers between", "one a broker on the way", "n (2^b - 1)"),
        *("b 2^(b-1)", "static", "moderate"),
    ),
    "approximated": ("wanted / (wanted + waste)", "1", "chosen", "", "dynamic", "hard"),
}
"""Of n brokers in c clusters with a threshold t, each with b neighbours. Manageability is in the
paper's words; its formulas are lost, and these follow from what the methods are."""


def _summary(results: Results) -> list[list[str]]:
    head = [
        "method",
        "precision",
        "sends",
        "groups",
        "groups a broker",
        "configuration",
        "manageability",
    ]
    columns = ("precision", "sends", "plan_groups", "joins")
    measured = {
        column: results.line("match-rate", column, "method", match=1.0) for column in columns
    }
    lines = [
        [
            method,
            *(
                f"{formula or '-'}: {measured[column][method]:,.3g}"
                for formula, column in zip(formulas, columns, strict=False)
            ),
            *(word or "-" for word in formulas[len(columns) :]),
        ]
        for method, formulas in FORMULAS.items()
        if method in measured["sends"]
    ]
    return [head, *lines]


SUMMARY: Final = Table(
    "summary",
    "Figure 4: summary of the methods",
    _summary,
    "The formula, and what was measured at a match rate of 1%. n brokers, c clusters, threshold t, "
    "b neighbours a broker. Static groups are fixed at configuration, dynamic ones depend on "
    "subscriptions.",
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
among other traffic, and each broker matches one after the other.""",
    choices=CHOICES,
    experiments=EXPERIMENTS,
    figures=FIGURES,
    claims=CLAIMS,
    tables=(SUMMARY,),
)
