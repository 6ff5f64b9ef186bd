"""What the paper concludes from its simulations, each sentence checked with a threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Final, TypeAlias

import numpy as np

from palio_studies.averages import Mean, fitted_exponent
from palio_studies.results import Results
from palio_studies.siena_runs import MODEL_DEGREE
from palio_studies.study import Claim, Evidence, Value

__all__ = ["CLAIMS"]

SITES: Final = 100
"""So many parties are the saturation point..."""

SATURATED: Final = 3 * SITES
"""...and with so many, at random sites, there is one at 95 of 100."""

FLAT: Final = 1.15
FEW_SEEDS: Final = 5
"""With fewer nothing is said about how much runs differ."""

Line: TypeAlias = dict[int, float]
"""By the number of parties."""


def _lines(results: Results, column: str, architecture: str) -> dict[int, Line]:
    """By the number of objects, means over seeds of an architecture."""
    found: dict[int, Line] = {}
    means = results.mean("costs", column, by=["objects", "parties"], architecture=architecture)
    for (objects, parties), mean in means.items():
        found.setdefault(int(objects), {})[int(parties)] = mean.value
    return found


def _listed(numbers: Mapping[Value, float], unit: str) -> str:
    """As in: 1.2 at 10, 3.4 at 100 objects."""
    return ", ".join(f"{value:,.3g} at {key:,}" for key, value in numbers.items()) + f" {unit}"


def _most(line: Line) -> int:
    return max(line)


def model_degree(results: Results) -> Evidence:
    """Networks have the degree that follows from the model."""
    mean = results.mean("networks", "mean_degree", sites=SITES).get(())
    if mean is None or mean.runs < FEW_SEEDS:
        return Evidence(None, "too few networks")
    apart = abs(mean.value - MODEL_DEGREE)
    hops = results.mean("networks", "mean_hops", sites=SITES)[()]
    return Evidence(
        apart < 1.5 * mean.half,
        f"{mean.value:.3f} ±{mean.half:.2g} links a site; {hops.value:.3g} hops between two sites",
    )


def saturation(results: Results) -> Evidence:
    """Past the saturation point total cost is flat."""
    spread: dict[Value, float] = {}
    for architecture in ("hs", "as"):
        for objects, line in _lines(results, "total", architecture).items():
            past = [cost for parties, cost in line.items() if parties >= SATURATED]
            if len(past) > 1:
                spread[f"{architecture}, {objects:,}"] = max(past) / min(past)
    if not spread:
        return Evidence(None, f"too few points with {SATURATED} parties or more")
    return Evidence(
        max(spread.values()) <= FLAT,
        "greatest over least " + ", ".join(f"{value:.3f} ({key})" for key, value in spread.items()),
    )


def sublinear(results: Results) -> Evidence:
    """Below it total cost grows less than the number of parties."""
    fitted: dict[str, Mean] = {}
    for architecture in ("hs", "as", "aa"):
        for objects, line in _lines(results, "total", architecture).items():
            below = {parties: cost for parties, cost in line.items() if parties <= SITES}
            if len(below) > 2:
                fitted[f"{architecture}, {objects:,}"] = fitted_exponent(
                    list(below), list(below.values())
                )
    if not fitted:
        return Evidence(None, f"too few points with {SITES} parties or fewer")
    steepest = max(fitted.values(), key=lambda mean: mean.value)
    return Evidence(
        all(mean.value < 1 for mean in fitted.values()) and steepest.value < 0.9,
        "exponents " + ", ".join(f"{mean.value:.2f} ({key})" for key, mean in fitted.items()),
    )


def centralized_blows_up(results: Results) -> Evidence:
    """The centralized architecture costs far more once parties are many."""
    factors = _factors(results, "total", over="hs", of="ce")
    line = _lines(results, "total", "ce").get(1, {})
    if not factors or SITES not in line or _most(line) < SATURATED:
        return Evidence(None, "too few parties")
    growth = line[_most(line)] / line[SITES]
    return Evidence(
        min(factors.values()) >= 2 and growth > 5,
        f"ce over hs {_listed(factors, 'objects')}; ce grows {growth:.1f} times from {SITES} to "
        f"{_most(line):,} parties",
    )


def hierarchical_factor(results: Results) -> Evidence:
    """The factor by which hs is worse than as grows with the number of objects."""
    factors = _factors(results, "total")
    if len(factors) < 3:
        return Evidence(None, "too few numbers of objects")
    ordered = [factors[objects] for objects in sorted(factors)]
    return Evidence(
        ordered == sorted(ordered) and ordered[-1] >= 2 and ordered[-1] >= 2 * ordered[0],
        f"hs over as {_listed(factors, 'objects')}",
    )


def _factors(results: Results, column: str, over: str = "as", of: str = "hs") -> dict[Value, float]:
    """One architecture over another with the most parties, by the number of objects."""
    lines, base = _lines(results, column, of), _lines(results, column, over)
    found: dict[Value, float] = {}
    for objects, line in lines.items():
        most = _most(line)
        if most in base.get(objects, {}):
            found[objects] = line[most] / base[objects][most]
    return found


def _spread(results: Results, architecture: str, parties: Iterable[int]) -> tuple[float, int]:
    """The standard deviation of total cost over its mean, and the fewest seeds of a point."""
    spreads, fewest = [], 1_000_000
    for party in parties:
        means = results.mean(
            "costs", "total", by=["objects"], architecture=architecture, parties=party
        )
        for (objects,), mean in means.items():
            rows = results.rows("costs", architecture=architecture, parties=party, objects=objects)
            costs = [float(row["total"]) for row in rows]
            fewest = min(fewest, mean.runs)
            if len(costs) > 1:
                spreads.append(float(np.std(costs, ddof=1)) / mean.value)
    return (sqrt(sum(each**2 for each in spreads) / len(spreads)) if spreads else 0.0), fewest


def advertised_is_erratic(results: Results) -> Evidence:
    """Where parties are few, aa differs from run to run more than as."""
    few = [int(each) for each in results.values("costs", "parties") if int(each) <= 10]
    aa, fewest = _spread(results, "aa", few)
    peer, _ = _spread(results, "as", few)
    if fewest < FEW_SEEDS or not peer:
        return Evidence(None, f"too few seeds to tell how much runs differ: {fewest}")
    return Evidence(
        aa >= 2 * peer,
        f"standard deviation of total cost: {aa:.0%} of the mean in aa, {peer:.0%} in as",
    )


def advertised_follows(results: Results) -> Evidence:
    """Past saturation aa costs about what as costs."""
    factors = _factors(results, "total", of="aa")
    many = {objects: each for objects, each in factors.items() if int(objects) >= 10}
    if len(many) < 2:
        return Evidence(None, "too few numbers of objects")
    return Evidence(
        all(1 / 1.5 <= each <= 1.5 for each in many.values()),
        f"aa over as {_listed(factors, 'objects')}",
    )


def subscription_growth(results: Results) -> Evidence:
    """A lone subscription crosses O(N) links in as, O(log N) in hs."""
    means = results.mean("growth", "links_per_subscription", by=["architecture", "sites"])
    sizes = sorted({int(key[1]) for key in means})
    if len(sizes) < 2:
        return Evidence(None, "one size of network only")
    first, last = sizes[0], sizes[-1]
    grows = last / first
    peer = means["as", last].value / means["as", first].value
    hierarchy = means["hs", last].value / means["hs", first].value
    return Evidence(
        0.8 * grows <= peer <= 1.25 * grows and hierarchy <= sqrt(grows),
        f"from {first:,} to {last:,} sites: as {means['as', first].value:.3g} to "
        f"{means['as', last].value:.4g} links (x{peer:.3g}), hs {means['hs', first].value:.3g} to "
        f"{means['hs', last].value:.3g} (x{hierarchy:.3g})",
    )


def subscriptions_amortize(results: Results) -> Evidence:
    """With the number of parties a subscription becomes cheap in both."""
    found: dict[Value, float] = {}
    for architecture in ("hs", "as"):
        line = _lines(results, "cost_per_subscription", architecture).get(1, {})
        if not line or _most(line) < SATURATED:
            return Evidence(None, "too few parties")
        found[architecture] = line[_most(line)] / line[min(line)]
    return Evidence(
        max(found.values()) <= 0.1,
        "with the most parties a subscription costs, of what it costs with one: "
        + ", ".join(f"{name} {value:.2%}" for name, value in found.items()),
    )


def notification_difference(results: Results) -> Evidence:
    """A notification costs more in hs than in as, by the same whatever the number of parties."""
    hierarchy = _lines(results, "cost_per_notification", "hs").get(1, {})
    peer = _lines(results, "cost_per_notification", "as").get(1, {})
    parties = sorted(hierarchy.keys() & peer.keys())
    if len(parties) < 4:
        return Evidence(None, "too few numbers of parties")
    apart = {each: hierarchy[each] - peer[each] for each in parties}
    grows = peer[parties[-1]] / peer[parties[0]]
    least, greatest = min(apart.values()), max(apart.values())
    return Evidence(
        least > 0 and greatest <= 2 * least and grows > 5,
        f"hs less as is {least:.0f} to {greatest:.0f} a notification from {parties[0]} to "
        f"{parties[-1]:,} parties, while as grows {grows:.1f} times",
    )


def ignored_stay(results: Results) -> Evidence:
    """What nobody wants goes to the root in hs and nowhere in as."""
    means = results.mean("vain", "cost_per_notification", by=["architecture", "parties", "n"])
    counts = sorted({int(key[2]) for key in means})
    crowds = sorted({int(key[1]) for key in means})
    if len(counts) < 2 or len(crowds) < 2:
        return Evidence(None, "the degenerate cases were not run")
    once, few, many = crowds[-1], counts[0], counts[-1]
    nobody = {each: means[each, 0, many].value for each in ("hs", "as")}
    is_constant = abs(means["hs", 0, few].value - nobody["hs"]) < 0.01 * nobody["hs"]
    shares = {
        each: means[each, once, many].value / means[each, once, few].value for each in ("hs", "as")
    }
    return Evidence(
        nobody["as"] == 0 < nobody["hs"]
        and is_constant
        and shares["as"] <= 2 * few / many
        and means["hs", once, many].value >= 0.9 * nobody["hs"],
        f"for nobody: hs {nobody['hs']:.0f} a notification, as {nobody['as']:.0f}; where {once} "
        f"parties take one of {many}: hs {means['hs', once, many].value:.0f}, as "
        f"{means['as', once, many].value:.1f}",
    )


def worst_site_few(results: Results) -> Evidence:
    """With one object the busiest site is slightly less busy in hs."""
    found: dict[Value, float] = {}
    hierarchy = _lines(results, "worst_site", "hs").get(1, {})
    peer = _lines(results, "worst_site", "as").get(1, {})
    for parties in sorted(hierarchy.keys() & peer.keys()):
        found[parties] = hierarchy[parties] / peer[parties]
    if len(found) < 3:
        return Evidence(None, "too few numbers of parties")
    wanted = results.mean("wanted", "worst_site", by=["architecture", "parties"])
    beside = ""
    if wanted:
        most = max(int(key[1]) for key in wanted)
        share = wanted["hs", most].value / wanted["as", most].value
        beside = f"; {share:.3g} where no notification is ignored"
    return Evidence(
        sum(found.values()) / len(found) < 1,
        f"hs over as with one object {_listed(found, 'parties')}{beside}",
    )


def worst_site_many(results: Results) -> Evidence:
    """With many objects the root of the hierarchy is overloaded."""
    factors = _factors(results, "worst_site")
    if len(factors) < 3:
        return Evidence(None, "too few numbers of objects")
    return Evidence(
        factors[max(factors, key=int)] >= 2,
        f"hs over as {_listed(factors, 'objects')}",
    )


CLAIMS: Final = (
    Claim(
        "the networks are those of the model",
        "The sites are linked as the transit-stub model has it.",
        f"the mean number of links a site is {MODEL_DEGREE:.3f}, within three standard errors",
        model_degree,
    ),
    Claim(
        "1a: saturation",
        "From about as many parties as sites on, further parties cost nothing.",
        f"of hs and as, the greatest total cost with {SATURATED} parties or more is at most "
        f"{FLAT:.0%} of the least",
        saturation,
    ),
    Claim(
        "1b: sublinear below saturation",
        "Below, total cost grows less than the number of parties.",
        "exponents of total cost over parties, up to one a site, below 0.9",
        sublinear,
    ),
    Claim(
        "2a: one server does not scale",
        "The cost of the centralized architecture blows up.",
        "with the most parties ce costs at least twice what hs does, and more than five times what "
        "it does with 100",
        centralized_blows_up,
    ),
    Claim(
        "2b: hierarchies and objects",
        "hs is worse than as by a factor that grows with the number of objects.",
        "hs over as grows with every number of objects, to 2 or more and at least twofold",
        hierarchical_factor,
    ),
    Claim(
        "3a: advertisements are erratic",
        "With few parties aa costs strikingly different amounts.",
        "up to 10 parties the relative standard deviation of aa is at least twice that of as",
        advertised_is_erratic,
        "Advertising, and withdrawing that, crosses each link of the tree once, whatever the run: "
        "with one object that is the same sum every time. With many objects, which publish one "
        "kind of event here, another advertisement nearly always covers the one that comes or "
        "goes. So aa costs more than as at one object, and differs no more than as does. What "
        "made the paper's runs differ is not told in it.",
    ),
    Claim(
        "3b: and follow in the end",
        "Past saturation aa essentially follows as, as objects become more.",
        "with 10 objects or more and the most parties, aa over as is between 1/1.5 and 1.5",
        advertised_follows,
    ),
    Claim(
        "4a: what a lone subscription costs",
        "A subscription costs O(N) in as and O(log N) in hs where parties are few.",
        "links crossed grow with the sites in as (within a quarter), and less than their square "
        "root in hs",
        subscription_growth,
    ),
    Claim(
        "4b: subscriptions amortize",
        "Both architectures gain from more parties.",
        "with the most parties a subscription costs at most a tenth of what it does with one",
        subscriptions_amortize,
    ),
    Claim(
        "5a: notifications differ by a constant",
        "A notification of one object costs more in hs, by an amount that does not depend on "
        "the parties.",
        "the greatest difference is at most twice the least, while the cost itself grows fivefold",
        notification_difference,
    ),
    Claim(
        "5b: ignored notifications",
        "Notifications that nobody wants climb to the root in hs; in as they stay where they are.",
        "for nobody: 0 in as, the same for any number in hs; where parties take one only, as falls "
        "as fast as publications grow and hs does not fall below what nobody costs",
        ignored_stay,
    ),
    Claim(
        "6a: the busiest site, few objects",
        "With few objects the busiest site of hs is slightly less busy than that of as.",
        "hs over as, the mean over all numbers of parties with one object, is below 1",
        worst_site_few,
        "Half of what the one object publishes here is ignored, and the root of hs hears of it. "
        "Where parties take all of it (the experiment `wanted`), the busiest site of hs is less "
        "busy, as the paper says: the number is given last. The paper's own ratio is lost.",
    ),
    Claim(
        "6b: the busiest site, many objects",
        "With many objects the root of the hierarchy is overloaded.",
        "with the most objects and parties hs over as is at least 2",
        worst_site_many,
    ),
)
