"""The proxy study: designs of section II, the comparison that section V leaves open, failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final

from palio_studies.names import Scale
from palio_studies.proxy_claims import CLAIMS
from palio_studies.proxy_network import KINDS
from palio_studies.proxy_repair import FAULT_S, FAULTS, LATE_S, mend_group
from palio_studies.proxy_runs import compare_designs, compare_organizations, compare_prices
from palio_studies.study import Axis, Choice, Experiment, Figure, Point, Study, with_seeds

__all__ = ["STUDY"]

WISHES: Final = 2
"""Types that the receiver at each site wants."""

_SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 3, Scale.BEYOND: 3}


class _Sizes:
    """What is varied at each scale."""

    localities: Final[Mapping[Scale, Sequence[float]]] = {
        Scale.SMALL: (0.0, 1.0),
        Scale.PAPER: (0.0, 0.25, 0.5, 0.75, 1.0),
        Scale.BEYOND: (0.0, 0.5, 1.0),
    }
    compared: Final[Mapping[Scale, int]] = {Scale.SMALL: 28, Scale.PAPER: 52, Scale.BEYOND: 100}
    """Proxies where locality is varied."""
    proxies: Final[Mapping[Scale, Sequence[int]]] = {
        Scale.SMALL: (16, 28),
        Scale.PAPER: (16, 28, 52, 100),
        Scale.BEYOND: (100, 196),
    }
    sites: Final[Mapping[Scale, int]] = {Scale.SMALL: 28, Scale.PAPER: 100, Scale.BEYOND: 196}
    """...where designs are compared."""
    sources: Final[Mapping[Scale, Sequence[int]]] = {
        Scale.SMALL: (1, 20),
        Scale.PAPER: (1, 10, 30),
        Scale.BEYOND: (100,),
    }
    receivers: Final[Mapping[Scale, Sequence[int]]] = {
        Scale.SMALL: (5, 10, 20),
        Scale.PAPER: (1, 3, 10, 30, 100),
        Scale.BEYOND: (100, 300),
    }
    prices: Final[Mapping[Scale, Sequence[float]]] = {
        Scale.SMALL: (0.1, 1.0, 10.0),
        Scale.PAPER: (0.1, 0.3, 1.0, 3.0, 10.0),
        Scale.BEYOND: (0.1, 1.0, 10.0),
    }
    """What shortcuts have to be worth; 1 is `Price()`."""
    groups: Final[Mapping[Scale, Sequence[int]]] = {
        Scale.SMALL: (3, 5, 8),
        Scale.PAPER: (3, 5, 10, 20, 30),
        Scale.BEYOND: (50, 100),
    }


def _designs(scale: Scale) -> Iterable[Point]:
    sets = [
        {"network": "transit-stub", "proxies": _Sizes.sites[scale], "sources": s, "receivers": r}
        for s, r in product(_Sizes.sources[scale], _Sizes.receivers[scale])
    ]
    return with_seeds("designs", sets, _SEEDS[scale])


def _locality(scale: Scale) -> Iterable[Point]:
    sets = [
        {
            "network": kind,
            "proxies": _Sizes.compared[scale],
            "locality": locality,
            "wishes": WISHES,
        }
        for kind, locality in product(KINDS, _Sizes.localities[scale])
    ]
    return with_seeds("locality", sets, _SEEDS[scale])


def _sizes(scale: Scale) -> Iterable[Point]:
    sets = [
        {"network": kind, "proxies": size, "locality": 0.5, "wishes": WISHES}
        for kind, size in product(KINDS, _Sizes.proxies[scale])
    ]
    return with_seeds("sizes", sets, _SEEDS[scale])


def _prices(scale: Scale) -> Iterable[Point]:
    sets = [
        {
            "network": kind,
            "proxies": _Sizes.compared[scale],
            "locality": 1.0,
            "wishes": WISHES,
            "price": price,
        }
        for kind, price in product(KINDS, _Sizes.prices[scale])
    ]
    return with_seeds("prices", sets, _SEEDS[scale])


def _groups(scale: Scale) -> Iterable[Point]:
    sets = [
        {"brokers": size, "fault": fault, "spare": spare}
        for size, fault, spare in product(_Sizes.groups[scale], FAULTS, (False, True))
    ]
    return with_seeds("groups", sets, 1 if scale is Scale.SMALL else 2)


_RECEIVERS: Final = Axis("receivers", "receivers", log=True)
_LOCALITY: Final = Axis("locality", "share of interest that is local")
_PROXIES: Final = Axis("proxies", "proxies", log=True)
_PRICE: Final = Axis("price", "worth from which on one begins", log=True)
_BROKERS: Final = Axis("brokers", "brokers of the group", log=True)

_SPARE: Final = {"False": "a tree of links", "True": "with spare links"}

_FIGURES: Final = (
    Figure(
        "sources-state",
        "Section II: entries at the busiest place",
        "designs",
        _RECEIVERS,
        Axis("lines_most", "subscribers in the tables of one place", log=True),
        ("design",),
        panels="sources",
        caption="Without proxies the place is a source. A panel for each number of sources.",
    ),
    Figure(
        "all-state",
        "Section II: entries at all places together",
        "designs",
        _RECEIVERS,
        Axis("lines_all", "subscribers in all tables", log=True),
        ("design",),
        panels="sources",
    ),
    Figure(
        "pairs",
        "Section II: who exchanges heartbeats",
        "designs",
        _RECEIVERS,
        Axis("watched_pairs", "pairs that exchange heartbeats", log=True),
        ("design",),
        panels="sources",
        caption="The links between proxies are pairs, too, and there whatever is wanted.",
    ),
    Figure(
        "pairs-most",
        "Section II: heartbeats at the busiest place",
        "designs",
        _RECEIVERS,
        Axis("watched_most", "others that one place exchanges heartbeats with", log=True),
        ("design",),
        panels="sources",
    ),
    Figure(
        "requests",
        "Section II: messages to subscribe",
        "designs",
        _RECEIVERS,
        Axis("requests", "link crossings of requests", log=True),
        ("design",),
        panels="sources",
    ),
    Figure(
        "crossings",
        "Section II: an event on its way",
        "designs",
        _RECEIVERS,
        Axis("crossings", "link crossings of an event", log=True),
        ("design",),
        panels="sources",
    ),
    Figure(
        "design-latency",
        "Section II: delivery latency",
        "designs",
        _RECEIVERS,
        Axis("latency_ms", "delivery latency, ms"),
        ("design",),
        panels="sources",
        caption="Without proxies an event takes the shortest way.",
    ),
    Figure(
        "latency",
        "Section V: delivery latency and locality",
        "locality",
        _LOCALITY,
        Axis("latency_ms", "delivery latency, ms"),
        ("organization",),
        panels="network",
    ),
    Figure(
        "stretch",
        "Section V: latency beside that of the shortest way",
        "locality",
        _LOCALITY,
        Axis("stretch", "latency / shortest way"),
        ("organization",),
        panels="network",
    ),
    Figure(
        "locality-state",
        "Section V: forwarding state and locality",
        "locality",
        _LOCALITY,
        Axis("lines", "lines of a proxy, mean", log=True),
        ("organization",),
        panels="network",
        caption="A line is an entry and one who asked for it.",
    ),
    Figure(
        "busiest",
        "Section V: events through the busiest proxy",
        "locality",
        _LOCALITY,
        Axis("busiest", "share of all events that reach it"),
        ("organization",),
        panels="network",
    ),
    Figure(
        "size-latency",
        "Section V: delivery latency and the size of the network",
        "sizes",
        _PROXIES,
        Axis("latency_ms", "delivery latency, ms"),
        ("organization",),
        panels="network",
    ),
    Figure(
        "size-state",
        "Section V: forwarding state and the size of the network",
        "sizes",
        _PROXIES,
        Axis("entries", "entries of a proxy, mean", log=True),
        ("organization",),
        panels="network",
    ),
    Figure(
        "size-state-most",
        "Section V: forwarding state of the proxy that knows most",
        "sizes",
        _PROXIES,
        Axis("entries_most", "entries, most", log=True),
        ("organization",),
        panels="network",
        caption="In a hierarchy that is the root.",
    ),
    Figure(
        "size-requests",
        "Section V: messages until all is known",
        "sizes",
        _PROXIES,
        Axis("requests", "link crossings of requests", log=True),
        ("organization",),
        panels="network",
    ),
    Figure(
        "price-latency",
        "Section V: shortcuts and latency",
        "prices",
        _PRICE,
        Axis("stretch", "latency / shortest way"),
        ("network",),
        caption="All interest is local. Worth: links that events skip in a second, for each wish "
        "that the other end keeps; the product's is 1.",
    ),
    Figure(
        "price-state",
        "Section V: shortcuts and forwarding state",
        "prices",
        _PRICE,
        Axis("entries", "entries of a proxy, mean"),
        ("network",),
        caption="All interest is local.",
    ),
    Figure(
        "beats",
        "Section IV-F: heartbeats of a group",
        "groups",
        _BROKERS,
        Axis("beats_per_s", "messages a second", log=True),
        ("spare",),
        where={"fault": "none"},
        names=_SPARE,
        caption="Of all its brokers, answers and those to clients among them.",
    ),
    Figure(
        "noticed",
        "Section IV-F: until a neighbour is given up",
        "groups",
        _BROKERS,
        Axis("noticed_s", "time from the fault on, s"),
        ("fault",),
        panels="spare",
        names=_SPARE,
        caption="Silence is noticed first, and a session is kept for a while in case the other "
        "comes back; with spare links that while is shorter, as there is another way.",
    ),
    Figure(
        "mending",
        "Section IV-F: messages to mend a group",
        "groups",
        _BROKERS,
        Axis("mending_messages", "messages of brokers", log=True),
        ("fault",),
        panels="spare",
        names=_SPARE,
        caption="All but heartbeats and events, from the fault until 20 s after its end.",
    ),
    Figure(
        "missed",
        "Section IV-F: how long others miss events",
        "groups",
        _BROKERS,
        Axis("others_missed_s", "time from the fault on, s"),
        ("fault",),
        panels="spare",
        names=_SPARE,
        caption=f"The fault stays for {FAULT_S:g} s.",
    ),
    Figure(
        "back",
        "Section IV-F: until the one that was away hears all again",
        "groups",
        _BROKERS,
        Axis("back_after_s", "time from the fault's end on, s"),
        ("fault",),
        panels="spare",
        names=_SPARE,
    ),
)

_CHOICES: Final = (
    Choice("networks", "transit-stub, random, grid", "not given", "transit-stub as for siena"),
    Choice(
        "lengths of links",
        "transit-stub: drawn with the network, in ms; else 10 ms",
        "not given",
    ),
    Choice("proxies", "one at each site: 16 to 100", "not given", "196 at the scale `beyond`"),
    Choice(
        "hierarchy",
        "the tree of shortest ways from the middle of the network",
        "given from outside; it may be embedded in a mesh",
        "each proxy is as near to the root as it can be",
    ),
    Choice(
        "mesh",
        "source trees: all links, events take the shortest way; beside it `general`, a mesh whose "
        "events share one tree",
        "a connected graph, events routed along the shortest path",
    ),
    Choice(
        "hierarchy with shortcuts",
        "links that the hierarchy does without take copies of events where that pays "
        "(`simulation/shortened.py`); each source publishes once a second until rates are known",
        "suggested: more state in the hierarchy for less latency",
        "what is measured comes after each source has published once more",
    ),
    Choice("sources", "at every second site one, of a type of its own", "not given"),
    Choice(
        "receivers",
        f"at every site one, which wants {WISHES} types, not its own",
        "not given",
    ),
    Choice(
        "locality",
        "the chance that a wish is for one of the nearest 10% of the sources",
        "spatial locality of subscriptions, not defined",
    ),
    Choice(
        "section II",
        "100 sites; sources and receivers of one type at sites drawn at random; the single proxy "
        "in the middle",
        "not given",
        "receivers without proxies know all sources: no directory is counted",
    ),
    Choice(
        "heartbeats of section II",
        "pairs are counted that have to exchange them",
        "not given",
        "what a pair costs is that of the product's links in the groups of IV-F",
    ),
    Choice(
        "faults",
        f"silence, or a broker killed and started again, for {FAULT_S:g} s; settings of the "
        "product as they are",
        "not given",
        f"an event counts as missed after {LATE_S:g} s; links take 10 ms",
    ),
    Choice("group", "a parent with 2 to 29 children", "not given", "to 99 at the scale `beyond`"),
    Choice("runs", "3 seeds, and 2 of whole brokers", "not given"),
)

_METHOD: Final = """\
*Section II* compares three designs in words; here they are counted. Each source serves its
subscribers itself (*distributed*), or one proxy does for all, or there is one at each site, in a
hierarchy. Routers are real: `centralized` for a place that serves alone, `proxies` for the
hierarchy. Clients of a place at another site pay for all links between.

*Section V* asks how proxies in a mesh and in a hierarchy differ in latency and in forwarding state.
A third way is a hierarchy with shortcuts: some events go straight to other branches, over links
that it does without. The same sites, sources and wishes are given to all, and what each receiver
hears is compared with what it is due. An *entry* is a filter or an advertisement in the tables of a
broker, a *line* is an entry and a neighbour or client that asked for it. Messages take the time of
the links; brokers take none.

*Section IV-F.* Groups of whole brokers, as `palio serve` has them, on a virtual clock. Each has a
client that listens; one child's publishes twice a second. A broker falls silent, or is killed and
comes back with nothing but its disk. What is mended is the product's doing: links told anew, and
another parent where there are spare links.
"""

STUDY: Final = Study(
    name="proxy",
    title="A hierarchical proxy architecture for Internet-scale event services",
    paper="Yu, Estrin, Govindan: A Hierarchical Proxy Architecture for Internet-scale Event "
    "Services (1999)",
    method=_METHOD,
    choices=_CHOICES,
    experiments=(
        Experiment(
            "designs",
            compare_designs,
            _designs,
            weight=lambda point: (
                float(point.parameters["receivers"]) * float(point.parameters["sources"]) / 100
            ),
        ),
        Experiment(
            "locality",
            compare_organizations,
            _locality,
            weight=lambda point: float(point.parameters["proxies"]) ** 2 / 500,
        ),
        Experiment(
            "sizes",
            compare_organizations,
            _sizes,
            weight=lambda point: float(point.parameters["proxies"]) ** 2 / 500,
        ),
        Experiment(
            "prices",
            compare_prices,
            _prices,
            weight=lambda point: float(point.parameters["proxies"]) ** 2 / 2_000,
        ),
        Experiment(
            "groups",
            mend_group,
            _groups,
            weight=lambda point: float(point.parameters["brokers"]) / 10,
        ),
    ),
    figures=_FIGURES,
    claims=CLAIMS,
)
