"""What is expected of siena's architectures beyond the paper, each sentence with its threshold."""

from __future__ import annotations

from typing import Final

from palio_studies.results import Results
from palio_studies.siena_claims import FLAT, SATURATED, SITES
from palio_studies.study import Claim, Evidence, Value

__all__ = ["BEYOND_CLAIMS"]

FULL: Final = 1.0
"""The share of what a link can carry from which on notifications wait longer and longer."""

SATURATED_PER_SITE: Final = SATURATED / SITES


# --- links with a capacity ---


def _bearable(results: Results, parties: Value) -> dict[str, float]:
    """By architecture the load at which its busiest link is full."""
    means = results.mean("load", "bearable", by=["architecture"], parties=parties)
    return {str(name): mean.value for (name,), mean in means.items()}


def _crowds(results: Results) -> list[int]:
    return [int(each) for each in results.values("load", "parties")]


def root_first(results: Results) -> Evidence:
    """Where most is ignored, the links of the root are full first."""
    crowds = _crowds(results)
    if not crowds:
        return Evidence(None, "links with a capacity were not run")
    bears = _bearable(results, crowds[0])
    near = results.mean("load", "at_root", architecture="hs", parties=crowds[0])[()]
    listed = ", ".join(f"{name} {load:.2f}" for name, load in bears.items())
    return Evidence(
        bears["as"] >= 1.5 * bears["hs"] and near.value >= 0.9,
        f"with {crowds[0]} parties the busiest link is full at a load of: {listed}; that of hs is "
        f"one of the root in {near.value:.0%} of runs",
    )


def alike_where_wanted(results: Results) -> Evidence:
    """Where most is wanted on many sides, hierarchies bear what peers do."""
    crowds = _crowds(results)
    if not crowds or crowds[-1] < SITES:
        return Evidence(None, f"fewer parties than {SITES}")
    bears = _bearable(results, crowds[-1])
    listed = ", ".join(f"{name} {load:.2f}" for name, load in bears.items())
    return Evidence(
        bears["hs"] >= 0.9 * bears["as"],
        f"with {crowds[-1]} parties the busiest link is full at a load of: {listed}",
    )


def latency_tells(results: Results) -> Evidence:
    """Between the loads that they bear, notifications wait in hs and not in as."""
    crowds = _crowds(results)
    if not crowds:
        return Evidence(None, "links with a capacity were not run")
    by = ["architecture", "load"]
    shares = results.mean("load", "busiest", by=by, parties=crowds[0])
    latencies = results.mean("load", "latency_ms", by=by, parties=crowds[0])
    loads = sorted({float(load) for _, load in shares})
    between = [each for each in loads if shares["as", each].value < FULL < shares["hs", each].value]
    if not between:
        return Evidence(None, "no load was run that as bears and hs does not")
    load, idle = between[-1], loads[0]
    slower = {
        each: latencies[each, load].value / latencies[each, idle].value for each in ("hs", "as")
    }
    return Evidence(
        slower["hs"] >= 3 and slower["as"] <= 1.5,
        ", ".join(
            f"{each} {latencies[each, idle].value:.0f} ms at a load of {idle:g} and "
            f"{latencies[each, load].value:.0f} ms at {load:g}"
            for each in slower
        ),
    )


# --- delegation of patterns ---


def _saved(results: Results, **where: Value) -> dict[tuple[int, int], float]:
    """By objects of a pattern and parties, what notifications cost where parties assemble, over
    what they cost where servers do.
    """
    means = results.mean(
        "delegation", "notification_cost", by=["architecture", "sources", "parties"], **where
    )
    return {
        (int(sources), int(parties)): means["aa", sources, parties].value / mean.value
        for (architecture, sources, parties), mean in means.items()
        if architecture == "pa"
    }


def same_occurrences(results: Results) -> Evidence:
    """Who assembles makes no difference to what is found."""
    runs: dict[tuple[Value, ...], dict[str, int]] = {}
    for row in results.rows("delegation"):
        run = tuple(row[name] for name in ("sources", "steps", "parties", "seed"))
        runs.setdefault(run, {})[str(row["architecture"])] = int(row["occurrences"])
    if not runs:
        return Evidence(None, "no patterns were run")
    apart = sum(found["aa"] != found["pa"] for found in runs.values())
    total = sum(found["pa"] for found in runs.values())
    return Evidence(
        not apart and total > 0,
        f"{total:,} occurrences in {len(runs)} pairs of runs; the two differ in {apart}",
    )


def delegation_saves(results: Results) -> Evidence:
    """Where parties are few, servers that assemble save notifications."""
    saved = _saved(results, steps=3)
    if not saved:
        return Evidence(None, "no patterns were run")
    few = min(parties for _, parties in saved)
    least = {sources: saved[sources, parties] for sources, parties in saved if parties == few}
    return Evidence(
        min(least.values()) >= 1.5,
        f"with {few} parties: "
        + ", ".join(f"{factor:.1f} times, {_objects(each)}" for each, factor in least.items()),
    )


def delegation_of_many(results: Results) -> Evidence:
    """Each party is told its occurrences by itself, so with many parties that is lost again."""
    saved = _saved(results, steps=3)
    parties = sorted({each for _, each in saved})
    if not parties or parties[-1] < SATURATED:
        return Evidence(None, "too few parties")
    few, many = parties[0], parties[-1]
    sources = sorted({each for each, _ in saved})
    return Evidence(
        all(saved[each, many] < saved[each, few] for each in sources) and saved[1, many] < 1,
        f"saved with {few} and with {many:,} parties: "
        + ", ".join(
            f"{saved[each, few]:.1f} and {saved[each, many]:.2f} times, {_objects(each)}"
            for each in sources
        ),
    )


def _objects(count: int) -> str:
    return "one object" if count == 1 else f"{count} objects"


# --- many sites ---


def _over(results: Results, of: str, over: str, column: str) -> dict[int, float]:
    """One architecture over another with a party for each site, by the number of sites."""
    means = results.mean("sizes", column, by=["architecture", "sites"], parties_per_site=1.0)
    return {
        int(sites): mean.value / means[over, sites].value
        for (architecture, sites), mean in means.items()
        if architecture == of and (over, sites) in means
    }


def _by_sites(factors: dict[int, float]) -> str:
    return ", ".join(f"{factor:.3g} at {sites:,}" for sites, factor in factors.items()) + " sites"


def saturation_moves(results: Results) -> Evidence:
    """However many sites there are, past three parties a site total cost is flat."""
    past = {
        (str(architecture), int(sites)): mean.value
        for (architecture, sites, crowd), mean in results.mean(
            "sizes", "total", by=["architecture", "sites", "parties_per_site"]
        ).items()
        if architecture != "ce" and crowd == SATURATED_PER_SITE
    }
    most = {
        (str(architecture), int(sites)): mean.value
        for (architecture, sites), mean in results.mean(
            "sizes", "total", by=["architecture", "sites"], parties_per_site=10.0
        ).items()
        if architecture != "ce"
    }
    if not past or past.keys() != most.keys():
        return Evidence(None, "too few parties")
    grows = {each: most[each] / past[each] for each in past}
    return Evidence(
        max(grows.values()) <= FLAT,
        "from 3 parties a site to 10: "
        + ", ".join(f"{grown:.3f} ({name}, {sites:,})" for (name, sites), grown in grows.items()),
    )


def hierarchy_evens_out(results: Results) -> Evidence:
    """The way to the root grows slower than the tree: hs comes near as."""
    factors = _over(results, "hs", "as", "total")
    if len(factors) < 3:
        return Evidence(None, "fewer than three sizes of networks")
    ordered = [factors[sites] for sites in sorted(factors)]
    return Evidence(
        ordered == sorted(ordered, reverse=True) and ordered[-1] < 0.8 * ordered[0],
        f"hs over as {_by_sites(factors)}",
    )


def root_stays_busy(results: Results) -> Evidence:
    """At its root a hierarchy of any size is busier than peers anywhere."""
    factors = _over(results, "hs", "as", "worst_site")
    if len(factors) < 2:
        return Evidence(None, "one size of network only")
    return Evidence(min(factors.values()) >= 1.5, f"hs over as {_by_sites(factors)}")


def one_server_falls_behind(results: Results) -> Evidence:
    """The centralized architecture falls behind further as sites become more."""
    factors = _over(results, "ce", "as", "total")
    if len(factors) < 2:
        return Evidence(None, "one size of network only, or no single server")
    ordered = [factors[sites] for sites in sorted(factors)]
    return Evidence(
        ordered == sorted(ordered) and ordered[0] > 1, f"ce over as {_by_sites(factors)}"
    )


BEYOND_CLAIMS: Final = (
    Claim(
        "7a: the root's links are full first",
        "(Beyond the paper:) where most notifications are ignored, a link of the root of hs is the "
        "bottleneck.",
        "with the fewest parties as bears at least 1.5 times the load of hs, whose busiest link is "
        "one of the root in nine of ten runs",
        root_first,
    ),
    Claim(
        "7b: unless all is wanted",
        "(Beyond:) with a party for each site hs bears as much as as.",
        f"with {SITES} parties or more at least 90% of the load that as bears",
        alike_where_wanted,
    ),
    Claim(
        "7c: what waits there",
        "(Beyond:) between the loads that they bear, notifications wait in hs and not in as.",
        "at the greatest such load hs takes at least three times what it takes at the least load, "
        "as at most half more",
        latency_tells,
    ),
    Claim(
        "8a: delegation changes nothing found",
        "(Beyond:) parties find the same occurrences of patterns, whoever assembles them.",
        "as many in each run, and some",
        same_occurrences,
    ),
    Claim(
        "8b: delegation saves",
        "(Beyond:) where parties are few, servers that assemble patterns save notifications.",
        "with the fewest parties aa pays at least 1.5 times as much for notifications",
        delegation_saves,
    ),
    Claim(
        "8c: delegation of many",
        "(Beyond:) events are shared by parties and occurrences are not, so with many parties "
        "less is saved.",
        "with the most parties less is saved than with the fewest, and with one object delegation "
        "costs more",
        delegation_of_many,
    ),
    Claim(
        "9a: saturation moves along",
        "(Beyond:) saturation comes with so many parties a site, however many sites.",
        f"from 3 parties a site to 10, hs, as and aa grow to at most {FLAT:.0%}",
        saturation_moves,
    ),
    Claim(
        "9b: hierarchies even out",
        "(Beyond:) what hs costs more than as matters less among more sites.",
        "with a party a site, hs over as falls with every size, to less than 80% of the first",
        hierarchy_evens_out,
    ),
    Claim(
        "9c: but for the root",
        "(Beyond:) at every size the root of hs is busier than any site of as.",
        "with a party a site, at least 1.5 times",
        root_stays_busy,
        "It is just missed among 10,000 sites. Ten objects publish 200 notifications at any size, "
        "and what most of them cost in vain is nearly the same in hs among 1,000 sites and among "
        "10,000; what the busiest site of as pays grows on.",
    ),
    Claim(
        "9d: one server, many sites",
        "(Beyond:) the more sites, the further the centralized architecture is behind.",
        "with a party a site, ce over as is above 1 and grows with every size",
        one_server_falls_behind,
    ),
)
