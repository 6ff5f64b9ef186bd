"""The study of parametric subscriptions (parametric 5): updates against re-subscription."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

from palio.testing.namespaces import why_not
from palio_studies.names import Scale
from palio_studies.parametric_brokers import TIMED, run_brokers
from palio_studies.parametric_choices import CHOICES, METHOD
from palio_studies.parametric_claims import CLAIMS
from palio_studies.parametric_runs import EVENTS_PER_S, WINDOW_S, run
from palio_studies.parametric_workloads import RESUBSCRIPTIONS, UPD, WAYS
from palio_studies.study import Axis, Experiment, Figure, Point, Study, with_seeds

__all__ = ["STUDY"]

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

_USUAL: Final[Mapping[str, Any]] = {
    "subscribers": 0,
    "engine": "rete",
    "service_ms": 0.0,
    "joined": False,
    "events_per_s": EVENTS_PER_S,
    "bundle": 1,
    "window_s": WINDOW_S,
}


def _runs(
    experiment: str, scale: Scale, ways: Iterable[str], loads: Iterable[Mapping[str, Any]]
) -> Iterable[Point]:
    """Each load with each way, and the scale's seeds."""
    sets = [{**_USUAL, **load, "way": way} for load in loads for way in ways]
    return with_seeds(experiment, sets, SEEDS[scale])


def _adaptation(scale: Scale) -> Iterable[Point]:
    small = scale is Scale.SMALL
    rates = {Scale.SMALL: (10, 100), Scale.PAPER: (10, 100), Scale.BEYOND: (10, 30, 100, 300)}
    cases = [
        *product(
            ("AT",) if small else ("HTM", "AT"), ("siena", "rete"), (False, True), rates[scale]
        ),
        *(product(("AT",), ("rete",), (False, True), (AT_MOST,)) if not small else ()),
    ]
    loads = [
        {
            "workload": workload,
            "engine": engine,
            "joined": joined,
            "updates_per_s": rate,
            "subscribers": 60 if small else 0,
            "window_s": 0.8 if small else 1.2,
        }
        for workload, engine, joined, rate in cases
        if not (small and joined)
    ]
    return _runs("adaptation", scale, WAYS, loads)


def _scaling(scale: Scale) -> Iterable[Point]:
    small = scale is Scale.SMALL
    rates = {
        ("siena", False): (10, 100),
        ("siena", True): (10, 100),
        ("rete", False): (10, 100),
        ("rete", True): (10, 100) if small else (10, 100, 1000),
    }
    loads = [
        {
            "workload": "scaling",
            "engine": engine,
            "joined": joined,
            "updates_per_s": rate,
            "subscribers": 40 if small else 0,
            "window_s": 0.6 if small else 1.0,
        }
        for (engine, joined), found in rates.items()
        for rate in found
        if not (small and joined)
    ]
    return _runs("scaling", scale, (UPD, RESUBSCRIPTIONS[0]) if small else WAYS, loads)


def _service(scale: Scale) -> Iterable[Point]:
    loads = [
        {
            "workload": workload,
            "engine": "steady",
            "service_ms": service_ms,
            "joined": joined,
            "updates_per_s": 100,
            "subscribers": 60 if scale is Scale.SMALL else 0,
            "window_s": 0.8 if scale is Scale.SMALL else 1.2,
        }
        for workload, service_ms, joined in product(
            ("AT", "HTM") if scale is Scale.BEYOND else ("AT",),
            (0.5, 1.0) if scale is Scale.SMALL else (0.25, 0.5, 1.0),
            (False, True),
        )
    ]
    return _runs("service", scale, WAYS, loads)


def _crowd(scale: Scale) -> Iterable[Point]:
    if scale is Scale.SMALL:
        return ()
    loads = [
        {"workload": "HTM", "subscribers": CROWD, "updates_per_s": CROWD_UPDATES, "window_s": 1.0}
    ]
    return _runs("crowd", scale, WAYS, loads)


def _flow(scale: Scale) -> Iterable[Point]:
    if scale is Scale.SMALL:
        return ()
    loads = [
        {
            "workload": workload,
            "updates_per_s": 100,
            "events_per_s": PAPER_EVENTS_PER_S,
            "bundle": BUNDLE,
            "window_s": 1.2,
        }
        for workload in ("HTM", "AT")
    ]
    return _runs("flow", scale, WAYS, loads)


def _brokers(scale: Scale) -> Iterable[Point]:
    if why_not():
        return ()
    small = scale is Scale.SMALL
    sets = [
        {
            "brokers": 3 if small else 5,
            "rates": "20" if small else "10 50",
            "window_s": 1.6 if small else 4.0,
        }
    ]
    return with_seeds("brokers", sets, 1 if small else SEEDS[scale])


def _weight(point: Point) -> float:
    of = point.parameters
    joins = 0.3 if of["joined"] else 1.0
    return float(of["updates_per_s"]) * joins * (20 if of["workload"] == "scaling" else 1)


_EXPERIMENTS: Final = (
    Experiment("adaptation", run, _adaptation, weight=_weight),
    Experiment("scaling", run, _scaling, weight=_weight),
    Experiment("service", run, _service, weight=_weight),
    Experiment("crowd", run, _crowd, weight=lambda _: 500.0),
    Experiment("flow", run, _flow, weight=_weight),
    Experiment("brokers", run_brokers, _brokers, timed=TIMED, weight=lambda _: 1000.0),
)

_DELAY: Final = Axis("delay_ms", "delay, ms")
_THROUGHPUT: Final = Axis("delivered_per_s", "events delivered a second")
_SPURIOUS: Final = Axis("spurious_per_s", "spurious events a second")
_RATE: Final = Axis("updates_per_s", "updates a second and broker", log=True)
_RATE_OF_ONE: Final = Axis("updates_per_s", "updates a second and subscriber", log=True)
_NAMES: Final = {
    "siena": "poset for requests and events (Siena)",
    "rete": "events apart from the poset (EventJava)",
    "True": "joined",
    "False": "not joined",
}


def _adaptations() -> Iterable[Figure]:
    """Figure 8: of each workload three measures, a panel for each kind of broker."""
    for workload in ("AT", "HTM"):
        for name, axis in (("throughput", _THROUGHPUT), ("delay", _DELAY), ("spurious", _SPURIOUS)):
            yield Figure(
                f"{workload.lower()}-{name}",
                f"Figure 8, {workload}: {name} over the rate of updates",
                "adaptation",
                _RATE,
                axis,
                lines=("way", "joined"),
                panels="engine",
                where={"workload": workload},
                names=_NAMES,
                caption=_CAPTIONS[name],
            )


_CAPTIONS: Final = {
    "throughput": "What subscribers were delivered and still wanted, all of them together.",
    "delay": "From a change to the first event that only the new value matches; a change that "
    "was not answered counts until the window closed, so means of a second and more are lower "
    "bounds.",
    "spurious": "What reached a client and failed its newest value.",
}

_OTHERS: Final = (
    Figure(
        "scaling",
        "Figure 9: throughput over the rate of updates",
        "scaling",
        _RATE_OF_ONE,
        _THROUGHPUT,
        lines=("way", "joined"),
        panels="engine",
        names=_NAMES,
        caption="150 subscribers on a mesh. Without joining every broker would get 150,000 "
        "updates a second at the right edge: that is not run.",
    ),
    Figure(
        "scaling-delay",
        "Figure 9, the same runs: delay",
        "scaling",
        _RATE_OF_ONE,
        _DELAY,
        lines=("way", "joined"),
        panels="engine",
        names=_NAMES,
    ),
    *(
        Figure(
            f"service-{name}",
            f"AT at 100 updates a second and broker: {name} over the work of a request or event",
            "service",
            Axis("service_ms", "work on one request or event, ms"),
            axis,
            lines=("way",),
            panels="joined",
            where={"workload": "AT"},
            names={"True": "waiting requests are joined", "False": "none are joined"},
            caption="Brokers with one line and one time for everything.",
        )
        for name, axis in (("throughput", _THROUGHPUT), ("delay", _DELAY))
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
        for name, axis in (
            ("throughput", _THROUGHPUT),
            ("delay", _DELAY),
            ("spurious", _SPURIOUS),
            ("doubled", Axis("doubled_per_s", "events that came twice a second")),
            ("work", Axis("cpu_ms_per_s", "CPU of all brokers, ms a second")),
        )
    ),
)

STUDY: Final = Study(
    name="parametric",
    title="Updates against re-subscription",
    paper="K. R. Jayaram, C. Jayalath, P. Eugster: Parametric Subscriptions for Content-Based "
    "Publish/Subscribe Networks, Middleware 2010",
    method=METHOD,
    choices=CHOICES,
    experiments=_EXPERIMENTS,
    figures=(*_adaptations(), *_OTHERS),
    claims=CLAIMS,
)
