"""The pictures of the multicast study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from palio_studies.multicast_points import AMBIENT, DRIFTS, MATCHES
from palio_studies.multicast_prices import PRICES
from palio_studies.multicast_scenes import PUBLISHER_REGIONAL, REGIONAL
from palio_studies.multicast_ways import LIKENESS, THRESHOLD
from palio_studies.names import Scale
from palio_studies.study import Axis, Figure

__all__ = ["FIGURES"]

SHORT: Final = {
    LIKENESS: "CGM, alike",
    THRESHOLD: "threshold",
    "approximated": "approx.",
    **{f"{match}": f"match rate {match:g}%" for match in MATCHES[Scale.PAPER]},
    **{prices: prices.removesuffix(" dear").removesuffix(" prices") for prices in PRICES},
}
"""What is long, in pictures."""

DRIFTED: Final = DRIFTS[Scale.SMALL][0]
"""The share that changes in pictures: all scales have it."""

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
    *(
        Figure(
            name,
            f"Subscriptions change: {title}",
            "drift",
            Axis("period", "periods since the first plan"),
            Axis("links", "links an event"),
            lines=("method",),
            panels="match",
            where={"drift": DRIFTED, "is_learned": is_learned},
            names=SHORT,
            caption=caption,
        )
        for name, title, is_learned, caption in (
            (
                "drift",
                "approximated plans that are kept, and made anew",
                True,
                f"{DRIFTED:.0%} of subscriptions change each period; one made anew is one behind.",
            ),
            ("drift-fixed", "methods that learn nothing", False, "The same runs."),
        )
    ),
    Figure(
        "drift-effort",
        "Subscriptions change: what it takes to make plans anew",
        "drift",
        Axis("method", "approximated plans"),
        Axis("replan_links", "links crossed a period"),
        lines=("match",),
        names=SHORT,
        where={"drift": DRIFTED, "is_learned": True},
        bars=True,
        caption="Counted as links that an event crosses: for the plan's text to all brokers, and "
        "for leaving and joining all groups.",
    ),
)
