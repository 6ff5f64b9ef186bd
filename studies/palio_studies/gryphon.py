"""gryphon's study: the matching tree's space and work against the number of subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from palio_studies.gryphon_claims import ATTRIBUTES, CLAIMS, VALUES
from palio_studies.gryphon_runs import EVENTS, count_places, count_worst_case, time_events
from palio_studies.names import Scale
from palio_studies.study import (
    Axis,
    Choice,
    Experiment,
    Figure,
    Point,
    Row,
    Study,
    Value,
    grid,
    points_at,
    with_seeds,
)

MATCHES: Final = 5.0
"""Subscriptions that an event matches, however many there are."""

DECAY: Final = 0.85
"""Where the popularity is fixed instead: subscriptions are then of the same kind at all sizes."""

RANGE_VALUES: Final = 100
"""Values of an attribute where subscriptions ask for ranges."""

_BASE: Final[Mapping[str, Value]] = {
    "attributes": ATTRIBUTES,
    "values": VALUES,
    "matches": MATCHES,
    "decay": 0.0,
    "ranges": False,
    "factored": 2,
}

_SIZES: Final[Mapping[Scale, Sequence[int]]] = {
    Scale.SMALL: (125, 250, 500, 1_000),
    Scale.PAPER: (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000),
    Scale.BEYOND: (64_000, 128_000),
}
_FIXED: Final = {**_SIZES, Scale.PAPER: _SIZES[Scale.PAPER][:4]}
_RANGED: Final = {**_FIXED, Scale.BEYOND: (8_000, 16_000)}
"""Fewer with ranges, and with a fixed popularity: they take the longest."""

_INDEXED: Final = {Scale.SMALL: (400,), Scale.PAPER: (1_000,), Scale.BEYOND: (8_000,)}
"""How many subscriptions there are where the index attributes are varied."""

_SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 3, Scale.BEYOND: 2}
_MAIN_SEEDS: Final[Mapping[Scale, int]] = {**_SEEDS, Scale.PAPER: 5}
"""...of the growth that most claims rest on."""

_WORST: Final[Mapping[Scale, int]] = {Scale.SMALL: 9, Scale.PAPER: 13, Scale.BEYOND: 15}
"""The most attributes of the worst case."""


def _weight(point: Point) -> float:
    return float(point.parameters["subscriptions"])


def _experiment(
    name: str,
    sizes: Mapping[Scale, Sequence[int]],
    *,
    run: Callable[[Point], list[Row]] = count_places,
    timed: frozenset[str] = frozenset({"add_us"}),
    seeds: Mapping[Scale, int] = _SEEDS,
    **varied: Sequence[Value],
) -> Experiment:
    """All combinations of sizes and of the values of other parameters."""
    sets = {
        scale: [{**_BASE, **each} for each in grid(subscriptions=sizes[scale], **varied)]
        for scale in Scale
    }
    return Experiment(name, run, points_at(name, sets, seeds), timed, _weight)


_EXPERIMENTS: Final = (
    _experiment("growth", _SIZES, seeds=_MAIN_SEEDS),
    _experiment("times", _SIZES, run=time_events, timed=frozenset({"event_us"})),
    _experiment("fixed", _FIXED, matches=(0.0,), decay=(DECAY,)),
    _experiment("indexes", _INDEXED, factored=range(4)),
    _experiment("ranges", _RANGED, ranges=(True,), values=(RANGE_VALUES,)),
    Experiment(
        "worst",
        count_worst_case,
        lambda scale: with_seeds("worst", grid(attributes=range(4, _WORST[scale] + 1)), 1),
    ),
)

_log: Final = partial(Axis, log=True)
_WORK: Final = _log("work", "places visited an event")
_SPACE: Final = _log("space", "edges + entries of successor sets")
_by_size: Final = partial(Figure, x=_log("subscriptions", "subscriptions"), lines=("engine",))

_FIGURES: Final = (
    _by_size(
        "space",
        "Space against the number of subscriptions (gryphon 5)",
        "growth",
        y=_SPACE,
        caption="Straight lines of slope 1 are linear. *bound* is N K.",
    ),
    _by_size(
        "work",
        "Work against the number of subscriptions (gryphon 5)",
        "growth",
        y=_WORK,
        caption=f"{MATCHES:g} matches an event at every size. *bound* is the theorem's, for the "
        "tree without optimizations.",
    ),
    _by_size(
        "time",
        "Time of an event",
        "times",
        y=_log("event_us", "time of an event, µs"),
        caption=f"In Python, but for *index*, which is compiled and is given all {EVENTS} events "
        "as one batch.",
    ),
    Figure(
        "index-space",
        "Space against the number of index attributes",
        "indexes",
        Axis("factored", "index attributes"),
        _SPACE,
        where={"engine": "a+b+c"},
    ),
    _by_size(
        "ranges-work",
        "Work where 80% of the tests are ranges",
        "ranges",
        y=_WORK,
        caption="*bound* is that of ranges: sublinear, and of use only far to the right.",
    ),
    _by_size(
        "worst",
        "The worst case: all subscriptions of one value or none, and the event of that value",
        "worst",
        y=_log("work", "places visited by the event"),
    ),
)

_CHOICES: Final = (
    Choice("attributes", "30", "lost", "what others say of this simulation"),
    Choice("values of an attribute", "10", "lost"),
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
    Choice("values of events", "uniform", "uniform"),
    Choice("subscriptions without any test", "drawn again", "not said", "they match all events"),
    Choice(
        "subscriptions",
        "500 to 32,000; ranges and fixed popularity to 4,000; 1,000 where index attributes vary",
        "tens of thousands",
        "the tree is Python: larger ones are of the scale `beyond`",
    ),
    Choice("index attributes", "2, the most popular", "lost", "varied from 0 to 3"),
    Choice("events of a run", str(EVENTS), "not said"),
    Choice("runs", "5 seeds for the growth, 3 elsewhere", "not said", "one seed in the worst case"),
    Choice(
        "space", "edges and entries of successor sets", "the same", "all sets, also unused ones"
    ),
    Choice("work", "places visited, leaves included", "nodes visited"),
    Choice(
        "ranges",
        "100 values; 40% <=, 40% >=, 20% =; a range holds for half of the values at the most",
        "left open: typical ranges were to be defined",
    ),
)

_METHOD: Final = f"""\
The same subscriptions stand in the matching tree without optimizations (*none*), with chains of
`*` collapsed (*a*), with successor sets too (*a+b*) and with index attributes factored out as well
(*a+b+c*), and in the *index*, the engine that serves in the product. {EVENTS} events are matched by
all; a run ends with an error if two of them find different matches.

The tree's time is that of Python, so the counts say more: they are the paper's measure, and equal
on every machine.

*Bounds.* For equality tests and uniform events a node is visited with the probability of the values
on its path, and the worst set has the likeliest nodes at each depth; *bound* adds those up. For
ranges there is none that is sublinear for every set: N ranges that all events satisfy are N
matches. If no test is satisfied with a probability above s, and an attribute has T different ones,
it is O(N^(1-l)) with l = ln(1/s) / ln(K T), derived in `palio_studies.gryphon_bound`; the paper's
is the case s = 1/V, T = V. With s = 0.5 and T = 200 that is N^0.92, and with its constants it
exceeds N at all sizes that are run here.
"""

STUDY: Final = Study(
    name="gryphon",
    title="Matching events in a content-based subscription system",
    paper="Aguilera, Strom, Sturman, Astley, Chandra: Matching Events in a Content-based "
    "Subscription System (1999)",
    method=_METHOD,
    choices=_CHOICES,
    experiments=_EXPERIMENTS,
    figures=_FIGURES,
    claims=CLAIMS,
)
