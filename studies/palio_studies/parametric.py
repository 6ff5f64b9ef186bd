"""The study of parametric subscriptions (parametric 5): updates against re-subscription."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from palio_studies.names import Scale, Value
from palio_studies.parametric_claims import CLAIMS, IMPROVEMENTS
from palio_studies.parametric_runs import (
    ENGINES,
    EVENTS_PER_S,
    LINEAR,
    RESUBSCRIPTIONS,
    RETE,
    SIENA,
    SWING_MS,
    UPD,
    UPDATE_FILTERS,
    WAYS,
    WINDOW_S,
    run,
)
from palio_studies.study import (
    Axis,
    Choice,
    Experiment,
    Figure,
    Point,
    Study,
    grid,
    points_at,
)

SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 3, Scale.BEYOND: 5}
RATES: Final = (10, 40, 70, 100)
"""Updates a second and broker: the paper goes from 10 to 100."""
PAPER_EVENTS_PER_S: Final = 9_600
"""More than the 9,000 that the paper delivers to each subscriber; in tens, as one message."""
BUNDLE: Final = 10
CROWD: Final = 20_000
"""1,000 vehicles at each of 20 brokers..."""
CROWD_UPDATES: Final = 1000 / 60
"""...each of which says once a minute where it is."""
AT_MOST: Final = 1_000
"""Updates a second and broker of AT where brokers are fullest: ten times the paper's most. Siena's
are full at less."""

# --- what is run ---

_BOTH: Final = (False, True)
_USUAL: Final[Mapping[str, Any]] = {
    "workload": "AT",
    "subscribers": 0,
    "engine": RETE,
    "joined": False,
    "updates_per_s": 100,
    "events_per_s": EVENTS_PER_S,
    "bundle": 1,
    "swing_ms": SWING_MS,
    "window_s": WINDOW_S,
    "way": tuple(WAYS),
}


def _loads(**columns: Any) -> list[dict[str, Value]]:
    """Every combination of values; a column that is not given has its usual one."""
    given = {**_USUAL, **columns}
    return grid(**{name: at if isinstance(at, tuple) else (at,) for name, at in given.items()})


_highway: Final = partial(_loads, workload="HTM", window_s=5.0)
"""Its brokers have time left, so one swing after some load is enough."""

_counted: Final = partial(_loads, swing_ms=400, window_s=1.2)
"""Where events are counted, and delays are not the question."""

_little: Final = partial(_loads, swing_ms=1_000, window_s=2.0)


def _adaptation(loads: Callable[..., list[dict[str, Value]]]) -> list[dict[str, Value]]:
    return [
        *loads(engine=ENGINES, updates_per_s=RATES),
        *loads(engine=ENGINES, updates_per_s=RATES[-1], joined=True),
    ]


_scaled: Final = partial(
    _counted, workload="scaling", engine=ENGINES, updates_per_s=(10, 100), window_s=1.0
)

_FULL: Final = {
    "adaptation": [
        *_adaptation(_loads),
        *_adaptation(_highway),
        *_loads(updates_per_s=AT_MOST, window_s=5.0),
    ],
    "scaling": [
        *_scaled(joined=_BOTH),
        *_scaled(engine=RETE, joined=True, updates_per_s=1000),
    ],
    "crowd": _counted(workload="HTM", subscribers=CROWD, updates_per_s=CROWD_UPDATES, window_s=1.0),
    "flow": _counted(workload=("HTM", "AT"), events_per_s=PAPER_EVENTS_PER_S, bundle=BUNDLE),
}
_SETS: Final[Mapping[Scale, Mapping[str, list[dict[str, Value]]]]] = {
    Scale.SMALL: {
        "adaptation": _little(engine=ENGINES, updates_per_s=(RATES[0], RATES[-1])),
        "scaling": _scaled(subscribers=40, window_s=0.6, way=(UPD, RESUBSCRIPTIONS[0])),
    },
    Scale.PAPER: _FULL,
    Scale.BEYOND: _FULL,
}


def _weight(point: Point) -> float:
    of = point.parameters
    joins = 0.3 if of["joined"] else 1.0
    each = {"scaling": 60, "HTM": 5}.get(str(of["workload"]), 1)
    return float(of["updates_per_s"]) * float(of["window_s"]) * joins * each


def _simulated(name: str, weight: Callable[[Point], float] = _weight) -> Experiment:
    sets = {scale: loads.get(name, []) for scale, loads in _SETS.items()}
    return Experiment(name, run, points_at(name, sets, SEEDS), weight=weight)


_EXPERIMENTS: Final = (
    _simulated("adaptation"),
    _simulated("scaling"),
    _simulated("crowd", lambda _: 5000.0),
    _simulated("flow"),
)

# --- figures ---

_DELAY: Final = Axis("delay_ms", "delay, ms")
_THROUGHPUT: Final = Axis("delivered_per_s", "events delivered a second")
_SPURIOUS: Final = Axis("spurious_per_s", "spurious events a second")
_RATE: Final = Axis("updates_per_s", "updates a second and broker")
_RATE_OF_ONE: Final = Axis("updates_per_s", "updates a second and subscriber", log=True)
_MEASURES: Final = {"throughput": _THROUGHPUT, "delay": _DELAY, "spurious": _SPURIOUS}

_CAPTIONS: Final = {
    "throughput": "What subscribers were delivered and still wanted, all of them together.",
    "delay": "From a change to the first event that only the new value matches. One that was not "
    "answered before the value swung back counts until then: means of many such are lower bounds.",
    "spurious": "What reached a client and failed its newest value.",
}

_by_engine: Final = partial(
    Figure,
    lines=("way", "joined"),
    panels="engine",
    names={
        SIENA: "poset for requests and events (Siena)",
        LINEAR: "the same, an UPD as dear as a SUB",
        RETE: "events apart from the poset (EventJava)",
        "True": "joined",
        "False": "not joined",
    },
)
_FIGURES: Final = (
    *(
        _by_engine(
            f"{workload.lower()}-{name}",
            f"Figure 8, {workload}: {name} over the rate of updates",
            "adaptation",
            _RATE,
            axis,
            where={"workload": workload},
            caption=_CAPTIONS[name],
        )
        for workload in ("AT", "HTM")
        for name, axis in _MEASURES.items()
    ),
    _by_engine(
        "scaling",
        "Figure 9: throughput over the rate of updates",
        "scaling",
        _RATE_OF_ONE,
        _THROUGHPUT,
        caption="150 subscribers on a mesh. Without joining every broker would get 150,000 "
        "updates a second at the right edge: that is not run.",
    ),
    Figure(
        "crowd",
        "1,000 vehicles at each broker: events missed in changes",
        "crowd",
        Axis("way", "way of changing"),
        Axis("missed", "share of events missed that every value matched"),
        bars=True,
    ),
)

# --- the report ---

_METHOD: Final = """\
A subscriber has one bound that it changes all the time. It *trembles* with each update, and swings
between a narrow and a wide region every 4 s. Three ways to change it are compared: one UPD, and
re-subscription in both orders at brokers that know SUB and USUB only. The network is virtual, with
the routers that serve users: 20 brokers, 10 ms on every link and between every client and its
broker. A broker works a while on each request and each event, so load shows as delay.

**Delay**: from a swing to the wide region until the first event that only the wide one matches.
One that was not answered before the next swing, or the end, counts until then, and in `unheard`:
such a mean is a lower bound. Where requests come faster than a broker works them off, delays grow
as long as it lasts: here swings come up to 4 s after the load has begun. **Throughput**:
events that were delivered and pass the newest value. **Spurious**: those that reach the client and
fail it. **Missed**: of the events that every value of a subscriber matched, and that were published
in the first half of the window, those that did not reach it by its end.

**Kinds of brokers.** The paper ran Siena, where requests rearrange the poset that events walk, and
EventJava, where events have a network of their own. Here *siena* matches by the walk through the
poset (`PosetSelector`), has one line for requests and events, and takes 5 us for each filter
looked at: all of the poset for a SUB or USUB, those tried for an event, and four for an UPD, which
the paper finds by a hash table. *siena, linear UPD* takes as long for an UPD as for a SUB: the
paper does not say so, and it shows how much depends on it. *rete* matches apart from the poset,
has a line for requests and one for events, and takes 70 us for a request and 50 us for an event.
No Rete network was built: what
stands for it is its independence of the poset, which is what the paper explains its results by.

**Joining.** A broker that is behind may join the requests of one sender that wait: of ten updates
the last is left, of ten re-subscriptions the last pair. Either all ways have it or none has; the
paper does not speak of it. A USUB of what never began is no work.
"""

_CHOICES: Final = (
    Choice("brokers", "20, simulated", "20 machines of two processors"),
    Choice("latency", "10 ms, every link and client", "10 ms on each link, clients' too"),
    Choice("HTM", "a random mesh, 10 publishers a broker", "a connected graph, 10 a broker"),
    Choice(
        "HTM, subscribers",
        "5 a broker; 1,000 in `crowd`",
        "1,000 to 5,000 a broker",
        "with 5 of 20 updates a second each broker hears as many updates, and few are hidden by "
        "others: the harder case for all. 1,000 vehicles that move once a minute are run, too",
    ),
    Choice(
        "AT",
        "a tree with fanout 3, 5 publishers, 150 subscribers, 200 types, at least 3 between",
        "a hierarchy, 5 publishers, 150 subscribers, 200 types, at least 3 brokers between",
    ),
    Choice(
        "scaling",
        "a random mesh, 100 publishers, 150 subscribers, 200 types",
        "a connected graph, 100 publishers, 150 subscribers, 200 types",
    ),
    Choice(
        "rates, HTM and AT",
        "10, 40, 70 and 100 updates a second and broker; AT on rete 1,000, too",
        "10 to 100",
        "at 1,000 re-subscriptions fill brokers, and updates do not",
    ),
    Choice(
        "rates, scaling",
        "10, 100 and, joined, 1,000 updates a second and subscriber",
        "up to 1,000",
        "without joining all 20 brokers would hear 150,000 updates a second, ten processors' work; "
        "siena ends at 100, as the paper says",
    ),
    Choice("operators, HTM", "40% >=, 40% <=, 20% =", "40% >=, 40% <=, 40% =", "to make 100%"),
    Choice("operators, AT", "a third each of <=, >=, =", "35%, 33%, 33%"),
    Choice(
        "event rate",
        "600 a second in all; 9,600 in `flow`, ten in a message",
        "more than 9,000 a second delivered to a subscriber",
        "delay and the factors depend on load; the rate of the paper is run once for each workload",
    ),
    Choice(
        "work of siena",
        "5 us a filter",
        "",
        "its requests are linear in the poset. In the scaling workload, where a broker has 140 "
        "filters, re-subscribing 100 times a second then fills a broker with its own clients "
        "alone, which is where the paper says that Siena ends",
    ),
    Choice(
        "work of rete",
        "70 us a request, 50 us an event, two processors",
        "dual core machines",
        "EventJava lost half at ten times the rate at which Siena ended, and delivered more than "
        "9,000 events a second, so at most 110 us each",
    ),
    Choice(
        "work of an UPD, siena",
        f"{UPDATE_FILTERS} filters; and once more as much as a SUB",
        "O(1) by a hash table (4.3); SUB and USUB O(|P|)",
        "reordering is done if needed: both ends are run",
    ),
    Choice("work of an UPD, rete", "that of a SUB", "", "the harder case for updates"),
    Choice("regions", "a fifth and four fifths of the values", "", "selectivities were not given"),
    Choice("watched", "12 subscribers with a range, 40 events a second each", ""),
    Choice("seeds", "3", "", "topology, draws and phases"),
    Choice(
        "swings and windows",
        "4 s in 9 s (HTM 5 s); 0.4 s in 1 to 1.2 s where only events are counted",
        "",
        "a delay longer than a swing cannot be told",
    ),
)

STUDY: Final = Study(
    name="parametric",
    title="Updates against re-subscription",
    paper="K. R. Jayaram, C. Jayalath, P. Eugster: Parametric Subscriptions for Content-Based "
    "Publish/Subscribe Networks, Middleware 2010",
    method=_METHOD,
    choices=_CHOICES,
    experiments=_EXPERIMENTS,
    figures=_FIGURES,
    claims=CLAIMS,
    tables=(IMPROVEMENTS,),
)
