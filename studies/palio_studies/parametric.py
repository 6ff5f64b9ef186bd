"""The study of parametric subscriptions (parametric 5): updates against re-subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from palio_studies.names import Scale, Value
from palio_studies.namespaces import why_not
from palio_studies.parametric_brokers import TIMED, run_brokers
from palio_studies.parametric_claims import CLAIMS
from palio_studies.parametric_runs import EVENTS_PER_S, RESUBSCRIPTIONS, UPD, WAYS, WINDOW_S, run
from palio_studies.study import (
    Axis,
    Choice,
    Experiment,
    Figure,
    Point,
    Study,
    grid,
    points_at,
    with_seeds,
)

SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 5, Scale.BEYOND: 5}
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
    "engine": "rete",
    "service_ms": 0.0,
    "joined": False,
    "updates_per_s": 100,
    "events_per_s": EVENTS_PER_S,
    "bundle": 1,
    "window_s": WINDOW_S,
    "way": tuple(WAYS),
}


def _loads(**columns: Any) -> list[dict[str, Value]]:
    """Every combination of values; a column that is not given has its usual one."""
    given = {**_USUAL, **columns}
    return grid(**{name: at if isinstance(at, tuple) else (at,) for name, at in given.items()})


_little: Final = partial(_loads, subscribers=60, window_s=0.8)
_much: Final = partial(_loads, joined=_BOTH, window_s=1.2)


def _adaptation(*rates: int) -> list[dict[str, Value]]:
    return [
        *_much(workload=("HTM", "AT"), engine=("siena", "rete"), updates_per_s=rates),
        *_much(updates_per_s=AT_MOST),
    ]


_scaled: Final = partial(_loads, workload="scaling", updates_per_s=(10, 100), window_s=1.0)

_FULL: Final = {
    "adaptation": _adaptation(10, 100),
    "scaling": [
        *_scaled(engine=("siena", "rete"), joined=_BOTH),
        *_scaled(joined=True, updates_per_s=1000),
    ],
    "service": _much(engine="steady", service_ms=(0.25, 0.5, 1.0)),
    "crowd": _loads(workload="HTM", subscribers=CROWD, updates_per_s=CROWD_UPDATES, window_s=1.0),
    "flow": _loads(
        workload=("HTM", "AT"), events_per_s=PAPER_EVENTS_PER_S, bundle=BUNDLE, window_s=1.2
    ),
}
_SETS: Final[Mapping[Scale, Mapping[str, list[dict[str, Value]]]]] = {
    Scale.SMALL: {
        "adaptation": _little(engine=("siena", "rete"), updates_per_s=(10, 100)),
        "scaling": _scaled(
            engine=("siena", "rete"), subscribers=40, window_s=0.6, way=(UPD, RESUBSCRIPTIONS[0])
        ),
        "service": _little(engine="steady", service_ms=(0.5, 1.0), joined=_BOTH),
    },
    Scale.PAPER: _FULL,
    Scale.BEYOND: {
        **_FULL,
        "adaptation": _adaptation(10, 30, 100, 300),
        "service": _much(workload=("AT", "HTM"), engine="steady", service_ms=(0.25, 0.5, 1.0)),
    },
}


def _weight(point: Point) -> float:
    of = point.parameters
    joins = 0.3 if of["joined"] else 1.0
    return float(of["updates_per_s"]) * joins * (20 if of["workload"] == "scaling" else 1)


def _simulated(name: str, weight: Callable[[Point], float] = _weight) -> Experiment:
    sets = {scale: loads.get(name, []) for scale, loads in _SETS.items()}
    return Experiment(name, run, points_at(name, sets, SEEDS), weight=weight)


def _brokers(scale: Scale) -> Iterable[Point]:
    if why_not():
        return ()
    small = {"brokers": 3, "rates": "20", "window_s": 1.6}
    large = {"brokers": 5, "rates": "10 50", "window_s": 4.0}
    is_small = scale is Scale.SMALL
    return with_seeds("brokers", [small if is_small else large], 1 if is_small else SEEDS[scale])


_EXPERIMENTS: Final = (
    _simulated("adaptation"),
    _simulated("scaling"),
    _simulated("service"),
    _simulated("crowd", lambda _: 500.0),
    _simulated("flow"),
    Experiment("brokers", run_brokers, _brokers, timed=TIMED, weight=lambda _: 1000.0),
)

# --- figures ---

_DELAY: Final = Axis("delay_ms", "delay, ms")
_THROUGHPUT: Final = Axis("delivered_per_s", "events delivered a second")
_SPURIOUS: Final = Axis("spurious_per_s", "spurious events a second")
_RATE: Final = Axis("updates_per_s", "updates a second and broker", log=True)
_RATE_OF_ONE: Final = Axis("updates_per_s", "updates a second and subscriber", log=True)
_MEASURES: Final = {"throughput": _THROUGHPUT, "delay": _DELAY, "spurious": _SPURIOUS}

_CAPTIONS: Final = {
    "throughput": "What subscribers were delivered and still wanted, all of them together.",
    "delay": "From a change to the first event that only the new value matches; a change that "
    "was not answered counts until the window closed, so means of a second and more are lower "
    "bounds.",
    "spurious": "What reached a client and failed its newest value.",
}

_by_engine: Final = partial(
    Figure,
    lines=("way", "joined"),
    panels="engine",
    names={
        "siena": "poset for requests and events (Siena)",
        "rete": "events apart from the poset (EventJava)",
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
    _by_engine("scaling-delay", "Figure 9, the same runs: delay", "scaling", _RATE_OF_ONE, _DELAY),
    *(
        Figure(
            f"service-{name}",
            f"AT at 100 updates a second and broker: {name} over the work of a request or event",
            "service",
            Axis("service_ms", "work on one request or event, ms"),
            _MEASURES[name],
            lines=("way",),
            panels="joined",
            where={"workload": "AT"},
            names={"True": "waiting requests are joined", "False": "none are joined"},
            caption="Brokers with one line and one time for everything.",
        )
        for name in ("throughput", "delay")
    ),
    Figure(
        "requests",
        "What the protocol saves: requests on links between brokers",
        "adaptation",
        _RATE,
        Axis("requests_per_s", "requests on links a second", log=True),
        lines=("way",),
        panels="workload",
        where={"engine": "rete", "joined": False},
    ),
    Figure(
        "crowd",
        "1,000 vehicles at each broker: events missed in changes",
        "crowd",
        Axis("way", "way of changing"),
        Axis("missed", "share of events missed that every value matched"),
        bars=True,
    ),
    *(
        Figure(
            f"brokers-{name}",
            f"Real brokers, a line with 10 ms links: {name}",
            "brokers",
            _RATE_OF_ONE,
            axis,
            lines=("way",),
            caption="Times of this machine, with whatever else it did.",
        )
        for name, axis in {
            **_MEASURES,
            "doubled": Axis("doubled_per_s", "events that came twice a second"),
            "work": Axis("cpu_ms_per_s", "CPU of all brokers, ms a second"),
        }.items()
    ),
)

# --- the report ---

_METHOD: Final = """\
A subscriber has one bound that it changes all the time. It *trembles* with each update, and swings
between a narrow and a wide region every 400 ms. Three ways to change it are compared: one UPD, and
re-subscription in both orders at brokers that know SUB and USUB only. The network is virtual, with
the routers that serve users: 20 brokers, 10 ms on every link and between every client and its
broker. A broker works a while on each request and each event, so load shows as delay.

**Delay**: from a swing to the wide region until the first event that only the wide one matches. One
that was not answered when the window closed counts until then, and in `unheard`. **Throughput**:
events that were delivered and pass the newest value. **Spurious**: those that reach the client and
fail it. **Missed**: of the events that every value of a subscriber matched, and that were published
in the first half of the window, those that did not reach it by its end.

**Kinds of brokers.** The paper ran Siena, where requests rearrange the poset that events walk, and
EventJava, where events have a network of their own. Here *siena* matches by the walk through the
poset (`PosetSelector`), has one line for requests and events, and takes 5 us for each filter
looked at: all of the poset for a request, those tried for an event. *rete* matches apart from the
poset, has a line for requests and one for events, and takes 70 us for a request and 50 us for an
event.
*steady* has one line and one time for everything, which is swept. No Rete network was built: what
stands for it is its independence of the poset, which is what the paper explains its results by.

**Joining.** A broker that is behind may join the requests of one sender that wait: of ten updates
the last is left, of ten re-subscriptions the last pair. Either all ways have it or none has; the
paper does not speak of it. A USUB of what never began is no work.

**Real brokers** are a line of processes in network namespaces, 10 ms on every link, six clients at
its end and a publisher at its beginning. They are parametric, whoever asks: of a re-subscription
only the first broker hears two requests. Without the permission to make namespaces this part is not
run.
"""

_CHOICES: Final = (
    Choice("brokers", "20; 5 real ones, 3 at small scale", "20", "real ones share two processors"),
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
        "10 and 100 updates a second and broker; AT on rete 1,000, too",
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
    Choice("UPD, SUB, USUB", "the same work each", "", "each is one change of the poset"),
    Choice("regions", "a fifth and four fifths of the values", "", "selectivities were not given"),
    Choice("watched", "12 subscribers with a range, 40 events a second each", ""),
    Choice("seeds", "5", "", "topology, draws and phases"),
    Choice("window", "1 to 1.2 s; 4 s on real brokers", "", "five seeds of each run in minutes"),
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
)
