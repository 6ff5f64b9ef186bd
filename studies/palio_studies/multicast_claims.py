"""What the multicast paper says that its evaluation shows.

Each claim is the function that checks it: its name, its sentence, and what the numbers must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final, TypeAlias

from palio_studies.checks import listed, needed, rises
from palio_studies.multicast_network import CLASSES, Extent
from palio_studies.multicast_queues import MATCHING_S
from palio_studies.multicast_runs import COMMON
from palio_studies.multicast_scenes import (
    CLUSTERED,
    LIKENESS,
    ORDERED,
    PUBLISHER_REGIONAL,
    REGIONAL,
    THRESHOLD,
)
from palio_studies.results import Results
from palio_studies.study import SEEN, Claim, Evidence, Row, Value

Check: TypeAlias = Callable[[Results], Evidence]
Numbers: TypeAlias = Mapping[Any, float]
"""By method, or by method and what else differs."""

TOLD: Final = "{} {:.2f}"
TOLD_FINELY: Final = "{} {:.3f}"
"""How a ratio is told after its name."""

BACKBONE, INTERMEDIATE, FRINGE = CLASSES
CLUSTERS: Final = (CLUSTERED, THRESHOLD)
SELECTIVE: Final = (*CLUSTERS, "neighbours")
APPROXIMATIONS: Final = ("approximated", ORDERED)
PRACTICAL: Final = ("flooding", *SELECTIVE, "approximated")
"""The methods of the paper, but for the one that has too many groups."""
DEAR: Final = 10.0
"""The price of a link of the class that is dear; that of others is 1."""

LOW: Final = 0.1
"""Match rates up to this, in %, are low; from `COMMON` on events are for most brokers."""
ROUNDED: Final = 1e-9
"""Sums that are equal may differ by so much."""
_CLAIMS: list[Claim] = []


def _claim(expected: str, reason: str = "", seen: str = "") -> Callable[[Check], Check]:
    """List a claim: the function below, which has its name and its sentence, checks it."""

    def listing(check: Check) -> Check:
        says = cleandoc(check.__doc__ or "").replace("\n", " ")
        name = check.__name__.replace("_", "-")
        _CLAIMS.append(Claim(name, says, expected, check, reason, seen))
        return check

    return listing


def _means(
    results: Results, experiment: str, column: str, by: str, **where: Value
) -> dict[float, dict[str, float]]:
    """By the numbers of one column, and then by method, the mean of another."""
    means: dict[float, dict[str, float]] = {}
    for (place, name), mean in results.mean(experiment, column, [by, "method"], **where).items():
        means.setdefault(float(place), {})[str(name)] = mean.value
    return means


def _ratios(means: Numbers, methods: Iterable[str], over: str) -> dict[str, float]:
    """What some methods come to, times what another does."""
    return {name: means[name] / means[over] for name in methods}


def _each(
    means: Mapping[float, Numbers], methods: Iterable[str], over: str, named: str
) -> dict[str, float]:
    """The same wherever there are means, `named` for the method and the place."""
    return {
        named.format(method, place): ratio
        for place, own in means.items()
        for method, ratio in _ratios(own, methods, over).items()
    }


def _all(ratios: Numbers, holds: Callable[[float], bool], found: str, told: str = TOLD) -> Evidence:
    """All ratios must hold; without any nothing is decided."""
    is_held = all(map(holds, ratios.values())) if ratios else None
    return Evidence(is_held, f"{found}: {listed(ratios, told)}")


def _most(ratios: Numbers) -> tuple[float, Any]:
    """The greatest ratio, and what has it."""
    return max((ratio, name) for name, ratio in ratios.items())


def _in_runs(
    rows: Iterable[Row], run: tuple[str, ...], names: tuple[str, ...], column: str, over: str
) -> list[tuple[float, str]]:
    """What each method comes to in each run alone, times what the method `over` does there."""
    runs: dict[tuple[Value, ...], dict[tuple[Value, ...], float]] = {}
    for row in rows:
        own = runs.setdefault(tuple(row[name] for name in run), {})
        own[tuple(row[name] for name in names)] = float(row[column])
    ratios = []
    for own in runs.values():
        (least,) = (value for (name, *_), value in own.items() if name == over)
        ratios += [(value / least, str(name)) for (name, *_), value in own.items() if name != over]
    return ratios


# --- whether it is right ---


@_claim("in no run has any method fewer links in all")
def ideal(results: Results) -> Evidence:
    """Ideal multicast is a lower bound of the bandwidth."""
    rows = [*results.rows("match-rate"), *results.rows("regionalism")]
    needed(rows, "nothing was run")
    run = ("kind", "match", "regionalism", "seed")
    least, name = min(_in_runs(rows, run, ("method",), "links", "ideal"))
    found = f"{name} comes nearest: {least:.3f} times the ideal's links"
    return Evidence(least >= 1 - ROUNDED, found)


# --- links by match rate ---


def _by_rate(
    results: Results, column: str, least: float = 0.0, most: float = 100.0
) -> dict[float, dict[str, float]]:
    """By match rate and method the mean of a column."""
    means = _means(results, "match-rate", column, by="match")
    found = {rate: own for rate, own in means.items() if least <= rate <= most}
    needed(found, f"no match rate of {least:g}% was run")
    return found


@_claim("at 1% more than half of the brokers want an event")
def most_brokers(results: Results) -> Evidence:
    """A fairly low match rate makes nearly every event one for most brokers."""
    _, wanted = min(_by_rate(results, "wanted", COMMON).items())
    counts = results.line("match-rate", "wanted", "match", method="ideal")
    return Evidence(wanted["ideal"] > 50, f"of 100 brokers {listed(counts, '{1:.1f} at {0:g}%')}")


@_claim("at the lowest match rate less than half of flooding's intermediate links")
def selective(results: Results) -> Evidence:
    """Where subscriptions are highly selective, CGM, threshold CGM and neighbour matching do
    significantly better than flooding.
    """
    rate, links = min(_by_rate(results, INTERMEDIATE).items())
    ratios = _ratios(links, SELECTIVE, "flooding")
    found = f"at {rate:g}%, of flooding's intermediate links"
    return _all(ratios, lambda ratio: ratio < 0.5, found)


@_claim("at the highest match rate no fewer links than flooding; the ideal more than 90% of them")
def flooding(results: Results) -> Evidence:
    """Flooding is viable over a wide range: all methods but the ideal one converge to as many
    links, or more.
    """
    rate, links = max(_by_rate(results, "links").items())
    ratios = _ratios(links, (*SELECTIVE, "ideal"), "flooding")
    holds = all(ratios[name] >= 1 for name in SELECTIVE) and ratios["ideal"] > 0.9
    return Evidence(holds, f"at {rate:g}%, of flooding's links: {listed(ratios, TOLD)}")


@_claim("from 1% on more than 1.5 times the ideal's")
def backbone_clusters(results: Results) -> Evidence:
    """Cluster methods use several times the backbone links of others: they send several times."""
    ratios = _each(_by_rate(results, BACKBONE, COMMON), CLUSTERS, "ideal", "{} at {:g}%")
    return _all(ratios, lambda ratio: ratio > 1.5, "of the ideal's backbone links")


@_claim("from 0.1% on less than 1.5 times the ideal's")
def backbone_others(results: Results) -> Evidence:
    """The others are much alike on the backbone, and close to ideal."""
    others = ("flooding", "neighbours", "approximated")
    ratios = _each(_by_rate(results, BACKBONE, LOW), others, "ideal", "{} at {:g}%")
    most, name = _most(ratios)
    return Evidence(most < 1.5, f"from {LOW:g}% on at most {most:.2f} times the ideal ({name})")


@_claim(
    "at every match rate no more than the ideal's",
)
def backbone_neighbours(results: Results) -> Evidence:
    """Neighbour matching uses slightly fewer backbone links than ideal multicast."""
    links = _by_rate(results, BACKBONE)
    ratios = _each(links, ("neighbours",), "ideal", "at {1:g}%")
    found = "neighbours use of the ideal's backbone links"
    _, most = max(links.items())
    cause = (
        f"The ideal crosses {most['ideal']:.2f} backbone links where nearly all want an event, and "
        f"{Extent().transits - 1} is the fewest that join the routers of the backbone; what goes "
        f"from neighbour to neighbour crosses {most['neighbours']:.2f}, some of them again."
    )
    verdict = _all(ratios, lambda ratio: ratio <= 1, found, TOLD_FINELY)
    return Evidence(verdict.holds, verdict.numbers, cause)


@_claim("up to 0.1% these three have the fewest")
def intermediate_best(results: Results) -> Evidence:
    """On intermediate links, with selective subscriptions, neighbour matching and the cluster
    methods do best.
    """
    links = _by_rate(results, INTERMEDIATE, most=LOW)
    best = {rate: sorted(PRACTICAL, key=own.__getitem__)[:3] for rate, own in links.items()}
    return Evidence(
        all(set(names) == set(SELECTIVE) for names in best.values()),
        "; ".join(f"at {rate:g}% the least: {', '.join(names)}" for rate, names in best.items()),
    )


@_claim("fewer than flooding at the lowest rate, more at the highest")
def intermediate_crossing(results: Results) -> Evidence:
    """At higher match rates CGM and threshold CGM do worse than flooding on intermediate links."""
    links = _by_rate(results, INTERMEDIATE)
    ratios = {rate: _ratios(own, CLUSTERS, "flooding") for rate, own in links.items()}
    first, last = ratios[min(ratios)], ratios[max(ratios)]
    told = "; ".join(f"at {rate:g}% {listed(own, TOLD)}" for rate, own in ratios.items())
    holds = all(first[name] < 1 < last[name] for name in CLUSTERS)
    return Evidence(holds, f"of flooding's intermediate links: {told}")


@_claim("from 1% on less than a quarter of the intermediate links, and some, in either order")
def approximation_slight(results: Results) -> Evidence:
    """Asymptotically, at high match rates, group approximation improves on flooding only
    slightly.
    """
    links = _by_rate(results, INTERMEDIATE)
    saved = {
        (name, rate): 1 - own[name] / own["flooding"]
        for rate, own in links.items()
        for name in APPROXIMATIONS
    }
    needed(max(links) >= COMMON > min(links), "high and low match rates are needed")
    by_name = {name: [(rate, saved[name, rate]) for rate in links] for name in APPROXIMATIONS}
    told = "; ".join(
        f"{name} spares {listed(shares, '{1:.2f} at {0:g}%')}" for name, shares in by_name.items()
    )
    high = [share for (_, rate), share in saved.items() if rate >= COMMON]
    return Evidence(min(high) >= 0 and max(high) < 0.25 and max(high) > 0, told)


@_claim("at 1% more than 70% of flooding's, at the lowest match rate less than half")
def fringe_imprecise(results: Results) -> Evidence:
    """On fringe links the imprecise methods of one hop quickly come near flooding."""
    rate, links = min(_by_rate(results, FRINGE, COMMON).items())
    _, first = min(_by_rate(results, FRINGE).items())
    methods = ("approximated", THRESHOLD, "ideal")
    ratios, begin = (_ratios(each, methods, "flooding") for each in (links, first))
    near, far = ([each["approximated"], each[THRESHOLD]] for each in (ratios, begin))
    holds = min(near) > 0.7 and max(far) < 0.5
    return Evidence(
        holds,
        f"of flooding's fringe links, at the lowest rate: {listed(begin, TOLD)}; "
        f"at {rate:g}%: {listed(ratios, TOLD)}",
    )


@_claim("at the highest match rate more than flooding and every other")
def fringe_neighbours(results: Results) -> Evidence:
    """Neighbour matching is the worst on fringe links, as it crosses those of the brokers
    between.
    """
    links = _by_rate(results, FRINGE)
    ratios = _each(links, ("neighbours",), "flooding", "at {1:g}%")
    last = _ratios(links[max(links)], PRACTICAL, "flooding")
    return Evidence(
        1 < last["neighbours"] == max(last.values()),
        f"neighbours use of flooding's fringe links: {listed(ratios, TOLD)}",
    )


# --- regionalism ---


def _by_degree(
    results: Results, column: str = INTERMEDIATE, kind: str = REGIONAL
) -> dict[float, dict[str, float]]:
    """By degree of regionalism and method the mean of a column, where events are for most."""
    found = _means(results, "regionalism", column, by="regionalism", kind=kind, match=COMMON)
    needed(found, f"no match rate of {COMMON:g}% was run")
    return found


@_claim("at total regionalism less than half of the intermediate links; flooding as before")
def regional(results: Results) -> Evidence:
    """With rising regionalism all but the approximation improve much on flooding."""
    links = _by_degree(results)
    low, high = min(links), max(links)
    methods = ("ideal", *SELECTIVE, "flooding")
    shares = {name: links[high][name] / links[low][name] for name in methods}
    return Evidence(
        all(shares[name] < 0.5 for name in methods[:-1]) and abs(shares["flooding"] - 1) < 0.05,
        f"intermediate links at {high:g}, of those at {low:g}: {listed(shares, TOLD)}",
    )


@_claim("up to 0.6 no method saves a tenth of its intermediate links")
def regional_late(results: Results) -> Evidence:
    """...but only at high degrees."""
    links = {degree: own for degree, own in _by_degree(results).items() if degree <= 0.6}
    needed(len(links) > 1, "no degree up to 0.6 but 0 was run")
    saved = {
        f"{name} at {degree:g}": 1 - own[name] / links[min(links)][name]
        for degree, own in links.items()
        for name in SELECTIVE
        if degree > min(links)
    }
    most, name = _most(saved)
    return Evidence(
        most < 0.1,
        f"up to {max(links):g}, regionalism spares at most {most:.0%} of the intermediate "
        f"links that a method uses without ({name})",
    )


@_claim("less than 1.05 times the ideal's intermediate links")
def regional_clusters(results: Results) -> Evidence:
    """At total regionalism the cluster methods are as the ideal, for clusters are the regions."""
    degree, links = max(_by_degree(results).items())
    ratios = _ratios(links, CLUSTERS, "ideal")
    return Evidence(
        degree == 1 and max(ratios.values()) < 1.05,
        f"at {degree:g}, of the ideal's intermediate links: {listed(ratios, TOLD_FINELY)}",
    )


@_claim("from 0.8 to below 1 more than 1.5 times the ideal's intermediate links, in either order")
def regional_approximation(results: Results) -> Evidence:
    """The approximation gains less, for it merges groups of separate regions."""
    links = {degree: own for degree, own in _by_degree(results).items() if 0.8 <= degree < 1}
    ratios = _each(links, APPROXIMATIONS, "ideal", "{} at {:g}")
    found = "the approximation uses of the ideal's intermediate links"
    flooded = _each(links, ("flooding",), "ideal", "{} at {:g}")
    cause = (
        "Not by the planner's order of merging: the paper's own is run beside it. Most of what "
        f"there is to gain is gained by both: {listed(flooded, TOLD)} of the ideal's."
    )
    verdict = _all(ratios, lambda ratio: ratio > 1.5, found)
    return Evidence(verdict.holds, verdict.numbers, cause)


@_claim(
    "intermediate links differ by less than a tenth at every degree",
    "At total regionalism an event of its publisher's region never leaves it, and the way to "
    "another region is spared. At lower degrees most interests are those of all regions, and "
    "it makes little difference.",
    SEEN,
)
def publisher_regional(results: Results) -> Evidence:
    """It makes no difference whether events are of their publisher's region."""
    local = _by_degree(results, kind=PUBLISHER_REGIONAL)
    gaps = {
        (f"{name} at {degree:g}", degree): abs(local[degree][name] / links[name] - 1)
        for degree, links in _by_degree(results).items()
        for name in ("ideal", *PRACTICAL)
    }
    most, (name, _) = _most(gaps)
    below, (where, _) = _most({place: gap for place, gap in gaps.items() if place[1] < 1})
    return Evidence(
        most < 0.1,
        f"intermediate links differ by at most {most:.0%} ({name}); below total "
        f"regionalism by {below:.0%} ({where})",
    )


@_claim("the degree found grows with the true one, and clusters by likeness find the regions")
def regions_found(results: Results) -> Evidence:
    """Regionalism can be found while events flow (which the paper left open)."""
    shares, pairs = (
        {degree: own["ideal"] for degree, own in _by_degree(results, column).items()}
        for column in ("regionalism_found", "regions_found")
    )
    needed(len(shares) > 2, "three degrees are needed")
    last = max(shares)
    both = {degree: (share, pairs[degree]) for degree, share in shares.items()}
    told = "{0:g}: {1[0]:.2f} (clusters by likeness {1[1]:.0%} right)"
    holds = rises([*shares.values()]) and shares[last] > 0.99 and pairs[last] > 0.9
    return Evidence(holds, f"said of degrees {listed(both, told)}")


# --- latency ---


def _latencies(results: Results) -> dict[tuple[float, float, float], dict[str, float]]:
    """By match rate, degree of regionalism and event rate what each method takes."""
    columns = ["match", "regionalism", "rate", "method"]
    means = results.mean("latency", "latency_ms", by=columns)
    found: dict[tuple[float, float, float], dict[str, float]] = {}
    for (match, degree, rate, method), mean in means.items():
        case = float(match), float(degree), float(rate)
        found.setdefault(case, {})[str(method)] = mean.value
    needed(found, "latency was not run")
    return found


@_claim("at the lowest event rate less than 5% more than the ideal")
def latency_equal(results: Results) -> Evidence:
    """Latencies of all but neighbour matching are nearly the same at all match rates."""
    lowest = min(rate for *_, rate in _latencies(results))
    more = {
        (f"{name} at {match:g}%", degree): took[name] / took["ideal"] - 1
        for (match, degree, rate), took in _latencies(results).items()
        for name in (*PRACTICAL, LIKENESS)
        if rate == lowest and name != "neighbours"
    }
    most, (name, _) = _most(more)
    found = f"at {lowest:g} events a second at most {most:.1%} more than the ideal ({name})"
    return Evidence(most < 0.05, found)


@_claim("more than 1.05 times the ideal's latency everywhere")
def latency_neighbours(results: Results) -> Evidence:
    """Neighbour matching is slower in all cases, by the partial matching on the way."""
    ratios = [
        (
            took["neighbours"] / took["ideal"],
            f"{match:g}%, {rate:g} events a second, regionalism {degree:g}",
        )
        for (match, degree, rate), took in _latencies(results).items()
    ]
    (least, where), (most, elsewhere) = min(ratios), max(ratios)
    matched = results.line("latency", "matched", "method")
    beyond = 1e3 * MATCHING_S * (matched["neighbours"] - matched["ideal"])
    return Evidence(
        least > 1.05,
        f"{least:.2f} ({where}) to {most:.2f} times the ideal ({elsewhere}); "
        f"{matched['neighbours']:.1f} brokers match an event before it is delivered, "
        f"{matched['ideal']:.0f} with the ideal, which takes {beyond:.1f} ms of it",
    )


@_claim("CGM within 5% of flooding at the lowest rate, 20% slower at the highest")
def latency_rates(results: Results) -> Evidence:
    """Others differ only where events come so fast that they queue."""
    match = max(match for match, *_ in _latencies(results))
    where = {"match": match, "regionalism": 0.0}
    clustered, flooded = (
        results.line("latency", "latency_ms", "rate", method=method, **where)
        for method in (CLUSTERED, "flooding")
    )
    needed(len(flooded) > 1, "two rates are needed")
    low, high = min(flooded), max(flooded)
    ratios = {rate: clustered[rate] / flooded[rate] for rate in (low, high)}
    return Evidence(
        ratios[low] < 1.05 and ratios[high] > 1.2,
        f"CGM takes {ratios[low]:.2f} times flooding's time at {low:g} events a second and "
        f"{ratios[high]:.2f} times at {high:g}, both at {match:g}%",
    )


# --- groups and prices ---


@_claim("those have the least price of all practical methods, at every match rate")
def prices(results: Results) -> Evidence:
    """Which method is best depends on prices: a cluster method where fringe links are dear,
    neighbour matching where intermediate ones are, no cluster method where the backbone is.
    """
    links = {kind: _by_rate(results, kind, LOW, COMMON) for kind in CLASSES}
    told, holds = [], []
    for match in links[FRINGE]:
        best = {}
        for dear in (FRINGE, INTERMEDIATE, BACKBONE):
            prices = {kind: DEAR if kind == dear else 1.0 for kind in CLASSES}
            costs = {
                name: sum(prices[kind] * links[kind][match][name] for kind in CLASSES)
                for name in PRACTICAL
            }
            best[dear] = min(costs, key=costs.__getitem__)
        holds.append(
            best[FRINGE] in CLUSTERS
            and best[INTERMEDIATE] == "neighbours"
            and best[BACKBONE] not in CLUSTERS
        )
        dear_best = ", ".join(f"{kind} dear {name}" for kind, name in best.items())
        told.append(f"at {match:g}%: {dear_best}")
    return Evidence(all(holds), "; ".join(told))


CLAIMS: Final = tuple(_CLAIMS)
