"""gryphon's study: the matching tree's space and work against the number of subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from palio_studies.gryphon_claims import ATTRIBUTES, CLAIMS, VALUES
from palio_studies.gryphon_runs import EVENTS, count_places, count_worst_case, time_events
from palio_studies.names import Scale
from palio_studies.study import (
    Axis,
    Choice,
    Experiment,
    Figure,
    Point,
    Study,
    Value,
    with_seeds,
)

__all__ = ["STUDY"]

MATCHES: Final = 5.0
"""Subscriptions that an event matches, however many there are."""

DECAY: Final = 0.85
"""Where the popularity is fixed instead."""

RANGE_VALUES: Final = 100
"""Values of an attribute where subscriptions ask for ranges."""

_BASE: Final[Mapping[str, Value]] = {
    "attributes": ATTRIBUTES,
    "values": VALUES,
    "matches": MATCHES,
    "decay": 0.0,
    "ranges": False,
    "skew": 0.0,
    "factored": 2,
}

_SIZES: Final[Mapping[Scale, Sequence[int]]] = {
    Scale.SMALL: (125, 250, 500, 1_000),
    Scale.PAPER: (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000),
    Scale.BEYOND: (64_000, 128_000),
}
_SWEPT: Final[Mapping[Scale, int]] = {Scale.SMALL: 400, Scale.PAPER: 1_000, Scale.BEYOND: 8_000}
"""How many subscriptions there are where something else is varied."""

_SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 3, Scale.BEYOND: 2}
_MAIN_SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 5, Scale.BEYOND: 2}
"""...of the growth that most claims rest on."""

_SLOW: Final = 4_000
"""The most subscriptions with ranges, and with a fixed popularity: they take the longest."""


def _points(
    name: str, scale: Scale, sets: Iterable[Mapping[str, Any]], seeds: int | None = None
) -> Iterable[Point]:
    base = {**_BASE, "subscriptions": _SWEPT[scale]}
    chosen = [{**base, **each} for each in sets]
    return with_seeds(name, chosen, _SEEDS[scale] if seeds is None else seeds)


def _growth(scale: Scale) -> Iterable[Point]:
    sizes = [{"subscriptions": size} for size in _SIZES[scale]]
    return _points("growth", scale, sizes, _MAIN_SEEDS[scale])


def _times(scale: Scale) -> Iterable[Point]:
    return _points("times", scale, [{"subscriptions": size} for size in _SIZES[scale]])


def _fixed(scale: Scale) -> Iterable[Point]:
    sizes = [size for size in _SIZES[scale] if scale is Scale.BEYOND or size <= _SLOW]
    fixed = {"matches": 0.0, "decay": DECAY}
    return _points("fixed", scale, [{"subscriptions": size, **fixed} for size in sizes])


def _ranges(scale: Scale) -> Iterable[Point]:
    sizes = [size for size in _SIZES[scale] if scale is not Scale.BEYOND and size <= _SLOW]
    if scale is Scale.BEYOND:
        sizes = [2 * _SLOW, 4 * _SLOW]
    ranges = {"ranges": True, "values": RANGE_VALUES}
    return _points("ranges", scale, [{"subscriptions": size, **ranges} for size in sizes])


def _values(scale: Scale) -> Iterable[Point]:
    return _points("values", scale, [{"values": values} for values in (2, 3, 5, 10, 20, 50)])


def _popularity(scale: Scale) -> Iterable[Point]:
    decays = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    return _points("popularity", scale, [{"matches": 0.0, "decay": decay} for decay in decays])


def _indexes(scale: Scale) -> Iterable[Point]:
    return _points("indexes", scale, [{"factored": factored} for factored in range(4)])


def _skew(scale: Scale) -> Iterable[Point]:
    return _points("skew", scale, [{"skew": skew} for skew in (0.0, 0.5, 1.0, 1.5)])


def _worst(scale: Scale) -> Iterable[Point]:
    most = {Scale.SMALL: 9, Scale.PAPER: 13, Scale.BEYOND: 15}[scale]
    return with_seeds("worst", [{"attributes": count} for count in range(4, most + 1)], 1)


def _weight(point: Point) -> float:
    return float(point.parameters["subscriptions"])


def _counted(name: str, points: Callable[[Scale], Iterable[Point]]) -> Experiment:
    return Experiment(name, count_places, points, frozenset({"add_us"}), _weight)


_N: Final = Axis("subscriptions", "subscriptions", log=True)
_WORK: Final = Axis("work", "places visited an event", log=True)
_SPACE: Final = Axis("space", "edges + entries of successor sets", log=True)
_ENGINE: Final = ("engine",)

_FIGURES: Final = (
    Figure(
        "space",
        "Space against the number of subscriptions (gryphon 5)",
        "growth",
        _N,
        _SPACE,
        _ENGINE,
        caption="Straight lines of slope 1 are linear. *each* counts the tests of a plain list, "
        "*poset* an edge for each subscription, *bound* is N K.",
    ),
    Figure(
        "work",
        "Work against the number of subscriptions (gryphon 5)",
        "growth",
        _N,
        _WORK,
        _ENGINE,
        caption=f"{MATCHES:g} matches an event at every size. *bound* is the theorem's, for the "
        "tree without optimizations; *poset* counts the filters that its walk tries, *each* all.",
    ),
    Figure(
        "matches",
        "The matches of an event are held",
        "growth",
        _N,
        Axis("matched", "matches an event"),
        where={"engine": "none"},
        caption=f"Meant are {MATCHES:g}; the bars are what so few events leave to chance.",
    ),
    Figure(
        "decay",
        "...by a popularity that falls more slowly the more subscriptions there are",
        "growth",
        _N,
        Axis("decay_used", "decay of popularity"),
        where={"engine": "none"},
    ),
    Figure(
        "time",
        "Time of an event",
        "times",
        _N,
        Axis("event_us", "time of an event, µs", log=True),
        _ENGINE,
        caption=f"In Python, but for *index*, which is compiled and is given all {EVENTS} events "
        "as one batch.",
    ),
    Figure(
        "preparing",
        "Time of a subscription before the first event",
        "times",
        _N,
        Axis("prepare_us", "time of a subscription, µs", log=True),
        _ENGINE,
        caption="With all successor sets found, and all of the index compiled.",
    ),
    Figure(
        "fixed",
        f"Work where the popularity is fixed at a decay of {DECAY:g}",
        "fixed",
        _N,
        _WORK,
        _ENGINE,
        caption="The matches of an event grow with the subscriptions here.",
    ),
    Figure(
        "values",
        "Work against the number of values of an attribute",
        "values",
        Axis("values", "values of an attribute", log=True),
        _WORK,
        _ENGINE,
    ),
    Figure(
        "popularity",
        "Work against the decay of popularity",
        "popularity",
        Axis("decay", "decay of popularity"),
        _WORK,
        _ENGINE,
        caption="To the left subscriptions test few attributes, and many match.",
    ),
    Figure(
        "index-space",
        "Space against the number of index attributes",
        "indexes",
        Axis("factored", "index attributes"),
        _SPACE,
        where={"engine": "a+b+c"},
    ),
    Figure(
        "index-work",
        "Work against the number of index attributes",
        "indexes",
        Axis("factored", "index attributes"),
        Axis("work", "places visited an event"),
        where={"engine": "a+b+c"},
    ),
    Figure(
        "skew",
        "Work where events are not uniform",
        "skew",
        Axis("skew", "Zipf exponent of the events' values"),
        _WORK,
        _ENGINE,
        caption="Events and subscriptions prefer the same values. *bound* is that of these "
        "probabilities.",
    ),
    Figure(
        "ranges-work",
        "Work where 80% of the tests are ranges",
        "ranges",
        _N,
        _WORK,
        _ENGINE,
        caption="*bound* is that of ranges: sublinear, and of use only far to the right.",
    ),
    Figure(
        "ranges-space",
        "Space where 80% of the tests are ranges",
        "ranges",
        _N,
        _SPACE,
        _ENGINE,
    ),
    Figure(
        "worst",
        "The worst case: all subscriptions of one value or none, and the event of that value",
        "worst",
        _N,
        Axis("work", "places visited by the event", log=True),
        _ENGINE,
    ),
)

_CHOICES: Final = (
    Choice("attributes", "30", "lost", "what others say of this simulation"),
    Choice("values of an attribute", "10", "lost", "varied from 2 to 50"),
    Choice(
        "popularity of attribute i",
        "0.98 · decay^i, i from 0",
        "falling by a factor; both numbers lost",
        "nearly every subscription tests the first, so that it can be an index attribute",
    ),
    Choice(
        "matches of an event",
        f"{MATCHES:g}, by choosing the decay for each number of subscriptions",
        "held independent of the number of subscriptions, by values that are lost",
        "with values and events fixed the bound stays the same for all sizes; the decay is 0.85 "
        "near 30,000 subscriptions",
    ),
    Choice("values tested", "Zipf with exponent 1", "Zipf, exponent not given"),
    Choice("values of events", "uniform", "uniform", "Zipf with exponents to 1.5, too"),
    Choice("subscriptions without any test", "drawn again", "not said", "they match all events"),
    Choice(
        "subscriptions",
        "500 to 32,000; ranges and fixed popularity to 4,000; 1,000 where something else is varied",
        "tens of thousands",
        "the tree is Python: larger ones are of the scale `beyond`",
    ),
    Choice("index attributes", "2, the most popular", "lost", "varied from 0 to 3"),
    Choice("events of a run", str(EVENTS), "not said", "20 where each filter is tried in Python"),
    Choice("runs", "5 seeds for the growth, 3 elsewhere", "not said", "one seed in the worst case"),
    Choice(
        "space", "edges and entries of successor sets", "the same", "all sets, also unused ones"
    ),
    Choice(
        "work", "places visited, leaves included", "nodes visited", "filters tried by the poset"
    ),
    Choice(
        "ranges",
        "100 values; 40% <=, 40% >=, 20% =; a range holds for half of the values at the most",
        "left open: typical ranges were to be defined",
    ),
)

_METHOD: Final = f"""\
The same subscriptions stand in the matching tree without optimizations (*none*), with chains of
`*` collapsed (*a*), with successor sets too (*a+b*) and with index attributes factored out as well
(*a+b+c*); in a *poset* that an event descends as in siena's servers; in the *index*, the engine
that serves in the product; and in a list of which *each* is tried. {EVENTS} events are matched by
all; a run ends with an error if two engines find different matches.

The tree's time is that of Python, so the counts say more: they are the paper's measure, and equal
on every machine.

*Bounds.* For equality tests and independent attributes a node is visited with the probability of
the values on its path, and the worst set has the likeliest nodes at each depth; *bound* adds those
up, uniform or not. For ranges there is none that is sublinear for every set: N ranges that all
events satisfy are N matches. If no test is satisfied with a probability above s, and an attribute
has T different ones, it is O(N^(1-l)) with l = ln(1/s) / ln(K T), derived in
`palio.matching.tree.bound`; the paper's is the case s = 1/V, T = V. With s = 0.5 and T = 200 that
is N^0.92, and with its constants it exceeds N at all sizes that are run here.
"""

STUDY: Final = Study(
    name="gryphon",
    title="Matching events in a content-based subscription system",
    paper="Aguilera, Strom, Sturman, Astley, Chandra: Matching Events in a Content-based "
    "Subscription System (1999)",
    method=_METHOD,
    choices=_CHOICES,
    experiments=(
        _counted("growth", _growth),
        Experiment(
            "times", time_events, _times, frozenset({"event_us", "prepare_us"}), weight=_weight
        ),
        _counted("fixed", _fixed),
        _counted("values", _values),
        _counted("popularity", _popularity),
        _counted("indexes", _indexes),
        _counted("skew", _skew),
        _counted("ranges", _ranges),
        Experiment("worst", count_worst_case, _worst),
    ),
    figures=_FIGURES,
    claims=CLAIMS,
)
