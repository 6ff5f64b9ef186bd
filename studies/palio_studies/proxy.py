"""The proxy study: designs of section II, the comparison that section V leaves open, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from palio_studies.names import Row, Scale, Value
from palio_studies.proxy_claims import CLAIMS
from palio_studies.proxy_groups import FAULT_S, FAULTS, LATE_S, mend_group
from palio_studies.proxy_network import KINDS
from palio_studies.proxy_runs import compare_designs, compare_organizations
from palio_studies.study import Axis, Choice, Experiment, Figure, Point, Study, grid, points_at

WISHES: Final = 2
"""Types that the receiver at each site wants."""

# --- what is run ---


def _experiment(
    name: str,
    run: Callable[[Point], list[Row]],
    weight: Callable[[Mapping[str, Any]], float],
    *columns: Mapping[str, Sequence[Value]],
    seeds: Sequence[int] = (2, 3, 3),
) -> Experiment:
    """All combinations of the columns of all scales, which come first, and of those of each."""
    always, *own = columns
    sets = {scale: grid(**always, **more) for scale, more in zip(Scale, own, strict=True)}
    points = points_at(name, sets, dict(zip(Scale, seeds, strict=True)))
    return Experiment(name, run, points, weight=lambda point: weight(point.parameters))


_USUAL: Final[Mapping[str, Sequence[Value]]] = {"network": KINDS, "wishes": [WISHES]}

_EXPERIMENTS: Final = (
    _experiment(
        "designs",
        compare_designs,
        lambda of: of["receivers"] * of["sources"] / 100,
        {"network": ["transit-stub"]},
        {"proxies": [28], "sources": [1, 20], "receivers": [5, 10, 20]},
        {"proxies": [100], "sources": [1, 10, 30], "receivers": [1, 3, 10, 30, 100]},
        {"proxies": [196], "sources": [100], "receivers": [100, 300]},
    ),
    _experiment(
        "locality",
        compare_organizations,
        lambda of: of["proxies"] ** 2 / 500,
        _USUAL,
        {"proxies": [28], "locality": [0.0, 1.0]},
        {"proxies": [52], "locality": [0.0, 0.25, 0.5, 0.75, 1.0]},
        {"proxies": [100], "locality": [0.0, 0.5, 1.0]},
    ),
    _experiment(
        "sizes",
        compare_organizations,
        lambda of: of["proxies"] ** 2 / 500,
        {**_USUAL, "locality": [0.5]},
        {"proxies": [16, 28]},
        {"proxies": [16, 28, 52, 100]},
        {"proxies": [100, 196]},
    ),
    _experiment(
        "groups",
        mend_group,
        lambda of: of["brokers"] / 10,
        {"fault": list(FAULTS), "spare": [False, True]},
        {"brokers": [3, 5, 8]},
        {"brokers": [3, 5, 10, 20, 30]},
        {"brokers": [50, 100]},
        seeds=(1, 2, 2),
    ),
)

# --- figures ---

_DESIGNS: Final = """\
sources-state | entries at the busiest place | lines_most | subscribers in the tables of one place
all-state | entries at all places together | lines_all | subscribers in all tables
pairs | who exchanges heartbeats | watched_pairs | pairs that exchange heartbeats
pairs-most | heartbeats at the busiest place | watched_most \
| others that one place exchanges heartbeats with
requests | messages to subscribe | requests | link crossings of requests
crossings | an event on its way | crossings | link crossings of an event
design-latency | delivery latency | latency_ms | delivery latency, ms
"""
_LOCALITY: Final = """\
latency | delivery latency and locality | latency_ms | delivery latency, ms
stretch | latency beside that of the shortest way | stretch | latency / shortest way
locality-state | forwarding state and locality | lines | lines of a proxy, mean
busiest | events through the busiest proxy | busiest | share of all events that reach it
"""
_SIZES: Final = """\
size-latency | delivery latency and the size of the network | latency_ms | delivery latency, ms
size-state | forwarding state and the size of the network | entries | entries of a proxy, mean
size-state-most | forwarding state of the proxy that knows most | entries_most | entries, most
size-requests | messages until all is known | requests | link crossings of requests
"""
_BEATS: Final = """\
beats | heartbeats of a group | beats_per_s | messages a second
"""
_FAULTS: Final = """\
noticed | until a neighbour is given up | noticed_s | time from the fault on, s
mending | messages to mend a group | mending_messages | messages of brokers
missed | how long others miss events | others_missed_s | time from the fault on, s
back | until the one that was away hears all again | back_after_s | time from the fault's end on, s
"""

_CAPTIONS: Final[Mapping[str, str]] = {
    "sources-state": "Without proxies the place is a source. A panel for each number of sources.",
    "pairs": "The links between proxies are pairs, too, and there whatever is wanted.",
    "design-latency": "Without proxies an event takes the shortest way.",
    "locality-state": "A line is an entry and one who asked for it.",
    "size-state-most": "In a hierarchy that is the root.",
    "beats": "Of all its brokers, answers and those to clients among them.",
    "noticed": "Silence is noticed first, and a session is kept for a while in case the other "
    "comes back; with spare links that while is shorter, as there is another way.",
    "mending": "All but heartbeats and events, from the fault until 20 s after its end.",
    "missed": f"The fault stays for {FAULT_S:g} s.",
}

_LINEAR: Final = frozenset(
    {"latency_ms", "stretch", "busiest", "noticed_s", "others_missed_s", "back_after_s"}
)
"""Columns that are drawn as they are; counts are drawn over a logarithmic axis."""


def _figures(
    section: str, experiment: str, x: Axis, lines: str, panels: str, rows: str, **more: Any
) -> Iterable[Figure]:
    """A figure a row: its name and title, and the column and label of what it draws over `x`."""
    for name, topic, column, label in (row.split(" | ") for row in rows.splitlines()):
        y, caption = Axis(column, label, log=column not in _LINEAR), _CAPTIONS.get(name, "")
        title = f"Section {section}: {topic}"
        yield Figure(name, title, experiment, x, y, (lines,), panels, caption=caption, **more)


_RECEIVERS: Final = Axis("receivers", "receivers", log=True)
_LOCAL: Final = Axis("locality", "share of interest that is local")
_PROXIES: Final = Axis("proxies", "proxies", log=True)
_BROKERS: Final = Axis("brokers", "brokers of the group", log=True)
_SPARE: Final = {"False": "a tree of links", "True": "with spare links"}
_UNHARMED: Final = {"fault": "none"}

_FIGURES: Final = (
    *_figures("II", "designs", _RECEIVERS, "design", "sources", _DESIGNS),
    *_figures("V", "locality", _LOCAL, "organization", "network", _LOCALITY),
    *_figures("V", "sizes", _PROXIES, "organization", "network", _SIZES),
    *_figures("IV-F", "groups", _BROKERS, "spare", "", _BEATS, where=_UNHARMED, names=_SPARE),
    *_figures("IV-F", "groups", _BROKERS, "fault", "spare", _FAULTS, names=_SPARE),
)

# --- the report ---

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
        "links that the hierarchy does without take copies of events where they skip one link a "
        "second or more for each entry; computed, as brokers have none",
        "suggested: more state in the hierarchy for less latency",
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
    Choice(
        "hierarchy by IV-C.1",
        "the rules for REG and SUB alone, on types, with all sources registered first",
        "a registration goes down to the one other neighbour with a source",
        "brokers do otherwise: filters name no type, and anybody may publish unannounced",
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
that it does without, which is computed. The same sites, sources and wishes are given to all, and
what each receiver hears is compared with what it is due. An *entry* is a filter or an advertisement
in the tables of a broker, a *line* is an entry and a neighbour or client that asked for it.
Messages take the time of the links; brokers take none.

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
    experiments=_EXPERIMENTS,
    figures=_FIGURES,
    claims=CLAIMS,
)
