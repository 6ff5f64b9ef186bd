"""What the multicast paper says of links by match rate, and whether deliveries are right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from palio_studies.multicast_network import CLASSES
from palio_studies.multicast_scenes import NON_REGIONAL
from palio_studies.multicast_ways import CLUSTERED, LIKENESS, THRESHOLD, UNICAST
from palio_studies.results import Results
from palio_studies.study import Claim, Evidence, Value

__all__ = [
    "CLUSTERS",
    "COMMON",
    "HIGHEST",
    "INTERMEDIATE",
    "LINK_CLAIMS",
    "LOWEST",
    "PRACTICAL",
    "listed",
    "means_by_method",
]

BACKBONE, INTERMEDIATE, FRINGE = CLASSES
CLUSTERS: Final = (CLUSTERED, THRESHOLD)
PRACTICAL: Final = ("flooding", CLUSTERED, THRESHOLD, "neighbours", "approximated")
"""The methods of the paper, but for the one that has too many groups."""
EXACT: Final = ("ideal", CLUSTERED, LIKENESS, UNICAST)
"""Those that bring an event to nobody who does not want it."""

HIGHEST, LOWEST = -1, 0
SELECTIVE: Final = 0.1
"""Match rates up to this, in %, are low..."""
COMMON: Final = 1.0
"""...and from this on events are wanted by more than half of the brokers."""


def means_by_method(
    results: Results, experiment: str, column: str, **where: Value
) -> dict[str, float]:
    """By method the mean of a column."""
    found = results.mean(experiment, column, by=["method"], **where)
    return {str(name): mean.value for (name,), mean in found.items()}


def _rates(results: Results) -> list[float]:
    """The match rates that were run, in %."""
    return [float(each) for each in results.values("match-rate", "match", kind=NON_REGIONAL)]


def _at(results: Results, column: str, match: float) -> dict[str, float]:
    return means_by_method(results, "match-rate", column, match=match)


def listed(found: Iterable[tuple[str, float]], digits: int = 2) -> str:
    """Names and numbers, as a reader wants them."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in found)


def _of_flooding(found: dict[str, float], methods: Iterable[str]) -> list[tuple[str, float]]:
    return [(name, found[name] / found["flooding"]) for name in methods]


# --- whether it is right ---


def _exact(results: Results) -> Evidence:
    rows = [*results.rows("match-rate"), *results.rows("regionalism")]
    missed = sum(int(row["missed"]) for row in rows)
    wasted = sum(float(row["waste"]) for row in rows if row["method"] in EXACT)
    return Evidence(
        missed == 0 and wasted == 0,
        f"{missed} missed in {len(rows):,} runs of a method; "
        f"the exact ones waste {wasted:g} brokers an event",
    )


def _ideal_is_least(results: Results) -> Evidence:
    least: dict[tuple[Value, ...], dict[str, float]] = {}
    for experiment in ("match-rate", "regionalism"):
        for row in results.rows(experiment):
            run = (experiment, row["kind"], row["match"], row["regionalism"], row["seed"])
            least.setdefault(run, {})[str(row["method"])] = float(row["links"])
    worst = min(
        (links[name] / links["ideal"], name)
        for links in least.values()
        for name in links
        if name != "ideal"
    )
    return Evidence(
        worst[0] >= 1 - 1e-9, f"{worst[1]} comes nearest: {worst[0]:.3f} times the ideal's links"
    )


# --- match rates ---


def _most_want_it(results: Results) -> Evidence:
    wanted = {rate: _at(results, "wanted", rate)["ideal"] for rate in _rates(results)}
    if not any(rate >= COMMON for rate in wanted):
        return Evidence(None, "no match rate of 1% was run")
    first = min(rate for rate in wanted if rate >= COMMON)
    return Evidence(
        wanted[first] > 50,
        "of 100 brokers "
        + ", ".join(f"{count:.1f} at {rate:g}%" for rate, count in wanted.items()),
    )


def _selective_pays(results: Results) -> Evidence:
    rate = _rates(results)[LOWEST]
    saved = _of_flooding(_at(results, INTERMEDIATE, rate), (*CLUSTERS, "neighbours"))
    return Evidence(
        all(share < 0.5 for _, share in saved),
        f"at {rate:g}%, of flooding's intermediate links: {listed(saved)}",
    )


def _flooding_wins(results: Results) -> Evidence:
    rate = _rates(results)[HIGHEST]
    found = _of_flooding(_at(results, "links", rate), (*CLUSTERS, "neighbours", "ideal"))
    return Evidence(
        all(share >= 1 for _, share in found[:-1]) and found[-1][1] > 0.9,
        f"at {rate:g}%, of flooding's links: {listed(found)}",
    )


def _clusters_strain_backbone(results: Results) -> Evidence:
    rates = [rate for rate in _rates(results) if rate >= COMMON]
    ratios = []
    for rate in rates:
        found = _at(results, BACKBONE, rate)
        ratios += [(f"{name} at {rate:g}%", found[name] / found["ideal"]) for name in CLUSTERS]
    return Evidence(
        min(ratio for _, ratio in ratios) > 1.5 if ratios else None,
        f"of the ideal's backbone links: {listed(ratios)}",
    )


def _others_spare_backbone(results: Results) -> Evidence:
    ratios = []
    for rate in [rate for rate in _rates(results) if rate >= SELECTIVE]:
        found = _at(results, BACKBONE, rate)
        ratios += [
            (found[name] / found["ideal"], f"{name} at {rate:g}%")
            for name in ("flooding", "neighbours", "approximated")
        ]
    worst = max(ratios)
    return Evidence(
        worst[0] < 1.5,
        f"from {SELECTIVE:g}% on at most {worst[0]:.2f} times the ideal ({worst[1]})",
    )


def _neighbours_beat_ideal(results: Results) -> Evidence:
    found = [(rate, _at(results, BACKBONE, rate)) for rate in _rates(results)]
    ratios = [(f"at {rate:g}%", each["neighbours"] / each["ideal"]) for rate, each in found]
    return Evidence(
        all(ratio <= 1 for _, ratio in ratios),
        f"neighbours use of the ideal's backbone links: {listed(ratios, 3)}",
    )


def _intermediate_best(results: Results) -> Evidence:
    rates = [rate for rate in _rates(results) if rate <= SELECTIVE]
    best = []
    for rate in rates:
        found = _at(results, INTERMEDIATE, rate)
        best.append((rate, sorted(PRACTICAL, key=found.__getitem__)[:3]))
    expected = {CLUSTERED, THRESHOLD, "neighbours"}
    return Evidence(
        all(set(names) == expected for _, names in best) if best else None,
        "; ".join(f"at {rate:g}% the least: {', '.join(names)}" for rate, names in best),
    )


def _clusters_cross(results: Results) -> Evidence:
    found = [
        (rate, dict(_of_flooding(_at(results, INTERMEDIATE, rate), CLUSTERS)))
        for rate in _rates(results)
    ]
    first, last = found[LOWEST][1], found[HIGHEST][1]
    return Evidence(
        all(first[name] < 1 < last[name] for name in CLUSTERS),
        "of flooding's intermediate links: "
        + "; ".join(f"at {rate:g}% {listed(each.items())}" for rate, each in found),
    )


def _approximation_never_worse(results: Results) -> Evidence:
    found = [
        (
            _at(results, kind, rate)["approximated"] / _at(results, kind, rate)["flooding"],
            kind,
            rate,
        )
        for rate in _rates(results)
        for kind in CLASSES
    ]
    worst = max(found)
    return Evidence(
        worst[0] <= 1 + 1e-9,
        f"at most {worst[0]:.3f} of flooding's links ({worst[1]} at {worst[2]:g}%)",
    )


def _approximation_is_slight(results: Results) -> Evidence:
    saved = [
        (f"at {rate:g}%", 1 - dict(_of_flooding(found, ["approximated"]))["approximated"])
        for rate in _rates(results)
        if (found := _at(results, INTERMEDIATE, rate))
    ]
    return Evidence(
        all(share < 0.25 for _, share in saved),
        f"spares of flooding's intermediate links: {listed(saved)}",
    )


# --- fringe links ---


def _clusters_exact_at_fringe(results: Results) -> Evidence:
    gaps = []
    for rate in _rates(results):
        links, sends = _at(results, FRINGE, rate), _at(results, "sends", rate)
        beyond = links[CLUSTERED] - links["ideal"]
        gaps.append((abs(beyond - (sends[CLUSTERED] - sends["ideal"])), rate, beyond))
    return Evidence(
        max(gaps)[0] < 1e-6,
        "CGM uses beyond the ideal just the publisher's link again, an event: "
        + ", ".join(f"{beyond:.1f} times at {rate:g}%" for _, rate, beyond in gaps),
    )


def _imprecise_floods_fringe(results: Results) -> Evidence:
    rates = [rate for rate in _rates(results) if rate >= COMMON]
    if not rates:
        return Evidence(None, "no match rate of 1% was run")
    found = _of_flooding(_at(results, FRINGE, min(rates)), ("approximated", THRESHOLD, "ideal"))
    return Evidence(
        all(share > 0.7 for _, share in found[:2]),
        f"at {min(rates):g}%, of flooding's fringe links: {listed(found)}",
    )


def _neighbours_worst_at_fringe(results: Results) -> Evidence:
    rates = _rates(results)
    found = [(rate, _at(results, FRINGE, rate)) for rate in rates]
    ratios = [(f"at {rate:g}%", each["neighbours"] / each["flooding"]) for rate, each in found]
    return Evidence(
        ratios[HIGHEST][1] > 1
        and all(found[HIGHEST][1]["neighbours"] >= found[HIGHEST][1][name] for name in PRACTICAL),
        f"neighbours use of flooding's fringe links: {listed(ratios)}",
    )


LINK_CLAIMS: Final = (
    Claim(
        "delivery",
        "Everyone who wants an event gets it, and the exact methods bring it to nobody else.",
        "nobody missed in any run; no waste of ideal, CGM and unicast",
        _exact,
    ),
    Claim(
        "ideal",
        "Ideal multicast is a lower bound of the bandwidth.",
        "in no run has any method fewer links in all",
        _ideal_is_least,
    ),
    Claim(
        "most-brokers",
        "A fairly low match rate makes nearly every event one for most brokers.",
        "at 1% more than half of the brokers want an event",
        _most_want_it,
    ),
    Claim(
        "selective",
        "Where subscriptions are highly selective, CGM, threshold CGM and neighbour matching do "
        "significantly better than flooding.",
        "at the lowest match rate less than half of flooding's intermediate links",
        _selective_pays,
    ),
    Claim(
        "flooding",
        "Flooding is viable over a wide range: all methods but the ideal one converge to as many "
        "links, or more.",
        "at the highest match rate no fewer links than flooding; the ideal more than 90% of them",
        _flooding_wins,
    ),
    Claim(
        "backbone-clusters",
        "Cluster methods use several times the backbone links of others: they send several times.",
        "from 1% on more than 1.5 times the ideal's",
        _clusters_strain_backbone,
    ),
    Claim(
        "backbone-others",
        "The others are much alike on the backbone, and close to ideal.",
        "from 0.1% on less than 1.5 times the ideal's",
        _others_spare_backbone,
    ),
    Claim(
        "backbone-neighbours",
        "Neighbour matching uses slightly fewer backbone links than ideal multicast.",
        "at every match rate no more than the ideal's",
        _neighbours_beat_ideal,
        "In these networks the ideal's backbone links are the fewest there can be: those of the "
        "exact optimum, 4.00 of both at 1%. The hops between neighbours take others besides.",
    ),
    Claim(
        "intermediate-best",
        "On intermediate links, with selective subscriptions, neighbour matching and the cluster "
        "methods do best.",
        "up to 0.1% these three have the fewest",
        _intermediate_best,
    ),
    Claim(
        "intermediate-crossing",
        "At higher match rates CGM and threshold CGM do worse than flooding on intermediate links.",
        "fewer than flooding at the lowest rate, more at the highest",
        _clusters_cross,
    ),
    Claim(
        "approximation",
        "Group approximation is never worse than flooding.",
        "no more links of any class at any match rate",
        _approximation_never_worse,
    ),
    Claim(
        "approximation-slight",
        "Group approximation improves on flooding only slightly.",
        "spares less than a quarter of the intermediate links at every match rate",
        _approximation_is_slight,
        "At low match rates there are few sets, and the planner merges the best of all pairs where "
        "the paper merges in an order of size. From 1% on it holds.",
    ),
    Claim(
        "fringe-clusters",
        "On fringe links exact clusters are as the ideal, but for the publisher's own link.",
        "the difference is the number of sends beyond the first",
        _clusters_exact_at_fringe,
    ),
    Claim(
        "fringe-imprecise",
        "On fringe links the imprecise methods of one hop quickly come near flooding.",
        "at 1% more than 70% of flooding's",
        _imprecise_floods_fringe,
    ),
    Claim(
        "fringe-neighbours",
        "Neighbour matching is the worst on fringe links, as it crosses those of the brokers "
        "between.",
        "at the highest match rate more than flooding and every other",
        _neighbours_worst_at_fringe,
    ),
)
