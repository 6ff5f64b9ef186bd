"""What the paper claims of parametric subscriptions (parametric 5), and the checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from palio_studies.checks import Check, listed, needed
from palio_studies.names import Value
from palio_studies.parametric_runs import ENGINES, LINEAR, RESUBSCRIPTIONS, RETE, SIENA, UPD
from palio_studies.results import Results
from palio_studies.study import SEEN, Claim, Evidence, Table

PLACE: Final = ("workload", "engine", "joined", "updates_per_s", "events_per_s")
"""What two runs that are compared have in common."""

TIMED: Final = ("adaptation",)
"""The experiment whose swings are long enough to tell a delay..."""

COUNTED: Final = (*TIMED, "scaling", "flow")
"""...and those whose events are counted."""

PAIR: Final = (SIENA, RETE)

MEASURES: Final = {
    "delay": "delay_ms",
    "spurious events": "spurious_per_s",
    "throughput": "delivered_per_s",
}

FEW_PER_S: Final = 5.0
"""Of fewer spurious or delivered events a second on both sides no factor is taken."""

DELAY_FACTOR: Final = 6.0
SPURIOUS_FACTOR: Final = 6.0
THROUGHPUT_FACTOR: Final = 8.0
SCALING_FACTOR: Final = 2.25
LEAST_RUNS: Final = 3
"""Seeds without which the intervals of a mean say nothing."""
NEAR: Final = 0.25
"""A factor "of about" may be off by this share."""

RETAINED: Final = 0.9
"""Well above 9,000 of what the paper draws as some 10,000."""


class TimesWorse(NamedTuple):
    """How many times worse a re-subscription was than UPD in one place."""

    times: float
    ours: float
    theirs: float
    where: str
    place: tuple[Value, ...] = ()
    """The workload, the engine, and whether waiting requests are joined."""
    unheard: tuple[float, float] = (0.0, 0.0)
    """The shares of changes that were not answered, ours and theirs. Without an answer the delay
    of re-subscriptions is a lower bound, and so is the factor; of ours, it says nothing."""

    @property
    def is_exact(self) -> bool:
        """Whether it is the factor itself, and no bound."""
        return self.unheard == (0.0, 0.0)

    def __str__(self) -> str:
        bound = " or more" if self.unheard[1] else ""
        return f"{self.times:.1f}{bound} ({self.ours:,.0f} : {self.theirs:,.0f}; {self.where})"


def factors(results: Results, experiment: str, column: str) -> list[TimesWorse]:
    """Each way of re-subscribing beside UPD, wherever both were run; the greatest factor first.

    A delay of UPD itself that was not measured is compared with nothing.
    """
    means = results.mean(experiment, column, by=(*PLACE, "way"))
    unheard = results.mean(experiment, "unheard", by=(*PLACE, "way"))
    found = []
    for (*where, way), mean in means.items():
        if way == UPD or (*where, UPD) not in means:
            continue
        ours, theirs = means[*where, UPD].value, mean.value
        above, below = (ours, theirs) if column == "delivered_per_s" else (theirs, ours)
        if max(ours, theirs) < FEW_PER_S or below <= 0:
            continue
        silent = (unheard[*where, UPD].value, unheard[*where, way].value)
        words = f"{_words(dict(zip(PLACE, where, strict=True)))}, {way}"
        bounds = silent if column == "delay_ms" else (0.0, 0.0)
        found.append(TimesWorse(above / below, ours, theirs, words, tuple(where[:3]), bounds))
    return sorted(found, key=lambda factor: -factor.times)


def _words(where: Mapping[str, Value]) -> str:
    rate = float(where["updates_per_s"])
    return f"{where['workload']}, {where['engine']}, {rate:.0f}/s, {_joined(where['joined'])}"


def _joined(joined: Value) -> str:
    return "joined" if joined else "not joined"


def _up_to(column: str, least: float, experiments: Sequence[str]) -> Check:
    """The greatest factor of all runs is so great; open if one that is not may be a bound."""

    def check(results: Results) -> Evidence:
        found = [each for name in experiments for each in factors(results, name, column)]
        told = [each for each in found if not each.unheard[0]]
        needed(told, "no two runs to compare")
        best = max(told, key=lambda factor: factor.times)
        numbers = [f"at the most {best}"]
        numbers += [
            f"{named} {max(others, key=lambda factor: factor.times)}"
            for named, others in {
                "where waiting requests are joined": [each for each in told if each.place[2]],
                "where an UPD is as dear as a SUB": [
                    each for each in told if each.place[1] == LINEAR
                ],
            }.items()
            if others
        ]
        is_decided = best.times >= least or all(each.is_exact for each in found)
        if not is_decided:
            numbers.append("some delays are lower bounds")
        return Evidence(best.times >= least if is_decided else None, "; ".join(numbers))

    return check


def _throughput(results: Results, experiment: str, **where: Value) -> dict[Value, float]:
    """By the rate of updates."""
    return results.line(experiment, "delivered_per_s", "updates_per_s", **where)


def _siena_ends(results: Results) -> Evidence:
    """Of what re-subscribers of siena are delivered, how much is left at 100 updates a second."""
    place: Mapping[str, Value] = {"engine": "siena", "joined": False}
    ways = results.values("scaling", "way", **place)
    lines = {way: _throughput(results, "scaling", way=way, **place) for way in ways}
    rates = sorted(set.intersection(*(set(line) for line in lines.values()))) if lines else []
    needed(len(rates) >= 2, "two rates are needed")
    low, high = rates[0], rates[-1]
    left = {way: line[high] / line[low] for way, line in lines.items()}
    return Evidence(
        all(share <= 0.5 for way, share in left.items() if way != UPD),
        f"from {low:.0f} to {high:.0f} updates a second of the events are left: "
        + listed(left, "{1:.0%} with {0}"),
    )


def _scaling(results: Results) -> Evidence:
    """The factor of throughput at the greatest rate at which both were run."""
    found = factors(results, "scaling", "delivered_per_s")
    best = next((each for each in found if "rete, 1000/s" in each.where), None)
    if best is None:
        return Evidence(None, "1,000 updates a second and subscriber were not run")
    return Evidence(abs(best.times - SCALING_FACTOR) <= NEAR * SCALING_FACTOR, str(best))


def _retained(results: Results) -> Evidence:
    """What UPD keeps of its throughput on rete, joined or not."""
    kept: list[tuple[float, float, bool]] = []
    for joined in (False, True):
        line = _throughput(results, "scaling", engine="rete", way=UPD, joined=joined)
        if len(line) > 1:
            kept.append((float(max(line)), line[max(line)] / line[min(line)], joined))
    numbers = "; ".join(
        f"{share:.0%} at {high:.0f}/s, {_joined(joined)}" for high, share, joined in kept
    )
    needed(kept and max(kept)[0] >= 1000, numbers or "not run")
    return Evidence(all(share >= RETAINED for _, share, _ in kept), numbers)


def _graceful(results: Results) -> Evidence:
    """Of re-subscribers, how much throughput is left at the greatest rate of both engines."""
    numbers, held = [], []
    for workload, way in product(results.values("adaptation", "workload"), RESUBSCRIPTIONS):
        place: dict[str, Value] = {"workload": workload, "way": way, "joined": False}
        lines = [_throughput(results, "adaptation", engine=name, **place) for name in PAIR]
        common = sorted(lines[0].keys() & lines[1].keys())
        if len(common) >= 2:
            siena, rete = (line[common[-1]] / line[common[0]] for line in lines)
            held.append(rete > siena)
            numbers.append(f"{workload}, {way}: {siena:.0%} on siena, {rete:.0%} on rete")
    needed(held, "two rates are needed")
    return Evidence(all(held), "; ".join(numbers))


def _spurious_follows(results: Results) -> Evidence:
    """Where delay of re-subscribers has grown by half, so have spurious events."""
    columns = ("workload", "engine", "joined", "way")
    numbers, held = [], []
    for line in product(*(results.values("adaptation", name) for name in columns)):
        where = dict(zip(columns, line, strict=True))
        delays, shares = (
            results.line("adaptation", column, "updates_per_s", **where)
            for column in ("delay_ms", "spurious_share")
        )
        for rate in [*delays][1:] if line[-1] != UPD else []:
            first = min(delays)
            grown = delays[rate] / delays[first]
            more = shares[rate] / max(shares[first], 1e-9)
            if grown >= 1.5:
                held.append(more >= 1.5)
                workload, engine, joined, way = line
                place = f"{workload}, {engine}, {_joined(joined)}, {way}"
                numbers.append(f"{place}: delay {grown:.1f} times, share {more:.1f}")
    needed(held, "delay has grown by half nowhere")
    return Evidence(all(held), "; ".join(numbers))


def _rete_spurious(results: Results) -> Evidence:
    """Spurious events of re-subscribers on rete, beside those of UPD on siena."""
    by = ["workload", "engine", "way"]
    place: Mapping[str, Value] = {"joined": False, "updates_per_s": 100}
    means = results.mean("adaptation", "spurious_per_s", by, **place)
    numbers, held = [], []
    for workload in results.values("adaptation", "workload", **place):
        ours = means[workload, "siena", UPD]
        theirs = max(means[workload, "rete", way] for way in RESUBSCRIPTIONS)
        held.append(theirs.low > ours.high)
        numbers.append(f"{workload}: {theirs} a second on rete, {ours} with UPD on siena")
    needed(held, "100 updates a second were not run")
    told = "; ".join(numbers)
    is_enough = min(mean.runs for mean in means.values()) >= LEAST_RUNS
    needed(is_enough, f"too few seeds to tell: {told}")
    return Evidence(all(held), told)


def _gaps(results: Results) -> Evidence:
    """Events missed in changes by brokers that are not behind, and those that came twice."""
    missed: dict[str, float] = {}
    twice: dict[str, float] = {}
    for experiment in ("adaptation", "crowd", "flow"):
        for row in results.rows(experiment, engine=RETE, joined=False, unheard=0.0):
            way = str(row["way"])
            missed[way] = max(missed.get(way, 0.0), float(row["missed"]))
            twice[way] = max(twice.get(way, 0.0), float(row["doubled"]))
    needed(UPD in missed and len(missed) > 1, "nothing to compare UPD with")
    numbers = "; ".join(
        f"{way}: at the most {share:.1%} missed, {twice[way]:.0f} twice"
        for way, share in missed.items()
    )
    is_clean = missed.pop(UPD) == 0 == twice.pop(UPD)
    return Evidence(is_clean and any([*missed.values(), *twice.values()]), numbers)


def _improvements(results: Results) -> list[list[str]]:
    """The greatest factor of each workload and measure, by engine, where nothing is joined."""
    lines = []
    for workload, (measure, column) in product(("HTM", "AT"), MEASURES.items()):
        found = factors(results, "adaptation", column)
        cells = []
        for engine in ENGINES:
            own = [
                each
                for each in found
                if each.place == (workload, engine, False) and not each.unheard[0]
            ]
            cells.append(str(own[0]).partition(" (")[0] if own else "-")
        if set(cells) != {"-"}:
            lines.append([workload, measure, *cells])
    return [["", "improvement", *ENGINES], *lines]


IMPROVEMENTS: Final = Table(
    "improvements",
    "Table 1: improvement by parametric subscriptions",
    _improvements,
    "Times, at the most over all rates and orders of re-subscribing, without joining. The paper's "
    "cells are lost but for its summary: up to 6, 6 and 8.",
)

CLAIMS: Final = (
    Claim(
        "delay",
        "A change takes effect up to 6 times sooner",
        f"{DELAY_FACTOR:g} times the delay of UPD with some re-subscription, somewhere",
        _up_to("delay_ms", DELAY_FACTOR, TIMED),
    ),
    Claim(
        "spurious",
        "Up to 6 times fewer stale events reach subscribers",
        f"{SPURIOUS_FACTOR:g} times those of UPD with some re-subscription, somewhere",
        _up_to("spurious_per_s", SPURIOUS_FACTOR, COUNTED),
        "An event is spurious if it was on its way when its subscriber narrowed. With 10 ms on "
        "each link that is about as many for all ways; and brokers that are full deliver fewer "
        "events of any kind.",
        SEEN,
    ),
    Claim(
        "throughput",
        "Up to 8 times the throughput",
        f"{THROUGHPUT_FACTOR:g} times the events of some re-subscription, somewhere",
        _up_to("delivered_per_s", THROUGHPUT_FACTOR, COUNTED),
    ),
    Claim(
        "siena-ends",
        "Siena does not scale beyond 100 updates a second and subscriber",
        "at that rate re-subscribers of either order are delivered at most half of what they are "
        "at the lowest",
        _siena_ends,
    ),
    Claim(
        "scaling-2.25",
        "At 1,000 updates a second and subscriber EventJava delivers 2.25 times as much with UPD",
        f"{SCALING_FACTOR} times, give or take {NEAR:.0%}",
        _scaling,
        "1,000 is run with joining only, and that leaves of a subscriber's waiting changes one UPD "
        "or one pair: twice the work at the most, which these brokers have time for.",
        SEEN,
    ),
    Claim(
        "scaling-retained",
        "EventJava with UPD keeps its throughput up to 1,000 updates a second and subscriber",
        f"at least {RETAINED:.0%} of that at the lowest rate",
        _retained,
        "Without joining 150 subscribers with 100 updates a second each are 15,000 requests at "
        "every broker, 1.05 times what it can do: few are hidden by other filters.",
        SEEN,
    ),
    Claim(
        "graceful",
        "EventJava's throughput falls more gracefully than Siena's",
        "of re-subscribers' throughput more is left on rete than on siena at the greatest rate of "
        "both, in each workload and order",
        _graceful,
    ),
    Claim(
        "spurious-follows-delay",
        "Spurious events increase with delay",
        "where re-subscribers' delay grows by half, spurious events' share does as well",
        _spurious_follows,
        "Events wait in the same line as requests where brokers have one poset: the later a change "
        "is in force, the later events come, too.",
        SEEN,
    ),
    Claim(
        "rete-spurious",
        "Re-subscribers of EventJava get more spurious events than subscribers of UPDSiena",
        "more at 100 updates a second and broker, beyond the intervals, in each workload",
        _rete_spurious,
        "These brokers have more time than requests, so a re-subscription is in force as soon as "
        "an update, and as many events are on their way.",
        SEEN,
    ),
    Claim(
        "gaps",
        "Re-subscription misses events or doubles them, updates do neither",
        "UPD misses none and doubles none where brokers are not behind; some re-subscription does",
        _gaps,
    ),
)
