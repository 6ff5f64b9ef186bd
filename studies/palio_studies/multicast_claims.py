"""What the multicast paper says that its evaluation shows, each sentence with its check.

Those on links by match rate are in `multicast_link_claims`, those on subscriptions that change in
`multicast_drift_claims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palio_studies.multicast_drift_claims import DRIFT_CLAIMS
from palio_studies.multicast_link_claims import (
    CLUSTERS,
    COMMON,
    HIGHEST,
    INTERMEDIATE,
    LINK_CLAIMS,
    LOWEST,
    PRACTICAL,
    listed,
    means_by_method,
)
from palio_studies.multicast_queues import MATCHING_S
from palio_studies.multicast_scenes import PUBLISHER_REGIONAL, REGIONAL
from palio_studies.multicast_ways import CLUSTERED, LIKENESS
from palio_studies.results import Results
from palio_studies.study import Claim, Evidence, Value

__all__ = ["CLAIMS"]


# --- regionalism ---


def _degrees(results: Results) -> list[float]:
    return [float(each) for each in results.values("regionalism", "regionalism", kind=REGIONAL)]


def _regional(
    results: Results, degree: float, column: str = INTERMEDIATE, kind: str = REGIONAL
) -> dict[str, float]:
    return means_by_method(
        results, "regionalism", column, kind=kind, regionalism=degree, match=COMMON
    )


def _regions_help(results: Results) -> Evidence:
    degrees = _degrees(results)
    first, last = (_regional(results, degrees[end]) for end in (LOWEST, HIGHEST))
    methods = ("ideal", *CLUSTERS, "neighbours")
    shares = [(name, last[name] / first[name]) for name in (*methods, "flooding")]
    return Evidence(
        all(share < 0.5 for _, share in shares[:-1]) and abs(shares[-1][1] - 1) < 0.05,
        f"intermediate links at {degrees[HIGHEST]:g}, of those at {degrees[LOWEST]:g}: "
        f"{listed(shares)}",
    )


def _only_high_degrees(results: Results) -> Evidence:
    low = [degree for degree in _degrees(results) if degree <= 0.6]
    saved = []
    for degree in low:
        first, found = _regional(results, low[LOWEST]), _regional(results, degree)
        saved += [
            (1 - found[name] / first[name], f"{name} at {degree:g}")
            for name in (*CLUSTERS, "neighbours")
        ]
    best = max(saved)
    return Evidence(
        best[0] < 0.1,
        f"up to {low[HIGHEST]:g}, regionalism spares at most {best[0]:.0%} of the intermediate "
        f"links that a method uses without ({best[1]})",
    )


def _clusters_become_ideal(results: Results) -> Evidence:
    degree = _degrees(results)[HIGHEST]
    found = _regional(results, degree)
    ratios = [(name, found[name] / found["ideal"]) for name in CLUSTERS]
    return Evidence(
        degree == 1 and all(ratio < 1.05 for _, ratio in ratios),
        f"at {degree:g}, of the ideal's intermediate links: {listed(ratios, 3)}",
    )


def _approximation_mixes_regions(results: Results) -> Evidence:
    ratios = []
    for degree in _degrees(results):
        if degree >= 0.8:
            found = _regional(results, degree)
            ratios.append((f"at {degree:g}", found["approximated"] / found["ideal"]))
    return Evidence(
        all(ratio > 1.5 for _, ratio in ratios) if ratios else None,
        f"the approximation uses of the ideal's intermediate links: {listed(ratios)}",
    )


def _publisher_is_no_matter(results: Results) -> Evidence:
    differences = []
    for degree in _degrees(results):
        one, other = (
            _regional(results, degree, kind=kind) for kind in (REGIONAL, PUBLISHER_REGIONAL)
        )
        differences += [
            (abs(other[name] / one[name] - 1), f"{name} at {degree:g}")
            for name in ("ideal", *PRACTICAL)
        ]
    worst = max(differences)
    partial = max(each for each in differences if not each[1].endswith(" at 1"))
    return Evidence(
        worst[0] < 0.1,
        f"intermediate links differ by at most {worst[0]:.0%} ({worst[1]}); below total "
        f"regionalism by {partial[0]:.0%} ({partial[1]})",
    )


def _regions_are_found(results: Results) -> Evidence:
    degrees = _degrees(results)
    found = [_regional(results, degree, "regionalism_found")["ideal"] for degree in degrees]
    alike = [_regional(results, degree, "regions_found")["ideal"] for degree in degrees]
    return Evidence(
        found == sorted(found) and found[HIGHEST] > 0.99 and alike[HIGHEST] > 0.9,
        "said of degrees "
        + ", ".join(
            f"{degree:g}: {share:.2f} (clusters by likeness {pairs:.0%} right)"
            for degree, share, pairs in zip(degrees, found, alike, strict=True)
        ),
    )


# --- latency ---


def _latency(results: Results, **where: Value) -> dict[str, float]:
    return means_by_method(results, "latency", "latency_ms", **where)


def _cases(results: Results) -> Sequence[tuple[float, float]]:
    return [
        (float(match), float(degree))
        for match in results.values("latency", "match")
        for degree in results.values("latency", "regionalism", match=match)
    ]


def _latency_is_equal(results: Results) -> Evidence:
    rate = min(results.values("latency", "rate"))
    differences = []
    for match, degree in _cases(results):
        found = _latency(results, match=match, regionalism=degree, rate=rate, ambient=0.3)
        if found:
            differences += [
                (found[name] / found["ideal"] - 1, f"{name} at {match:g}%")
                for name in (*PRACTICAL, LIKENESS)
                if name != "neighbours"
            ]
    worst = max(differences)
    return Evidence(
        worst[0] < 0.05,
        f"at {rate:g} events a second at most {worst[0]:.1%} more than the ideal ({worst[1]})",
    )


def _neighbours_are_slower(results: Results) -> Evidence:
    ratios = []
    for match, degree in _cases(results):
        for rate in results.values("latency", "rate", match=match, regionalism=degree):
            found = _latency(results, match=match, regionalism=degree, rate=rate, ambient=0.3)
            if found:
                ratios.append(
                    (
                        found["neighbours"] / found["ideal"],
                        f"{match:g}%, {rate:g} events a second, regionalism {degree:g}",
                    )
                )
    least, most = min(ratios), max(ratios)
    matched = means_by_method(results, "latency", "matched")
    beyond = 1e3 * MATCHING_S * (matched["neighbours"] - matched["ideal"])
    return Evidence(
        least[0] > 1.05,
        f"{least[0]:.2f} ({least[1]}) to {most[0]:.2f} times the ideal ({most[1]}); "
        f"{matched['neighbours']:.1f} brokers match an event before it is delivered, "
        f"{matched['ideal']:.0f} with the ideal, which takes {beyond:.1f} ms of it",
    )


def _rates_tell(results: Results) -> Evidence:
    rates = results.values("latency", "rate")
    match = max(results.values("latency", "match"))
    ratios = []
    for rate in (rates[LOWEST], rates[HIGHEST]):
        found = _latency(results, match=match, regionalism=0.0, rate=rate, ambient=0.3)
        ratios.append(found[CLUSTERED] / found["flooding"])
    return Evidence(
        ratios[0] < 1.05 and ratios[1] > 1.2,
        f"CGM takes {ratios[0]:.2f} times flooding's time at {rates[LOWEST]:g} events a second and "
        f"{ratios[1]:.2f} times at {rates[HIGHEST]:g}, both at {match:g}%",
    )


# --- groups and prices ---


def _thresholds_spare_groups(results: Results) -> Evidence:
    ratios = []
    for clusters in results.values("groups", "clusters", brokers=100):
        found = means_by_method(results, "groups", "needed", brokers=100, clusters=clusters)
        ratio = found["CGM"] / found["threshold CGM, up to 3"]
        ratios.append((f"{clusters} clusters", ratio))
    return Evidence(
        max(ratio for _, ratio in ratios) >= 100,
        f"CGM needs so many times the groups of threshold CGM up to 3: {listed(ratios, 1)}",
    )


def _winner(results: Results, prices: str, match: float) -> list[tuple[str, float]]:
    by = results.mean(
        "prices",
        "price",
        by=["planner"],
        prices=prices,
        match=match,
        by_price="no",
        regionalism=0.0,
    )
    costs = {str(name): mean.value for (name,), mean in by.items()}
    return sorted(((name, costs[name]) for name in PRACTICAL), key=lambda one: one[1])


def _prices_decide(results: Results) -> Evidence:
    says, holds = [], True
    for match in results.values("prices", "match"):
        fringe, between, backbone = (
            _winner(results, f"{kind} dear", float(match))[0][0]
            for kind in ("fringe", "intermediate", "backbone")
        )
        holds &= fringe in CLUSTERS and between == "neighbours" and backbone not in CLUSTERS
        says.append(
            f"at {match:g}%: fringe dear {fringe}, intermediate dear {between}, "
            f"backbone dear {backbone}"
        )
    return Evidence(holds if says else None, "; ".join(says))


def _priced_plans_pay(results: Results) -> Evidence:
    by = results.mean("prices", "price", by=["planner", "prices", "by_price"])
    ratios = [
        (by[planner, prices, "yes"].value / by[planner, prices, "no"].value, f"{planner}, {prices}")
        for planner, prices, by_price in by
        if by_price == "yes" and prices != "equal prices"
    ]
    worse = [each for each in ratios if each[0] > 1.001]
    return Evidence(
        not worse,
        f"{len(ratios) - len(worse)} of {len(ratios)} are no dearer; from {min(ratios)[0]:.3f} "
        f"({min(ratios)[1]}) to {max(ratios)[0]:.3f} ({max(ratios)[1]}) of the price without",
    )


def _nothing_below_optimum(results: Results) -> Evidence:
    least: dict[tuple[Value, ...], dict[tuple[str, str], float]] = {}
    for row in results.rows("prices"):
        run = (row["match"], row["regionalism"], row["prices"], row["seed"])
        cell = (str(row["planner"]), str(row["by_price"]))
        least.setdefault(run, {})[cell] = float(row["price"])
    ratios = [
        (price / costs["optimum", "no"], cell[0])
        for costs in least.values()
        for cell, price in costs.items()
        if cell[0] != "optimum"
    ]
    ideal = [ratio for ratio, name in ratios if name == "ideal"]
    return Evidence(
        min(ratios)[0] >= 1 - 1e-9,
        f"the ideal plan costs {min(ideal):.3f} to {max(ideal):.3f} times the optimum; of all, the "
        f"least is {min(ratios)[0]:.3f} times ({min(ratios)[1]})",
    )


CLAIMS: Final = (
    *LINK_CLAIMS,
    Claim(
        "regional",
        "With rising regionalism all but the approximation improve much on flooding.",
        "at total regionalism less than half of the intermediate links; flooding as before",
        _regions_help,
    ),
    Claim(
        "regional-late",
        "...but only at high degrees.",
        "up to 0.6 no method saves a tenth of its intermediate links",
        _only_high_degrees,
    ),
    Claim(
        "regional-clusters",
        "At total regionalism the cluster methods are as the ideal, for clusters are the regions.",
        "less than 1.05 times the ideal's intermediate links",
        _clusters_become_ideal,
    ),
    Claim(
        "regional-approximation",
        "The approximation gains less, for it merges groups of separate regions.",
        "from 0.8 on more than 1.5 times the ideal's intermediate links",
        _approximation_mixes_regions,
        "The planner merges the pair that wastes least, of all pairs; sets of two regions are such "
        "only when nothing else is left. At total regionalism few sets remain, and each has a "
        "group.",
    ),
    Claim(
        "publisher-regional",
        "It makes no difference whether events are of their publisher's region.",
        "intermediate links differ by less than a tenth at every degree",
        _publisher_is_no_matter,
        "At total regionalism an event of its publisher's region never leaves it, and the way to "
        "another region is spared. At lower degrees most interests are those of all regions, and "
        "it makes little difference.",
    ),
    Claim(
        "regions-found",
        "Regionalism can be found while events flow (which the paper left open).",
        "the degree found grows with the true one, and clusters by likeness find the regions",
        _regions_are_found,
    ),
    Claim(
        "latency-equal",
        "Latencies of all but neighbour matching are nearly the same at all match rates.",
        "at the lowest event rate less than 5% more than the ideal",
        _latency_is_equal,
    ),
    Claim(
        "latency-neighbours",
        "Neighbour matching is slower in all cases, by the partial matching on the way.",
        "more than 1.05 times the ideal's latency everywhere",
        _neighbours_are_slower,
    ),
    Claim(
        "latency-rates",
        "Others differ only where events come so fast that they queue.",
        "CGM within 5% of flooding at the lowest rate, 20% slower at the highest",
        _rates_tell,
    ),
    Claim(
        "groups",
        "Threshold CGM needs orders of magnitude fewer groups than CGM.",
        "for 100 brokers and some number of clusters 100 times fewer",
        _thresholds_spare_groups,
    ),
    Claim(
        "prices",
        "Which method is best depends on prices: a cluster method where fringe links are dear, "
        "neighbour matching where intermediate ones are, no cluster method where the backbone is.",
        "those have the least price of all practical methods, at every match rate",
        _prices_decide,
    ),
    Claim(
        "prices-planned",
        "Plans that know the prices of links cost no more than plans that do not.",
        "each planner, each set of unequal prices: at most 1.001 times the price",
        _priced_plans_pay,
        "Hybrid plans gain most where the backbone is dear. Neighbours do not: ways that are cheap "
        "to each broker alone take fewer hops and share fewer links. And the best of all is chosen "
        "by what brokers and sends cost on average, which is not what the links of an event do.",
    ),
    Claim(
        "prices-optimum",
        "No plan costs less than the cheapest trees.",
        "at least the exact optimum in every run",
        _nothing_below_optimum,
    ),
    *DRIFT_CLAIMS,
)
